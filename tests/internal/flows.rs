//! Effects of promotions on ends that were noted before: of retries, and of parents that no retry brings back.

use crate::db::conn::connection::{AsConn, Conn};
use crate::db::internal_tests::db::{TestDb, on_each_database};
use crate::db::internal_tests::interleavings::acts::{clear_finished, end, fail, retry};
use crate::db::internal_tests::interleavings::world::{World, row, take};
use crate::db::model::claim::{Fence, FinishedRow};
use crate::db::model::decision::KeySlots;
use crate::db::model::extras::{Follows, On, Otherwise, Parent};
use crate::db::model::new_row::NewRow;
use crate::db::model::outcome::{Ending, ParkUntil, ParkedStep, cancelled};
use crate::db::transition::enqueue::connect;
use crate::db::transition::{finish, promote};

on_each_database!(
    a_job_after_a_failure_runs_although_one_was_cancelled,
    a_retried_job_that_is_not_kept_has_succeeded,
    a_second_join_waits_for_a_retried_job,
    a_parent_is_cleared_after_its_end_was_noted,
);

/// p1 holds as many jobs.
fn held(conn: &mut Conn<'_>, jobs: usize) -> World {
    let mut world = World::default();
    world.process(conn);
    for _ in 0..jobs {
        world.claimed(conn, 1, &row());
    }
    world
}

fn after(parents: &[i64], on: On) -> NewRow {
    let parents = parents.iter().map(|job| (Parent::Job(*job), None));
    let follows = Follows {
        parents: parents.collect(),
        on,
        otherwise: Otherwise::Wait,
    };
    NewRow {
        follows: Some(Box::new(follows)),
        ..row()
    }
}

fn promote_all(conn: &mut Conn<'_>) {
    while promote::promote(conn, 10).unwrap().is_progress(10) {}
}

fn finish_all(conn: &mut Conn<'_>, world: &World, claims: &[i64], finished: FinishedRow) {
    let process = world.processes[0];
    let ended = finish::finish(conn, process, claims, finished, KeySlots::None);
    assert_eq!(ended.unwrap(), claims);
    promote_all(conn);
}

/// j3 waits for a failure of j1 or j2, and for no retry of it.
fn a_job_after_a_failure_runs_although_one_was_cancelled(db: &TestDb) {
    let mut connection = db.connect();
    let conn = &mut connection.as_conn();
    let mut world = held(conn, 2);
    let parents = world.jobs.clone();
    world.job(conn, &after(&parents, On::Failure));
    let ending = Ending::Cancel(cancelled());
    end(conn, &world, (1, 1), &ending, FinishedRow::Keep).unwrap();
    promote_all(conn);
    finish_all(conn, &world, &world.claims[1..], FinishedRow::Keep);
    let described = world.describe(conn);
    assert_eq!(described, "j1 finished, j2 finished, j3 ready; p1");
}

/// j2 waits until j1 was retried and has succeeded. Finished jobs are not kept.
fn a_retried_job_that_is_not_kept_has_succeeded(db: &TestDb) {
    let mut connection = db.connect();
    let conn = &mut connection.as_conn();
    let mut world = held(conn, 1);
    let parents = world.jobs.clone();
    world.job(conn, &after(&parents, On::Success));
    fail(conn, &world, 1, 1).unwrap();
    promote_all(conn);
    retry(conn, &world, &[1]).unwrap();
    let claims = take(conn, world.processes[0], 1).unwrap().unwrap();
    let claims: Vec<i64> = claims.into_iter().map(|(claim, _)| claim).collect();
    finish_all(conn, &world, &claims, FinishedRow::Delete);
    assert_eq!(world.describe(conn), "j2 ready; p1");
}

/// j1 joins j2.
fn join(conn: &mut Conn<'_>, world: &World, step: &str) {
    let fence = Fence {
        claim_id: world.claims[0],
        process_id: world.processes[0],
    };
    let parents = [(Parent::Job(world.jobs[1]), None)];
    connect::join(conn, fence, world.jobs[0], step, &parents).unwrap();
    let ending = Ending::Park(ParkedStep {
        step: step.to_owned(),
        until: ParkUntil::Joined("{}".to_owned()),
    });
    end(conn, world, (1, 1), &ending, FinishedRow::Keep).unwrap();
    promote_all(conn);
}

fn a_second_join_waits_for_a_retried_job(db: &TestDb) {
    let mut connection = db.connect();
    let conn = &mut connection.as_conn();
    let mut world = held(conn, 2);
    join(conn, &world, "first");
    fail(conn, &world, 1, 2).unwrap();
    promote_all(conn);
    assert_eq!(world.describe(conn), "j1 ready, j2 failed; p1");
    retry(conn, &world, &[2]).unwrap();
    let claims = take(conn, world.processes[0], 2).unwrap().unwrap();
    world.claims = claims.into_iter().map(|(claim, _)| claim).collect();
    join(conn, &world, "second");
    assert_eq!(world.describe(conn), "j1 blocked, j2 claimed by p1; p1");
    finish_all(conn, &world, &world.claims[1..], FinishedRow::Keep);
    assert_eq!(world.describe(conn), "j1 ready, j2 finished; p1");
}

/// j2 waits for the success of j1. Without a row, a cancelled job would count as finished.
fn a_parent_is_cleared_after_its_end_was_noted(db: &TestDb) {
    let mut connection = db.connect();
    let conn = &mut connection.as_conn();
    let mut world = held(conn, 1);
    let parents = world.jobs.clone();
    world.job(conn, &after(&parents, On::Success));
    promote_all(conn);
    let ending = Ending::Cancel(cancelled());
    end(conn, &world, (1, 1), &ending, FinishedRow::Keep).unwrap();
    assert_eq!(clear_finished(conn).unwrap(), "0");
    promote_all(conn);
    assert_eq!(world.describe(conn), "j1 finished, j2 finished; p1");
    assert_eq!(clear_finished(conn).unwrap(), "2");
}
