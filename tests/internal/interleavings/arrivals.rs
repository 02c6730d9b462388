//! Enqueueing and dispatching, by several at once.

use crate::db::conn::connection::Conn;
use crate::db::internal_tests::db::{TestDb, on_each_database};
use crate::db::internal_tests::interleavings::Play;
use crate::db::internal_tests::interleavings::acts::*;
use crate::db::internal_tests::interleavings::world::{World, later, row, with_key};
use crate::db::model::claim::FinishedRow::{Delete, Keep};

fn nothing(_: &mut Conn<'_>) -> World {
    World::default()
}

/// An idle process.
fn a_process(conn: &mut Conn<'_>) -> World {
    let mut world = World::default();
    world.process(conn);
    world
}

/// p1 is idle; j1, j2 and j3 are due.
fn three_due(conn: &mut Conn<'_>) -> World {
    let mut world = a_process(conn);
    for _ in 0..3 {
        world.due(conn);
    }
    world
}

/// p1 holds j1, which has the key.
fn a_claim_with_the_key(conn: &mut Conn<'_>) -> World {
    let mut world = a_process(conn);
    world.claimed(conn, 1, &with_key("key"));
    world
}

fn dispatch_and_dispatch(db: &TestDb) {
    Play::new(db, three_due)
        .actor("one", |c, _| dispatch(c, 2))
        .actor("two", |c, _| dispatch(c, 2))
        .ends_in(&[
            "one 1, two 2 -> j1 ready, j2 ready, j3 ready; p1",
            "one 2, two 1 -> j1 ready, j2 ready, j3 ready; p1",
        ]);
}

fn dispatch_and_a_dispatch_that_is_undone(db: &TestDb) {
    Play::new(db, three_due)
        .actor("one", |c, _| dispatch(c, 5))
        .actor("undone", |c, _| dispatch_undone(c, 2))
        .also_on_postgres(&["one 1, undone 2 -> j1 scheduled, j2 scheduled, j3 ready; p1"])
        .ends_in(&[
            "one 3, undone 0 -> j1 ready, j2 ready, j3 ready; p1",
            "one 3, undone 2 -> j1 ready, j2 ready, j3 ready; p1",
        ]);
}

fn dispatch_and_dispatch_and_claim(db: &TestDb) {
    Play::new(db, three_due)
        .coarse()
        .actor("one", |c, _| dispatch(c, 2))
        .actor("two", |c, _| dispatch(c, 2))
        .actor("worker", |c, w| claim(c, w, 1))
        .ends_in(&[
            "one 1, two 2, worker took 0 -> j1 ready, j2 ready, j3 ready; p1",
            "one 1, two 2, worker took 2 -> j1 claimed by p1, j2 claimed by p1, j3 ready; p1",
            "one 1, two 2, worker took 3 -> j1 claimed by p1, j2 claimed by p1, j3 claimed by p1; p1",
            "one 2, two 1, worker took 0 -> j1 ready, j2 ready, j3 ready; p1",
            "one 2, two 1, worker took 2 -> j1 claimed by p1, j2 claimed by p1, j3 ready; p1",
            "one 2, two 1, worker took 3 -> j1 claimed by p1, j2 claimed by p1, j3 claimed by p1; p1",
        ]);
}

fn enqueue_and_dispatch(db: &TestDb) {
    Play::new(db, three_due)
        .actor("enqueue", |c, _| enqueue(c, &later(), true))
        .actor("dispatch", |c, _| dispatch(c, 5))
        .ends_in(&["enqueue new, dispatch 3 -> j1 ready, j2 ready, j3 ready, new scheduled; p1"]);
}

fn enqueue_and_claim(db: &TestDb) {
    Play::new(db, a_process)
        .actor("enqueue", |c, _| enqueue(c, &row(), true))
        .actor("undone", |c, _| enqueue(c, &row(), false))
        .actor("worker", |c, w| claim_and_finish(c, w, 1))
        .ends_in(&[
            "enqueue new, undone new undone, worker took 0 -> new ready; p1",
            "enqueue new, undone new undone, worker took 1 finished 1 -> new finished; p1",
        ]);
}

fn enqueue_twice_with_one_key(db: &TestDb) {
    Play::new(db, nothing)
        .actor("one", |c, _| enqueue(c, &with_key("key"), true))
        .actor("two", |c, _| enqueue(c, &with_key("key"), true))
        .ends_in(&[
            "one known, two new -> new ready; ",
            "one new, two known -> new ready; ",
        ]);
}

fn enqueue_twice_with_one_key_and_a_rollback(db: &TestDb) {
    Play::new(db, nothing)
        .actor("undone", |c, _| enqueue(c, &with_key("key"), false))
        .actor("one", |c, _| enqueue(c, &with_key("key"), true))
        .ends_in(&[
            "undone known undone, one new -> new ready; ",
            "undone new undone, one new -> new ready; ",
        ]);
}

fn enqueue_thrice_with_one_key_and_a_rollback(db: &TestDb) {
    Play::new(db, nothing)
        .actor("undone", |c, _| enqueue(c, &with_key("key"), false))
        .actor("one", |c, _| enqueue(c, &with_key("key"), true))
        .actor("two", |c, _| enqueue(c, &with_key("key"), true))
        .ends_in(&[
            "undone known undone, one known, two new -> new ready; ",
            "undone known undone, one new, two known -> new ready; ",
            "undone new undone, one known, two new -> new ready; ",
            "undone new undone, one new, two known -> new ready; ",
        ]);
}

fn enqueue_with_the_key_of_a_job_that_finishes(db: &TestDb) {
    Play::new(db, a_claim_with_the_key)
        .actor("enqueue", |c, _| enqueue(c, &with_key("key"), true))
        .actor("finish", |c, w| finish(c, w, 1, &[1], Keep))
        .ends_in(&["enqueue known, finish 1 -> j1 finished; p1"]);
}

/// The key is free again the moment its job is deleted.
fn enqueue_with_the_key_of_a_job_that_is_deleted(db: &TestDb) {
    Play::new(db, a_claim_with_the_key)
        .actor("enqueue", |c, _| enqueue(c, &with_key("key"), true))
        .actor("finish", |c, w| finish(c, w, 1, &[1], Delete))
        .ends_in(&[
            "enqueue known, finish 1 -> ; p1",
            "enqueue new, finish 1 -> new ready; p1",
        ]);
}

fn two_batches_with_a_key_in_common(db: &TestDb) {
    Play::new(db, nothing)
        .actor("one", |c, _| enqueue_all(c, &["a", "b"]))
        .actor("two", |c, _| enqueue_all(c, &["b", "c"]))
        .ends_in(&[
            "one 1 new, two 2 new -> new ready, new ready, new ready; ",
            "one 2 new, two 1 new -> new ready, new ready, new ready; ",
        ]);
}

on_each_database!(
    dispatch_and_dispatch,
    dispatch_and_a_dispatch_that_is_undone,
    dispatch_and_dispatch_and_claim,
    enqueue_and_dispatch,
    enqueue_and_claim,
    enqueue_twice_with_one_key,
    enqueue_twice_with_one_key_and_a_rollback,
    enqueue_thrice_with_one_key_and_a_rollback,
    enqueue_with_the_key_of_a_job_that_finishes,
    enqueue_with_the_key_of_a_job_that_is_deleted,
    two_batches_with_a_key_in_common,
);
