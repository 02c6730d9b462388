//! The costs of a plain job that do not depend on the machine: statements, with BEGIN and COMMIT as two of them, and rows
//! that are inserted, updated or deleted. `costs.txt` holds them: a change that makes a job dearer, or cheaper, changes
//! that file.

use super::db::{TestDb, execute, on_each_database};
use super::statements::number;
use crate::db::model::claim::{Begins, ClaimQueues, ClaimRequest, Claims, FinishedRow};
use crate::db::model::decision::KeySlots;
use crate::db::model::new_row::NewRow;
use crate::db::transition::{claim, enqueue, finish};
use crate::db::{AsConn as _, Conn, DbConnection};
use diesel::connection::{Connection as _, InstrumentationEvent};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

on_each_database!(a_plain_job_costs_what_the_file_says);

const COSTS: &str = include_str!("costs.txt");

fn rows(count: usize) -> Vec<NewRow> {
    let row = |number: usize| NewRow::new("job".to_owned(), number.to_string(), "q".to_owned(), 0);
    (0..count).map(row).collect()
}

/// Returns how many rows `work` writes, in a transaction.
fn written(conn: &mut DbConnection, work: impl FnOnce(&mut Conn<'_>)) -> i64 {
    let text = match conn.as_conn() {
        Conn::Postgres(_) => {
            "SELECT coalesce(sum(n_tup_ins + n_tup_upd + n_tup_del), 0)::bigint AS n FROM pg_stat_xact_user_tables"
        }
        Conn::Sqlite(_) => "SELECT total_changes() AS n",
    };
    let written = conn.as_conn().transaction(|conn| {
        let before = number(conn, text);
        work(conn);
        diesel::QueryResult::Ok(number(conn, text) - before)
    });
    written.unwrap()
}

/// Counts the statements of `work`.
fn statements(conn: &mut DbConnection, work: impl FnOnce(&mut Conn<'_>)) -> usize {
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

struct Measured<'d> {
    db: &'d TestDb,
    lines: Vec<String>,
}

impl Measured<'_> {
    /// Adds a line with the costs of `work` on a connection that has done the same before, as a loop has.
    fn measure(&mut self, what: &str, mut work: impl FnMut(&mut Conn<'_>)) {
        let mut conn = self.db.database.connect().unwrap();
        work(&mut conn.as_conn());
        let statements = statements(&mut conn, &mut work);
        let written = written(&mut conn, &mut work);
        let dialect = format!("{:?}", conn.as_conn().dialect());
        let line = format!("{dialect:<9} {what:<24} {statements:>3} statements {written:>5} rows");
        self.lines.push(line);
    }
}

fn a_plain_job_costs_what_the_file_says(db: &TestDb) {
    let lines = Vec::new();
    let mut measured = Measured { db, lines };
    measured.measure("enqueue 1", |conn| {
        enqueue::insert_job(conn, &rows(1)[0]).unwrap();
    });
    measured.measure("enqueue 1,000", |conn| {
        enqueue::insert_all(conn, &rows(1_000)).unwrap();
    });
    let process = 9;
    let registered = "INSERT INTO solid_queue_processes (id, kind, last_heartbeat_at, pid, name, created_at, heartbeat_seq) \
         VALUES (9, 'Worker', CURRENT_TIMESTAMP, 1, 'w', CURRENT_TIMESTAMP, 1)";
    execute(&mut db.database.connect().unwrap().as_conn(), registered);
    measured.measure("claim 1", |conn| drop(claim_some(conn, process, 1)));
    measured.measure("claim 100", |conn| drop(claim_some(conn, process, 100)));
    for (name, finished) in [
        ("kept", FinishedRow::Keep),
        ("deleted", FinishedRow::Delete),
    ] {
        measured.measure(&format!("claim, end 100, {name}"), |conn| {
            let claims = claim_some(conn, process, 100);
            let ended = finish::finish(conn, process, &claims, finished, KeySlots::Free);
            assert_eq!(ended.unwrap().len(), 100);
        });
    }
    let lines = measured.lines;
    let dialect = lines[0].split(' ').next().unwrap();
    let kept: Vec<&str> = COSTS
        .lines()
        .filter(|line| line.starts_with(dialect))
        .collect();
    assert_eq!(
        lines,
        kept,
        "put these into tests/internal/costs.txt:\n{}",
        lines.join("\n")
    );
}

fn claim_some(conn: &mut Conn<'_>, process_id: i64, max_jobs: usize) -> Vec<i64> {
    let request = ClaimRequest {
        process_id,
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
