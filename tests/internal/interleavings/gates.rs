//! Jobs with a rate, and jobs of tenants that share a queue: who gets the one token or the one place, and that no line is
//! left which no promotion looks at.

use crate::db::conn::connection::Conn;
use crate::db::internal_tests::db::{TestDb, on_each_database};
use crate::db::internal_tests::interleavings::Play;
use crate::db::internal_tests::interleavings::acts::*;
use crate::db::internal_tests::interleavings::world::{World, row};
use crate::db::model::claim::FinishedRow::Keep;
use crate::db::model::new_row::NewRow;
use crate::db::model::rate::{NewRate, RatePace};
use crate::db::table::shares;

/// One an hour.
fn rated() -> NewRow {
    let pace = RatePace {
        number: 1,
        period: 3_600_000_000,
        burst: 1,
    };
    NewRow {
        rates: vec![NewRate {
            key: "r".to_owned(),
            pace,
            cost: 1,
        }],
        ..row()
    }
}

fn of_tenant(tenant: &str) -> NewRow {
    NewRow {
        tenant: Some(tenant.to_owned()),
        ..row()
    }
}

/// p1 is idle; j1 and j2 wait, and their line is requested.
fn two_with_a_rate(conn: &mut Conn<'_>) -> World {
    let mut world = World::default();
    world.process(conn);
    world.job(conn, &rated());
    world.job(conn, &rated());
    world
}

/// p1 has j1, which has taken the token.
fn token_taken(conn: &mut Conn<'_>) -> World {
    let mut world = World::default();
    world.process(conn);
    world.claimed(conn, 1, &rated());
    world
}

/// p1 is idle; j1 of x and j2 of y wait, and the one place is free.
fn two_tenants(conn: &mut Conn<'_>) -> World {
    let mut world = World::default();
    world.process(conn);
    shares::begin(conn, "default", false).unwrap();
    world.job(conn, &of_tenant("x"));
    world.job(conn, &of_tenant("y"));
    world
}

/// p1 has j1 of x, and j2 of y waits.
fn place_taken(conn: &mut Conn<'_>) -> World {
    let mut world = World::default();
    world.process(conn);
    shares::begin(conn, "default", false).unwrap();
    world.claimed(conn, 1, &of_tenant("x"));
    world.job(conn, &of_tenant("y"));
    world
}

fn promote_and_promote(db: &TestDb) {
    Play::new(db, two_with_a_rate)
        .coarse()
        .actor("one", |c, _| promote(c, 1))
        .actor("two", |c, _| promote(c, 1))
        .ends_in(&[
            "one 0, two 1 -> j1 ready, j2 blocked; p1",
            "one 1, two 0 -> j1 ready, j2 blocked; p1",
        ]);
}

fn cancel_and_promote(db: &TestDb) {
    Play::new(db, two_with_a_rate)
        .coarse()
        .actor("cancel", |c, w| cancel(c, w, &[1]))
        .actor("promote", |c, _| promote(c, 10))
        .ends_in(&[
            "cancel 1 ended 0 asked, promote 1 -> j1 finished, j2 blocked; p1",
            "cancel 1 ended 0 asked, promote 1 -> j1 finished, j2 ready; p1",
        ]);
}

fn enqueue_and_promote(db: &TestDb) {
    Play::new(db, two_with_a_rate)
        .coarse()
        .actor("enqueue", |c, _| enqueue(c, &rated(), true))
        .actor("promote", |c, _| promote(c, 10))
        .ends_in(&["enqueue new, promote 1 -> j1 ready, j2 blocked, new blocked; p1"]);
}

fn prune_and_promote(db: &TestDb) {
    Play::new(db, token_taken)
        .coarse()
        .actor("prune", |c, w| prune(c, w, 1, Some(0)))
        .actor("enqueue", |c, _| {
            enqueue(c, &rated(), true)?;
            promote(c, 10)
        })
        .ends_in(&["prune 1+0+0, enqueue 0 -> j1 blocked (1 crash), new blocked; "]);
}

fn turns_and_turns(db: &TestDb) {
    Play::new(db, two_tenants)
        .coarse()
        .actor("one", |c, _| promote(c, 10))
        .actor("two", |c, _| promote(c, 10))
        .ends_in(&[
            "one 0, two 1 -> j1 ready, j2 blocked; p1",
            "one 1, two 0 -> j1 ready, j2 blocked; p1",
        ]);
}

fn finish_and_turns(db: &TestDb) {
    Play::new(db, place_taken)
        .coarse()
        .actor("finish", |c, w| finish(c, w, 1, &[1], Keep))
        .actor("promote", |c, _| promote(c, 10))
        .ends_in(&["finish 1, promote 1 -> j1 finished, j2 ready; p1"]);
}

fn enqueue_and_turns(db: &TestDb) {
    Play::new(db, two_tenants)
        .coarse()
        .actor("enqueue", |c, _| enqueue(c, &of_tenant("z"), true))
        .actor("promote", |c, _| promote(c, 10))
        .ends_in(&["enqueue new, promote 1 -> j1 ready, j2 blocked, new blocked; p1"]);
}

fn rank_and_turns(db: &TestDb) {
    Play::new(db, two_tenants)
        .coarse()
        .actor("rank", |c, w| rank(c, w, &[2], 3))
        .actor("promote", |c, _| promote(c, 10))
        .ends_in(&["rank 1, promote 1 -> j1 ready, j2 blocked; p1"]);
}

/// The queue is shared no more.
fn end_and_turns(db: &TestDb) {
    Play::new(db, two_tenants)
        .coarse()
        .actor("end", |c, _| {
            Ok(shares::begin_end(c, "default")?.to_string())
        })
        .actor("promote", |c, _| promote_and_look(c, 10))
        .ends_in(&[
            "end true, promote 1 -> j1 ready, j2 blocked; p1",
            "end true, promote 2 -> j1 ready, j2 ready; p1",
        ]);
}

/// The queue is shared from now on.
fn begin_and_enqueue(db: &TestDb) {
    Play::new(db, |conn| {
        let mut world = World::default();
        world.process(conn);
        world
    })
    .coarse()
    .actor("begin", |c, _| {
        Ok(shares::begin(c, "default", false)?.to_string())
    })
    .actor("enqueue", |c, _| enqueue(c, &of_tenant("x"), true))
    .actor("promote", |c, _| promote_and_look(c, 10))
    .ends_in(&[
        "begin true, enqueue new, promote 0 -> new blocked; p1",
        "begin true, enqueue new, promote 0 -> new ready; p1",
        "begin true, enqueue new, promote 1 -> new ready; p1",
    ]);
}

on_each_database!(
    promote_and_promote,
    cancel_and_promote,
    enqueue_and_promote,
    prune_and_promote,
    turns_and_turns,
    finish_and_turns,
    enqueue_and_turns,
    rank_and_turns,
    end_and_turns,
    begin_and_enqueue,
);
