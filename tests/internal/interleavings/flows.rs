//! Batches: in whatever order the ends of their jobs come, with retries, additions and deaths between, they end once, and
//! what follows runs once.

use crate::db::conn::connection::{AsConn, Conn};
use crate::db::conn::statement::Statement;
use crate::db::internal_tests::db::{TestDb, on_each_database, texts};
use crate::db::internal_tests::interleavings::Play;
use crate::db::internal_tests::interleavings::acts::*;
use crate::db::internal_tests::interleavings::world::{World, row, take};
use crate::db::model::claim::{Cursor, FinishedRow};
use crate::db::model::decision::{FinishedJob, KeySlots};
use crate::db::model::extras::{On, Otherwise};
use crate::db::model::new_row::NewRow;
use crate::db::table::flows::batches::{self, Addition, NewBatchRow};
use crate::db::transition::enqueue::{self, flows};
use crate::db::transition::{finish, flows as batch_flows, promote};
use diesel::QueryResult;

on_each_database!(
    three_jobs_end_at_once,
    a_job_fails_beside_two_that_end,
    a_failed_job_is_retried_beside_the_last_end,
    jobs_are_added_beside_the_last_end,
    a_process_dies_beside_the_last_end,
    a_job_is_cancelled_beside_the_last_end,
    what_follows_is_cancelled_beside_its_promotion,
    two_promotions_see_the_last_end,
    an_addition_is_rolled_back,
    an_ended_member_is_taken_out_beside_a_retry,
    two_dispatchers_take_out_an_ended_member,
    a_failed_job_is_retried_beside_two_ends,
    jobs_are_added_beside_two_ends,
    a_process_dies_beside_two_ends,
    a_job_is_cancelled_beside_two_ends,
    a_failed_job_is_deleted_beside_the_end_of_its_batch,
    a_failed_job_is_deleted_beside_a_retry_of_another,
    a_sweep_that_fails_forgets_no_failure,
);

/// The batch of the world, the only one.
fn batch(conn: &mut Conn<'_>) -> i64 {
    texts(
        conn,
        "SELECT CAST(max(id) AS text) AS t FROM solid_queue_batches",
    )[0]
    .parse()
    .unwrap()
}

/// A batch with `members` jobs, and a job for each outcome, which are the first three.
fn with_batch(conn: &mut Conn<'_>, members: usize) -> World {
    let mut world = World::default();
    for _ in 0..3 {
        world.process(conn);
    }
    let new = NewBatchRow {
        name: "test",
        metadata: None,
        uuid: "windlass-test",
    };
    let id = batches::create_batch(conn, &new).unwrap();
    for runs_on in [On::Success, On::Failure, On::Finish] {
        let jobs = flows::follow(conn, id, &[row()], runs_on, Otherwise::Drop).unwrap();
        world.jobs.extend(jobs);
    }
    let rows = vec![
        NewRow {
            batch_id: Some(id),
            ..row()
        };
        members
    ];
    let jobs = enqueue::insert_all(conn, &rows).unwrap();
    let jobs: Vec<i64> = jobs.iter().map(|job| job.id).collect();
    flows::fill(conn, id, &jobs).unwrap();
    world.jobs.extend(jobs);
    world
}

/// j1 follows success, j2 failure, j3 any end; p1, p2 and p3 hold j4, j5 and j6.
fn three_held(conn: &mut Conn<'_>) -> World {
    let mut world = with_batch(conn, 3);
    for process in world.processes.clone() {
        let claims = take(conn, process, 1).unwrap().unwrap();
        world
            .claims
            .extend(claims.into_iter().map(|(claim, _)| claim));
    }
    world
}

/// The same, and j4 has failed.
fn one_failed(conn: &mut Conn<'_>) -> World {
    let world = three_held(conn);
    fail(conn, &world, 1, 1).unwrap();
    leave(conn, &world, 3, FinishedRow::Keep).unwrap();
    world
}

/// The same, and only j4 is left.
fn one_left(conn: &mut Conn<'_>) -> World {
    let world = three_held(conn);
    leave(conn, &world, 2, FinishedRow::Keep).unwrap();
    leave(conn, &world, 3, FinishedRow::Keep).unwrap();
    world
}

/// Finishes the job that a process holds.
fn leave(
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
        has_batch: true,
    };
    let process = world.processes[number - 1];
    let ended = finish::finish_and_keep(conn, process, vec![job], finished, KeySlots::None)?;
    Ok(format!("{}", ended.len()))
}

/// Ends a job, and promotes as a worker does after it.
fn leave_and_promote(conn: &mut Conn<'_>, world: &World, number: usize) -> QueryResult<String> {
    let ended = leave(conn, world, number, FinishedRow::Keep)?;
    promote_all(conn)?;
    Ok(ended)
}

fn promote_all(conn: &mut Conn<'_>) -> QueryResult<String> {
    while promote::promote(conn, 10)?.is_progress(10) {}
    Ok(String::new())
}

/// Returns the counts of the batch, and `open` or `over`, once all requests are handled.
fn settled(conn: &mut Conn<'_>) -> QueryResult<String> {
    promote_all(conn)?;
    let text = "SELECT total_jobs || ' ' || completed_jobs || ' ' || failed_jobs || ' ' || \
         CASE WHEN finished_at IS NULL THEN 'open' ELSE 'over' END AS t FROM solid_queue_batches";
    Ok(texts(conn, text).join(""))
}

fn three_jobs_end_at_once(db: &TestDb) {
    Play::new(db, three_held)
        .coarse()
        .finally(settled)
        .actor("a", |c, w| leave_and_promote(c, w, 1))
        .actor("b", |c, w| leave(c, w, 2, FinishedRow::Delete))
        .actor("c", |c, w| leave(c, w, 3, FinishedRow::Keep))
        .ends_in(&[
            "a 1, b 1, c 1, 3 3 0 over -> j1 ready, j3 ready, j4 finished, j6 finished; p1 p2 p3",
        ]);
}

fn a_job_fails_beside_two_that_end(db: &TestDb) {
    Play::new(db, three_held)
        .coarse()
        .finally(settled)
        .actor("a", |c, w| fail(c, w, 1, 1))
        .actor("b", |c, w| leave(c, w, 2, FinishedRow::Keep))
        .actor("c", |c, w| leave(c, w, 3, FinishedRow::Delete))
        .ends_in(&[
            "a 1, b 1, c 1, 3 2 1 over -> j2 ready, j3 ready, j4 failed, j5 finished; p1 p2 p3",
        ]);
}

/// The retry comes before the end of the batch, which then waits for the job, or after it.
fn a_failed_job_is_retried_beside_the_last_end(db: &TestDb) {
    Play::new(db, one_failed)
        .coarse()
        .finally(settled)
        .actor("retry", |c, w| retry(c, w, &[4]))
        .actor("end", |c, w| leave_and_promote(c, w, 2))
        .ends_in(&[
            "retry 1, end 1, 3 0 0 open -> j1 blocked, j2 blocked, j3 blocked, j4 ready, j5 finished, j6 finished; p1 p2 p3",
            "retry 1, end 1, 3 2 1 over -> j2 ready, j3 ready, j4 ready, j5 finished, j6 finished; p1 p2 p3",
        ]);
}

/// Adds two jobs, unless the batch is over.
fn add(conn: &mut Conn<'_>) -> QueryResult<String> {
    let id = batch(conn);
    conn.transaction(|conn| {
        if batches::accepts(conn, id)? != Addition::Accepted {
            return Ok("refused".to_owned());
        }
        let new = NewRow {
            batch_id: Some(id),
            ..row()
        };
        let jobs = enqueue::insert_all(conn, &[new.clone(), new])?;
        let jobs: Vec<i64> = jobs.iter().map(|job| job.id).collect();
        flows::add(conn, id, &jobs)?;
        Ok("added".to_owned())
    })
}

fn jobs_are_added_beside_the_last_end(db: &TestDb) {
    Play::new(db, one_left)
        .coarse()
        .finally(settled)
        .actor("add", |c, _| add(c))
        .actor("end", |c, w| leave_and_promote(c, w, 1))
        .ends_in(&[
            "add added, end 1, 5 0 0 open -> j1 blocked, j2 blocked, j3 blocked, j4 finished, j5 finished, j6 finished, new ready, new ready; p1 p2 p3",
            "add refused, end 1, 3 3 0 over -> j1 ready, j3 ready, j4 finished, j5 finished, j6 finished; p1 p2 p3",
        ]);
}

fn a_process_dies_beside_the_last_end(db: &TestDb) {
    fn two_left(conn: &mut Conn<'_>) -> World {
        let world = three_held(conn);
        leave(conn, &world, 3, FinishedRow::Keep).unwrap();
        let parked = "UPDATE solid_queue_jobs SET max_crashes = 0";
        Statement::new(parked).uncached().execute(conn).unwrap();
        world
    }
    Play::new(db, two_left)
        .coarse()
        .finally(settled)
        .actor("prune", |c, w| prune(c, w, 1, Some(0)))
        .actor("end", |c, w| leave_and_promote(c, w, 2))
        .ends_in(&["prune 0+0+1, end 1, 3 2 1 over -> j2 ready, j3 ready, j4 failed (1 crash), j5 finished, j6 finished; p2 p3"]);
}

fn a_job_is_cancelled_beside_the_last_end(db: &TestDb) {
    fn one_ready(conn: &mut Conn<'_>) -> World {
        let world = three_held(conn);
        release(conn, &world, 1, &[1], None).unwrap();
        leave(conn, &world, 2, FinishedRow::Keep).unwrap();
        world
    }
    Play::new(db, one_ready)
        .coarse()
        .finally(settled)
        .actor("cancel", |c, w| cancel(c, w, &[4]))
        .actor("end", |c, w| leave_and_promote(c, w, 3))
        .ends_in(&["cancel 1 ended 0 asked, end 1, 3 2 1 over -> j2 ready, j3 ready, j4 finished, j5 finished, j6 finished; p1 p2 p3"]);
}

/// j4, j5 and j6 have ended, and nothing was promoted.
fn none_left(conn: &mut Conn<'_>) -> World {
    let world = one_left(conn);
    leave(conn, &world, 1, FinishedRow::Keep).unwrap();
    world
}

/// It is ended in its wait, or as a ready job.
fn what_follows_is_cancelled_beside_its_promotion(db: &TestDb) {
    fn over(conn: &mut Conn<'_>) -> World {
        let world = none_left(conn);
        promote::promote(conn, 10).unwrap();
        world
    }
    Play::new(db, over)
        .coarse()
        .finally(settled)
        .actor("cancel", |c, w| cancel(c, w, &[1]))
        .actor("promote", |c, _| promote_once(c))
        .ends_in(&[
            "cancel 1 ended 0 asked, promote once, 3 3 0 over -> j1 finished, j3 ready, j4 finished, j5 finished, j6 finished; p1 p2 p3",
        ]);
}

fn promote_once(conn: &mut Conn<'_>) -> QueryResult<String> {
    promote::promote(conn, 10)?;
    Ok("once".to_owned())
}

fn two_promotions_see_the_last_end(db: &TestDb) {
    Play::new(db, none_left)
        .coarse()
        .finally(settled)
        .actor("one", |c, _| promote_once(c))
        .actor("other", |c, _| promote_once(c))
        .ends_in(&["one once, other once, 3 3 0 over -> j1 ready, j3 ready, j4 finished, j5 finished, j6 finished; p1 p2 p3"]);
}

/// The promotion finds the batch locked, and leaves it to a later one.
fn an_addition_is_rolled_back(db: &TestDb) {
    Play::new(db, one_left)
        .coarse()
        .finally(settled)
        .actor("add", |c, _| {
            let undone = c.transaction(|c| {
                let added = add(c)?;
                match &*added {
                    "refused" => Ok(added),
                    _ => Err(diesel::result::Error::RollbackTransaction),
                }
            });
            Ok(undone.unwrap_or_else(|_| "undone".to_owned()))
        })
        .actor("end", |c, w| leave_and_promote(c, w, 1))
        .ends_in(&[
            "add refused, end 1, 3 3 0 over -> j1 ready, j3 ready, j4 finished, j5 finished, j6 finished; p1 p2 p3",
            "add undone, end 1, 3 3 0 over -> j1 ready, j3 ready, j4 finished, j5 finished, j6 finished; p1 p2 p3",
        ]);
}

/// j4 was the last, and has failed in a program that left it in its batch.
fn one_left_in(conn: &mut Conn<'_>) -> World {
    let world = one_left(conn);
    fail(conn, &world, 1, 1).unwrap();
    for text in [
        "INSERT INTO solid_queue_batch_executions (job_id, batch_id, created_at) \
         SELECT job_id, batch_id, '2020-01-01' FROM windlass_batch_failures",
        "DELETE FROM windlass_batch_failures",
        "DELETE FROM windlass_wanted_keys",
    ] {
        Statement::new(text).uncached().execute(conn).unwrap();
    }
    world
}

/// Takes out what has ended, as a dispatcher does.
fn sweep(conn: &mut Conn<'_>) -> QueryResult<String> {
    batch_flows::leave::sweep(conn, 0, 100)?;
    Ok(String::new())
}

/// The retry comes before the sweep, which then leaves the job in its batch, or takes it back, or comes after the end of
/// the batch.
fn an_ended_member_is_taken_out_beside_a_retry(db: &TestDb) {
    Play::new(db, one_left_in)
        .coarse()
        .tolerates("B1")
        .finally(settled)
        .actor("retry", |c, w| retry(c, w, &[4]))
        .actor("sweep", |c, _| {
            sweep(c)?;
            promote_all(c)
        })
        .ends_in(&[
            "retry 1, sweep , 3 0 0 open -> j1 blocked, j2 blocked, j3 blocked, j4 ready, j5 finished, j6 finished; p1 p2 p3",
            "retry 1, sweep , 3 2 1 over -> j2 ready, j3 ready, j4 ready, j5 finished, j6 finished; p1 p2 p3",
        ]);
}

fn two_dispatchers_take_out_an_ended_member(db: &TestDb) {
    Play::new(db, one_left_in)
        .coarse()
        .tolerates("B1")
        .finally(settled)
        .actor("one", |c, _| sweep(c))
        .actor("other", |c, _| sweep(c))
        .ends_in(&["one , other , 3 2 1 over -> j2 ready, j3 ready, j4 failed, j5 finished, j6 finished; p1 p2 p3"]);
}

/// j1, which follows success, waits for retries.
fn waits_for_retries(conn: &mut Conn<'_>) {
    let text = "UPDATE windlass_edges SET otherwise = 'wait' WHERE runs_on = 'success'";
    Statement::new(text).uncached().execute(conn).unwrap();
}

/// However they come, j1 waits for no retry of j4.
fn a_failed_job_is_deleted_beside_the_end_of_its_batch(db: &TestDb) {
    fn all_ended(conn: &mut Conn<'_>) -> World {
        let world = one_failed(conn);
        waits_for_retries(conn);
        leave(conn, &world, 2, FinishedRow::Keep).unwrap();
        world
    }
    Play::new(db, all_ended)
        .coarse()
        .finally(settled)
        .actor("discard", |c, w| discard(c, w, &[4]))
        .actor("promote", |c, _| promote_once(c))
        .ends_in(&["discard 1, promote once, 3 2 1 over -> j1 finished, j2 ready, j3 ready, j5 finished, j6 finished; p1 p2 p3"]);
}

/// The batch is over, and j4 and j5 have failed. The retry opens it again, or nothing waits for that any more.
fn a_failed_job_is_deleted_beside_a_retry_of_another(db: &TestDb) {
    fn two_failed(conn: &mut Conn<'_>) -> World {
        let world = one_failed(conn);
        waits_for_retries(conn);
        fail(conn, &world, 2, 2).unwrap();
        promote_all(conn).unwrap();
        world
    }
    Play::new(db, two_failed)
        .coarse()
        .finally(settled)
        .actor("retry", |c, w| retry(c, w, &[5]))
        .actor("discard", |c, w| {
            let discarded = discard(c, w, &[4])?;
            promote_all(c)?;
            Ok(discarded)
        })
        .ends_in(&[
            "retry 1, discard 1, 3 0 0 open -> j1 blocked, j2 ready, j3 ready, j5 ready, j6 finished; p1 p2 p3",
            "retry 1, discard 1, 3 1 2 over -> j1 finished, j2 ready, j3 ready, j5 ready, j6 finished; p1 p2 p3",
        ]);
}

fn a_failed_job_is_retried_beside_two_ends(db: &TestDb) {
    fn one_has_failed(conn: &mut Conn<'_>) -> World {
        let world = three_held(conn);
        fail(conn, &world, 1, 1).unwrap();
        world
    }
    Play::new(db, one_has_failed)
        .coarse()
        .finally(settled)
        .actor("retry", |c, w| retry(c, w, &[4]))
        .actor("b", |c, w| leave(c, w, 2, FinishedRow::Keep))
        .actor("c", |c, w| leave(c, w, 3, FinishedRow::Delete))
        .ends_in(&["retry 1, b 1, c 1, 3 0 0 open -> j1 blocked, j2 blocked, j3 blocked, j4 ready, j5 finished; p1 p2 p3"]);
}

fn jobs_are_added_beside_two_ends(db: &TestDb) {
    Play::new(db, three_held)
        .coarse()
        .finally(settled)
        .actor("add", |c, _| add(c))
        .actor("b", |c, w| leave(c, w, 2, FinishedRow::Keep))
        .actor("c", |c, w| leave(c, w, 3, FinishedRow::Delete))
        .ends_in(&["add added, b 1, c 1, 5 0 0 open -> j1 blocked, j2 blocked, j3 blocked, j4 claimed by p1, j5 finished, new ready, new ready; p1 p2 p3"]);
}

fn a_process_dies_beside_two_ends(db: &TestDb) {
    fn parked(conn: &mut Conn<'_>) -> World {
        let world = three_held(conn);
        let parked = "UPDATE solid_queue_jobs SET max_crashes = 0";
        Statement::new(parked).uncached().execute(conn).unwrap();
        world
    }
    Play::new(db, parked)
        .coarse()
        .finally(settled)
        .actor("prune", |c, w| prune(c, w, 1, Some(0)))
        .actor("b", |c, w| leave(c, w, 2, FinishedRow::Keep))
        .actor("c", |c, w| leave(c, w, 3, FinishedRow::Keep))
        .ends_in(&["prune 0+0+1, b 1, c 1, 3 2 1 over -> j2 ready, j3 ready, j4 failed (1 crash), j5 finished, j6 finished; p2 p3"]);
}

fn a_job_is_cancelled_beside_two_ends(db: &TestDb) {
    fn one_ready(conn: &mut Conn<'_>) -> World {
        let world = three_held(conn);
        release(conn, &world, 1, &[1], None).unwrap();
        world
    }
    Play::new(db, one_ready)
        .coarse()
        .finally(settled)
        .actor("cancel", |c, w| cancel(c, w, &[4]))
        .actor("b", |c, w| leave(c, w, 2, FinishedRow::Keep))
        .actor("c", |c, w| leave(c, w, 3, FinishedRow::Keep))
        .ends_in(&["cancel 1 ended 0 asked, b 1, c 1, 3 2 1 over -> j2 ready, j3 ready, j4 finished, j5 finished, j6 finished; p1 p2 p3"]);
}

/// Another program has retried j4, and it has finished. Without its failure, nothing would tell that j1 may run.
fn a_sweep_that_fails_forgets_no_failure(db: &TestDb) {
    let mut connection = db.connect();
    let conn = &mut connection.as_conn();
    let world = one_failed(conn);
    waits_for_retries(conn);
    leave(conn, &world, 2, FinishedRow::Keep).unwrap();
    promote_all(conn).unwrap();
    for text in [
        "DELETE FROM solid_queue_failed_executions",
        "UPDATE solid_queue_jobs SET finished_at = created_at WHERE finished_at IS NULL AND id IN \
           (SELECT job_id FROM windlass_batch_failures)",
        "ALTER TABLE windlass_wanted_keys RENAME TO other_keys",
    ] {
        Statement::new(text).uncached().execute(conn).unwrap();
    }
    let swept = batch_flows::admit::request_overdue(conn, Cursor::BEGINNING, 10);
    assert!(swept.is_err(), "{swept:?}");
    let failures = "SELECT CAST(count(*) AS text) AS t FROM windlass_batch_failures";
    assert_eq!(texts(conn, failures), ["1"]);
}
