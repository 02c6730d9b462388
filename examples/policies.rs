//! The outcomes of jobs when things go wrong, with nothing installed:
//!
//! ```text
//! cargo run --example policies -- [--users N] [--kill-at N]
//! ```
//!
//! 1. One job notifies 10,000 users, a step each. Its worker process is killed
//!    with SIGKILL at about the 600th; another one goes on with the next user.
//! 2. A job fails twice, and succeeds at its third attempt.
//! 3. A job never ends; when its time is over, its process is ended by force.
//!
//! Each tells how it went in one line on standard output:
//!
//! ```text
//! users: 10000  notified: 10000  notified twice: 0  killed after: 603  resumed at: 604
//! failed attempts: 2 (the other side is busy; the other side is busy)  succeeded after: 0.4 s
//! timed out: 1  ended after: 0.8 s  other jobs blamed: 0
//! ```
//!
//! The exit code is 0 when nobody was left out or notified twice, and 1
//! otherwise.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "it is a program")]
#![expect(clippy::disallowed_methods, reason = "it is no loop of the framework")]

use diesel::prelude::*;
use diesel::sql_types::BigInt;
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use windlass::jobs::Attempt;
use windlass::policies::OnTimeout;
use windlass::{
    Backoff, Child, Context, Database, DbConnection, Dispatcher, Job, JobError, JobId, JobResult,
    Policy, Registry, Supervisor, Worker,
};

type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

/// Notifies the users 1 to `users`.
#[derive(Serialize, Deserialize)]
struct NotifyAll {
    users: i64,
}

impl Job for NotifyAll {
    const NAME: &'static str = "notify_all";
    type State = Home;
    type Output = ();

    fn perform(self, cx: &Context<'_, Home>) -> JobResult {
        let mut conn = cx.connection()?;
        for user in 1..=self.users {
            if user > self.users / 2 {
                // On a busy machine the kill might come too late.
                cx.wait_for_the_kill(|| cx.sleep(Duration::from_millis(10)))?;
            }
            cx.step(&mut conn, &format!("user {user}"), |conn| {
                diesel::sql_query("INSERT INTO notifications (user_id, claim_id) VALUES (?, ?)")
                    .bind::<BigInt, _>(user)
                    .bind::<BigInt, _>(cx.claim_id())
                    .execute(conn.sqlite()?)?;
                Ok(())
            })?;
            cx.progress(
                100.0 * user as f64 / self.users as f64,
                format!("user {user}"),
            );
        }
        Ok(())
    }
}

/// Fails until its third attempt.
#[derive(Serialize, Deserialize)]
struct Flaky;

impl Job for Flaky {
    const NAME: &'static str = "flaky";
    type State = Home;
    type Output = ();

    fn policy() -> Policy {
        Policy::new()
            .max_attempts(3)
            .backoff(Backoff::Fixed(Duration::from_millis(100)))
    }

    /// Better than any back-off: what the error itself says.
    fn retry_in(attempt: u32, error: &JobError) -> Option<Duration> {
        let is_busy = error.message().contains("busy");
        is_busy.then(|| Duration::from_millis(100) * attempt)
    }

    fn perform(self, cx: &Context<'_, Home>) -> JobResult {
        match cx.attempt() {
            1 | 2 => Err("the other side is busy".into()),
            _ => Ok(()),
        }
    }
}

/// Never ends, and never asks whether it should.
#[derive(Serialize, Deserialize)]
struct Endless;

impl Job for Endless {
    const NAME: &'static str = "endless";
    type State = Home;
    type Output = ();

    fn policy() -> Policy {
        Policy::new()
            .max_attempts(5)
            .timeout(Duration::from_millis(400))
            .timeout_grace(Duration::from_millis(200))
            .on_timeout(OnTimeout::Fail)
    }

    fn perform(self, _cx: &Context<'_, Home>) -> JobResult {
        loop {
            std::hint::spin_loop();
        }
    }
}

/// The directory that the processes share.
struct Home(PathBuf);

impl Home {
    fn database(&self) -> Result<Database> {
        let path = self.0.join("jobs.db");
        let path = path.to_str().ok_or("TMPDIR must be UTF-8")?;
        Ok(Database::open(&format!("sqlite://{path}"))?)
    }

    fn killed(&self) -> PathBuf {
        self.0.join("killed")
    }

    fn wait_for_the_kill<E>(&self, mut pause: impl FnMut() -> Result<(), E>) -> Result<(), E> {
        while !self.killed().exists() {
            pause()?;
        }
        Ok(())
    }
}

const WORKER: &str = "--as-worker";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match arguments[..] {
        // The program runs itself again with these arguments.
        [WORKER, home] => work(home),
        _ => Numbers::read(&arguments).and_then(run),
    };
    done.unwrap_or_else(|error| {
        eprintln!("policies: {error}");
        ExitCode::FAILURE
    })
}

struct Numbers {
    users: i64,
    kill_at: i64,
}

impl Numbers {
    fn read(arguments: &[&str]) -> Result<Self> {
        let mut numbers = Numbers {
            users: 10_000,
            kill_at: 600,
        };
        for pair in arguments.chunks(2) {
            match *pair {
                ["--users", count] => numbers.users = count.parse()?,
                ["--kill-at", user] => numbers.kill_at = user.parse()?,
                _ => return Err("usage: policies [--users N] [--kill-at N]".into()),
            }
        }
        if !(1..=numbers.users / 2).contains(&numbers.kill_at) {
            return Err("the kill must come in the first half".into());
        }
        Ok(numbers)
    }
}

fn registry(home: &Path) -> Registry {
    let home = || Home(home.to_owned());
    Registry::new()
        .register::<NotifyAll>(home())
        .register::<Flaky>(home())
        .register::<Endless>(home())
}

/// Runs a worker process until its supervisor is gone.
fn work(home: &str) -> Result<ExitCode> {
    let database = Home(home.into()).database()?;
    let stopped = Worker::new(&database, registry(home.as_ref()))
        .threads(2)
        .shutdown_timeout(Duration::from_secs(5))
        .run()?;
    Ok(stopped.exit_code())
}

fn run(numbers: Numbers) -> Result<ExitCode> {
    let directory = tempfile::Builder::new()
        .prefix("windlass-policies-")
        .tempdir()?;
    let home = Home(directory.path().to_owned());
    let database = home.database()?;
    database.migrate()?;
    let conn = &mut database.connect()?;
    diesel::sql_query(
        "CREATE TABLE notifications (user_id bigint NOT NULL, claim_id bigint NOT NULL)",
    )
    .execute(conn.sqlite()?)?;
    let path = directory.path().as_os_str();
    let _supervisor = Supervisor::new(&database)
        .child(Child::this_program([WORKER.as_ref(), path])?)
        .dispatcher(Dispatcher::new(&database).polling_interval(Duration::from_millis(50)))
        .start()?;
    let is_well = notify_all(conn, &home, &numbers)?;
    retry(conn)?;
    time_out(conn)?;
    Ok(ExitCode::from(u8::from(!is_well)))
}

/// The job over all users, and the kill.
fn notify_all(conn: &mut DbConnection, home: &Home, numbers: &Numbers) -> Result<bool> {
    let users = numbers.users;
    NotifyAll { users }.enqueue(conn)?;
    let notified = "SELECT count(*) AS n FROM notifications";
    wait(|| Ok(count(conn, notified)? >= numbers.kill_at))?;
    let pid = worker(conn)?;
    kill_process(pid, Signal::KILL)?;
    eprintln!("killed the worker {}", pid.as_raw_nonzero());
    std::fs::write(home.killed(), "")?;
    wait(|| has_drained(conn))?;
    let notified = count(
        conn,
        "SELECT count(DISTINCT user_id) AS n FROM notifications",
    )?;
    let twice = count(conn, "SELECT count(*) AS n FROM notifications")? - notified;
    let killed = count(
        conn,
        "SELECT count(*) AS n FROM notifications WHERE claim_id = (SELECT min(claim_id) FROM notifications)",
    )?;
    let resumed = count(
        conn,
        "SELECT min(user_id) AS n FROM notifications WHERE claim_id = (SELECT max(claim_id) FROM notifications)",
    )?;
    println!(
        "users: {users}  notified: {notified}  notified twice: {twice}  killed after: {killed}  resumed at: {resumed}"
    );
    Ok(notified == users && twice == 0 && resumed == killed + 1)
}

/// The process that runs a job.
fn worker(conn: &mut DbConnection) -> Result<Pid> {
    let processes = windlass::processes::list(conn)?;
    let worker = processes.iter().find(|process| process.claimed > 0);
    let pid = worker.and_then(|worker| Pid::from_raw(worker.pid));
    pid.ok_or_else(|| "no worker runs the job".into())
}

fn attempts(conn: &mut DbConnection, job: JobId) -> Result<Vec<Attempt>> {
    let job = windlass::jobs::find(conn, job)?.ok_or("the job is not stored")?;
    Ok(job.attempts)
}

fn retry(conn: &mut DbConnection) -> Result<()> {
    let begun = Instant::now();
    let job = Flaky.enqueue(conn)?.id;
    wait(|| has_drained(conn))?;
    let failed = attempts(conn, job)?;
    let reasons: Vec<&str> = failed.iter().map(|failed| &*failed.message).collect();
    println!(
        "failed attempts: {} ({})  succeeded after: {:.1} s",
        failed.len(),
        reasons.join("; "),
        begun.elapsed().as_secs_f64(),
    );
    Ok(())
}

fn time_out(conn: &mut DbConnection) -> Result<()> {
    let begun = Instant::now();
    let job = Endless.enqueue(conn)?.id;
    wait(|| has_drained(conn))?;
    let timed_out = attempts(conn, job)?;
    let timed_out = timed_out.iter().filter(|attempt| attempt.kind == "timeout");
    let blamed = count(
        conn,
        "SELECT coalesce(sum(crash_count), 0) AS n FROM solid_queue_jobs",
    )?;
    println!(
        "timed out: {}  ended after: {:.1} s  other jobs blamed: {blamed}",
        timed_out.count(),
        begun.elapsed().as_secs_f64(),
    );
    Ok(())
}

/// Returns true if every job has come to an end.
fn has_drained(conn: &mut DbConnection) -> Result<bool> {
    let queues = windlass::queues::list(conn)?;
    let is_idle =
        |queue: &windlass::queues::QueueStatus| queue.ready + queue.scheduled + queue.claimed == 0;
    Ok(queues.iter().all(is_idle))
}

fn count(conn: &mut DbConnection, query: &str) -> Result<i64> {
    #[derive(QueryableByName)]
    struct Count {
        #[diesel(sql_type = BigInt)]
        n: i64,
    }
    let count: Count = diesel::sql_query(query).get_result(conn.sqlite()?)?;
    Ok(count.n)
}

/// Waits until something is so; an error when it takes too long.
fn wait(mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    let begun = Instant::now();
    while !is_so()? {
        if begun.elapsed() > Duration::from_secs(600) {
            return Err("it takes too long".into());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}
