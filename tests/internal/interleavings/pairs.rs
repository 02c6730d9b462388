//! Two or three actors and one claim: who ends it, and who comes too late.

use crate::db::conn::connection::Conn;
use crate::db::internal_tests::db::{TestDb, on_each_database};
use crate::db::internal_tests::interleavings::Play;
use crate::db::internal_tests::interleavings::acts::*;
use crate::db::internal_tests::interleavings::world::{World, once, row};
use crate::db::model::claim::FinishedRow::{Delete, Keep};

/// p1 holds j1.
fn one_claim(conn: &mut Conn<'_>) -> World {
    let mut world = World::default();
    world.process(conn);
    world.claimed(conn, 1, &row());
    world
}

/// p1 holds j1; p2 is idle.
fn one_claim_two_processes(conn: &mut Conn<'_>) -> World {
    let mut world = one_claim(conn);
    world.process(conn);
    world
}

/// p1 is idle; j1 is ready.
fn one_ready(conn: &mut Conn<'_>) -> World {
    let mut world = World::default();
    world.process(conn);
    world.job(conn, &row());
    world
}

fn finish_and_prune(db: &TestDb) {
    Play::new(db, one_claim)
        .actor("finish", |c, w| finish(c, w, 1, &[1], Keep))
        .actor("prune", |c, w| prune(c, w, 1, Some(0)))
        .ends_in(&[
            "finish 0, prune 1+0+0 -> j1 ready (1 crash); ",
            "finish 1, prune 0+0+0 -> j1 finished; ",
        ]);
}

fn finish_that_deletes_and_prune(db: &TestDb) {
    Play::new(db, one_claim)
        .actor("finish", |c, w| finish(c, w, 1, &[1], Delete))
        .actor("prune", |c, w| prune(c, w, 1, Some(0)))
        .ends_in(&[
            "finish 0, prune 1+0+0 -> j1 ready (1 crash); ",
            "finish 1, prune 0+0+0 -> ; ",
        ]);
}

fn fail_and_prune(db: &TestDb) {
    Play::new(db, one_claim)
        .actor("fail", |c, w| fail(c, w, 1, 1))
        .actor("prune", |c, w| prune(c, w, 1, Some(0)))
        .ends_in(&[
            "fail 0, prune 1+0+0 -> j1 ready (1 crash); ",
            "fail 1, prune 0+0+0 -> j1 failed; ",
        ]);
}

fn release_and_prune(db: &TestDb) {
    Play::new(db, one_claim)
        .actor("release", |c, w| release(c, w, 1, &[1], None))
        .actor("prune", |c, w| prune(c, w, 1, Some(0)))
        .ends_in(&[
            "release 0, prune 1+0+0 -> j1 ready (1 crash); ",
            "release 1, prune 0+0+0 -> j1 ready; ",
        ]);
}

/// The job was told that the claim is lost, while it still is its own or not.
fn end_as_released_and_prune(db: &TestDb) {
    Play::new(db, one_claim)
        .actor("end", |c, w| end(c, w, (1, 1), &releasing(), Keep))
        .actor("prune", |c, w| prune(c, w, 1, Some(0)))
        .ends_in(&[
            "end fenced, prune 1+0+0 -> j1 ready (1 crash); ",
            "end released, prune 0+0+0 -> j1 ready; ",
        ]);
}

/// A stop gives back what runs, while the job ends with the stop.
fn end_as_released_and_release(db: &TestDb) {
    Play::new(db, one_claim)
        .actor("end", |c, w| end(c, w, (1, 1), &releasing(), Keep))
        .actor("release", |c, w| release(c, w, 1, &[1], Some(HOUR)))
        .ends_in(&[
            "end fenced, release 1 -> j1 scheduled; p1",
            "end released, release 0 -> j1 ready; p1",
        ]);
}

fn release_for_later_and_prune(db: &TestDb) {
    Play::new(db, one_claim)
        .actor("release", |c, w| release(c, w, 1, &[1], Some(HOUR)))
        .actor("prune", |c, w| prune(c, w, 1, None))
        .ends_in(&[
            "release 0, prune 1+0+0 -> j1 ready (1 crash); ",
            "release 1, prune 0+0+0 -> j1 scheduled; ",
        ]);
}

fn finish_and_the_same_finish(db: &TestDb) {
    Play::new(db, one_claim)
        .actor("first", |c, w| finish(c, w, 1, &[1], Keep))
        .actor("second", |c, w| finish(c, w, 1, &[1], Keep))
        .ends_in(&[
            "first 0, second 1 -> j1 finished; p1",
            "first 1, second 0 -> j1 finished; p1",
        ]);
}

fn fail_and_finish(db: &TestDb) {
    Play::new(db, one_claim)
        .actor("fail", |c, w| fail(c, w, 1, 1))
        .actor("finish", |c, w| finish(c, w, 1, &[1], Keep))
        .ends_in(&[
            "fail 0, finish 1 -> j1 finished; p1",
            "fail 1, finish 0 -> j1 failed; p1",
        ]);
}

fn reconcile_and_finish(db: &TestDb) {
    Play::new(db, one_claim)
        .actor("reconcile", |c, w| reconcile(c, w, 1))
        .actor("finish", |c, w| finish(c, w, 1, &[1], Keep))
        .ends_in(&[
            "reconcile 0 of 0, finish 1 -> j1 finished; p1",
            "reconcile 0 of 1, finish 1 -> j1 finished; p1",
            "reconcile 1 of 1, finish 0 -> j1 ready; p1",
        ]);
}

fn reconcile_and_prune(db: &TestDb) {
    Play::new(db, one_claim)
        .actor("reconcile", |c, w| reconcile(c, w, 1))
        .actor("prune", |c, w| prune(c, w, 1, None))
        .ends_in(&[
            "reconcile 0 of 0, prune 1+0+0 -> j1 ready (1 crash); ",
            "reconcile 0 of 1, prune 1+0+0 -> j1 ready (1 crash); ",
            "reconcile 1 of 1, prune 0+0+0 -> j1 ready; ",
        ]);
}

fn claim_and_prune(db: &TestDb) {
    Play::new(db, one_ready)
        .actor("claim", |c, w| claim(c, w, 1))
        .actor("prune", |c, w| prune(c, w, 1, Some(0)))
        .ends_in(&[
            "claim refused, prune 0+0+0 -> j1 ready; ",
            "claim took 1, prune 1+0+0 -> j1 ready (1 crash); ",
        ]);
}

fn claim_and_prune_of_a_child(db: &TestDb) {
    Play::new(db, one_ready)
        .actor("claim", |c, w| claim(c, w, 1))
        .actor("prune", |c, w| prune(c, w, 1, None))
        .ends_in(&[
            "claim refused, prune 0+0+0 -> j1 ready; ",
            "claim took 1, prune 1+0+0 -> j1 ready (1 crash); ",
        ]);
}

fn claim_and_heartbeat_and_prune(db: &TestDb) {
    Play::new(db, one_ready)
        .actor("claim", |c, w| claim(c, w, 1))
        .actor("heartbeat", |c, w| heartbeat(c, w, 1))
        .actor("prune", |c, w| prune(c, w, 1, Some(0)))
        .ends_in(&[
            "claim refused, heartbeat pruned, prune 0+0+0 -> j1 ready; ",
            "claim took 1, heartbeat alive, prune refused -> j1 claimed by p1; p1",
            "claim took 1, heartbeat pruned, prune 1+0+0 -> j1 ready (1 crash); ",
        ]);
}

fn late_finish_and_prune_and_another_worker(db: &TestDb) {
    Play::new(db, one_claim_two_processes)
        .actor("late", |c, w| finish(c, w, 1, &[1], Keep))
        .actor("prune", |c, w| prune(c, w, 1, Some(0)))
        .actor("other", |c, w| claim_and_finish(c, w, 2))
        .ends_in(&[
            "late 0, prune 1+0+0, other took 0 -> j1 ready (1 crash); p2",
            "late 0, prune 1+0+0, other took 1 finished 1 -> j1 finished; p2",
            "late 1, prune 0+0+0, other took 0 -> j1 finished; p2",
        ]);
}

fn late_fail_and_release_and_another_worker(db: &TestDb) {
    Play::new(db, one_claim_two_processes)
        .actor("late", |c, w| fail(c, w, 1, 1))
        .actor("release", |c, w| release(c, w, 1, &[1], None))
        .actor("other", |c, w| claim_and_finish(c, w, 2))
        .ends_in(&[
            "late 0, release 1, other took 0 -> j1 ready; p1 p2",
            "late 0, release 1, other took 1 finished 1 -> j1 finished; p1 p2",
            "late 1, release 0, other took 0 -> j1 failed; p1 p2",
        ]);
}

fn at_most_once_and_prune_and_another_worker(db: &TestDb) {
    let setup = |conn: &mut Conn<'_>| {
        let mut world = World::default();
        world.process(conn);
        world.claimed(conn, 1, &once());
        world.process(conn);
        world
    };
    Play::new(db, setup)
        .actor("finish", |c, w| finish(c, w, 1, &[1], Keep))
        .actor("prune", |c, w| prune(c, w, 1, Some(0)))
        .actor("other", |c, w| claim_and_finish(c, w, 2))
        .ends_in(&[
            "finish 0, prune 0+0+1, other took 0 -> j1 failed (1 crash); p2",
            "finish 1, prune 0+0+0, other took 0 -> j1 finished; p2",
        ]);
}

on_each_database!(
    finish_and_prune,
    finish_that_deletes_and_prune,
    fail_and_prune,
    release_and_prune,
    end_as_released_and_prune,
    end_as_released_and_release,
    release_for_later_and_prune,
    finish_and_the_same_finish,
    fail_and_finish,
    reconcile_and_finish,
    reconcile_and_prune,
    claim_and_prune,
    claim_and_prune_of_a_child,
    claim_and_heartbeat_and_prune,
    late_finish_and_prune_and_another_worker,
    late_fail_and_release_and_another_worker,
    at_most_once_and_prune_and_another_worker,
);
