//! Jobs that wait for jobs: in whatever order these end, and whenever the others are enqueued, each is admitted or ended
//! once, and none is forgotten.

use crate::db::conn::connection::Conn;
use crate::db::internal_tests::db::{TestDb, on_each_database};
use crate::db::internal_tests::interleavings::Play;
use crate::db::internal_tests::interleavings::acts::{
    cancel, clear_finished, discard, fail, prune, release, retry,
};
use crate::db::internal_tests::interleavings::world::{World, row, take};
use crate::db::model::claim::FinishedRow;
use crate::db::model::decision::{FinishedJob, KeySlots};
use crate::db::model::extras::{Follows, On, Otherwise, Parent};
use crate::db::model::new_row::NewRow;
use crate::db::transition::{enqueue, finish, promote};
use diesel::QueryResult;

on_each_database!(
    three_parents_end_at_once,
    a_parent_fails_beside_two_that_end,
    a_parent_is_retried_beside_two_ends,
    a_parent_is_retried_beside_the_look_at_its_failure,
    a_parent_is_cancelled_beside_two_ends,
    a_process_of_a_parent_dies_beside_two_ends,
    a_job_is_enqueued_beside_two_ends,
    two_promotions_see_the_end_of_a_parent,
    a_job_is_enqueued_beside_the_end_of_its_parent,
    a_job_is_enqueued_beside_the_failure_of_its_parent,
    a_job_is_enqueued_beside_the_run_of_its_parent,
    a_job_is_enqueued_beside_the_discard_of_its_parent,
    a_job_is_enqueued_beside_the_clear_of_its_parent,
    an_enqueue_is_rolled_back_beside_the_end_of_the_parent,
    what_waits_is_cancelled_beside_the_end_of_its_parent,
);

fn after(parents: &[i64], on: On, otherwise: Otherwise) -> NewRow {
    let parents = parents.iter().map(|job| (Parent::Job(*job), None));
    let follows = Follows {
        parents: parents.collect(),
        on,
        otherwise,
    };
    NewRow {
        follows: Some(Box::new(follows)),
        ..row()
    }
}

/// p1, p2 and p3 hold the first jobs, `parents` of them.
fn held(conn: &mut Conn<'_>, parents: usize) -> World {
    let mut world = World::default();
    for _ in 0..3 {
        world.process(conn);
    }
    for _ in 0..parents {
        world.job(conn, &row());
    }
    for process in world.processes.clone().into_iter().take(parents) {
        let claims = take(conn, process, 1).unwrap().unwrap();
        let claims = claims.into_iter().map(|(claim, _)| claim);
        world.claims.extend(claims);
    }
    world
}

/// j4 waits for the success of all three, j5 for a failure, and j6 for all ends.
fn three_held(conn: &mut Conn<'_>) -> World {
    let mut world = held(conn, 3);
    let parents = world.jobs.clone();
    for on in [On::Success, On::Failure, On::Finish] {
        world.job(conn, &after(&parents, on, Otherwise::Discard));
    }
    promote_all(conn).unwrap();
    world
}

fn promote_all(conn: &mut Conn<'_>) -> QueryResult<String> {
    while promote::promote(conn, 10)?.is_progress(10) {}
    Ok(String::new())
}

/// Finishes the job that a process holds.
pub(crate) fn leave(
    conn: &mut Conn<'_>,
    world: &World,
    number: usize,
    finished: FinishedRow,
) -> QueryResult<String> {
    let job = FinishedJob {
        claim_id: world.claims[number - 1],
        result: None,
        named: None,
        has_steps: false,
        has_batch: false,
    };
    let process = world.processes[number - 1];
    let ended = finish::finish_and_keep(conn, process, vec![job], finished, KeySlots::None)?;
    Ok(format!("{}", ended.len()))
}

fn promote_once(conn: &mut Conn<'_>) -> QueryResult<String> {
    promote::promote(conn, 10)?;
    Ok("once".to_owned())
}

fn three_parents_end_at_once(db: &TestDb) {
    Play::new(db, three_held)
        .coarse()
        .finally(promote_all)
        .actor("a", |c, w| leave(c, w, 1, FinishedRow::Keep))
        .actor("b", |c, w| leave(c, w, 2, FinishedRow::Delete))
        .actor("c", |c, w| leave(c, w, 3, FinishedRow::Keep))
        .ends_in(&["a 1, b 1, c 1,  -> j1 finished, j3 finished, j4 ready, j5 finished, j6 ready; p1 p2 p3"]);
}

fn a_parent_fails_beside_two_that_end(db: &TestDb) {
    Play::new(db, three_held)
        .coarse()
        .finally(promote_all)
        .actor("a", |c, w| fail(c, w, 1, 1))
        .actor("b", |c, w| leave(c, w, 2, FinishedRow::Keep))
        .actor("c", |c, w| leave(c, w, 3, FinishedRow::Delete))
        .ends_in(&[
            "a 1, b 1, c 1,  -> j1 failed, j2 finished, j4 finished, j5 ready, j6 ready; p1 p2 p3",
        ]);
}

/// A job waits for the success of all parents, also by a retry. j1 has failed.
fn one_failed(conn: &mut Conn<'_>, parents: usize) -> World {
    let mut world = held(conn, parents);
    let parents = world.jobs.clone();
    world.job(conn, &after(&parents, On::Success, Otherwise::Wait));
    promote_all(conn).unwrap();
    fail(conn, &world, 1, 1).unwrap();
    world
}

/// The parent waits for j1, whether the failure was noted before the retry or not.
fn a_parent_is_retried_beside_two_ends(db: &TestDb) {
    Play::new(db, |conn| one_failed(conn, 3))
        .coarse()
        .finally(promote_all)
        .actor("retry", |c, w| retry(c, w, &[1]))
        .actor("b", |c, w| leave(c, w, 2, FinishedRow::Keep))
        .actor("c", |c, w| leave(c, w, 3, FinishedRow::Delete))
        .ends_in(&["retry 1, b 1, c 1,  -> j1 ready, j2 finished, j4 blocked; p1 p2 p3"]);
}

/// j1 is retried, and ends: its failure must not be noted after its success.
fn a_parent_is_retried_beside_the_look_at_its_failure(db: &TestDb) {
    Play::new(db, |conn| one_failed(conn, 2))
        .coarse()
        .finally(promote_all)
        .actor("retry", |c, w| {
            retry(c, w, &[1])?;
            let claims = take(c, w.processes[2], 1)?.unwrap_or_default();
            let claims: Vec<i64> = claims.into_iter().map(|(claim, _)| claim).collect();
            let ended = finish::finish(
                c,
                w.processes[2],
                &claims,
                FinishedRow::Keep,
                KeySlots::None,
            )?;
            promote_once(c)?;
            Ok(format!("{}", ended.len()))
        })
        .actor("look", |c, _| promote_once(c))
        .ends_in(&["retry 1, look once,  -> j1 finished, j2 claimed by p2, j3 blocked; p1 p2 p3"]);
}

fn a_parent_is_cancelled_beside_two_ends(db: &TestDb) {
    fn one_ready(conn: &mut Conn<'_>) -> World {
        let world = three_held(conn);
        release(conn, &world, 1, &[1], None).unwrap();
        world
    }
    Play::new(db, one_ready)
        .coarse()
        .finally(promote_all)
        .actor("cancel", |c, w| cancel(c, w, &[1]))
        .actor("b", |c, w| leave(c, w, 2, FinishedRow::Keep))
        .actor("c", |c, w| leave(c, w, 3, FinishedRow::Keep))
        .ends_in(&["cancel 1 ended 0 asked, b 1, c 1,  -> j1 finished, j2 finished, j3 finished, j4 finished, j5 ready, j6 ready; p1 p2 p3"]);
}

fn a_process_of_a_parent_dies_beside_two_ends(db: &TestDb) {
    fn parked(conn: &mut Conn<'_>) -> World {
        let world = three_held(conn);
        let parked = "UPDATE solid_queue_jobs SET max_crashes = 0";
        let parked = crate::db::conn::statement::Statement::new(parked);
        parked.uncached().execute(conn).unwrap();
        world
    }
    Play::new(db, parked)
        .coarse()
        .finally(promote_all)
        .actor("prune", |c, w| prune(c, w, 1, Some(0)))
        .actor("b", |c, w| leave(c, w, 2, FinishedRow::Keep))
        .actor("c", |c, w| leave(c, w, 3, FinishedRow::Keep))
        .ends_in(&["prune 0+0+1, b 1, c 1,  -> j1 failed (1 crash), j2 finished, j3 finished, j4 finished, j5 ready, j6 ready; p2 p3"]);
}

fn two_promotions_see_the_end_of_a_parent(db: &TestDb) {
    fn ended(conn: &mut Conn<'_>) -> World {
        let world = three_held(conn);
        for number in 1..=3 {
            leave(conn, &world, number, FinishedRow::Keep).unwrap();
        }
        world
    }
    Play::new(db, ended)
        .coarse()
        .finally(promote_all)
        .actor("one", |c, _| promote_once(c))
        .actor("other", |c, _| promote_once(c))
        .ends_in(&["one once, other once,  -> j1 finished, j2 finished, j3 finished, j4 ready, j5 finished, j6 ready; p1 p2 p3"]);
}

/// A new job waits for j1, which runs, and for j2 and j3, which end.
fn a_job_is_enqueued_beside_two_ends(db: &TestDb) {
    fn follow_all(conn: &mut Conn<'_>, world: &World) -> QueryResult<String> {
        let row = after(&world.jobs, On::Finish, Otherwise::Discard);
        enqueue::insert_job(conn, &row).map(|new| new.is_new.to_string())
    }
    Play::new(db, |conn| held(conn, 3))
        .coarse()
        .finally(promote_all)
        .actor("enqueue", follow_all)
        .actor("b", |c, w| leave(c, w, 2, FinishedRow::Keep))
        .actor("c", |c, w| leave(c, w, 3, FinishedRow::Keep))
        .ends_in(&["enqueue true, b 1, c 1,  -> j1 claimed by p1, j2 finished, j3 finished, new blocked; p1 p2 p3"]);
}

/// p1 holds j1.
fn one_held(conn: &mut Conn<'_>) -> World {
    held(conn, 1)
}

/// Enqueues a job that waits for j1, and one that waits for its failure. It is refused if j1 is gone without a result.
fn follow(conn: &mut Conn<'_>, world: &World) -> QueryResult<String> {
    let parents = &world.jobs[..1];
    let rows = [On::Success, On::Failure].map(|on| after(parents, on, Otherwise::Discard));
    match enqueue::insert_all(conn, &rows) {
        Ok(new) => Ok(format!("{}", new.len())),
        Err(diesel::result::Error::NotFound) => Ok("refused".to_owned()),
        Err(error) => Err(error),
    }
}

fn a_job_is_enqueued_beside_the_end_of_its_parent(db: &TestDb) {
    Play::new(db, one_held)
        .coarse()
        .finally(promote_all)
        .actor("enqueue", follow)
        .actor("end", |c, w| leave(c, w, 1, FinishedRow::Keep))
        .ends_in(&["enqueue 2, end 1,  -> j1 finished, new ready, new finished; p1 p2 p3"]);
    Play::new(db, one_held)
        .coarse()
        .finally(promote_all)
        .actor("enqueue", follow)
        .actor("end", |c, w| leave(c, w, 1, FinishedRow::Delete))
        .ends_in(&[
            "enqueue 2, end 1,  -> new ready, new finished; p1 p2 p3",
            "enqueue refused, end 1,  -> ; p1 p2 p3",
        ]);
}

fn a_job_is_enqueued_beside_the_failure_of_its_parent(db: &TestDb) {
    Play::new(db, one_held)
        .coarse()
        .finally(promote_all)
        .actor("enqueue", follow)
        .actor("fail", |c, w| fail(c, w, 1, 1))
        .ends_in(&["enqueue 2, fail 1,  -> j1 failed, new finished, new ready; p1 p2 p3"]);
}

/// j1 is ready: a worker claims and finishes it, or passes it.
fn a_job_is_enqueued_beside_the_run_of_its_parent(db: &TestDb) {
    fn one_ready(conn: &mut Conn<'_>) -> World {
        let world = held(conn, 1);
        release(conn, &world, 1, &[1], None).unwrap();
        world
    }
    Play::new(db, one_ready)
        .coarse()
        .finally(promote_all)
        .actor("enqueue", follow)
        .actor("run", |c, w| {
            let claims = take(c, w.processes[1], 1)?.unwrap_or_default();
            let claims: Vec<i64> = claims.into_iter().map(|(claim, _)| claim).collect();
            let ended = finish::finish(
                c,
                w.processes[1],
                &claims,
                FinishedRow::Keep,
                KeySlots::None,
            )?;
            Ok(format!("{}", ended.len()))
        })
        .ends_in(match db.is_postgres() {
            true => &[
                "enqueue 2, run 0,  -> j1 ready, new blocked, new blocked; p1 p2 p3",
                "enqueue 2, run 1,  -> j1 finished, new ready, new finished; p1 p2 p3",
            ],
            false => &["enqueue 2, run 1,  -> j1 finished, new ready, new finished; p1 p2 p3"],
        });
}

fn a_job_is_enqueued_beside_the_discard_of_its_parent(db: &TestDb) {
    fn one_ready(conn: &mut Conn<'_>) -> World {
        let world = held(conn, 1);
        release(conn, &world, 1, &[1], None).unwrap();
        world
    }
    Play::new(db, one_ready)
        .coarse()
        .finally(promote_all)
        .actor("enqueue", follow)
        .actor("discard", |c, w| discard(c, w, &[1]))
        .ends_in(&[
            "enqueue 2, discard 1,  -> new finished, new ready; p1 p2 p3",
            "enqueue refused, discard 1,  -> ; p1 p2 p3",
        ]);
}

/// j1 was cancelled, and that was noted for another job. Without its row, it would count as finished.
fn a_job_is_enqueued_beside_the_clear_of_its_parent(db: &TestDb) {
    fn one_cancelled(conn: &mut Conn<'_>) -> World {
        let mut world = held(conn, 1);
        let parents = world.jobs.clone();
        world.job(conn, &after(&parents, On::Finish, Otherwise::Discard));
        release(conn, &world, 1, &[1], None).unwrap();
        cancel(conn, &world, &[1]).unwrap();
        promote_all(conn).unwrap();
        world
    }
    Play::new(db, one_cancelled)
        .coarse()
        .finally(promote_all)
        .actor("enqueue", follow)
        .actor("clear", |c, _| clear_finished(c))
        .ends_in(&[
            "enqueue 2, clear 0,  -> j1 finished, j2 ready, new finished, new ready; p1 p2 p3",
            "enqueue refused, clear 1,  -> j2 ready; p1 p2 p3",
        ]);
}

fn an_enqueue_is_rolled_back_beside_the_end_of_the_parent(db: &TestDb) {
    Play::new(db, one_held)
        .coarse()
        .finally(promote_all)
        .actor("enqueue", |c, w| {
            let undone: QueryResult<()> = c.transaction(|c| {
                follow(c, w)?;
                Err(diesel::result::Error::RollbackTransaction)
            });
            Ok(format!("{}", undone.is_err()))
        })
        .actor("end", |c, w| leave(c, w, 1, FinishedRow::Keep))
        .ends_in(&["enqueue true, end 1,  -> j1 finished; p1 p2 p3"]);
}

fn what_waits_is_cancelled_beside_the_end_of_its_parent(db: &TestDb) {
    fn one_waits(conn: &mut Conn<'_>) -> World {
        let mut world = held(conn, 1);
        let parents = world.jobs.clone();
        world.job(conn, &after(&parents, On::Success, Otherwise::Discard));
        promote_all(conn).unwrap();
        world
    }
    Play::new(db, one_waits)
        .coarse()
        .finally(promote_all)
        .actor("cancel", |c, w| cancel(c, w, &[2]))
        .actor("end", |c, w| leave(c, w, 1, FinishedRow::Keep))
        .ends_in(&["cancel 1 ended 0 asked, end 1,  -> j1 finished, j2 finished; p1 p2 p3"]);
}
