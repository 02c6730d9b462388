//! Everything about waits of jobs.

use crate::db::conn::connection::Conn;
use crate::db::model::claim::{Fence, FinishedRow};
use crate::db::model::extras::{Follows, On, Otherwise, Parent};
use crate::db::model::new_row::NewRow;
use crate::db::model::outcome::{Ending, JobFailure, ParkUntil, ParkedStep};
use crate::db::plans::{Rows, Work, fence, run};
use crate::db::table::flows::waits::{self, LateWait};
use crate::db::table::flows::{edges, events, parents};
use crate::db::table::steps::{self, StepState};
use crate::db::transition::enqueue::{self, connect};
use crate::db::transition::flows::wake;
use crate::db::transition::{end, promote};
use crate::read::sql::doctor::unserved::{self as checks, WaitRule};
use diesel::QueryResult;
use std::time::Duration;

pub(crate) const WAITS: [(&str, Work); 8] = [
    ("pause at a step", |conn, rows| {
        let pause = ParkUntil::Pause(Duration::from_secs(60));
        park(conn, rows, "pause", pause)?;
        assert!(steps::value(conn, rows.jobs[0], "pause")?.is_some());
        Ok(())
    }),
    ("wait for an event, which comes", |conn, rows| {
        park(conn, rows, "event", event("plan/a"))?;
        promote_all(conn)?;
        assert!(waits::awaited_event(conn, rows.jobs[0])?.is_some());
        assert!(wake::emit(conn, "plan/a", "{}")?);
        assert!(wake::emit(conn, "plan/a", "{}")?);
        promote_all(conn)?;
        let value = steps::value(conn, rows.jobs[0], "event")?;
        assert_eq!(value.as_deref(), Some("[{}]"));
        Ok(())
    }),
    ("let a wait time out", |conn, rows| {
        park(conn, rows, "late", event("plan/b"))?;
        run(
            conn,
            &format!(
                "UPDATE windlass_waits SET timeout_at = '2000-01-01' WHERE job_id = {}",
                rows.jobs[0]
            ),
        )?;
        assert_eq!(wake::time_out(conn, 10)?.woken, 1);
        let value = steps::value(conn, rows.jobs[0], "late")?;
        assert_eq!(value.as_deref(), Some("null"));
        let stray = LateWait {
            job_id: -1,
            claim_id: -1,
        };
        assert!(waits::parked_jobs(conn, &rows.jobs[..1])?.is_empty());
        waits::delete_strays(conn, &[stray]).map(drop)
    }),
    ("join jobs and batches", |conn, rows| {
        let (job, child) = (rows.jobs[0], rows.jobs[3]);
        let parents = [(Parent::Job(child), None)];
        for _ in 0..2 {
            let found = connect::join(conn, fence(rows), job, "join", &parents)?;
            assert_eq!(found, StepState::New);
        }
        assert_eq!(edges::first_dependent(conn, child, &[job])?, Some(job));
        park(conn, rows, "join", ParkUntil::Joined("[]".to_owned()))?;
        promote_all(conn)?;
        assert_eq!(edges::failed(conn, job, &[child], &[])?, 0);
        let value = steps::value(conn, job, "join")?;
        assert_eq!(value.as_deref(), Some("[]"));
        Ok(())
    }),
    ("undo steps", |conn, rows| {
        let job = rows.jobs[0];
        let first = undoing(conn, job, "a")?;
        let second = undoing(conn, job, "b")?;
        assert_eq!(parents::newest(conn, job, second)?, Some(first));
        steps::record(conn, job, "b", "1")?;
        let fails = Ending::Fail(JobFailure::new("kind", "message"));
        end::end(conn, fence(rows), &fails, Duration::ZERO, FinishedRow::Keep)?;
        promote_all(conn)?;
        connect::resume(conn, &[job])?;
        assert_eq!(steps::value(conn, job, "b")?, None);
        assert_eq!(parents::newest(conn, job, second)?, Some(first));
        Ok(())
    }),
    ("pass locked waits of an event", |conn, rows| {
        park(conn, rows, "event", event("plan/d"))?;
        let locked = waits::lock_of_event(conn, "plan/d", 10)?;
        assert_eq!(locked, rows.jobs[..1]);
        Ok(())
    }),
    ("check waits", |conn, _| {
        for rule in WaitRule::ALL {
            checks::broken(conn, rule)?;
        }
        Ok(())
    }),
    ("clear events", |conn, _| {
        assert!(wake::emit(conn, "plan/c", "{}")?);
        run(
            conn,
            "UPDATE windlass_events SET created_at = '2000-01-01' WHERE name = 'plan/c'",
        )?;
        let age = Duration::from_secs(10 * 365 * 86_400);
        assert_eq!(events::clear(conn, age, 10)?, 1);
        Ok(())
    }),
];

/// Enqueues a job that undoes a step.
fn undoing(conn: &mut Conn<'_>, job: i64, step: &str) -> QueryResult<i64> {
    let follows = Follows {
        parents: vec![(Parent::Job(job), Some(step.to_owned()))],
        on: On::Failure,
        otherwise: Otherwise::Undo,
    };
    let row = NewRow {
        follows: Some(Box::new(follows)),
        ..crate::db::plans::job(None)
    };
    let undo = enqueue::insert_job(conn, &row)?.id;
    connect::reverse(conn, job, undo)?;
    Ok(undo)
}

fn event(name: &str) -> ParkUntil {
    ParkUntil::Event {
        name: name.to_owned(),
        timeout: Duration::from_secs(60),
    }
}

fn park(conn: &mut Conn<'_>, rows: &Rows, step: &str, until: ParkUntil) -> QueryResult<()> {
    let step = step.to_owned();
    let ending = Ending::Park(ParkedStep { step, until });
    let fence: Fence = fence(rows);
    let ended = end::end(conn, fence, &ending, Duration::ZERO, FinishedRow::Keep)?;
    assert!(ended.is_some());
    Ok(())
}

fn promote_all(conn: &mut Conn<'_>) -> QueryResult<()> {
    while promote::promote(conn, 10)?.is_progress(10) {}
    Ok(())
}
