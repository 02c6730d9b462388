//! Programs that enqueue through several drivers at once, and are killed all the time.
//!
//! `WINDLASS_TEST_STORM` names the program, which is built of `tests/drivers/storm`, and `WINDLASS_TEST_STORM_JOBS` the
//! number of jobs.

use crate::on_each_durable_database;
use crate::support::TestDb;
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

on_each_durable_database!(killed_programs_lose_and_double_no_job,);

const ON_SQLITE: &[&str] = &["diesel", "diesel-async", "rusqlite", "sqlx-0.9"];
const ON_POSTGRES: &[&str] = &[
    "diesel",
    "diesel-async",
    "sqlx-0.8",
    "sqlx-0.9",
    "tokio-postgres",
];

/// The longest time that one transaction may take.
const DEADLINE: Duration = Duration::from_secs(120);

/// A program that enqueues the jobs with the keys `next` to `end - 1`.
struct Part<'a> {
    program: PathBuf,
    driver: &'a str,
    db: &'a TestDb,
    next: u64,
    end: u64,
    /// The id that the program has printed for each key, after its commit.
    ids: BTreeMap<u64, i64>,
    chance: fastrand::Rng,
    kills: u32,
}

/// A child that is killed when it is dropped.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Part<'_> {
    /// Starts the program again and again, until all its keys are committed.
    fn run(mut self) -> Self {
        while self.next < self.end {
            let (mut child, lines) = self.start();
            if self.is_due(&lines) {
                child.0.kill().unwrap();
                self.kills += 1;
                // It may have printed more.
                for line in lines {
                    self.note(&line);
                }
                child.0.wait().unwrap();
            } else {
                let driver = self.driver;
                assert!(child.0.wait().unwrap().success(), "{driver} has failed");
                assert_eq!(self.next, self.end, "{driver} has stopped early");
            }
        }
        self
    }

    fn start(&self) -> (Killed, Receiver<String>) {
        let numbers = [self.next, self.end - self.next].map(|number| number.to_string());
        let child = Command::new(&self.program)
            .args([self.driver, self.db.address()])
            .args(numbers)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn();
        let mut child = Killed(child.unwrap());
        let lines = lines(child.0.stdout.take().unwrap());
        (child, lines)
    }

    /// Waits for the moment of the kill: some time after some commits. Returns whether the program still runs then.
    fn is_due(&mut self, lines: &Receiver<String>) -> bool {
        for _ in 0..self.chance.u32(0..60) {
            match lines.recv_timeout(DEADLINE) {
                Ok(line) => self.note(&line),
                Err(RecvTimeoutError::Timeout) => panic!("{} does not get on", self.driver),
                Err(RecvTimeoutError::Disconnected) => return false,
            }
        }
        let end = Instant::now() + Duration::from_micros(self.chance.u64(0..20_000));
        loop {
            match lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(line) => self.note(&line),
                Err(RecvTimeoutError::Timeout) => return true,
                Err(RecvTimeoutError::Disconnected) => return false,
            }
        }
    }

    /// Notes the jobs of a transaction that is committed.
    fn note(&mut self, line: &str) {
        let mut numbers = line.split(' ');
        let first: u64 = numbers.next().unwrap().parse().unwrap();
        assert_eq!(first, self.next, "{}: {line}", self.driver);
        for id in numbers {
            self.ids.insert(self.next, id.parse().unwrap());
            self.next += 1;
        }
    }
}

fn lines(stdout: ChildStdout) -> Receiver<String> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let lines = BufReader::new(stdout).lines();
        lines
            .map_while(Result::ok)
            .try_for_each(|line| sender.send(line))
    });
    receiver
}

fn killed_programs_lose_and_double_no_job(db: &TestDb) {
    let Some(program) = std::env::var_os("WINDLASS_TEST_STORM").map(PathBuf::from) else {
        eprintln!("not tested: `bin/test all` builds the program that enqueues");
        return;
    };
    let jobs = std::env::var("WINDLASS_TEST_STORM_JOBS")
        .map_or(5_000, |jobs| jobs.parse::<u64>().unwrap());
    let drivers = match db.is_postgres() {
        true => ON_POSTGRES,
        false => ON_SQLITE,
    };
    let start = Instant::now();
    let parts: Vec<Part<'_>> = (0u64..)
        .zip(drivers)
        .map(|(place, driver)| {
            let count = u64::try_from(drivers.len()).unwrap();
            Part {
                program: program.clone(),
                driver,
                db,
                next: jobs * place / count,
                end: jobs * (place + 1) / count,
                ids: BTreeMap::new(),
                chance: fastrand::Rng::with_seed(7 + place),
                kills: 0,
            }
        })
        .collect();
    let parts: Vec<Part<'_>> = thread::scope(|scope| {
        let running: Vec<_> = parts
            .into_iter()
            .map(|part| scope.spawn(|| part.run()))
            .collect();
        let parts = running.into_iter().map(|part| part.join());
        parts.collect::<Result<_, _>>().unwrap()
    });
    for part in &parts {
        let (driver, kills) = (part.driver, part.kills);
        eprintln!("{driver}: {} jobs, {kills} kills", part.ids.len());
        assert!(kills > 0, "{driver} was never killed");
    }
    eprintln!("{jobs} jobs in {:?}", start.elapsed());
    are_all_once(db, parts.iter().flat_map(|part| &part.ids), jobs);
}

/// Each key has one job, with the id that its program was given, and each job is ready once.
fn are_all_once<'a>(db: &TestDb, ids: impl Iterator<Item = (&'a u64, &'a i64)>, jobs: u64) {
    let expected: BTreeMap<String, i64> =
        ids.map(|(key, id)| (format!("storm/{key}"), *id)).collect();
    let stored = db.texts(
        "SELECT coalesce(j.idempotency_key, '-') || ' ' || j.id || ' ' || count(e.job_id) AS t FROM solid_queue_jobs j \
         LEFT JOIN solid_queue_ready_executions e ON e.job_id = j.id GROUP BY j.id, j.idempotency_key",
    );
    let mut found: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
    let mut not_ready = Vec::new();
    for row in &stored {
        let [key, id, ready] = row.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{row}")
        };
        found.entry(key).or_default().push(id.parse().unwrap());
        if ready != "1" {
            not_ready.push(row);
        }
    }
    let lost = expected.keys().filter(|key| !found.contains_key(&key[..]));
    let lost: Vec<_> = lost.collect();
    let doubled: Vec<_> = found.iter().filter(|(_, ids)| ids.len() > 1).collect();
    eprintln!("{} lost, {} doubled", lost.len(), doubled.len());
    assert!(lost.is_empty(), "lost: {lost:?}");
    assert!(doubled.is_empty(), "doubled: {doubled:?}");
    assert!(not_ready.is_empty(), "not ready once: {not_ready:?}");
    assert_eq!(
        u64::try_from(stored.len()),
        Ok(jobs),
        "jobs that were not acknowledged"
    );
    assert_eq!(db.rows("ready_executions"), db.rows("jobs"));
    for (key, id) in &expected {
        assert_eq!(found[&key[..]], [*id], "{key}");
    }
}
