//! The end of a job claims the next one of its key, while others move that one or the process.

use crate::db::conn::connection::Conn;
use crate::db::internal_tests::db::{TestDb, on_each_database};
use crate::db::internal_tests::interleavings::Play;
use crate::db::internal_tests::interleavings::acts::*;
use crate::db::internal_tests::interleavings::world::{World, limited};
use crate::db::model::new_row::NewRow;
use crate::db::transition::enqueue;

fn twice() -> NewRow {
    let mut row = limited();
    row.limit.iter_mut().for_each(|limit| limit.slots = 2);
    row
}

/// p1 holds j1, and with it the only slot; j2 is blocked.
fn one_blocked(conn: &mut Conn<'_>) -> World {
    let mut world = World::default();
    world.process(conn);
    world.claimed(conn, 1, &limited());
    world.job(conn, &limited());
    promote(conn, 10).unwrap();
    world
}

/// p1 holds j1 and p2 holds j2, both slots of their key; j3 is blocked.
fn two_held(conn: &mut Conn<'_>) -> World {
    let mut world = World::default();
    world.process(conn);
    world.process(conn);
    world.claimed(conn, 1, &twice());
    world.claimed(conn, 2, &twice());
    world.job(conn, &twice());
    promote(conn, 10).unwrap();
    world
}

fn finish_and_promote(db: &TestDb) {
    Play::new(db, one_blocked)
        .coarse()
        .actor("finish", |c, w| finish_and_take_next(c, w, 1, &[1]))
        .actor("promote", |c, _| promote(c, 10))
        .ends_in(&["finish 1 took 1, promote 0 -> j1 finished, j2 claimed by p1; p1"]);
}

/// The new job finds the slot taken, before and after.
fn finish_and_enqueue(db: &TestDb) {
    Play::new(db, one_blocked)
        .coarse()
        .actor("finish", |c, w| finish_and_take_next(c, w, 1, &[1]))
        .actor("enqueue", |c, _| {
            let said = enqueue(c, &limited(), true)?;
            Ok(format!("{said} {}", promote(c, 10)?))
        })
        .ends_in(&[
            "finish 1 took 1, enqueue new 0 -> j1 finished, j2 claimed by p1, new blocked; p1",
        ]);
}

fn finish_and_finish(db: &TestDb) {
    Play::new(db, two_held)
        .coarse()
        .actor("one", |c, w| {
            let done = finish_and_take_next(c, w, 1, &[1])?;
            Ok(format!("{done} {}", promote(c, 10)?))
        })
        .actor("two", |c, w| {
            let done = finish_and_take_next(c, w, 2, &[2])?;
            Ok(format!("{done} {}", promote(c, 10)?))
        })
        .ends_in(&[
            "one 1 took 0 0, two 1 took 1 0 -> j1 finished, j2 finished, j3 claimed by p2; p1 p2",
            "one 1 took 1 0, two 1 took 0 0 -> j1 finished, j2 finished, j3 claimed by p1; p1 p2",
        ]);
}

/// The limit has fallen to one while two jobs held slots: of two ends, the second passes one on.
fn finish_after_the_limit_was_lowered(db: &TestDb) {
    Play::new(db, two_held)
        // In one transaction: until the second end, there are more than there may be.
        .actor("finish", |c, w| {
            c.transaction(|c| {
                enqueue::insert_job(c, &limited())?;
                let first = finish_and_take_next(c, w, 1, &[1])?;
                Ok(format!("{first}, {}", finish_and_take_next(c, w, 2, &[2])?))
            })
        })
        .ends_in(&[
            "finish 1 took 0, 1 took 1 -> j1 finished, j2 finished, j3 claimed by p2, new blocked; p1 p2",
        ]);
}

/// A process that is gone or drains claims nothing.
fn finish_and_prune(db: &TestDb) {
    Play::new(db, one_blocked)
        .coarse()
        .actor("finish", |c, w| finish_and_take_next(c, w, 1, &[1]))
        .actor("prune", |c, w| prune(c, w, 1, Some(0)))
        .also_on_postgres(&["finish 1 took 0, prune 0+0+0 -> j1 finished, j2 blocked; "])
        .ends_in(&[
            "finish 0 took 0, prune 1+0+0 -> j1 ready (1 crash), j2 blocked; ",
            "finish 1 took 1, prune 1+0+0 -> j1 finished, j2 ready; ",
        ]);
}

fn finish_and_drain(db: &TestDb) {
    Play::new(db, one_blocked)
        .coarse()
        .actor("finish", |c, w| finish_and_take_next(c, w, 1, &[1]))
        .actor("drain", |c, w| drain(c, w, 1))
        .ends_in(&[
            "finish 1 took 0, drain done -> j1 finished, j2 blocked; p1",
            "finish 1 took 1, drain done -> j1 finished, j2 claimed by p1; p1",
        ]);
}

fn finish_and_cancel(db: &TestDb) {
    Play::new(db, one_blocked)
        .coarse()
        .actor("finish", |c, w| finish_and_take_next(c, w, 1, &[1]))
        .actor("cancel", |c, w| cancel(c, w, &[2]))
        .also_on_postgres(&[
            "finish 1 took 1, cancel 0 ended 0 asked -> j1 finished, j2 claimed by p1; p1",
        ])
        .ends_in(&[
            "finish 1 took 0, cancel 1 ended 0 asked -> j1 finished, j2 finished; p1",
            "finish 1 took 1, cancel 0 ended 1 asked -> j1 finished, j2 claimed by p1; p1",
        ]);
}

fn finish_and_heartbeat(db: &TestDb) {
    Play::new(db, one_blocked)
        .coarse()
        .actor("finish", |c, w| finish_and_take_next(c, w, 1, &[1]))
        .actor("heartbeat", |c, w| heartbeat(c, w, 1))
        .ends_in(&["finish 1 took 1, heartbeat alive -> j1 finished, j2 claimed by p1; p1"]);
}

on_each_database!(
    finish_and_promote,
    finish_and_enqueue,
    finish_and_finish,
    finish_after_the_limit_was_lowered,
    finish_and_prune,
    finish_and_drain,
    finish_and_cancel,
    finish_and_heartbeat,
);
