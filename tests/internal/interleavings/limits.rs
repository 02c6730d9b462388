//! Jobs of one concurrency key: who gets its slot when another gives it up.

use crate::db::conn::connection::Conn;
use crate::db::internal_tests::db::{TestDb, on_each_database};
use crate::db::internal_tests::interleavings::Play;
use crate::db::internal_tests::interleavings::acts::*;
use crate::db::internal_tests::interleavings::world::{World, limited};
use crate::db::model::claim::FinishedRow::{Delete, Keep};
use crate::db::table::wanted_keys;
use std::collections::BTreeSet;

/// p1 is idle; j1 and j2 are blocked, and their key is wanted once for each.
fn two_blocked(conn: &mut Conn<'_>) -> World {
    let mut world = World::default();
    world.process(conn);
    world.job(conn, &limited());
    world.job(conn, &limited());
    world
}

/// p1 holds j1, and with it the only slot.
fn slot_taken(conn: &mut Conn<'_>) -> World {
    let mut world = World::default();
    world.process(conn);
    world.claimed(conn, 1, &limited());
    promote(conn, 10).unwrap();
    world
}

/// The same, and j2 is blocked.
fn slot_taken_one_blocked(conn: &mut Conn<'_>) -> World {
    let mut world = slot_taken(conn);
    world.job(conn, &limited());
    promote(conn, 10).unwrap();
    world
}

fn promote_and_promote(db: &TestDb) {
    Play::new(db, two_blocked)
        .actor("one", |c, _| promote(c, 1))
        .actor("two", |c, _| promote(c, 1))
        .ends_in(&[
            "one 0, two 1 -> j1 ready, j2 blocked; p1",
            "one 1, two 0 -> j1 ready, j2 blocked; p1",
        ]);
}

fn finish_and_promote(db: &TestDb) {
    Play::new(db, slot_taken_one_blocked)
        .coarse()
        .actor("finish", |c, w| finish(c, w, 1, &[1], Keep))
        .actor("promote", |c, _| promote(c, 10))
        .ends_in(&[
            "finish 1, promote 0 -> j1 finished, j2 blocked; p1",
            "finish 1, promote 1 -> j1 finished, j2 ready; p1",
        ]);
}

/// The one may see the slot taken, and the other not see the job: yet one of
/// them comes after both.
fn finish_and_enqueue(db: &TestDb) {
    Play::new(db, slot_taken)
        .coarse()
        .actor("finisher", |c, w| {
            let finished = finish(c, w, 1, &[1], Delete)?;
            Ok(format!("{finished} {}", promote_and_look(c, 10)?))
        })
        .actor("enqueuer", |c, _| {
            let said = enqueue(c, &limited(), true)?;
            Ok(format!("{said} {}", promote_and_look(c, 10)?))
        })
        .ends_in(&[
            "finisher 1 0, enqueuer new 1 -> new ready; p1",
            "finisher 1 1, enqueuer new 0 -> new ready; p1",
        ]);
}

/// p1 holds j1, and with it the only slot, and the key is wanted.
fn slot_taken_and_wanted(conn: &mut Conn<'_>) -> World {
    let world = slot_taken(conn);
    wanted_keys::request_promotion(conn, &BTreeSet::from(["a/k".to_owned()])).unwrap();
    world
}

/// A job that does not wait, enqueued when the slot is free, gets it.
fn finish_and_then_enqueue_and_promote(db: &TestDb) {
    Play::new(db, slot_taken_and_wanted)
        .actor("finish", |c, w| {
            finish(c, w, 1, &[1], Keep)?;
            let mut row = limited();
            row.limit.iter_mut().for_each(|limit| limit.discards = true);
            enqueue(c, &row, true)
        })
        .actor("promote", |c, _| {
            promote(c, 10)?;
            Ok("done".to_owned())
        })
        .ends_in(&[
            "finish new, promote done -> j1 finished, new blocked; p1",
            "finish new, promote done -> j1 finished, new ready; p1",
        ]);
}

fn prune_and_promote(db: &TestDb) {
    Play::new(db, slot_taken_one_blocked)
        .coarse()
        .actor("prune", |c, w| prune(c, w, 1, Some(0)))
        .actor("promote", |c, _| promote(c, 10))
        .ends_in(&["prune 1+0+0, promote 0 -> j1 ready (1 crash), j2 blocked; "]);
}

fn fail_and_promote_and_enqueue(db: &TestDb) {
    Play::new(db, slot_taken_one_blocked)
        .coarse()
        .actor("fail", |c, w| fail(c, w, 1, 1))
        .actor("promote", |c, _| promote(c, 10))
        .actor("enqueue", |c, _| enqueue(c, &limited(), false))
        .ends_in(&[
            "fail 1, promote 0, enqueue new undone -> j1 failed, j2 blocked; p1",
            "fail 1, promote 1, enqueue new undone -> j1 failed, j2 ready; p1",
        ]);
}

/// A promotion passes over a job that another transaction is moving, and the key stays wanted.
fn cancel_and_promote(db: &TestDb) {
    Play::new(db, two_blocked)
        .coarse()
        .actor("cancel", |c, w| cancel(c, w, &[1]))
        .actor("promote", |c, _| promote(c, 10))
        .ends_in(&[
            "cancel 1 ended 0 asked, promote 1 -> j1 finished, j2 blocked; p1",
            "cancel 1 ended 0 asked, promote 1 -> j1 finished, j2 ready; p1",
        ]);
}

fn rank_and_promote(db: &TestDb) {
    Play::new(db, two_blocked)
        .coarse()
        .actor("rank", |c, w| rank(c, w, &[1, 2], 3))
        .actor("promote", |c, _| promote(c, 10))
        .also_on_postgres(&["rank 2, promote 0 -> j1 blocked, j2 blocked; p1"])
        .ends_in(&["rank 2, promote 1 -> j1 ready, j2 blocked; p1"]);
}

on_each_database!(
    promote_and_promote,
    finish_and_promote,
    finish_and_enqueue,
    finish_and_then_enqueue_and_promote,
    prune_and_promote,
    fail_and_promote_and_enqueue,
    cancel_and_promote,
    rank_and_promote,
);

/// SQLite has one writer at a time anyway.
#[cfg(feature = "postgres")]
#[test]
fn two_that_count_at_once_are_found() {
    let db = TestDb::postgres();
    let what = Play::new(&db, two_blocked)
        .with_fault("promote_without_lock")
        .actor("one", |c, _| promote(c, 1))
        .actor("two", |c, _| promote(c, 1))
        .explore()
        .expect_err("a fault went unnoticed");
    assert!(what.contains("concurrency key"), "{what}");
}
