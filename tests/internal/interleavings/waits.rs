//! Jobs that wait for an event: in whatever order the event, the wait, its time-out, a cancel, a death and promotions
//! come, no wake-up is lost, and none comes twice.

use crate::db::conn::connection::Conn;
use crate::db::internal_tests::db::{TestDb, execute, on_each_database, texts};
use crate::db::internal_tests::interleavings::Play;
use crate::db::internal_tests::interleavings::acts::*;
use crate::db::internal_tests::interleavings::world::{World, limited, row};
use crate::db::model::claim::FinishedRow;
use crate::db::model::outcome::{Ending, ParkUntil, ParkedStep};
use crate::db::table::flows::events;
use crate::db::transition::flows::wake;
use crate::db::transition::promote;
use diesel::QueryResult;
use std::time::Duration;

on_each_database!(
    an_event_comes_beside_a_wait,
    an_event_is_rolled_back_beside_a_wait,
    an_event_comes_beside_the_time_out,
    an_event_comes_beside_a_wait_and_a_promotion,
    two_promotions_see_an_event,
    a_waiting_job_is_cancelled_beside_its_event,
    a_waiting_job_is_discarded_beside_its_event,
    a_process_dies_beside_a_wait,
    a_job_is_cancelled_beside_its_wait,
    two_payloads_of_one_event,
    an_event_is_cleared_beside_a_wait,
    an_event_is_deleted_beside_its_promotion,
    two_jobs_of_a_key_wait_for_one_event,
    a_pause_begins_beside_a_death,
);

const WEEK: Duration = Duration::from_secs(7 * 86_400);

/// p1 holds j1.
fn held(conn: &mut Conn<'_>) -> World {
    execute(conn, "DELETE FROM windlass_steps");
    let mut world = World::default();
    world.process(conn);
    world.claimed(conn, 1, &row());
    world
}

fn waiting(timeout: Duration) -> Ending {
    Ending::Park(ParkedStep {
        step: "paid".to_owned(),
        until: ParkUntil::Event {
            name: "paid/1".to_owned(),
            timeout,
        },
    })
}

fn park(conn: &mut Conn<'_>, world: &World, timeout: Duration) -> QueryResult<String> {
    end(conn, world, (1, 1), &waiting(timeout), FinishedRow::Keep)
}

/// j1 waits for an event, and nothing was promoted.
fn parked(conn: &mut Conn<'_>) -> World {
    let world = held(conn);
    park(conn, &world, WEEK).unwrap();
    world
}

/// j1 waits for an event, whose promotion was handled.
fn parked_for_long(conn: &mut Conn<'_>) -> World {
    let world = parked(conn);
    promote_all(conn).unwrap();
    world
}

/// The wait of j1 has timed out.
fn late(conn: &mut Conn<'_>) -> World {
    let world = parked_for_long(conn);
    execute(
        conn,
        "UPDATE windlass_waits SET timeout_at = '2000-01-01 00:00:00.000000'",
    );
    world
}

/// The event of j1's wait is there, and nothing was promoted.
fn emitted(conn: &mut Conn<'_>) -> World {
    let world = parked(conn);
    wake::emit(conn, "paid/1", "7").unwrap();
    world
}

fn emit_payload(conn: &mut Conn<'_>, payload: &str) -> QueryResult<String> {
    let accepted = conn.transaction(|conn| wake::emit(conn, "paid/1", payload))?;
    Ok(if accepted { "emitted" } else { "taken" }.to_owned())
}

fn promote_all(conn: &mut Conn<'_>) -> QueryResult<String> {
    while promote::promote(conn, 10)?.is_progress(10) {}
    Ok(String::new())
}

fn promote_once(conn: &mut Conn<'_>) -> QueryResult<String> {
    promote::promote(conn, 10)?;
    Ok("once".to_owned())
}

fn time_out(conn: &mut Conn<'_>) -> QueryResult<String> {
    wake::time_out(conn, 10)?;
    Ok("looked".to_owned())
}

/// The recorded steps, once all requests are handled, and how many wait.
fn settled(conn: &mut Conn<'_>) -> QueryResult<String> {
    promote_all(conn)?;
    let steps = texts(
        conn,
        "SELECT name || '=' || value AS t FROM windlass_steps WHERE name <> 'pause' ORDER BY job_id",
    );
    let waits = texts(
        conn,
        "SELECT CAST(count(*) AS text) AS t FROM windlass_waits",
    );
    Ok(format!("{} {}", steps.join(" "), waits.join("")))
}

fn an_event_comes_beside_a_wait(db: &TestDb) {
    Play::new(db, held)
        .coarse()
        .finally(settled)
        .actor("park", |c, w| park(c, w, WEEK))
        .actor("emit", |c, _| emit_payload(c, "7"))
        .ends_in(&["park parked, emit emitted, paid=[7] 0 -> j1 ready; p1"]);
}

fn an_event_is_rolled_back_beside_a_wait(db: &TestDb) {
    Play::new(db, held)
        .coarse()
        .finally(settled)
        .actor("park", |c, w| park(c, w, WEEK))
        .actor("emit", |c, _| {
            let undone = c.transaction(|c| -> QueryResult<()> {
                wake::emit(c, "paid/1", "7")?;
                Err(diesel::result::Error::RollbackTransaction)
            });
            assert!(undone.is_err());
            Ok("undone".to_owned())
        })
        .ends_in(&["park parked, emit undone,  1 -> j1 blocked; p1"]);
}

/// An event counts that comes late, but before the time-out was noticed.
fn an_event_comes_beside_the_time_out(db: &TestDb) {
    Play::new(db, late)
        .coarse()
        .finally(settled)
        .actor("emit", |c, _| emit_payload(c, "7"))
        .actor("late", |c, _| time_out(c))
        .ends_in(&[
            "emit emitted, late looked, paid=[7] 0 -> j1 ready; p1",
            "emit emitted, late looked, paid=null 0 -> j1 ready; p1",
        ]);
}

fn an_event_comes_beside_a_wait_and_a_promotion(db: &TestDb) {
    Play::new(db, held)
        .coarse()
        .finally(settled)
        .actor("park", |c, w| park(c, w, WEEK))
        .actor("emit", |c, _| emit_payload(c, "7"))
        .actor("promote", |c, _| promote_once(c))
        .ends_in(&["park parked, emit emitted, promote once, paid=[7] 0 -> j1 ready; p1"]);
}

fn two_promotions_see_an_event(db: &TestDb) {
    Play::new(db, emitted)
        .coarse()
        .finally(settled)
        .actor("one", |c, _| promote_once(c))
        .actor("other", |c, _| promote_once(c))
        .ends_in(&["one once, other once, paid=[7] 0 -> j1 ready; p1"]);
}

/// It is cancelled in its wait, or as a ready job.
fn a_waiting_job_is_cancelled_beside_its_event(db: &TestDb) {
    Play::new(db, emitted)
        .coarse()
        .finally(settled)
        .actor("cancel", |c, w| cancel(c, w, &[1]))
        .actor("promote", |c, _| promote_once(c))
        .ends_in(&["cancel 1 ended 0 asked, promote once,  0 -> j1 finished; p1"]);
}

fn a_waiting_job_is_discarded_beside_its_event(db: &TestDb) {
    Play::new(db, emitted)
        .coarse()
        .finally(settled)
        .actor("discard", |c, w| discard(c, w, &[1]))
        .actor("promote", |c, _| promote_once(c))
        .ends_in(&["discard 1, promote once,  0 -> ; p1"]);
}

/// The wait is written, or the job is recovered and runs again.
fn a_process_dies_beside_a_wait(db: &TestDb) {
    Play::new(db, held)
        .coarse()
        .finally(settled)
        .actor("park", |c, w| park(c, w, WEEK))
        .actor("prune", |c, w| prune(c, w, 1, Some(0)))
        .ends_in(&[
            "park fenced, prune 1+0+0,  0 -> j1 ready (1 crash); ",
            "park parked, prune 0+0+0,  1 -> j1 blocked; ",
        ]);
}

fn a_job_is_cancelled_beside_its_wait(db: &TestDb) {
    Play::new(db, held)
        .coarse()
        .finally(settled)
        .actor("park", |c, w| park(c, w, WEEK))
        .actor("cancel", |c, w| cancel(c, w, &[1]))
        .ends_in(&[
            "park cancelled, cancel 0 ended 1 asked,  0 -> j1 finished; p1",
            "park parked, cancel 1 ended 0 asked,  0 -> j1 finished; p1",
        ]);
}

fn two_payloads_of_one_event(db: &TestDb) {
    Play::new(db, parked_for_long)
        .coarse()
        .finally(settled)
        .actor("seven", |c, _| emit_payload(c, "7"))
        .actor("eight", |c, _| emit_payload(c, "8"))
        .actor("again", |c, _| emit_payload(c, " 7"))
        .ends_in(&[
            "seven emitted, eight taken, again emitted, paid=[7] 0 -> j1 ready; p1",
            "seven emitted, eight taken, again emitted, paid=[ 7] 0 -> j1 ready; p1",
            "seven taken, eight emitted, again taken, paid=[8] 0 -> j1 ready; p1",
        ]);
}

/// It is found by the wait, or was not kept.
fn an_event_is_cleared_beside_a_wait(db: &TestDb) {
    fn old(conn: &mut Conn<'_>) -> World {
        let world = held(conn);
        wake::emit(conn, "paid/1", "7").unwrap();
        world
    }
    Play::new(db, old)
        .coarse()
        .finally(settled)
        .actor("park", |c, w| {
            let parked = park(c, w, WEEK)?;
            promote_all(c)?;
            Ok(parked)
        })
        .actor("clear", |c, _| {
            events::clear(c, Duration::ZERO, 10)?;
            Ok("done".to_owned())
        })
        .ends_in(&[
            "park parked, clear done,  1 -> j1 blocked; p1",
            "park parked, clear done, paid=[7] 0 -> j1 ready; p1",
        ]);
}

/// As by a clear that does not see the wait yet. The wait is over with the payload, or goes on.
fn an_event_is_deleted_beside_its_promotion(db: &TestDb) {
    Play::new(db, emitted)
        .finally(settled)
        .actor("promote", |c, _| promote_once(c))
        .actor("clear", |c, _| {
            execute(c, "DELETE FROM windlass_events");
            Ok("done".to_owned())
        })
        .ends_in(&[
            "promote once, clear done,  1 -> j1 blocked; p1",
            "promote once, clear done, paid=[7] 0 -> j1 ready; p1",
        ]);
}

/// Both give their slot up while they wait, and one of them gets it again.
fn two_jobs_of_a_key_wait_for_one_event(db: &TestDb) {
    fn both(conn: &mut Conn<'_>) -> World {
        execute(conn, "DELETE FROM windlass_steps");
        let mut world = World::default();
        world.process(conn);
        for claim in 1..=2 {
            world.claimed(conn, 1, &limited());
            end(conn, &world, (1, claim), &waiting(WEEK), FinishedRow::Keep).unwrap();
        }
        promote_all(conn).unwrap();
        world
    }
    Play::new(db, both)
        .coarse()
        .finally(settled)
        .actor("emit", |c, _| emit_payload(c, "7"))
        .actor("promote", |c, _| promote_once(c))
        .ends_in(&["emit emitted, promote once, paid=[7] paid=[7] 0 -> j1 ready, j2 blocked; p1"]);
}

fn a_pause_begins_beside_a_death(db: &TestDb) {
    Play::new(db, held)
        .coarse()
        .finally(settled)
        .actor("pause", |c, w| {
            let pause = Ending::Park(ParkedStep {
                step: "pause".to_owned(),
                until: ParkUntil::Pause(WEEK),
            });
            end(c, w, (1, 1), &pause, FinishedRow::Keep)
        })
        .actor("prune", |c, w| prune(c, w, 1, Some(0)))
        .ends_in(&[
            "pause fenced, prune 1+0+0,  0 -> j1 ready (1 crash); ",
            "pause parked, prune 0+0+0,  0 -> j1 scheduled; ",
        ]);
}
