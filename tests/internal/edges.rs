//! What should not happen: times that no calendar has, rows that are not there.

use super::checks;
use super::db::{TestDb, execute, on_each_database};
use super::interleavings::world::{World, row, take};
use crate::db::claimed;
use crate::db::recovery::Death;
use crate::db::{AsConn, processes};
use std::time::Duration;

fn an_endless_delay_of_a_release_is_long(db: &TestDb) {
    let mut connection = db.connect();
    let conn = &mut connection.as_conn();
    let mut world = World::default();
    world.process(conn);
    world.claimed(conn, 1, &row());
    let released = claimed::release(conn, world.processes[0], &world.claims, Some(Duration::MAX));
    assert_eq!(released.unwrap(), world.claims);
    assert_waiting(&checks::jobs(conn), 1);
    assert_eq!(take(conn, world.processes[0], 1).unwrap(), Some(Vec::new()));
}

/// A job that somebody deletes by hand while it runs leaves nothing behind.
fn a_claim_without_a_job_goes_with_its_process(db: &TestDb) {
    let mut connection = db.connect();
    let conn = &mut connection.as_conn();
    let mut world = World::default();
    world.process(conn);
    world.claimed(conn, 1, &row());
    world.claimed(conn, 1, &row());
    let delete = format!("DELETE FROM solid_queue_jobs WHERE id = {}", world.jobs[0]);
    execute(conn, &delete);
    let death = Death {
        is_crash: true,
        how: "was killed by signal 9".to_owned(),
    };
    let recovered = processes::prune(conn, world.processes[0], None, &death).unwrap();
    assert_eq!(recovered.unwrap().released, [world.jobs[1]]);
    assert_eq!(checks::violations(conn), Vec::<String>::new());
}

fn assert_waiting(rows: &[checks::JobRow], count: usize) {
    assert_eq!(rows.len(), count);
    for row in rows {
        assert!(row.place == "scheduled" && !row.due, "{row:?}");
    }
}

on_each_database!(
    an_endless_delay_of_a_release_is_long,
    a_claim_without_a_job_goes_with_its_process,
);
