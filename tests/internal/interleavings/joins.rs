//! Jobs that wait for others in the middle of their work: whenever these end, the wait ends once.

use crate::db::conn::connection::Conn;
use crate::db::internal_tests::db::{TestDb, execute, on_each_database, texts};
use crate::db::internal_tests::interleavings::Play;
use crate::db::internal_tests::interleavings::acts::{cancel, end, prune};
use crate::db::internal_tests::interleavings::dependencies::leave;
use crate::db::internal_tests::interleavings::world::{World, row};
use crate::db::model::claim::{Fence, FinishedRow};
use crate::db::model::extras::Parent;
use crate::db::model::outcome::{Ending, ParkUntil, ParkedStep};
use crate::db::transition::enqueue::connect;
use crate::db::transition::promote;
use diesel::QueryResult;

on_each_database!(
    a_child_ends_beside_a_join,
    a_child_ends_beside_the_park_of_a_join,
    a_process_dies_beside_a_join,
    a_joining_job_is_cancelled_beside_the_end_of_its_child,
);

/// p1 holds j1, and p2 holds j2.
fn held(conn: &mut Conn<'_>) -> World {
    execute(conn, "DELETE FROM windlass_steps");
    let mut world = World::default();
    for process in 1..=2 {
        world.process(conn);
        world.claimed(conn, process, &row());
    }
    world
}

/// j1 connects itself with j2.
fn connects(conn: &mut Conn<'_>, world: &World) -> QueryResult<String> {
    let fence = Fence {
        claim_id: world.claims[0],
        process_id: world.processes[0],
    };
    let parents = [(Parent::Job(world.jobs[1]), None)];
    match connect::join(conn, fence, world.jobs[0], "join", &parents) {
        Ok(found) => Ok(format!("{found:?}")),
        Err(diesel::result::Error::NotFound) => Ok("refused".to_owned()),
        Err(error) => Err(error),
    }
}

fn park(conn: &mut Conn<'_>, world: &World) -> QueryResult<String> {
    let ending = Ending::Park(ParkedStep {
        step: "join".to_owned(),
        until: ParkUntil::Joined("{}".to_owned()),
    });
    end(conn, world, (1, 1), &ending, FinishedRow::Keep)
}

/// j1 is connected with j2, and runs.
fn connected(conn: &mut Conn<'_>) -> World {
    let world = held(conn);
    connects(conn, &world).unwrap();
    world
}

/// j1 waits for j2.
fn joined(conn: &mut Conn<'_>) -> World {
    let world = connected(conn);
    park(conn, &world).unwrap();
    world
}

/// Returns the number of recorded steps, once all requests are handled.
fn settled(conn: &mut Conn<'_>) -> QueryResult<String> {
    while promote::promote(conn, 10)?.is_progress(10) {}
    let steps = texts(
        conn,
        "SELECT CAST(count(*) AS text) AS t FROM windlass_steps",
    );
    Ok(steps.join(""))
}

fn a_child_ends_beside_a_join(db: &TestDb) {
    Play::new(db, held)
        .coarse()
        .finally(settled)
        .actor("join", |c, w| {
            let found = connects(c, w)?;
            match &*found {
                "New" => Ok(format!("{found} {}", park(c, w)?)),
                _ => Ok(found),
            }
        })
        .actor("end", |c, w| leave(c, w, 2, FinishedRow::Keep))
        .ends_in(&["join New parked, end 1, 1 -> j1 ready, j2 finished; p1 p2"]);
}

fn a_child_ends_beside_the_park_of_a_join(db: &TestDb) {
    Play::new(db, connected)
        .coarse()
        .finally(settled)
        .actor("park", park)
        .actor("end", |c, w| leave(c, w, 2, FinishedRow::Keep))
        .ends_in(&["park parked, end 1, 1 -> j1 ready, j2 finished; p1 p2"]);
    Play::new(db, connected)
        .coarse()
        .finally(settled)
        .actor("park", park)
        .actor("end", |c, w| leave(c, w, 2, FinishedRow::Delete))
        .ends_in(&["park parked, end 1, 1 -> j1 ready; p1 p2"]);
}

/// Either the wait is recorded, or the job runs again and comes to it once more.
fn a_process_dies_beside_a_join(db: &TestDb) {
    Play::new(db, connected)
        .coarse()
        .finally(settled)
        .actor("park", park)
        .actor("prune", |c, w| prune(c, w, 1, Some(0)))
        .ends_in(&[
            "park fenced, prune 1+0+0, 0 -> j1 ready (1 crash), j2 claimed by p2; p2",
            "park parked, prune 0+0+0, 1 -> j1 blocked, j2 claimed by p2; p2",
        ]);
}

fn a_joining_job_is_cancelled_beside_the_end_of_its_child(db: &TestDb) {
    Play::new(db, joined)
        .coarse()
        .finally(settled)
        .actor("cancel", |c, w| cancel(c, w, &[1]))
        .actor("end", |c, w| leave(c, w, 2, FinishedRow::Keep))
        .ends_in(&["cancel 1 ended 0 asked, end 1, 0 -> j1 finished, j2 finished; p1 p2"]);
}
