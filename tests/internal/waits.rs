//! Promotions of jobs that wait for one event.

use crate::db::conn::connection::AsConn;
use crate::db::internal_tests::db::{TestDb, execute, on_each_database, texts};
use crate::db::internal_tests::interleavings::world::row;
use crate::db::table::flows::waits::{self, NewWait};
use crate::db::transition::flows::wake;
use crate::db::transition::{enqueue, promote};
use std::time::Duration;

on_each_database!(a_promotion_passes_waits_that_it_cannot_end);

/// On Postgres another transaction has locked them; on SQLite another program has moved their jobs.
fn a_promotion_passes_waits_that_it_cannot_end(db: &TestDb) {
    let (mut connection, mut other) = (db.connect(), db.connect());
    let conn = &mut connection.as_conn();
    let rows: Vec<_> = (0..601).map(|_| row()).collect();
    let jobs = enqueue::insert_all(conn, &rows).unwrap();
    execute(conn, "DELETE FROM solid_queue_ready_executions");
    let wait = |job_id| NewWait {
        job_id,
        claim_id: job_id,
        step: "paid",
        event: "paid/1",
        timeout: Duration::from_secs(86_400),
    };
    let all: Vec<_> = jobs.iter().map(|job| wait(job.id)).collect();
    waits::park_for_events(conn, &all).unwrap();
    let first_600 = format!(
        "solid_queue_blocked_executions WHERE job_id < {}",
        jobs[600].id
    );
    execute(
        &mut other.as_conn(),
        &match db.is_postgres() {
            true => format!("BEGIN; SELECT id FROM {first_600} FOR UPDATE"),
            false => format!("DELETE FROM {first_600}"),
        },
    );
    assert!(wake::emit(conn, "paid/1", "7").unwrap());
    promote::promote(conn, 10).unwrap();
    let ready = "SELECT CAST(job_id AS text) AS t FROM solid_queue_ready_executions";
    assert_eq!(texts(conn, ready), [jobs[600].id.to_string()]);
    if db.is_postgres() {
        execute(&mut other.as_conn(), "COMMIT");
        while promote::promote(conn, 10).unwrap().is_progress(10) {}
        assert_eq!(texts(conn, ready).len(), 601);
    }
}
