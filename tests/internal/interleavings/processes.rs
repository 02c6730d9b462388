//! Processes that come and go while others look.

use crate::db::conn::connection::Conn;
use crate::db::internal_tests::db::{TestDb, on_each_database};
use crate::db::internal_tests::interleavings::Play;
use crate::db::internal_tests::interleavings::acts::*;
use crate::db::internal_tests::interleavings::world::{World, row};
use crate::db::model::claim::FinishedRow::Keep;

/// p1 is idle; j1 is ready.
fn one_ready(conn: &mut Conn<'_>) -> World {
    let mut world = World::default();
    world.process(conn);
    world.job(conn, &row());
    world
}

/// p1 holds j1.
fn one_claim(conn: &mut Conn<'_>) -> World {
    let mut world = World::default();
    world.process(conn);
    world.claimed(conn, 1, &row());
    world
}

/// p1 holds j1 and p2 holds j2.
fn two_with_a_claim_each(conn: &mut Conn<'_>) -> World {
    let mut world = one_claim(conn);
    world.process(conn);
    world.claimed(conn, 2, &row());
    world
}

fn prune_and_prune(db: &TestDb) {
    Play::new(db, one_claim)
        .actor("one", |c, w| prune(c, w, 1, Some(0)))
        .actor("two", |c, w| prune(c, w, 1, Some(0)))
        .ends_in(&[
            "one 1+0+0, two refused -> j1 ready (1 crash); ",
            "one refused, two 1+0+0 -> j1 ready (1 crash); ",
        ]);
}

fn prune_and_prune_of_a_child(db: &TestDb) {
    Play::new(db, one_claim)
        .actor("watcher", |c, w| prune(c, w, 1, Some(0)))
        .actor("parent", |c, w| prune(c, w, 1, None))
        .ends_in(&[
            "watcher 1+0+0, parent refused -> j1 ready (1 crash); ",
            "watcher refused, parent 1+0+0 -> j1 ready (1 crash); ",
        ]);
}

fn prune_and_prune_and_finish(db: &TestDb) {
    Play::new(db, one_claim)
        .actor("watcher", |c, w| prune(c, w, 1, Some(0)))
        .actor("parent", |c, w| prune(c, w, 1, None))
        .actor("finish", |c, w| finish(c, w, 1, &[1], Keep))
        .ends_in(&[
            "watcher 0+0+0, parent refused, finish 1 -> j1 finished; ",
            "watcher 1+0+0, parent refused, finish 0 -> j1 ready (1 crash); ",
            "watcher refused, parent 0+0+0, finish 1 -> j1 finished; ",
            "watcher refused, parent 1+0+0, finish 0 -> j1 ready (1 crash); ",
        ]);
}

fn prune_of_one_and_of_another(db: &TestDb) {
    Play::new(db, two_with_a_claim_each)
        .coarse()
        .actor("one", |c, w| prune(c, w, 1, Some(0)))
        .actor("two", |c, w| prune(c, w, 2, Some(0)))
        .ends_in(&["one 1+0+0, two 1+0+0 -> j1 ready (1 crash), j2 ready (1 crash); "]);
}

fn deregister_and_claim(db: &TestDb) {
    Play::new(db, one_ready)
        .actor("deregister", |c, w| deregister(c, w, 1))
        .actor("claim", |c, w| claim(c, w, 1))
        .ends_in(&[
            "deregister gone, claim refused -> j1 ready; ",
            "deregister refused, claim took 1 -> j1 claimed by p1; p1",
        ]);
}

fn deregister_and_finish(db: &TestDb) {
    Play::new(db, one_claim)
        .actor("deregister", |c, w| deregister(c, w, 1))
        .actor("finish", |c, w| finish(c, w, 1, &[1], Keep))
        .ends_in(&[
            "deregister gone, finish 1 -> j1 finished; ",
            "deregister refused, finish 1 -> j1 finished; p1",
        ]);
}

fn deregister_and_prune(db: &TestDb) {
    Play::new(db, one_ready)
        .actor("deregister", |c, w| deregister(c, w, 1))
        .actor("prune", |c, w| prune(c, w, 1, Some(0)))
        .ends_in(&[
            "deregister gone, prune refused -> j1 ready; ",
            "deregister refused, prune 0+0+0 -> j1 ready; ",
        ]);
}

fn deregister_and_heartbeat_and_prune_of_a_child(db: &TestDb) {
    Play::new(db, one_ready)
        .actor("deregister", |c, w| deregister(c, w, 1))
        .actor("heartbeat", |c, w| heartbeat(c, w, 1))
        .actor("prune", |c, w| prune(c, w, 1, None))
        .ends_in(&[
            "deregister gone, heartbeat alive, prune refused -> j1 ready; ",
            "deregister gone, heartbeat pruned, prune refused -> j1 ready; ",
            "deregister refused, heartbeat alive, prune 0+0+0 -> j1 ready; ",
            "deregister refused, heartbeat pruned, prune 0+0+0 -> j1 ready; ",
        ]);
}

fn drain_and_claim_and_deregister(db: &TestDb) {
    Play::new(db, one_ready)
        .actor("drain", |c, w| drain(c, w, 1))
        .actor("claim", |c, w| claim(c, w, 1))
        .actor("deregister", |c, w| deregister(c, w, 1))
        .ends_in(&[
            "drain done, claim refused, deregister gone -> j1 ready; ",
            "drain done, claim took 1, deregister refused -> j1 claimed by p1; p1",
        ]);
}

on_each_database!(
    prune_and_prune,
    prune_and_prune_of_a_child,
    prune_and_prune_and_finish,
    prune_of_one_and_of_another,
    deregister_and_claim,
    deregister_and_finish,
    deregister_and_prune,
    deregister_and_heartbeat_and_prune_of_a_child,
    drain_and_claim_and_deregister,
);
