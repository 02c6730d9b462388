//! Operations on jobs from outside, at the same time as workers, dispatchers
//! and supervisors.

use crate::db::conn::connection::Conn;
use crate::db::internal_tests::db::{TestDb, on_each_database};
use crate::db::internal_tests::interleavings::Play;
use crate::db::internal_tests::interleavings::acts::*;
use crate::db::internal_tests::interleavings::world::{World, row};
use crate::db::model::claim::FinishedRow::{Delete, Keep};
use crate::db::model::new_row::NewRow;

/// p1 is idle.
fn a_process(conn: &mut Conn<'_>) -> World {
    let mut world = World::default();
    world.process(conn);
    world
}

/// p1 is idle; j1 is ready.
fn one_ready(conn: &mut Conn<'_>) -> World {
    let mut world = a_process(conn);
    world.job(conn, &row());
    world
}

/// p1 holds j1.
fn one_claim(conn: &mut Conn<'_>) -> World {
    let mut world = a_process(conn);
    world.claimed(conn, 1, &row());
    world
}

/// p1 is idle; j1 is due.
fn one_due(conn: &mut Conn<'_>) -> World {
    let mut world = a_process(conn);
    world.due(conn);
    world
}

/// j1 is due, p1 holds j2, j3 is ready and j4 has failed.
fn one_of_each(conn: &mut Conn<'_>) -> World {
    let mut world = one_due(conn);
    world.claimed(conn, 1, &row());
    let ready = NewRow {
        class_name: "b".to_owned(),
        ..row()
    };
    world.job(conn, &ready);
    world.failed(conn, 1, &row());
    world
}

fn cancel_and_claim(db: &TestDb) {
    Play::new(db, one_ready)
        .actor("cancel", |c, w| cancel(c, w, &[1]))
        .actor("claim", |c, w| claim(c, w, 1))
        .also_on_postgres(&["cancel 0 ended 0 asked, claim took 1 -> j1 claimed by p1; p1"])
        .ends_in(&[
            "cancel 0 ended 1 asked, claim took 1 -> j1 claimed by p1; p1",
            "cancel 1 ended 0 asked, claim took 0 -> j1 finished; p1",
        ]);
}

fn cancel_and_finish(db: &TestDb) {
    Play::new(db, one_claim)
        .actor("cancel", |c, w| cancel(c, w, &[1]))
        .actor("finish", |c, w| finish(c, w, 1, &[1], Keep))
        .ends_in(&[
            "cancel 0 ended 0 asked, finish 1 -> j1 finished; p1",
            "cancel 0 ended 1 asked, finish 1 -> j1 finished; p1",
        ]);
}

fn cancel_and_finish_that_deletes(db: &TestDb) {
    Play::new(db, one_claim)
        .actor("cancel", |c, w| cancel(c, w, &[1]))
        .actor("finish", |c, w| finish(c, w, 1, &[1], Delete))
        .ends_in(&[
            "cancel 0 ended 0 asked, finish 1 -> ; p1",
            "cancel 0 ended 1 asked, finish 1 -> ; p1",
        ]);
}

fn cancel_and_retry_of_the_body(db: &TestDb) {
    Play::new(db, one_claim)
        .actor("cancel", |c, w| cancel(c, w, &[1]))
        .actor("end", |c, w| end(c, w, (1, 1), &retrying(), Keep))
        .ends_in(&[
            "cancel 0 ended 1 asked, end cancelled -> j1 finished; p1",
            "cancel 1 ended 0 asked, end retried -> j1 finished; p1",
        ]);
}

fn cancel_and_release(db: &TestDb) {
    Play::new(db, one_claim)
        .actor("cancel", |c, w| cancel(c, w, &[1]))
        .actor("release", |c, w| release(c, w, 1, &[1], None))
        .ends_in(&[
            "cancel 0 ended 1 asked, release 1 -> j1 finished; p1",
            "cancel 1 ended 0 asked, release 1 -> j1 finished; p1",
        ]);
}

fn cancel_and_prune(db: &TestDb) {
    Play::new(db, one_claim)
        .actor("cancel", |c, w| cancel(c, w, &[1]))
        .actor("prune", |c, w| prune(c, w, 1, Some(0)))
        .ends_in(&[
            "cancel 0 ended 1 asked, prune 0+0+0 -> j1 finished; ",
            "cancel 1 ended 0 asked, prune 1+0+0 -> j1 finished (1 crash); ",
        ]);
}

fn cancel_and_dispatch(db: &TestDb) {
    Play::new(db, one_due)
        .actor("cancel", |c, w| cancel(c, w, &[1]))
        .actor("dispatch", |c, _| dispatch(c, 5))
        .ends_in(&[
            "cancel 1 ended 0 asked, dispatch 0 -> j1 finished; p1",
            "cancel 1 ended 0 asked, dispatch 1 -> j1 finished; p1",
        ]);
}

fn cancel_and_cancel(db: &TestDb) {
    Play::new(db, one_of_each)
        .coarse()
        .actor("one", |c, w| cancel(c, w, &[1, 2, 3, 4]))
        .actor("two", |c, w| cancel(c, w, &[4, 3, 2, 1]))
        .ends_in(&[
            "one 0 ended 1 asked, two 2 ended 1 asked -> j1 finished, j2 claimed by p1, j3 finished, j4 failed; p1",
            "one 2 ended 1 asked, two 0 ended 1 asked -> j1 finished, j2 claimed by p1, j3 finished, j4 failed; p1",
        ]);
}

fn retry_and_retry(db: &TestDb) {
    Play::new(db, one_of_each)
        .actor("one", |c, w| retry(c, w, &[3, 4]))
        .actor("two", |c, w| retry(c, w, &[4, 3]))
        .ends_in(&[
            "one 0, two 1 -> j1 scheduled, j2 claimed by p1, j3 ready, j4 ready; p1",
            "one 1, two 0 -> j1 scheduled, j2 claimed by p1, j3 ready, j4 ready; p1",
        ]);
}

fn retry_and_discard(db: &TestDb) {
    Play::new(db, one_of_each)
        .actor("retry", |c, w| retry(c, w, &[4]))
        .actor("discard", |c, w| discard(c, w, &[4]))
        .also_on_postgres(&[
            "retry 1, discard 0 -> j1 scheduled, j2 claimed by p1, j3 ready, j4 ready; p1",
        ])
        .ends_in(&[
            "retry 0, discard 1 -> j1 scheduled, j2 claimed by p1, j3 ready; p1",
            "retry 1, discard 1 -> j1 scheduled, j2 claimed by p1, j3 ready; p1",
        ]);
}

fn retry_and_clear_and_claim(db: &TestDb) {
    Play::new(db, one_of_each)
        .coarse()
        .actor("retry", |c, w| retry(c, w, &[4]))
        .actor("clear", |c, _| clear_failed(c))
        .actor("claim", |c, w| claim(c, w, 1))
        .ends_in(&[
            "retry 0, clear 1, claim took 0 -> j1 scheduled, j2 claimed by p1, j3 ready; p1",
            "retry 1, clear 0, claim took 0 -> j1 scheduled, j2 claimed by p1, j3 ready, j4 ready; p1",
            "retry 1, clear 0, claim took 1 -> j1 scheduled, j2 claimed by p1, j3 ready, j4 claimed by p1; p1",
        ]);
}

fn discard_and_claim_and_dispatch(db: &TestDb) {
    Play::new(db, one_of_each)
        .coarse()
        .actor("discard", |c, w| discard(c, w, &[1, 2, 3, 4]))
        .actor("claim", |c, w| claim(c, w, 1))
        .actor("dispatch", |c, _| dispatch(c, 5))
        .ends_in(&[
            "discard 2, claim took 1, dispatch 1 -> j1 claimed by p1, j2 claimed by p1; p1",
            "discard 3, claim took 0, dispatch 0 -> j2 claimed by p1; p1",
            "discard 3, claim took 0, dispatch 1 -> j2 claimed by p1; p1",
        ]);
}

fn discard_and_prune(db: &TestDb) {
    Play::new(db, one_of_each)
        .coarse()
        .actor("discard", |c, w| discard(c, w, &[1, 2, 3, 4]))
        .actor("prune", |c, w| prune(c, w, 1, None))
        .ends_in(&[
            "discard 3, prune 1+0+0 -> j2 ready (1 crash); ",
            "discard 4, prune 1+0+0 -> ; ",
        ]);
}

fn reschedule_and_dispatch(db: &TestDb) {
    Play::new(db, one_due)
        .actor("reschedule", |c, w| reschedule(c, w, &[1], true))
        .actor("dispatch", |c, _| dispatch(c, 5))
        .ends_in(&[
            "reschedule 1, dispatch 0 -> j1 scheduled; p1",
            "reschedule 1, dispatch 1 -> j1 scheduled; p1",
        ]);
}

fn reschedule_and_claim(db: &TestDb) {
    Play::new(db, one_ready)
        .actor("reschedule", |c, w| reschedule(c, w, &[1], true))
        .actor("claim", |c, w| claim(c, w, 1))
        .ends_in(&[
            "reschedule 0, claim took 1 -> j1 claimed by p1; p1",
            "reschedule 1, claim took 0 -> j1 scheduled; p1",
        ]);
}

fn reschedule_and_reschedule(db: &TestDb) {
    Play::new(db, one_of_each)
        .coarse()
        .actor("later", |c, w| reschedule(c, w, &[1, 2], true))
        .actor("now", |c, w| reschedule(c, w, &[2, 1], false))
        .also_on_postgres(&[
            "later 1, now 0 -> j1 scheduled, j2 claimed by p1, j3 ready, j4 failed; p1",
        ])
        .ends_in(&[
            "later 1, now 1 -> j1 ready, j2 claimed by p1, j3 ready, j4 failed; p1",
            "later 1, now 1 -> j1 scheduled, j2 claimed by p1, j3 ready, j4 failed; p1",
        ]);
}

fn rank_and_dispatch(db: &TestDb) {
    Play::new(db, one_due)
        .actor("rank", |c, w| rank(c, w, &[1], 7))
        .actor("dispatch", |c, _| dispatch(c, 5))
        .also_on_postgres(&["rank 1, dispatch 0 -> j1 scheduled; p1"])
        .ends_in(&["rank 1, dispatch 1 -> j1 ready; p1"]);
}

fn rank_and_claim_and_release(db: &TestDb) {
    Play::new(db, one_ready)
        .actor("rank", |c, w| rank(c, w, &[1], 7))
        .actor("worker", |c, w| claim_and_release(c, w, 1))
        .also_on_postgres(&["rank 1, worker took 0 released 0 -> j1 ready; p1"])
        .ends_in(&[
            "rank 0, worker took 1 released 1 -> j1 ready; p1",
            "rank 1, worker took 1 released 1 -> j1 ready; p1",
        ]);
}

fn rank_and_reschedule(db: &TestDb) {
    Play::new(db, one_of_each)
        .coarse()
        .actor("rank", |c, w| rank(c, w, &[1, 2], 7))
        .actor("reschedule", |c, w| reschedule(c, w, &[2, 1], true))
        .also_on_postgres(&[
            "rank 0, reschedule 1 -> j1 scheduled, j2 claimed by p1, j3 ready, j4 failed; p1",
        ])
        .ends_in(&[
            "rank 1, reschedule 1 -> j1 scheduled, j2 claimed by p1, j3 ready, j4 failed; p1",
        ]);
}

fn rank_and_retry(db: &TestDb) {
    Play::new(db, one_of_each)
        .coarse()
        .actor("rank", |c, w| rank(c, w, &[1, 2, 3, 4], 7))
        .actor("retry", |c, w| retry(c, w, &[4]))
        .ends_in(&[
            "rank 2, retry 1 -> j1 scheduled, j2 claimed by p1, j3 ready, j4 ready; p1",
            "rank 3, retry 1 -> j1 scheduled, j2 claimed by p1, j3 ready, j4 ready; p1",
        ]);
}

fn clear_and_clear(db: &TestDb) {
    Play::new(db, two_finished)
        .actor("one", |c, _| clear_finished(c))
        .actor("two", |c, _| clear_finished(c))
        .ends_in(&["one 0, two 2 -> ; p1", "one 2, two 0 -> ; p1"]);
}

/// j1 and j2 have finished.
fn two_finished(conn: &mut Conn<'_>) -> World {
    let mut world = one_claim(conn);
    world.claimed(conn, 1, &row());
    finish(conn, &world, 1, &[1, 2], Keep).unwrap();
    world
}

on_each_database!(
    cancel_and_claim,
    cancel_and_finish,
    cancel_and_finish_that_deletes,
    cancel_and_retry_of_the_body,
    cancel_and_release,
    cancel_and_prune,
    cancel_and_dispatch,
    cancel_and_cancel,
    retry_and_retry,
    retry_and_discard,
    retry_and_clear_and_claim,
    discard_and_claim_and_dispatch,
    discard_and_prune,
    reschedule_and_dispatch,
    reschedule_and_claim,
    reschedule_and_reschedule,
    rank_and_dispatch,
    rank_and_claim_and_release,
    rank_and_reschedule,
    rank_and_retry,
    clear_and_clear,
);
