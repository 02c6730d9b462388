//! The costs of a plain job that do not depend on the machine. `costs.txt` holds them: a change that makes a job dearer, or
//! cheaper, changes that file.
//!
//! - Statements, with BEGIN and COMMIT as two of them: each is one round trip. Rows that are inserted, updated or deleted.
//!   Both are exact, and compared by every run.
//! - Allocations of the process, and bytes of log: those of a statement on a server that does nothing else, or the pages of
//!   a SQLite file. Instructions of the process, as compiled for tests, by valgrind. All of these within some percent, as
//!   the compiler and the libraries have a part in them.
//!
//! These take long, and need a server of their own: `bin/test all` has it, and says so by `WINDLASS_TEST_COSTS`.

use super::db::{TestDb, execute, on_each_database};
use super::statements::number;
use crate::db::model::claim::{Begins, ClaimQueues, ClaimRequest, Claims, FinishedRow};
use crate::db::model::decision::KeySlots;
use crate::db::model::new_row::NewRow;
use crate::db::transition::{claim, enqueue, finish};
use crate::db::{AsConn as _, Conn, Database, DbConnection};
use crate::laboratory::allocations;
use crate::laboratory::per_job::Crew;
use crate::{Context, Job, JobResult, NewJob, Registry};
use diesel::connection::{Connection as _, InstrumentationEvent};
use diesel::prelude::*;
use diesel::sql_types::Integer;
use serde::{Deserialize, Serialize};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

on_each_database!(a_plain_job_costs_what_the_file_says);

/// Read when a test runs, as its figures may change without the tests.
const COSTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/costs.txt");

/// The part of a figure by which it may differ from the file, in percent.
fn tolerance(figure: &str) -> u64 {
    match figure {
        "statements" | "rows" => 0,
        _ => 3,
    }
}

// --- The works ---

type Work = fn(&mut Conn<'_>);

const WORKS: [(&str, Work); 6] = [
    ("enqueue 1", |conn| {
        enqueue::insert_job(conn, &rows(1)[0]).unwrap();
    }),
    ("enqueue 1,000", |conn| {
        enqueue::insert_all(conn, &rows(1_000)).unwrap();
    }),
    ("claim 1", |conn| drop(claim_some(conn, 1))),
    ("claim 100", |conn| drop(claim_some(conn, 100))),
    ("claim, end 100, kept", |conn| {
        claim_and_end(conn, FinishedRow::Keep);
    }),
    ("claim, end 100, deleted", |conn| {
        claim_and_end(conn, FinishedRow::Delete);
    }),
];

fn rows(count: usize) -> Vec<NewRow> {
    let row = |number: usize| NewRow::new("job".to_owned(), number.to_string(), "q".to_owned(), 0);
    (0..count).map(row).collect()
}

const PROCESS: i64 = 9;

fn claim_some(conn: &mut Conn<'_>, max_jobs: usize) -> Vec<i64> {
    let request = ClaimRequest {
        process_id: PROCESS,
        queues: &ClaimQueues::All,
        classes: &["job".to_owned()],
        max_jobs,
        begins: Begins::NotCautious,
        from: &[],
        wanted_after: 0,
    };
    let Claims::Held { jobs, .. } = claim::claim(conn, &request).unwrap() else {
        panic!("the process is not registered");
    };
    assert_eq!(jobs.len(), max_jobs);
    jobs.iter().map(|job| job.claim_id).collect()
}

fn claim_and_end(conn: &mut Conn<'_>, finished: FinishedRow) {
    let claims = claim_some(conn, 100);
    let ended = finish::finish(conn, PROCESS, &claims, finished, KeySlots::Free);
    assert_eq!(ended.unwrap().len(), 100);
}

/// The threads of a worker, on their way from a claim to the outcomes.
const CREWS: [(&str, usize); 2] = [
    ("perform 100, 1 thread", 1),
    ("perform 100, 16 threads", 16),
];

#[derive(Serialize, Deserialize)]
struct Small {
    user: u64,
}

impl Job for Small {
    const NAME: &'static str = "small";
    type State = ();
    type Output = ();

    fn perform(self, _: &Context<'_, ()>) -> JobResult {
        Ok(())
    }
}

fn perform(threads: usize, times: u64) {
    let registry = Registry::new().register::<Small>(());
    let job = NewJob::new(&Small { user: 4_711 }).unwrap();
    let crew = Crew::start(registry, threads, vec![job]).unwrap();
    for _ in 0..times {
        drop(crew.dispatch(crew.claimed(100)));
    }
}

// --- The costs ---

/// Returns how many rows `work` writes, in a transaction.
fn written(conn: &mut DbConnection, work: Work) -> i64 {
    let text = match conn.as_conn() {
        Conn::Postgres(_) => {
            "SELECT coalesce(sum(n_tup_ins + n_tup_upd + n_tup_del), 0)::bigint AS n FROM pg_stat_xact_user_tables"
        }
        Conn::Sqlite(_) => "SELECT total_changes() AS n",
    };
    let written = conn.as_conn().transaction(|conn| {
        let before = number(conn, text);
        work(conn);
        QueryResult::Ok(number(conn, text) - before)
    });
    written.unwrap()
}

/// Counts the statements of `work`.
fn statements(conn: &mut DbConnection, work: Work) -> usize {
    let count = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&count);
    let note = move |event: InstrumentationEvent<'_>| {
        if let InstrumentationEvent::StartQuery { .. } = event {
            seen.fetch_add(1, Ordering::Relaxed);
        }
    };
    match &mut conn.as_conn() {
        Conn::Postgres(conn) => conn.set_instrumentation(note),
        Conn::Sqlite(conn) => conn.set_instrumentation(note),
    }
    work(&mut conn.as_conn());
    let count = count.load(Ordering::Relaxed);
    match &mut conn.as_conn() {
        Conn::Postgres(conn) => conn.set_instrumentation(|_: InstrumentationEvent<'_>| {}),
        Conn::Sqlite(conn) => conn.set_instrumentation(|_: InstrumentationEvent<'_>| {}),
    }
    count
}

#[derive(QueryableByName)]
struct Checkpoint {
    #[diesel(sql_type = Integer)]
    log: i32,
}

/// Returns how many bytes of log `work` writes, on an average of ten.
fn logged(conn: &mut DbConnection, work: Work) -> Option<u64> {
    const TIMES: i64 = 10;
    const POSITION: &str =
        "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint AS n";
    let many = |conn: &mut Conn<'_>| (0..TIMES).for_each(|_| work(conn));
    if !is_thorough() {
        return None;
    }
    let mut conn = conn.as_conn();
    let bytes = match &mut conn {
        Conn::Postgres(_) => {
            let before = number(&mut conn, POSITION);
            many(&mut conn);
            number(&mut conn, POSITION) - before
        }
        Conn::Sqlite(_) => {
            execute(&mut conn, "PRAGMA wal_checkpoint(TRUNCATE)");
            many(&mut conn);
            let Conn::Sqlite(conn) = conn else {
                return None;
            };
            let log = diesel::sql_query("PRAGMA wal_checkpoint(PASSIVE)");
            let log: Checkpoint = log.get_result(conn).unwrap();
            4_096 * i64::from(log.log)
        }
    };
    u64::try_from(bytes / TIMES).ok()
}

/// Returns whether the server is for this test alone, and there is time for all.
fn is_thorough() -> bool {
    std::env::var_os("WINDLASS_TEST_COSTS").is_some()
}

// --- Costs of a process of its own ---

/// The variable with the part that another process of this program plays: a work, how often, and the database.
const PART: &str = "WINDLASS_TEST_COSTS_PART";

/// Other processes of this program begin here.
#[test]
fn plays_a_part() {
    let Ok(part) = std::env::var(PART) else {
        return;
    };
    let [name, times, url] = part.split('|').collect::<Vec<_>>()[..] else {
        panic!("{part}")
    };
    let times: u64 = times.parse().unwrap();
    let before = allocations::of_all_threads();
    if let Some((_, threads)) = CREWS.iter().find(|(crew, _)| *crew == name) {
        perform(*threads, times);
    }
    if let Some((_, work)) = WORKS.iter().find(|(work, _)| *work == name) {
        let mut connection = Database::open(url).unwrap().connect().unwrap();
        (0..times).for_each(|_| work(&mut connection.as_conn()));
    }
    eprintln!("Allocated : {}", allocations::of_all_threads() - before);
}

/// Lets another process do a work so many times, and returns the number that it tells after a word.
fn told(program: &[&str], part: &str, word: &str) -> Option<u64> {
    let this = std::env::current_exe().unwrap();
    let test = "db::internal_tests::costs::plays_a_part";
    let mut words = program
        .iter()
        .map(|word| (*word).into())
        .collect::<Vec<_>>();
    words.extend([
        this.into_os_string(),
        "--exact".into(),
        "--nocapture".into(),
        test.into(),
    ]);
    let mut command = Command::new(&words[0]);
    let output = command.args(&words[1..]).env(PART, part).output().ok()?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{part}: {text}");
    let line = text.lines().find_map(|line| line.split_once(word))?;
    line.1.trim_matches([' ', ':']).parse().ok()
}

/// Returns what the work costs each time, without the start of the process.
fn of_each(program: &[&str], name: &str, url: &str, word: &str) -> Option<u64> {
    const TIMES: u64 = 10;
    let [few, many] =
        [2, 2 + TIMES].map(|times| told(program, &format!("{name}|{times}|{url}"), word));
    Some(many?.saturating_sub(few?) / TIMES)
}

fn instructions(name: &str, url: &str) -> Option<u64> {
    const VALGRIND: [&str; 3] = [
        "valgrind",
        "--tool=callgrind",
        "--callgrind-out-file=/dev/null",
    ];
    if !is_thorough() {
        return None;
    }
    let each = of_each(&VALGRIND, name, url, "Collected");
    if each.is_none() {
        eprintln!("NOT MEASURED: the instructions of {name}, for which valgrind is needed");
    }
    each
}

// --- The comparison with the file ---

/// The figures of a work: `None` if one is not measured here.
type Figures = [(&'static str, Option<u64>); 5];

/// Returns a line of the file. What is not measured is as in the line that is there.
fn line(name: &str, figures: Figures, kept: &str) -> String {
    let of = |name: &str| kept_figure(kept, name);
    let figures = figures
        .iter()
        .filter_map(|(name, value)| Some(format!(" {:>9} {name}", value.or(of(name))?)));
    format!("{name:<33}{}", figures.collect::<String>())
}

fn kept_figure(line: &str, name: &str) -> Option<u64> {
    let mut words = line.get(33..)?.split_whitespace();
    while let (Some(value), Some(word)) = (words.next(), words.next()) {
        if word == name {
            return value.parse().ok();
        }
    }
    None
}

/// Returns whether the figures are those of a line of the file.
fn is_as(kept: &str, figures: Figures) -> bool {
    figures
        .iter()
        .all(|(name, value)| match (value, kept_figure(kept, name)) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(value), Some(kept)) => value.abs_diff(kept) * 100 <= kept * tolerance(name),
        })
}

/// Compares figures with the lines of the file that start with these names.
fn compare(measured: &[(String, Figures)]) {
    let costs = std::fs::read_to_string(COSTS).unwrap();
    let kept = |name: &str| {
        let mut lines = costs.lines();
        lines.find(|line| line.get(..33).is_some_and(|start| start.trim_end() == name))
    };
    let lines = measured
        .iter()
        .map(|(name, figures)| line(name, *figures, kept(name).unwrap_or_default()));
    let lines: Vec<String> = lines.collect();
    let are_same = measured
        .iter()
        .all(|(name, figures)| kept(name).is_some_and(|line| is_as(line, *figures)));
    assert!(
        are_same,
        "put these into tests/internal/costs.txt:\n{}",
        lines.join("\n")
    );
}

fn a_plain_job_costs_what_the_file_says(db: &TestDb) {
    let mut conn = db.database.connect().unwrap();
    let registered = "INSERT INTO solid_queue_processes (id, kind, last_heartbeat_at, pid, name, created_at, heartbeat_seq) \
         VALUES (9, 'Worker', CURRENT_TIMESTAMP, 1, 'w', CURRENT_TIMESTAMP, 1)";
    execute(&mut conn.as_conn(), registered);
    (0..10).for_each(|_| WORKS[1].1(&mut conn.as_conn()));
    let mut measured = Vec::new();
    for (name, work) in WORKS {
        // As a loop does, which has done the same before.
        work(&mut conn.as_conn());
        let statements = statements(&mut conn, work) as u64;
        let rows = written(&mut conn, work).cast_unsigned();
        let before = allocations::of_all_threads();
        work(&mut conn.as_conn());
        let allocations = allocations::of_all_threads() - before;
        let figures = [
            ("statements", Some(statements)),
            ("rows", Some(rows)),
            ("allocations", is_thorough().then_some(allocations)),
            ("bytes", logged(&mut conn, work)),
            ("instructions", instructions(name, &db.url)),
        ];
        let dialect = format!("{:?}", conn.as_conn().dialect());
        measured.push((format!("{dialect:<9}{name}"), figures));
    }
    compare(&measured);
}

#[test]
fn a_thread_costs_what_the_file_says() {
    if !is_thorough() {
        return;
    }
    let this = ["env"];
    let measured = CREWS.map(|(name, _)| {
        let figures = [
            ("statements", None),
            ("rows", None),
            ("allocations", of_each(&this, name, "", "Allocated")),
            ("bytes", None),
            // Valgrind ends a program that asks for the time since the start of the host.
            ("instructions", None),
        ];
        (format!("{:<9}{name}", "Threads"), figures)
    });
    compare(&measured);
}
