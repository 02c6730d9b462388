//! Everything about waits of jobs.

use crate::db::conn::connection::Conn;
use crate::db::model::claim::{Fence, FinishedRow};
use crate::db::model::outcome::Ending;
use crate::db::model::wait::{StepWait, WaitUntil};
use crate::db::plans::{Rows, Work, fence, run};
use crate::db::query::doctor::waits::{self as checks, WaitRule};
use crate::db::table::flows::events;
use crate::db::table::flows::waits::{self, LateWait};
use crate::db::table::steps;
use crate::db::transition::flows::{emit, wake};
use crate::db::transition::{end, promote};
use diesel::QueryResult;
use std::time::Duration;

pub(crate) const WAITS: [(&str, Work); 6] = [
    ("pause at a step", |conn, rows| {
        let pause = WaitUntil::Pause(Duration::from_secs(60));
        park(conn, rows, "pause", pause)?;
        assert!(steps::value(conn, rows.jobs[0], "pause")?.is_some());
        Ok(())
    }),
    ("wait for an event, which comes", |conn, rows| {
        park(conn, rows, "event", event("plan/a"))?;
        promote_all(conn)?;
        assert!(waits::awaited(conn, rows.jobs[0])?.is_some());
        assert!(emit::emit(conn, "plan/a", "{}")?);
        assert!(emit::emit(conn, "plan/a", "{}")?);
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
        assert!(waits::waiting(conn, &rows.jobs[..1])?.is_empty());
        waits::delete_strays(conn, &[stray]).map(drop)
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
        assert!(emit::emit(conn, "plan/c", "{}")?);
        run(
            conn,
            "UPDATE windlass_events SET created_at = '2000-01-01' WHERE name = 'plan/c'",
        )?;
        let age = Duration::from_secs(10 * 365 * 86_400);
        assert_eq!(events::clear(conn, age, 10)?, 1);
        Ok(())
    }),
];

fn event(name: &str) -> WaitUntil {
    WaitUntil::Event {
        name: name.to_owned(),
        timeout: Duration::from_secs(60),
    }
}

fn park(conn: &mut Conn<'_>, rows: &Rows, step: &str, until: WaitUntil) -> QueryResult<()> {
    let step = step.to_owned();
    let ending = Ending::Park(StepWait { step, until });
    let fence: Fence = fence(rows);
    let ended = end::end(conn, fence, &ending, Duration::ZERO, FinishedRow::Keep)?;
    assert!(ended.is_some());
    Ok(())
}

fn promote_all(conn: &mut Conn<'_>) -> QueryResult<()> {
    while promote::promote(conn, 10)?.is_progress(10) {}
    Ok(())
}
