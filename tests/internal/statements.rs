//! The number of statements that a transition sends, however many jobs it is about.

use crate::db::transition::end;
use crate::read::doctor;
use crate::read::doctor::scope::CheckScope;

use super::db::{TestDb, execute, on_each_database};
use crate::db::model::claim::FinishedRow;
use crate::db::model::decision::Death;
use crate::db::model::new_row::NewRow;
use crate::db::model::outcome::{ClaimEnd, Ending, JobFailure};
use crate::db::transition::{enqueue, prune};
use crate::db::{AsConn, Conn, DbConnection};
use crate::flows::FlowGraph;
use crate::{Batch, BatchId, NewJob};
use diesel::connection::{Connection as _, InstrumentationEvent};
use diesel::prelude::*;
use diesel::sql_types::BigInt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

on_each_database!(
    a_thousand_claims_are_recovered_by_few_statements,
    fifty_jobs_fail_by_few_statements,
    every_kind_of_ending_at_once_takes_few_statements,
    a_fleet_is_checked_by_as_many_statements_as_one_worker,
    a_wide_flow_is_read_by_as_many_statements_as_a_narrow_one,
);

#[derive(QueryableByName)]
struct Number {
    #[diesel(sql_type = BigInt)]
    n: i64,
}

pub(super) fn number(conn: &mut Conn<'_>, text: &str) -> i64 {
    let row: Number = crate::with_conn!(conn, |c| diesel::sql_query(text).get_result(c)).unwrap();
    row.n
}

/// Counts what is sent, but for BEGIN, COMMIT and savepoints.
fn counted(conn: &mut DbConnection, work: impl FnOnce(&mut Conn<'_>)) -> usize {
    let count = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&count);
    let note = move |event: InstrumentationEvent<'_>| {
        if let InstrumentationEvent::StartQuery { query, .. } = event {
            let text = query.to_string();
            let is_frame = ["BEGIN", "COMMIT", "SAVEPOINT", "RELEASE"];
            if !is_frame.iter().any(|word| text.starts_with(word)) {
                seen.fetch_add(1, Ordering::Relaxed);
            }
        }
    };
    match &mut conn.as_conn() {
        #[cfg(feature = "postgres")]
        Conn::Postgres(conn) => conn.set_instrumentation(note),
        #[cfg(feature = "sqlite")]
        Conn::Sqlite(conn) => conn.set_instrumentation(note),
    }
    work(&mut conn.as_conn());
    count.load(Ordering::Relaxed)
}

/// A process with so many claims, begun a moment ago.
fn claimed(conn: &mut DbConnection, jobs: i64, policy: Option<&str>) {
    let row = |number: i64| NewRow {
        unique_id: (number % 7 == 0).then(|| format!("u{number}")),
        policy: policy.map(str::to_owned),
        ..NewRow::new("job".to_owned(), "{}".to_owned(), "q".to_owned(), 0)
    };
    let rows: Vec<NewRow> = (0..jobs).map(row).collect();
    enqueue::insert_all(&mut conn.as_conn(), &rows).unwrap();
    for text in [
        "INSERT INTO solid_queue_processes (id, kind, last_heartbeat_at, pid, name, created_at, heartbeat_seq) \
         VALUES (9, 'Worker', CURRENT_TIMESTAMP, 1, 'w', CURRENT_TIMESTAMP, 1)",
        "INSERT INTO solid_queue_claimed_executions (id, job_id, process_id, created_at, started_at) \
         SELECT id, job_id, 9, CURRENT_TIMESTAMP, CURRENT_TIMESTAMP FROM solid_queue_ready_executions",
        "DELETE FROM solid_queue_ready_executions",
    ] {
        execute(&mut conn.as_conn(), text);
    }
}

fn a_thousand_claims_are_recovered_by_few_statements(db: &TestDb) {
    let mut conn = db.database.connect().unwrap();
    claimed(&mut conn, 1_000, None);
    // Some crash for the second time, some for the last time, some were
    // cancelled, some may run at most once.
    for text in [
        "UPDATE solid_queue_jobs SET crash_count = id % 5",
        "UPDATE solid_queue_jobs SET at_most_once = true WHERE id % 11 = 0",
        "UPDATE solid_queue_claimed_executions SET cancel_requested_at = CURRENT_TIMESTAMP WHERE id % 13 = 0",
    ] {
        execute(&mut conn.as_conn(), text);
    }
    let death = Death {
        is_crash: true,
        how: "was killed".to_owned(),
    };
    let sent = counted(&mut conn, |conn| {
        let recovered = prune::prune(conn, 9, None, &death).unwrap().unwrap();
        let all = recovered.released.len()
            + recovered.delayed.len()
            + recovered.failed.len()
            + recovered.cancelled.len();
        assert_eq!(all, 1_000);
        let most = [&recovered.released, &recovered.delayed, &recovered.failed];
        assert!(most.iter().all(|jobs| jobs.len() > 100), "{most:?}");
    });
    eprintln!("a prune of 1,000 claims: {sent} statements");
    assert!(sent <= 20, "{sent} statements");
    assert_eq!(
        number(
            &mut conn.as_conn(),
            "SELECT count(*) AS n FROM solid_queue_claimed_executions"
        ),
        0
    );
}

fn a_fleet_is_checked_by_as_many_statements_as_one_worker(db: &TestDb) {
    let mut conn = db.database.connect().unwrap();
    claimed(&mut conn, 100, None);
    let checked = |conn: &mut DbConnection| {
        counted(conn, |conn| {
            doctor::check(conn, CheckScope::All).map(drop).unwrap();
        })
    };
    let of_one = checked(&mut conn);
    for text in [
        "INSERT INTO solid_queue_processes (id, kind, last_heartbeat_at, pid, name, created_at, heartbeat_seq) \
         SELECT 100 + id, 'Worker', CURRENT_TIMESTAMP, 1, 'w' || id, CURRENT_TIMESTAMP, 1 FROM solid_queue_jobs",
        "UPDATE solid_queue_claimed_executions SET process_id = 100 + job_id",
    ] {
        execute(&mut conn.as_conn(), text);
    }
    assert_eq!(checked(&mut conn), of_one);
}

fn fifty_jobs_fail_by_few_statements(db: &TestDb) {
    let mut conn = db.database.connect().unwrap();
    let policy = r#"{"on_failure":{"class":"told","queue":"q","priority":0}}"#;
    claimed(&mut conn, 50, Some(policy));
    let failure = Ending::Fail(JobFailure::new("kind", "message"));
    let first = number(
        &mut conn.as_conn(),
        "SELECT min(id) AS n FROM solid_queue_claimed_executions",
    );
    let ends: Vec<ClaimEnd<'_>> = (first..first + 50)
        .map(|claim| of_a_second(claim, &failure))
        .collect();
    let sent = counted(&mut conn, |conn| {
        let ended = end::end_all(conn, 9, &ends, FinishedRow::Keep).unwrap();
        assert_eq!(ended.len(), 50);
    });
    eprintln!("50 failures, each with a follow-up: {sent} statements");
    assert!(sent <= 15, "{sent} statements");
    let failed = "SELECT count(*) AS n FROM solid_queue_failed_executions";
    assert_eq!(number(&mut conn.as_conn(), failed), 50);
    let told = "SELECT count(*) AS n FROM solid_queue_ready_executions";
    assert_eq!(number(&mut conn.as_conn(), told), 50);
}

fn of_a_second(claim_id: i64, ending: &Ending) -> ClaimEnd<'_> {
    ClaimEnd {
        claim_id,
        ending,
        ran: Duration::from_secs(1),
        last_retry: None,
    }
}

fn every_kind_of_ending_at_once_takes_few_statements(db: &TestDb) {
    let mut conn = db.database.connect().unwrap();
    claimed(&mut conn, 60, None);
    let failure = || JobFailure::new("kind", "message");
    let kinds = [
        Ending::Fail(failure()),
        Ending::Retry(failure(), Duration::from_secs(60)),
        Ending::Discard(failure()),
        Ending::Cancel(failure()),
        Ending::Snooze(Duration::from_secs(60)),
        Ending::Release("stop".to_owned(), None),
    ];
    let first = number(
        &mut conn.as_conn(),
        "SELECT min(id) AS n FROM solid_queue_claimed_executions",
    );
    for finished in [FinishedRow::Keep, FinishedRow::Delete] {
        let from = if finished == FinishedRow::Keep {
            first
        } else {
            first + 30
        };
        let ends: Vec<ClaimEnd<'_>> = (from..from + 30)
            .zip(kinds.iter().cycle())
            .map(|(claim, ending)| of_a_second(claim, ending))
            .collect();
        let sent = counted(&mut conn, |conn| {
            let ended = end::end_all(conn, 9, &ends, finished).unwrap();
            assert_eq!(ended.len(), 30);
        });
        eprintln!("30 endings of six kinds, {finished:?}: {sent} statements");
        assert!(sent <= 25, "{sent} statements");
    }
    for (table, rows) in [("failed", 10), ("scheduled", 20), ("ready", 10)] {
        let text = format!("SELECT count(*) AS n FROM solid_queue_{table}_executions");
        assert_eq!(number(&mut conn.as_conn(), &text), rows, "{table}");
    }
}

/// A batch of so many jobs and batches, and as many jobs that wait for it.
fn fan(conn: &mut DbConnection, width: usize) -> BatchId {
    let job = || NewJob::of_class("part", "{}");
    let mut batch = Batch::new("fan").add((0..width).map(|_| job()));
    for _ in 0..width {
        batch = batch.add_batch(Batch::new("inner").add([job()]));
    }
    let batch = batch.enqueue(conn).unwrap().id;
    for _ in 0..width {
        job().after(batch).enqueue(conn).unwrap();
    }
    batch
}

fn a_wide_flow_is_read_by_as_many_statements_as_a_narrow_one(db: &TestDb) {
    let mut conn = db.database.connect().unwrap();
    let mut read = |width: usize| {
        let batch = fan(&mut conn, width);
        // One is not kept any more.
        execute(
            &mut conn.as_conn(),
            "DELETE FROM solid_queue_jobs WHERE id = (SELECT max(id) FROM solid_queue_jobs)",
        );
        counted(&mut conn, |conn| {
            let graph = FlowGraph::around(conn, batch).unwrap();
            assert_eq!((graph.nodes.len(), graph.is_cut), (2 * width + 1, false));
        })
    };
    let (narrow, wide) = (read(2), read(90));
    eprintln!("a flow of 181 jobs and batches: {wide} statements");
    assert_eq!(narrow, wide);
    assert!(wide <= 20, "{wide} statements");
}
