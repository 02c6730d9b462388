//! Jobs with unique ids: who gets one, while others enqueue, claim, end and
//! clear the jobs that hold them.

use crate::db::conn::connection::Conn;
use crate::db::internal_tests::db::{TestDb, execute, on_each_database, texts};
use crate::db::internal_tests::interleavings::Play;
use crate::db::internal_tests::interleavings::acts::*;
use crate::db::internal_tests::interleavings::world::{World, row};
use crate::db::model::claim::{Cursor, FinishedRow};
use crate::db::model::decision::{FinishedJob, KeySlots};
use crate::db::model::new_row::{NewRow, OnConflict, UniqueScope};
use crate::db::transition::{clear, enqueue, finish, unique};
use diesel::QueryResult;
use diesel::result::Error::RollbackTransaction;

pub(super) fn named(on_conflict: OnConflict) -> NewRow {
    NewRow {
        unique_id: Some("u".to_owned()),
        on_conflict,
        ..row()
    }
}

pub(super) fn plain() -> NewRow {
    named(OnConflict::Existing)
}

/// Only what the hold says of it counts here, not its policy.
fn until_result_expires() -> NewRow {
    NewRow {
        unique_scope: UniqueScope::UntilResultExpires,
        policy: Some(r#"{"unique_scope":"until_result_expires"}"#.to_owned()),
        ..plain()
    }
}

/// Enqueues in a transaction of the caller's own, and says what came of it.
pub(super) fn put(conn: &mut Conn<'_>, row: &NewRow, commit: bool) -> QueryResult<String> {
    let mut said = String::new();
    let result: QueryResult<()> = conn.transaction(|conn| {
        said = format!("{:?}", enqueue::insert_job(conn, row)?.outcome).to_lowercase();
        if commit {
            Ok(())
        } else {
            Err(RollbackTransaction)
        }
    });
    match result {
        Ok(()) => Ok(said),
        Err(RollbackTransaction) => Ok(format!("{said} undone")),
        Err(error) => Err(error),
    }
}

/// The same, and then what a dispatcher does sooner or later.
fn put_and_unblock(conn: &mut Conn<'_>, row: &NewRow) -> QueryResult<String> {
    let said = put(conn, row, true)?;
    unique::sweep(conn, Cursor::BEGINNING, 10)?;
    Ok(said)
}

/// As a worker finishes a job with a unique id.
pub(super) fn end_named(
    conn: &mut Conn<'_>,
    world: &World,
    finished: FinishedRow,
) -> QueryResult<String> {
    let job = FinishedJob {
        claim_id: world.claims[0],
        result: None,
        named: Some(world.jobs[0]),
        has_steps: false,
        has_batch: false,
    };
    let ended = finish::finish_and_keep(
        conn,
        world.processes[0],
        vec![job],
        finished,
        KeySlots::Free,
    )?;
    Ok(ended.len().to_string())
}

/// p1 is idle.
pub(super) fn a_process(conn: &mut Conn<'_>) -> World {
    let mut world = World::default();
    world.process(conn);
    world
}

/// p1 is idle; j1 is ready.
pub(super) fn one_ready(conn: &mut Conn<'_>) -> World {
    let mut world = a_process(conn);
    world.job(conn, &plain());
    world
}

/// p1 holds j1.
pub(super) fn one_claim(conn: &mut Conn<'_>) -> World {
    let mut world = a_process(conn);
    world.claimed(conn, 1, &plain());
    world
}

/// p1 holds j1, and j2 waits behind it.
pub(super) fn one_behind(conn: &mut Conn<'_>) -> World {
    let mut world = one_claim(conn);
    world.job(conn, &named(OnConflict::RunAgain));
    world
}

/// j1 has failed.
pub(super) fn one_failed(conn: &mut Conn<'_>) -> World {
    let mut world = a_process(conn);
    world.failed(conn, 1, &plain());
    world
}

/// j1 has finished, and its result has expired.
fn one_expired(conn: &mut Conn<'_>) -> World {
    let mut world = a_process(conn);
    world.claimed(conn, 1, &until_result_expires());
    let claims = [world.claims[0]];
    finish::finish(
        conn,
        world.processes[0],
        &claims,
        FinishedRow::Keep,
        KeySlots::Free,
    )
    .unwrap();
    let text = format!(
        "INSERT INTO windlass_results (job_id, class_name, outcome, attempt, finished_at, expires_at) \
         VALUES ({}, 'a', 'succeeded', 1, '2020-01-01 00:00:00.000000', '2020-01-01 00:00:00.000000')",
        world.jobs[0]
    );
    execute(conn, &text);
    world
}

fn two_enqueue(db: &TestDb) {
    Play::new(db, a_process)
        .actor("first", |c, _| put(c, &plain(), true))
        .actor("second", |c, _| put(c, &plain(), true))
        .ends_in(&[
            "first existing, second new -> new ready; p1",
            "first new, second existing -> new ready; p1",
        ]);
}

fn one_of_two_rolls_back(db: &TestDb) {
    Play::new(db, a_process)
        .actor("first", |c, _| put(c, &plain(), false))
        .actor("second", |c, _| put(c, &plain(), true))
        .ends_in(&[
            "first existing undone, second new -> new ready; p1",
            "first new undone, second new -> new ready; p1",
        ]);
}

fn one_of_two_takes_over_and_rolls_back(db: &TestDb) {
    Play::new(db, one_failed)
        .actor("first", |c, _| put(c, &plain(), false))
        .actor("second", |c, _| put(c, &plain(), true))
        .ends_in(&[
            "first existing undone, second new -> j1 failed, new ready; p1",
            "first new undone, second new -> j1 failed, new ready; p1",
        ]);
}

pub(super) fn lot(conn: &mut Conn<'_>, names: &[&str]) -> QueryResult<String> {
    let rows: Vec<NewRow> = names
        .iter()
        .map(|name| NewRow {
            unique_id: Some((*name).to_owned()),
            ..row()
        })
        .collect();
    let inserted = enqueue::insert_all(conn, &rows)?;
    let new = inserted.iter().filter(|one| one.is_new).count();
    Ok(new.to_string())
}

fn lots_in_opposite_order(db: &TestDb) {
    Play::new(db, a_process)
        .actor("first", |c, _| lot(c, &["u", "v", "w"]))
        .actor("second", |c, _| lot(c, &["w", "v", "u"]))
        .ends_in(&[
            "first 0, second 3 -> new ready, new ready, new ready; p1",
            "first 3, second 0 -> new ready, new ready, new ready; p1",
        ]);
}

/// They lock, one by one, what is there.
fn lots_of_what_is_there_in_opposite_order(db: &TestDb) {
    fn two_ready(conn: &mut Conn<'_>) -> World {
        let mut world = one_ready(conn);
        let other = NewRow {
            unique_id: Some("v".to_owned()),
            ..row()
        };
        world.job(conn, &other);
        world
    }
    Play::new(db, two_ready)
        .coarse()
        .actor("first", |c, _| lot(c, &["u", "v"]))
        .actor("second", |c, _| lot(c, &["v", "u"]))
        .ends_in(&["first 0, second 0 -> j1 ready, j2 ready; p1"]);
}

/// The key is used when the job is inserted, and free again when it is looked for.
fn a_key_that_is_used_for_a_moment(db: &TestDb) {
    fn keyed(unique_id: Option<&str>) -> NewRow {
        NewRow {
            idempotency_key: Some("k".to_owned()),
            unique_id: unique_id.map(str::to_owned),
            ..row()
        }
    }
    let new = "other gone, named new and holds 1 -> new ready; p1";
    // On Postgres, the deletion is no step of its own.
    let outcomes: &[&str] = if db.is_postgres() {
        &[new]
    } else {
        &["other gone, named existing and holds 0 -> ; p1", new]
    };
    Play::new(db, a_process)
        .actor("other", |c, _| {
            put(c, &keyed(None), true)?;
            execute(
                c,
                "BEGIN; DELETE FROM solid_queue_ready_executions WHERE job_id IN \
                   (SELECT id FROM solid_queue_jobs WHERE unique_id IS NULL); \
                 DELETE FROM solid_queue_jobs WHERE unique_id IS NULL; COMMIT",
            );
            Ok("gone".to_owned())
        })
        .actor("named", |c, _| {
            let said = put(c, &keyed(Some("u")), true)?;
            let held = "SELECT CAST(count(*) AS text) AS t FROM windlass_unique_jobs u \
                 JOIN solid_queue_jobs j ON j.id = u.job_id AND j.unique_id = u.unique_id";
            Ok(format!("{said} and holds {}", texts(c, held).concat()))
        })
        .ends_in(outcomes);
}

fn claim_and_enqueue(db: &TestDb) {
    Play::new(db, one_ready)
        .actor("claim", |c, w| claim(c, w, 1))
        .actor("enqueue", |c, _| put(c, &plain(), true))
        .also_on_postgres(&["claim took 0, enqueue existing -> j1 ready; p1"])
        .ends_in(&["claim took 1, enqueue existing -> j1 claimed by p1; p1"]);
}

fn claim_and_debounce(db: &TestDb) {
    Play::new(db, one_ready)
        .actor("claim", |c, w| claim(c, w, 1))
        .actor("enqueue", |c, _| put(c, &named(OnConflict::Replace), true))
        .also_on_postgres(&["claim took 0, enqueue replaced -> j1 ready; p1"])
        .ends_in(&[
            "claim took 1, enqueue again -> j1 claimed by p1, new blocked; p1",
            "claim took 1, enqueue replaced -> j1 claimed by p1; p1",
        ]);
}

fn dispatch_and_debounce(db: &TestDb) {
    fn one_due(conn: &mut Conn<'_>) -> World {
        let mut world = one_ready(conn);
        execute(
            conn,
            "BEGIN; DELETE FROM solid_queue_ready_executions; INSERT INTO solid_queue_scheduled_executions \
             (job_id, queue_name, priority, scheduled_at, created_at) SELECT id, queue_name, priority, \
             '2000-01-01 00:00:00.000000', created_at FROM solid_queue_jobs; COMMIT",
        );
        world.claims.clear();
        world
    }
    Play::new(db, one_due)
        .coarse()
        .actor("dispatch", |c, _| dispatch(c, 5))
        .actor("enqueue", |c, _| put(c, &named(OnConflict::Replace), true))
        .ends_in(&[
            "dispatch 0, enqueue replaced -> j1 ready; p1",
            "dispatch 1, enqueue replaced -> j1 ready; p1",
        ]);
}

fn finish_and_enqueue(db: &TestDb) {
    Play::new(db, one_claim)
        .actor("finish", |c, w| end_named(c, w, FinishedRow::Keep))
        .actor("enqueue", |c, _| put(c, &plain(), true))
        .ends_in(&[
            "finish 1, enqueue existing -> j1 finished; p1",
            "finish 1, enqueue new -> j1 finished, new ready; p1",
        ]);
}

/// The dispatcher finds the blocked job later if neither transaction sees the other.
fn finish_and_run_again(db: &TestDb) {
    Play::new(db, one_claim)
        .actor("finish", |c, w| end_named(c, w, FinishedRow::Keep))
        .actor("enqueue", |c, _| {
            put_and_unblock(c, &named(OnConflict::RunAgain))
        })
        .also_on_postgres(&["finish 1, enqueue again -> j1 finished, new blocked; p1"])
        .ends_in(&[
            "finish 1, enqueue again -> j1 finished, new ready; p1",
            "finish 1, enqueue new -> j1 finished, new ready; p1",
        ]);
}

fn finish_and_debounce_of_one_behind(db: &TestDb) {
    Play::new(db, one_behind)
        .coarse()
        .actor("finish", |c, w| end_named(c, w, FinishedRow::Keep))
        .actor("enqueue", |c, _| put(c, &named(OnConflict::Replace), true))
        .also_on_postgres(&["finish 1, enqueue replaced -> j1 finished, j2 blocked; p1"])
        .ends_in(&["finish 1, enqueue replaced -> j1 finished, j2 ready; p1"]);
}

fn finish_that_deletes_and_run_again(db: &TestDb) {
    Play::new(db, one_claim)
        .actor("finish", |c, w| end_named(c, w, FinishedRow::Delete))
        .actor("enqueue", |c, _| {
            put_and_unblock(c, &named(OnConflict::Replace))
        })
        .also_on_postgres(&["finish 1, enqueue again -> new blocked; p1"])
        .ends_in(&[
            "finish 1, enqueue again -> new ready; p1",
            "finish 1, enqueue new -> new ready; p1",
        ]);
}

fn finish_and_dispatch_of_one_behind(db: &TestDb) {
    Play::new(db, one_behind)
        .coarse()
        .actor("finish", |c, w| end_named(c, w, FinishedRow::Keep))
        .actor("unblock", |c, _| {
            Ok(unique::sweep(c, Cursor::BEGINNING, 10)?
                .unblocked
                .to_string())
        })
        .actor("prune", |c, w| prune(c, w, 1, Some(0)))
        .ends_in(&[
            "finish 0, unblock 0, prune 1+0+0 -> j1 ready (1 crash), j2 blocked; ",
            "finish 1, unblock 0, prune 0+0+0 -> j1 finished, j2 ready; ",
        ]);
}

fn prune_and_run_again(db: &TestDb) {
    Play::new(db, one_claim)
        .coarse()
        .actor("prune", |c, w| prune(c, w, 1, Some(0)))
        .actor("enqueue", |c, _| {
            put_and_unblock(c, &named(OnConflict::RunAgain))
        })
        .ends_in(&[
            "prune 1+0+0, enqueue again -> j1 ready (1 crash), new blocked; ",
            "prune 1+0+0, enqueue existing -> j1 ready (1 crash); ",
        ]);
}

fn cancel_and_enqueue(db: &TestDb) {
    Play::new(db, one_ready)
        .coarse()
        .actor("cancel", |c, w| cancel(c, w, &[1]))
        .actor("enqueue", |c, _| put(c, &plain(), true))
        .ends_in(&[
            "cancel 1 ended 0 asked, enqueue existing -> j1 finished; p1",
            "cancel 1 ended 0 asked, enqueue new -> j1 finished, new ready; p1",
        ]);
}

fn discard_and_enqueue(db: &TestDb) {
    Play::new(db, one_ready)
        .coarse()
        .actor("discard", |c, w| discard(c, w, &[1]))
        .actor("enqueue", |c, _| put(c, &named(OnConflict::Replace), true))
        .also_on_postgres(&["discard 0, enqueue replaced -> j1 ready; p1"])
        .ends_in(&[
            "discard 1, enqueue new -> new ready; p1",
            "discard 1, enqueue replaced -> ; p1",
        ]);
}

fn retry_and_enqueue(db: &TestDb) {
    Play::new(db, one_failed)
        .coarse()
        .actor("retry", |c, w| retry(c, w, &[1]))
        .actor("enqueue", |c, _| put(c, &plain(), true))
        .ends_in(&[
            "retry 0, enqueue new -> j1 failed, new ready; p1",
            "retry 1, enqueue existing -> j1 ready; p1",
        ]);
}

/// p1 holds j1, which may run at most once.
fn one_claim_of_one_run(conn: &mut Conn<'_>) -> World {
    let mut world = a_process(conn);
    let row = NewRow {
        at_most_once: true,
        ..plain()
    };
    world.claimed(conn, 1, &row);
    world
}

fn prune_and_enqueue(db: &TestDb) {
    Play::new(db, one_claim_of_one_run)
        .coarse()
        .actor("prune", |c, w| prune(c, w, 1, Some(0)))
        .actor("enqueue", |c, _| put(c, &plain(), true))
        .ends_in(&[
            "prune 0+0+1, enqueue existing -> j1 failed (1 crash); ",
            "prune 0+0+1, enqueue new -> j1 failed (1 crash), new ready; ",
        ]);
}

fn prune_and_retry(db: &TestDb) {
    Play::new(db, one_claim_of_one_run)
        .coarse()
        .actor("prune", |c, w| prune(c, w, 1, Some(0)))
        .actor("retry", |c, w| retry(c, w, &[1]))
        .ends_in(&[
            "prune 0+0+1, retry 0 -> j1 failed (1 crash); ",
            "prune 0+0+1, retry 1 -> j1 ready; ",
        ]);
}

fn expiry_and_enqueue(db: &TestDb) {
    Play::new(db, one_expired)
        .coarse()
        .actor("expire", |c, _| {
            Ok(clear::expired::delete(c, clear::expired::EXPIRING[0], 10)?
                .cleared
                .to_string())
        })
        .actor("clear", |c, _| clear_finished(c))
        .actor("enqueue", |c, _| put(c, &until_result_expires(), true))
        .ends_in(&["expire 1, clear 1, enqueue new -> new ready; p1"]);
}

/// Outside a transaction, where Postgres needs one statement if the id is free.
fn put_alone(conn: &mut Conn<'_>) -> QueryResult<String> {
    let inserted = enqueue::insert_job(conn, &plain())?;
    Ok(format!("{:?}", inserted.outcome).to_lowercase())
}

fn enqueue_and_enqueue_alone(db: &TestDb) {
    Play::new(db, |_| World::default())
        .actor("one", |c, _| put_alone(c))
        .actor("two", |c, _| put_alone(c))
        .ends_in(&[
            "one existing, two new -> new ready; ",
            "one new, two existing -> new ready; ",
        ]);
}

on_each_database!(
    enqueue_and_enqueue_alone,
    two_enqueue,
    one_of_two_rolls_back,
    one_of_two_takes_over_and_rolls_back,
    lots_in_opposite_order,
    lots_of_what_is_there_in_opposite_order,
    a_key_that_is_used_for_a_moment,
    claim_and_enqueue,
    claim_and_debounce,
    dispatch_and_debounce,
    finish_and_enqueue,
    finish_and_run_again,
    finish_and_debounce_of_one_behind,
    finish_that_deletes_and_run_again,
    finish_and_dispatch_of_one_behind,
    prune_and_run_again,
    cancel_and_enqueue,
    discard_and_enqueue,
    retry_and_enqueue,
    prune_and_enqueue,
    prune_and_retry,
    expiry_and_enqueue,
);
