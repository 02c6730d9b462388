//! Jobs of an ordered key: none overtakes another, and a job that waits for its next run keeps its
//! slot until it runs again or is moved, once.

use crate::db::conn::connection::Conn;
use crate::db::internal_tests::db::{TestDb, execute, on_each_database};
use crate::db::internal_tests::interleavings::Play;
use crate::db::internal_tests::interleavings::acts::*;
use crate::db::internal_tests::interleavings::world::{World, ordered};
use crate::db::model::claim::FinishedRow::Keep;
use crate::db::model::outcome::{Ending, JobFailure};
use crate::db::table::wanted_keys;
use std::collections::BTreeSet;

fn failing_for_now() -> Ending {
    Ending::Retry(JobFailure::new("test", "as told"), HOUR)
}

/// p1 holds j1, and with it the slot; j2 is blocked.
fn one_runs(conn: &mut Conn<'_>) -> World {
    let mut world = World::default();
    world.process(conn);
    world.claimed(conn, 1, &ordered());
    world.job(conn, &ordered());
    promote(conn, 10).unwrap();
    world
}

/// j1 waits for its next run, which is due; j2 is blocked, and their key is wanted.
fn one_waits(conn: &mut Conn<'_>) -> World {
    let world = one_runs(conn);
    end(conn, &world, (1, 1), &failing_for_now(), Keep).unwrap();
    execute(
        conn,
        "UPDATE solid_queue_scheduled_executions SET scheduled_at = '2000-01-01 00:00:00.000000'",
    );
    promote(conn, 10).unwrap();
    wanted_keys::request_promotion(conn, &BTreeSet::from(["a/k".to_owned()])).unwrap();
    world
}

/// p1 is idle; j1 and j2 are blocked.
fn two_blocked(conn: &mut Conn<'_>) -> World {
    let mut world = World::default();
    world.process(conn);
    world.job(conn, &ordered());
    world.job(conn, &ordered());
    world
}

fn fail_and_promote(db: &TestDb) {
    Play::new(db, one_runs)
        .coarse()
        .actor("fail", |c, w| end(c, w, (1, 1), &failing_for_now(), Keep))
        .actor("promote", |c, _| promote(c, 10))
        .ends_in(&["fail retried, promote 0 -> j1 scheduled, j2 blocked; p1"]);
}

fn dispatch_and_promote(db: &TestDb) {
    Play::new(db, one_waits)
        .coarse()
        .actor("dispatch", |c, _| dispatch(c, 10))
        .actor("promote", |c, _| promote(c, 10))
        .ends_in(&[
            "dispatch 1, promote 0 -> j1 blocked, j2 blocked; p1",
            "dispatch 1, promote 1 -> j1 ready, j2 blocked; p1",
        ]);
}

fn discard_and_dispatch(db: &TestDb) {
    Play::new(db, one_waits)
        .coarse()
        .actor("discard", |c, w| discard(c, w, &[1]))
        .actor("dispatch", |c, _| dispatch(c, 10))
        .ends_in(&[
            "discard 1, dispatch 0 -> j2 blocked; p1",
            "discard 1, dispatch 1 -> j2 blocked; p1",
        ]);
}

fn finish_and_enqueue(db: &TestDb) {
    Play::new(db, one_runs)
        .coarse()
        .actor("finish", |c, w| finish_and_take_next(c, w, 1, &[1]))
        .actor("enqueue", |c, _| {
            let said = enqueue(c, &ordered(), true)?;
            Ok(format!("{said} {}", promote(c, 10)?))
        })
        .ends_in(&[
            "finish 1 took 1, enqueue new 0 -> j1 finished, j2 claimed by p1, new blocked; p1",
        ]);
}

/// A job that another transaction is moving is not overtaken.
fn cancel_and_promote(db: &TestDb) {
    Play::new(db, two_blocked)
        .coarse()
        .actor("cancel", |c, w| cancel(c, w, &[1]))
        .actor("promote", |c, _| promote(c, 10))
        .also_on_postgres(&["cancel 1 ended 0 asked, promote 0 -> j1 finished, j2 blocked; p1"])
        .ends_in(&[
            "cancel 1 ended 0 asked, promote 1 -> j1 finished, j2 blocked; p1",
            "cancel 1 ended 0 asked, promote 1 -> j1 finished, j2 ready; p1",
        ]);
}

on_each_database!(
    fail_and_promote,
    dispatch_and_promote,
    discard_and_dispatch,
    finish_and_enqueue,
    cancel_and_promote,
);
