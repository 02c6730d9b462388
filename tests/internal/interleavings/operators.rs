//! Jobs that are moved to another queue, and operations that several processes
//! run, while workers, dispatchers and people are at the same jobs.

use crate::db::conn::connection::Conn;
use crate::db::internal_tests::db::{TestDb, on_each_database};
use crate::db::internal_tests::interleavings::Play;
use crate::db::internal_tests::interleavings::acts::*;
use crate::db::internal_tests::interleavings::world::{World, limited, row};
use crate::db::model::audit::Actor;
use crate::db::model::claim::FinishedRow::Keep;
use crate::db::table::operations::{self, NewOperationRow, OperationAdvance};
use crate::db::transition::audit;
use crate::db::transition::operate::{self, edit};
use diesel::QueryResult;

fn moved(conn: &mut Conn<'_>, world: &World, jobs: &[usize], queue: &str) -> QueryResult<String> {
    let jobs: Vec<i64> = jobs.iter().map(|number| world.jobs[number - 1]).collect();
    Ok(edit::requeue(conn, &jobs, queue)?.len().to_string())
}

/// p1 is idle; j1 is ready.
fn one_ready(conn: &mut Conn<'_>) -> World {
    let mut world = World::default();
    world.process(conn);
    world.job(conn, &row());
    world
}

/// p1 is idle; j1 is due.
fn one_due(conn: &mut Conn<'_>) -> World {
    let mut world = World::default();
    world.process(conn);
    world.due(conn);
    world
}

/// p1 holds j1.
fn one_claim(conn: &mut Conn<'_>) -> World {
    let mut world = World::default();
    world.process(conn);
    world.claimed(conn, 1, &row());
    world
}

/// p1 holds j1, and j2 waits for its slot.
fn one_blocked(conn: &mut Conn<'_>) -> World {
    let mut world = World::default();
    world.process(conn);
    world.claimed(conn, 1, &limited());
    world.job(conn, &limited());
    world
}

/// j1 waits for its slot, which is free.
fn one_to_promote(conn: &mut Conn<'_>) -> World {
    let mut world = World::default();
    world.process(conn);
    world.job(conn, &limited());
    world
}

/// j1 is due, and j2 is ready.
fn two_waiting(conn: &mut Conn<'_>) -> World {
    let mut world = one_due(conn);
    world.job(conn, &row());
    world
}

fn move_and_claim(db: &TestDb) {
    Play::new(db, one_ready)
        .actor("move", |c, w| moved(c, w, &[1], "slow"))
        .actor("claim", |c, w| claim(c, w, 1))
        .also_on_postgres(&["move 1, claim took 0 -> j1 ready; p1"])
        .ends_in(&[
            "move 0, claim took 1 -> j1 claimed by p1; p1",
            "move 1, claim took 1 -> j1 claimed by p1; p1",
        ]);
}

fn move_and_dispatch(db: &TestDb) {
    Play::new(db, one_due)
        .actor("move", |c, w| moved(c, w, &[1], "slow"))
        .actor("dispatch", |c, _| dispatch(c, 5))
        .also_on_postgres(&["move 1, dispatch 0 -> j1 scheduled; p1"])
        .ends_in(&["move 1, dispatch 1 -> j1 ready; p1"]);
}

fn move_and_promote(db: &TestDb) {
    Play::new(db, one_to_promote)
        .coarse()
        .actor("move", |c, w| moved(c, w, &[1], "slow"))
        .actor("promote", |c, _| promote(c, 5))
        // The promotion skips what is locked, and is requested again.
        .also_on_postgres(&["move 1, promote 0 -> j1 blocked; p1"])
        .ends_in(&["move 1, promote 1 -> j1 ready; p1"]);
}

fn move_and_pass_on(db: &TestDb) {
    Play::new(db, one_blocked)
        .actor("move", |c, w| moved(c, w, &[2], "slow"))
        .actor("finish", |c, w| finish_and_take_next(c, w, 1, &[1]))
        // The end has requested a promotion.
        .also_on_postgres(&["move 1, finish 1 took 0 -> j1 finished, j2 blocked; p1"])
        .ends_in(&[
            "move 0, finish 1 took 1 -> j1 finished, j2 claimed by p1; p1",
            "move 1, finish 1 took 1 -> j1 finished, j2 claimed by p1; p1",
        ]);
}

fn move_and_release(db: &TestDb) {
    Play::new(db, one_claim)
        .actor("move", |c, w| moved(c, w, &[1], "slow"))
        .actor("release", |c, w| release(c, w, 1, &[1], None))
        .ends_in(&[
            "move 0, release 1 -> j1 ready; p1",
            "move 1, release 1 -> j1 ready; p1",
        ]);
}

fn move_and_move(db: &TestDb) {
    Play::new(db, two_waiting)
        .coarse()
        .actor("one", |c, w| moved(c, w, &[1, 2], "slow"))
        .actor("two", |c, w| moved(c, w, &[2, 1], "slower"))
        .also_on_postgres(&[
            "one 1, two 2 -> j1 scheduled, j2 ready; p1",
            "one 2, two 1 -> j1 scheduled, j2 ready; p1",
        ])
        .ends_in(&["one 2, two 2 -> j1 scheduled, j2 ready; p1"]);
}

fn move_and_cancel(db: &TestDb) {
    Play::new(db, two_waiting)
        .coarse()
        .actor("move", |c, w| moved(c, w, &[1, 2], "slow"))
        .actor("cancel", |c, w| cancel(c, w, &[2, 1]))
        // It is searched for again.
        .also_on_postgres(&["move 2, cancel 1 ended 0 asked -> j1 scheduled, j2 finished; p1"])
        .ends_in(&[
            "move 0, cancel 2 ended 0 asked -> j1 finished, j2 finished; p1",
            "move 2, cancel 2 ended 0 asked -> j1 finished, j2 finished; p1",
        ]);
}

fn move_and_retry_of_the_body(db: &TestDb) {
    Play::new(db, one_claim)
        .actor("move", |c, w| moved(c, w, &[1], "slow"))
        .actor("end", |c, w| end(c, w, (1, 1), &retrying(), Keep))
        .ends_in(&[
            "move 0, end retried -> j1 ready; p1",
            "move 1, end retried -> j1 ready; p1",
        ]);
}

/// j1 and j2 are ready, and an operation is open that changes them in one batch.
fn an_operation(conn: &mut Conn<'_>) -> World {
    let mut world = one_ready(conn);
    world.job(conn, &row());
    let new = NewOperationRow {
        actor: &Actor::named("ada"),
        action: "jobs.priority",
        parameters: "{}",
        filter: "{}",
        bounds: "[]",
        place: "0",
        total: None,
        total_is_exact: false,
        request_id: None,
    };
    for id in operations::open(conn, 10).unwrap() {
        operations::end(conn, id, "stopped", None).unwrap();
    }
    audit::start(conn, &new).unwrap();
    world
}

/// Runs a batch of the open operation, and says how many jobs it changed.
fn batch(conn: &mut Conn<'_>, world: &World) -> QueryResult<String> {
    let Some(id) = operations::open(conn, 1)?.first().copied() else {
        return Ok("nothing".to_owned());
    };
    let done = audit::advance(conn, id, |conn, row| {
        assert_eq!(row.place, "0", "a batch is run once");
        let changed = operate::change_priority(conn, &world.jobs, 7)?.len() as u64;
        Ok(Some(OperationAdvance {
            place: "1".to_owned(),
            counts: "{}".to_owned(),
            looked_at: changed,
            changed,
            is_done: true,
            error: None,
        }))
    })?;
    Ok(done.map_or_else(|| "left".to_owned(), |done| done.changed.to_string()))
}

fn stop(conn: &mut Conn<'_>) -> QueryResult<String> {
    let Some(id) = operations::open(conn, 1)?.first().copied() else {
        return Ok("nothing".to_owned());
    };
    let stopped = audit::stop(conn, &Actor::named("bob"), id)?;
    Ok(if stopped { "done" } else { "late" }.to_owned())
}

fn batch_and_batch(db: &TestDb) {
    Play::new(db, an_operation)
        .coarse()
        .actor("one", batch)
        .actor("two", batch)
        .ends_in(&[
            "one 2, two left -> j1 ready, j2 ready; p1",
            "one 2, two nothing -> j1 ready, j2 ready; p1",
            "one left, two 2 -> j1 ready, j2 ready; p1",
            "one nothing, two 2 -> j1 ready, j2 ready; p1",
        ]);
}

fn batch_and_stop(db: &TestDb) {
    Play::new(db, an_operation)
        .coarse()
        .actor("batch", batch)
        .actor("stop", |c, _| stop(c))
        .ends_in(&[
            "batch 2, stop late -> j1 ready, j2 ready; p1",
            "batch 2, stop nothing -> j1 ready, j2 ready; p1",
            "batch left, stop done -> j1 ready, j2 ready; p1",
            "batch nothing, stop done -> j1 ready, j2 ready; p1",
        ]);
}

fn batch_and_claim(db: &TestDb) {
    Play::new(db, an_operation)
        .coarse()
        .actor("batch", batch)
        .actor("claim", |c, w| claim(c, w, 1))
        .also_on_postgres(&["batch 2, claim took 0 -> j1 ready, j2 ready; p1"])
        .ends_in(&[
            "batch 0, claim took 2 -> j1 claimed by p1, j2 claimed by p1; p1",
            "batch 2, claim took 2 -> j1 claimed by p1, j2 claimed by p1; p1",
        ]);
}

on_each_database!(
    move_and_claim,
    move_and_dispatch,
    move_and_promote,
    move_and_pass_on,
    move_and_release,
    move_and_move,
    move_and_cancel,
    move_and_retry_of_the_body,
    batch_and_batch,
    batch_and_stop,
    batch_and_claim,
);
