//! Actions of a run under its claim, steps and verdicts, while others end the claim.

use crate::db::conn::connection::Conn;
use crate::db::internal_tests::db::{TestDb, on_each_database};
use crate::db::internal_tests::interleavings::Play;
use crate::db::internal_tests::interleavings::acts::*;
use crate::db::internal_tests::interleavings::world::{World, row};
use crate::db::model::claim::Fence;
use crate::db::model::claim::FinishedRow::{self, Delete, Keep};
use crate::db::model::decision::{FinishedJob, KeySlots};
use crate::db::table::claimed::{self, ClaimNote, Note};
use crate::db::table::steps::{self, StepState};
use crate::db::transition::finish;
use crate::db::transition::recover::{self, ProcessAfter};
use diesel::QueryResult;

/// p1 holds j1 and j2.
fn two_claims(conn: &mut Conn<'_>) -> World {
    let mut world = World::default();
    world.process(conn);
    world.claimed(conn, 1, &row());
    world.claimed(conn, 1, &row());
    world
}

fn first(world: &World) -> Fence {
    Fence {
        process_id: world.processes[0],
        claim_id: world.claims[0],
    }
}

fn step(conn: &mut Conn<'_>, world: &World) -> QueryResult<String> {
    conn.transaction(|conn| {
        Ok(match steps::begin(conn, first(world), "a")? {
            StepState::New => {
                steps::record(conn, world.jobs[0], "a", "null")?;
                "done"
            }
            StepState::Completed(_) => "done before",
            StepState::Lost => "lost",
        }
        .to_owned())
    })
}

fn finish_with_steps(
    conn: &mut Conn<'_>,
    world: &World,
    finished: FinishedRow,
) -> QueryResult<String> {
    let job = FinishedJob {
        claim_id: world.claims[0],
        result: None,
        named: None,
        has_steps: true,
        has_batch: false,
    };
    let ended = finish::finish_and_keep(
        conn,
        world.processes[0],
        vec![job],
        finished,
        KeySlots::Free,
    )?;
    Ok(format!("{}", ended.len()))
}

fn condemn(conn: &mut Conn<'_>, world: &World) -> QueryResult<String> {
    let held = recover::record_timeout(conn, first(world), &retrying(), ProcessAfter::Ends)?;
    Ok(if held { "held" } else { "lost" }.to_owned())
}

fn note(conn: &mut Conn<'_>, world: &World) -> QueryResult<String> {
    let note = Note::default();
    let told = world.claims.iter().map(|claim| ClaimNote {
        claim_id: *claim,
        note: &note,
    });
    let told: Vec<_> = told.collect();
    Ok(format!(
        "{}",
        claimed::save(conn, world.processes[0], &told)?.len()
    ))
}

fn step_and_prune(db: &TestDb) {
    Play::new(db, two_claims)
        .actor("step", step)
        .actor("prune", |c, w| prune(c, w, 1, Some(0)))
        .ends_in(&[
            "step done, prune 2+0+0 -> j1 ready (1 crash), j2 ready (1 crash); ",
            "step lost, prune 2+0+0 -> j1 ready (1 crash), j2 ready (1 crash); ",
        ]);
}

fn step_and_finish(db: &TestDb) {
    Play::new(db, two_claims)
        .actor("step", step)
        .actor("finish", |c, w| finish_with_steps(c, w, Keep))
        .ends_in(&[
            "step done, finish 1 -> j1 finished, j2 claimed by p1; p1",
            "step lost, finish 1 -> j1 finished, j2 claimed by p1; p1",
        ]);
}

fn step_and_finish_that_deletes(db: &TestDb) {
    Play::new(db, two_claims)
        .actor("step", step)
        .actor("finish", |c, w| finish_with_steps(c, w, Delete))
        .ends_in(&[
            "step done, finish 1 -> j2 claimed by p1; p1",
            "step lost, finish 1 -> j2 claimed by p1; p1",
        ]);
}

fn step_and_cancel(db: &TestDb) {
    Play::new(db, two_claims)
        .actor("step", step)
        .actor("cancel", |c, w| cancel(c, w, &[1]))
        .ends_in(&["step done, cancel 0 ended 1 asked -> j1 claimed by p1, j2 claimed by p1; p1"]);
}

fn condemn_and_finish(db: &TestDb) {
    Play::new(db, two_claims)
        .actor("condemn", condemn)
        .actor("finish", |c, w| finish(c, w, 1, &[1], Keep))
        .ends_in(&[
            "condemn held, finish 1 -> j1 finished, j2 claimed by p1; p1",
            "condemn lost, finish 1 -> j1 finished, j2 claimed by p1; p1",
        ]);
}

fn condemn_and_prune(db: &TestDb) {
    Play::new(db, two_claims)
        .actor("condemn", condemn)
        .actor("prune", |c, w| prune(c, w, 1, Some(0)))
        .also_on_postgres(&[
            "condemn held, prune refused -> j1 claimed by p1, j2 claimed by p1; p1",
        ])
        .ends_in(&[
            "condemn held, prune 1+1+0 -> j1 ready, j2 ready (1 crash); ",
            "condemn lost, prune 2+0+0 -> j1 ready (1 crash), j2 ready (1 crash); ",
        ]);
}

fn condemn_and_cancel_and_prune(db: &TestDb) {
    Play::new(db, two_claims)
        .coarse()
        .actor("condemn", condemn)
        .actor("cancel", |c, w| cancel(c, w, &[1]))
        .actor("prune", |c, w| prune(c, w, 1, None))
        .ends_in(&[
            "condemn held, cancel 0 ended 1 asked, prune 1+0+0 -> j1 finished, j2 ready (1 crash); ",
            "condemn held, cancel 1 ended 0 asked, prune 1+1+0 -> j1 finished, j2 ready (1 crash); ",
            "condemn lost, cancel 0 ended 1 asked, prune 1+0+0 -> j1 finished, j2 ready (1 crash); ",
            "condemn lost, cancel 1 ended 0 asked, prune 2+0+0 -> j1 finished (1 crash), j2 ready (1 crash); ",
        ]);
}

fn condemn_and_claim(db: &TestDb) {
    Play::new(db, |conn| {
        let mut world = two_claims(conn);
        world.job(conn, &row());
        world
    })
    .actor("condemn", condemn)
    .actor("claim", |c, w| claim(c, w, 1))
    .ends_in(&[
        "condemn held, claim refused -> j1 claimed by p1, j2 claimed by p1, j3 ready; p1",
        "condemn held, claim took 1 -> j1 claimed by p1, j2 claimed by p1, j3 claimed by p1; p1",
    ]);
}

fn note_and_release(db: &TestDb) {
    Play::new(db, two_claims)
        .actor("note", note)
        .actor("release", |c, w| release(c, w, 1, &[1], None))
        .ends_in(&[
            "note 1, release 1 -> j1 ready, j2 claimed by p1; p1",
            "note 2, release 1 -> j1 ready, j2 claimed by p1; p1",
        ]);
}

fn note_and_prune(db: &TestDb) {
    Play::new(db, two_claims)
        .actor("note", note)
        .actor("prune", |c, w| prune(c, w, 1, Some(0)))
        .ends_in(&[
            "note 0, prune 2+0+0 -> j1 ready (1 crash), j2 ready (1 crash); ",
            "note 2, prune 2+0+0 -> j1 ready (1 crash), j2 ready (1 crash); ",
        ]);
}

on_each_database!(
    step_and_prune,
    step_and_finish,
    step_and_finish_that_deletes,
    step_and_cancel,
    condemn_and_finish,
    condemn_and_prune,
    condemn_and_cancel_and_prune,
    condemn_and_claim,
    note_and_release,
    note_and_prune,
);
