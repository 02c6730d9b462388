//! The proof of the proof: each of these faults is found.

use crate::db::conn::connection::Conn;
#[cfg(feature = "postgres")]
use crate::db::internal_tests::db::execute;
use crate::db::internal_tests::db::{TestDb, on_each_database};
use crate::db::internal_tests::interleavings::Play;
use crate::db::internal_tests::interleavings::acts::*;
use crate::db::internal_tests::interleavings::world::{World, row};
use crate::db::model::claim::ClaimOf;
use crate::db::model::claim::FinishedRow::Keep;
use crate::db::transition::faults;
#[cfg(feature = "postgres")]
use diesel::QueryResult;
#[cfg(feature = "postgres")]
use std::collections::BTreeMap;

/// p1 holds j1, p2 is idle, and j2 is ready.
fn a_claim_and_a_ready_job(conn: &mut Conn<'_>) -> World {
    let mut world = World::default();
    world.process(conn);
    world.claimed(conn, 1, &row());
    world.process(conn);
    world.job(conn, &row());
    world
}

/// Returns the violation to which some schedule of the play leads.
fn found(play: Play<'_>) -> String {
    play.explore().expect_err("a fault went unnoticed")
}

fn a_claim_that_does_not_look_at_its_process(db: &TestDb) {
    let what = found(
        Play::new(db, a_claim_and_a_ready_job)
            .with_fault("claim_without_process")
            .actor("claim", |c, w| claim(c, w, 1))
            .actor("prune", |c, w| prune(c, w, 1, Some(0))),
    );
    assert!(what.contains("I2"), "{what}");
}

fn a_prune_that_believes_an_old_look(db: &TestDb) {
    let what = found(
        Play::new(db, a_claim_and_a_ready_job)
            .with_fault("prune_from_stale_snapshot")
            .actor("claim", |c, w| claim(c, w, 1))
            .actor("prune", |c, w| prune(c, w, 1, Some(0))),
    );
    assert!(what.contains("I2"), "{what}");
}

fn a_crash_that_is_not_counted(db: &TestDb) {
    let outcomes = Play::new(db, a_claim_and_a_ready_job)
        .with_fault("crash_not_counted")
        .actor("finish", |c, w| finish(c, w, 1, &[1], Keep))
        .actor("prune", |c, w| prune(c, w, 1, Some(0)))
        .explore()
        .unwrap();
    assert!(!outcomes.keys().any(|outcome| outcome.contains("crash")));
}

fn a_finish_without_the_fence(db: &TestDb) {
    let what = found(
        Play::new(db, a_claim_and_a_ready_job)
            .actor("late", |c, w| {
                let claim = ClaimOf {
                    claim_id: w.claims[0],
                    job_id: w.jobs[0],
                };
                faults::finish_unfenced(c, &[claim])?;
                Ok("done".to_owned())
            })
            .actor("prune", |c, w| prune(c, w, 1, Some(0)))
            .actor("other", |c, w| claim_and_finish(c, w, 2)),
    );
    assert!(what.contains("I1") || what.contains("I3"), "{what}");
}

on_each_database!(
    a_claim_that_does_not_look_at_its_process,
    a_prune_that_believes_an_old_look,
    a_crash_that_is_not_counted,
    a_finish_without_the_fence,
);

/// Takes the two jobs' rows in a transaction, in this order.
#[cfg(feature = "postgres")]
fn touch(conn: &mut Conn<'_>, jobs: [i64; 2]) -> QueryResult<String> {
    conn.transaction(|conn| {
        for id in jobs {
            execute(
                conn,
                &format!("UPDATE solid_queue_jobs SET attempts = 1 WHERE id = {id}"),
            );
        }
        Ok("done".to_owned())
    })
}

#[cfg(feature = "postgres")]
#[test]
fn a_deadlock() {
    let db = TestDb::postgres();
    let what = found(
        Play::new(&db, a_claim_and_a_ready_job)
            .actor("up", |c, w| touch(c, [w.jobs[0], w.jobs[1]]))
            .actor("down", |c, w| touch(c, [w.jobs[1], w.jobs[0]])),
    );
    assert!(what.contains("deadlock"), "{what}");
}

#[cfg(feature = "postgres")]
#[test]
fn a_wait_for_nobody() {
    let db = TestDb::postgres();
    let slow = Play::new(&db, a_claim_and_a_ready_job).actor("slow", |c, _| {
        execute(c, "SELECT pg_sleep(5.5)");
        Ok("done".to_owned())
    });
    let what = found(slow);
    assert!(what.contains("waits for nobody"), "{what}");
}

/// Of a few small plays, whose orders can all be played to their ends.
#[cfg(feature = "postgres")]
#[test]
fn no_outcome_is_left_out() {
    fn all(db: &TestDb) -> Vec<Play<'_>> {
        let play = || Play::new(db, a_claim_and_a_ready_job);
        vec![
            play()
                .actor("finish", |c, w| finish(c, w, 1, &[1], Keep))
                .actor("prune", |c, w| prune(c, w, 1, Some(0)))
                .actor("claim", |c, w| claim(c, w, 2)),
            play()
                .actor("cancel", |c, w| cancel(c, w, &[1, 2]))
                .actor("release", |c, w| release(c, w, 1, &[1], None)),
            play()
                .actor("one", |c, w| discard(c, w, &[2]))
                .actor("other", |c, w| claim_and_finish(c, w, 2)),
        ]
    }
    let db = TestDb::postgres();
    for (play, same) in all(&db).into_iter().zip(all(&db)) {
        let (some, every) = (
            play.explore().unwrap(),
            same.without_memory().explore().unwrap(),
        );
        let count = |outcomes: &BTreeMap<String, usize>| outcomes.values().sum::<usize>();
        eprintln!(
            "{} of {} schedules to their ends",
            count(&some),
            count(&every)
        );
        assert!(
            some.keys().eq(every.keys()),
            "{some:?} instead of {every:?}"
        );
    }
}
