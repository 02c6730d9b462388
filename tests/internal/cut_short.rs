//! Runs that a stop cuts short, as they are recorded.

use crate::db::conn::connection::{AsConn, Conn};
use crate::db::internal_tests::checks;
use crate::db::internal_tests::db::{TestDb, execute, on_each_database, texts};
use crate::db::internal_tests::interleavings::world::{World, row};
use crate::db::model::claim::{Fence, FinishedRow};
use crate::db::model::outcome::Ending;
use crate::db::table::attempts;
use crate::db::transition::end;
use std::time::Duration;

on_each_database!(
    many_released_runs_hide_no_interruption,
    one_that_was_cancelled_counts_as_an_attempt,
);

const HOUR: Duration = Duration::from_secs(3600);

/// Ends the newest claim of the first process as a stop does at its deadline.
fn cut_short(conn: &mut Conn<'_>, world: &mut World) -> Ending {
    let fence = Fence {
        process_id: world.processes[0],
        claim_id: world.claims.pop().unwrap(),
    };
    let ending = Ending::Release("the worker stops".to_owned(), None);
    let ran = Duration::from_secs(1);
    let ended = end::end(conn, fence, &ending, ran, FinishedRow::Keep).unwrap();
    assert_eq!(checks::violations(conn), Vec::<String>::new());
    ended.unwrap()
}

/// The limit of ten interruptions an hour counts these rows.
fn many_released_runs_hide_no_interruption(db: &TestDb) {
    let mut connection = db.connect();
    let conn = &mut connection.as_conn();
    let mut world = World::default();
    world.process(conn);
    world.claimed(conn, 1, &row());
    let job = world.jobs[0];
    for _ in 0..3 {
        execute(
            conn,
            &format!(
                "INSERT INTO windlass_attempts (job_id, claim_id, attempt, outcome, kind, message, ended_at) \
                 VALUES ({job}, 0, 1, 'interrupted', 'database', 'no answer', CURRENT_TIMESTAMP)"
            ),
        );
    }
    for _ in 0..25 {
        assert!(matches!(cut_short(conn, &mut world), Ending::Release(..)));
        let claims = super::interleavings::world::take(conn, world.processes[0], 1);
        world
            .claims
            .extend(claims.unwrap().unwrap().iter().map(|claim| claim.0));
    }
    let interrupted = attempts::interruptions(conn, &[job], HOUR).unwrap();
    assert_eq!(interrupted.get(&job), Some(&3));
    let kept = texts(
        conn,
        "SELECT outcome || ' ' || count(*) AS t FROM windlass_attempts GROUP BY outcome ORDER BY 1",
    );
    assert_eq!(kept, ["interrupted 3", "released 20"]);
}

/// It had started.
fn one_that_was_cancelled_counts_as_an_attempt(db: &TestDb) {
    let mut connection = db.connect();
    let conn = &mut connection.as_conn();
    let mut world = World::default();
    world.process(conn);
    world.claimed(conn, 1, &row());
    execute(
        conn,
        "UPDATE solid_queue_claimed_executions SET cancel_requested_at = CURRENT_TIMESTAMP",
    );
    assert!(matches!(cut_short(conn, &mut world), Ending::Cancel(_)));
    let told = "SELECT outcome || ' ' || attempt AS t FROM windlass_attempts";
    assert_eq!(texts(conn, told), ["cancelled 1"]);
    let counted = "SELECT CAST(attempts AS text) AS t FROM solid_queue_jobs";
    assert_eq!(texts(conn, counted), ["1"]);
}
