//! Several rows at once: nobody may take them in an order in which two wait
//! for each other.

use crate::db::conn::connection::Conn;
use crate::db::internal_tests::db::{TestDb, execute, on_each_database};
use crate::db::internal_tests::interleavings::Play;
use crate::db::internal_tests::interleavings::acts::*;
use crate::db::internal_tests::interleavings::world::{World, row};
use crate::db::model::claim::FinishedRow::Keep;

/// p1 holds j1, j2 and j3.
fn three_claims(conn: &mut Conn<'_>) -> World {
    let mut world = World::default();
    world.process(conn);
    for _ in 0..3 {
        world.claimed(conn, 1, &row());
    }
    world
}

fn batch_finish_and_prune(db: &TestDb) {
    Play::new(db, three_claims)
        .actor("finish", |c, w| finish(c, w, 1, &[1, 3], Keep))
        .actor("prune", |c, w| prune(c, w, 1, Some(0)))
        .ends_in(&[
            "finish 0, prune 3+0+0 -> j1 ready (1 crash), j2 ready (1 crash), j3 ready (1 crash); ",
            "finish 2, prune 1+0+0 -> j1 finished, j2 ready (1 crash), j3 finished; ",
        ]);
}

fn batch_release_and_prune(db: &TestDb) {
    Play::new(db, three_claims)
        .actor("release", |c, w| release(c, w, 1, &[3, 2, 1], None))
        .actor("prune", |c, w| prune(c, w, 1, Some(0)))
        .ends_in(&[
            "release 0, prune 3+0+0 -> j1 ready (1 crash), j2 ready (1 crash), j3 ready (1 crash); ",
            "release 3, prune 0+0+0 -> j1 ready, j2 ready, j3 ready; ",
        ]);
}

fn batch_finish_and_fail_and_prune(db: &TestDb) {
    Play::new(db, three_claims)
        .coarse()
        .actor("finish", |c, w| finish(c, w, 1, &[1, 2], Keep))
        .actor("fail", |c, w| fail(c, w, 1, 2))
        .actor("prune", |c, w| prune(c, w, 1, Some(0)))
        .ends_in(&[
            "finish 0, fail 0, prune 3+0+0 -> j1 ready (1 crash), j2 ready (1 crash), j3 ready (1 crash); ",
            "finish 0, fail 1, prune 2+0+0 -> j1 ready (1 crash), j2 failed, j3 ready (1 crash); ",
            "finish 1, fail 1, prune 1+0+0 -> j1 finished, j2 failed, j3 ready (1 crash); ",
            "finish 2, fail 0, prune 1+0+0 -> j1 finished, j2 finished, j3 ready (1 crash); ",
        ]);
}

fn batch_finish_and_the_reverse(db: &TestDb) {
    Play::new(db, three_claims)
        .actor("first", |c, w| finish(c, w, 1, &[1, 2, 3], Keep))
        .actor("second", |c, w| finish(c, w, 1, &[3, 2, 1], Keep))
        .actor("undone", |c, w| fail_undone(c, w, 1, 2))
        .ends_in(&[
            "first 0, second 3, undone 0 -> j1 finished, j2 finished, j3 finished; p1",
            "first 0, second 3, undone 1 -> j1 finished, j2 finished, j3 finished; p1",
            "first 3, second 0, undone 0 -> j1 finished, j2 finished, j3 finished; p1",
            "first 3, second 0, undone 1 -> j1 finished, j2 finished, j3 finished; p1",
        ]);
}

/// The same, but on disk the last claim stands first, as it does sooner or
/// later where rows come and go.
fn three_claims_in_disorder(conn: &mut Conn<'_>) -> World {
    let world = three_claims(conn);
    for id in [world.claims[0], -world.claims[0]] {
        let text = format!("UPDATE solid_queue_claimed_executions SET id = -id WHERE id = {id}");
        execute(conn, &text);
    }
    world
}

/// Three ends of three claims: whoever waits for one of them must not hold
/// another that comes before it.
fn release_and_fail_and_prune(db: &TestDb) {
    Play::new(db, three_claims_in_disorder)
        .coarse()
        .actor("fail", |c, w| fail(c, w, 1, 2))
        .actor("release", |c, w| release(c, w, 1, &[1, 3], None))
        .actor("prune", |c, w| prune(c, w, 1, None))
        .ends_in(&[
            "fail 0, release 0, prune 3+0+0 -> j1 ready (1 crash), j2 ready (1 crash), j3 ready (1 crash); ",
            "fail 0, release 2, prune 1+0+0 -> j1 ready, j2 ready (1 crash), j3 ready; ",
            "fail 1, release 0, prune 2+0+0 -> j1 ready (1 crash), j2 failed, j3 ready (1 crash); ",
            "fail 1, release 2, prune 0+0+0 -> j1 ready, j2 failed, j3 ready; ",
        ]);
}

fn release_and_reconcile_and_a_failing_that_is_undone(db: &TestDb) {
    Play::new(db, three_claims_in_disorder)
        .coarse()
        .actor("undone", |c, w| fail_undone(c, w, 1, 2))
        .actor("release", |c, w| release(c, w, 1, &[3, 1], None))
        .actor("reconcile", |c, w| reconcile(c, w, 1))
        .ends_in(&[
            "undone 0, release 0, reconcile 3 of 3 -> j1 ready, j2 ready, j3 ready; p1",
            "undone 0, release 2, reconcile 1 of 1 -> j1 ready, j2 ready, j3 ready; p1",
            "undone 0, release 2, reconcile 1 of 3 -> j1 ready, j2 ready, j3 ready; p1",
            "undone 1, release 0, reconcile 3 of 3 -> j1 ready, j2 ready, j3 ready; p1",
            "undone 1, release 2, reconcile 1 of 1 -> j1 ready, j2 ready, j3 ready; p1",
            "undone 1, release 2, reconcile 1 of 3 -> j1 ready, j2 ready, j3 ready; p1",
        ]);
}

/// Failures of one transaction, written in whatever order they came.
fn batch_end_and_prune(db: &TestDb) {
    Play::new(db, three_claims_in_disorder)
        .coarse()
        .actor("end", |c, w| {
            end_all(c, w, 1, &[(3, &failing()), (1, &retrying())])
        })
        .actor("release", |c, w| release(c, w, 1, &[1, 2], None))
        .actor("prune", |c, w| prune(c, w, 1, None))
        .ends_in(&[
            "end failed fenced, release 2, prune 0+0+0 -> j1 ready, j2 ready, j3 failed; ",
            "end failed retried, release 0, prune 1+0+0 -> j1 ready, j2 ready (1 crash), j3 failed; ",
            "end failed retried, release 1, prune 0+0+0 -> j1 ready, j2 ready, j3 failed; ",
            "end fenced fenced, release 0, prune 3+0+0 -> j1 ready (1 crash), j2 ready (1 crash), j3 ready (1 crash); ",
            "end fenced fenced, release 2, prune 1+0+0 -> j1 ready, j2 ready, j3 ready (1 crash); ",
        ]);
}

/// Two of them are asked for at the same time.
fn batch_end_and_cancel(db: &TestDb) {
    Play::new(db, three_claims)
        .coarse()
        .actor("end", |c, w| {
            end_all(
                c,
                w,
                1,
                &[(3, &failing()), (2, &retrying()), (1, &failing())],
            )
        })
        .actor("cancel", |c, w| cancel(c, w, &[1, 3]))
        .ends_in(&[
            "end cancelled retried cancelled, cancel 0 ended 2 asked -> j1 finished, j2 ready, j3 finished; p1",
            "end failed retried failed, cancel 0 ended 0 asked -> j1 failed, j2 ready, j3 failed; p1",
        ]);
}

on_each_database!(
    batch_finish_and_prune,
    batch_release_and_prune,
    batch_finish_and_fail_and_prune,
    batch_finish_and_the_reverse,
    release_and_fail_and_prune,
    release_and_reconcile_and_a_failing_that_is_undone,
    batch_end_and_prune,
    batch_end_and_cancel,
);
