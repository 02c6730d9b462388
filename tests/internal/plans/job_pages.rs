//! Queries of the pages about jobs.

use crate::db::conn::connection::Conn;
use crate::db::model::decision::JobState;
use crate::db::plans::{Rows, Work};
use crate::db::query::job_view::{self, TextLimits};
use crate::db::table::classes;
use crate::read::sql::job_search::{self, JobSearch};
use crate::read::sql::job_window::{self, AccessPath, KeyRange, ListPosition, WINDOW};
use crate::read::sql::named;
use crate::read::sql::newest_job::newest_job;
use chrono::NaiveDateTime;
use diesel::QueryResult;

const STATES: [Option<JobState>; 9] = [
    None,
    Some(JobState::Ready),
    Some(JobState::Scheduled),
    Some(JobState::Blocked),
    Some(JobState::Claimed),
    Some(JobState::Failed),
    Some(JobState::Finished),
    Some(JobState::Cancelled),
    Some(JobState::Discarded),
];

fn of_state(state: Option<JobState>) -> JobSearch {
    JobSearch {
        state,
        ..JobSearch::default()
    }
}

fn text(text: &str) -> Option<String> {
    Some(text.to_owned())
}

/// Every filter that a state can have.
fn filtered(state: Option<JobState>) -> JobSearch {
    JobSearch {
        queue: text("q1"),
        class: text("plan"),
        error: text("e"),
        unique_id: text("u"),
        tag: text("t"),
        arguments: text("a: 1"),
        from: text("2026-01-01 00:00:00.000000"),
        to: text("2027-01-01 00:00:00.000000"),
        ..of_state(state)
    }
}

fn find(conn: &mut Conn<'_>, search: &JobSearch, by: &AccessPath) -> QueryResult<()> {
    for place in [ListPosition::Before(i64::MAX), ListPosition::After(0)] {
        job_window::window(conn, search, by, KeyRange::ALL, place)?;
        job_window::matching(conn, search, by, KeyRange::ALL, (place, WINDOW, 51))?;
    }
    Ok(())
}

fn times(conn: &mut Conn<'_>, _: &Rows) -> QueryResult<()> {
    let time = |text| NaiveDateTime::parse_from_str(text, "%Y-%m-%d %H:%M:%S").ok();
    for state in STATES {
        let search = of_state(state);
        let (from, to) = (time("2026-01-01 00:00:00"), time("2027-01-01 00:00:00"));
        job_window::in_time(conn, &search, from, to)?;
    }
    newest_job(conn).map(drop)
}

pub(crate) const JOB_PAGES: [(&str, Work); 9] = [
    ("page through all jobs of a state", |conn, _| {
        for state in STATES {
            find(conn, &of_state(state), &AccessPath::Key)?;
        }
        Ok(())
    }),
    ("page through jobs with filters", |conn, _| {
        for state in STATES {
            find(conn, &filtered(state), &AccessPath::Key)?;
        }
        Ok(())
    }),
    ("page through the jobs with a unique id", |conn, rows| {
        named::with_unique_id(conn, "u", 1000)?;
        for state in STATES {
            find(conn, &filtered(state), &AccessPath::Jobs(rows.jobs.clone()))?;
        }
        Ok(())
    }),
    ("page through the ready jobs of a queue", |conn, _| {
        job_window::priorities(conn, "q1", 9)?;
        let by = AccessPath::Priorities(vec![0, 1, 2]);
        find(conn, &filtered(Some(JobState::Ready)), &by)
    }),
    ("find jobs of a time", times),
    ("find a finished job further back", |conn, rows| {
        let range = KeyRange {
            lowest: 0,
            highest: rows.jobs[0],
        };
        job_window::newest_finished(conn, range)?;
        job_window::job_of_key(conn, Some(JobState::Failed), rows.jobs[0]).map(drop)
    }),
    ("show the jobs of a page", |conn, rows| {
        assert!(!job_view::jobs(conn, &rows.jobs, TextLimits::LIST)?.is_empty());
        job_view::arguments(conn, &rows.jobs)?;
        classes::queues(conn, &["plan"])?;
        classes::redact_all(conn, &["plan"]).map(drop)
    }),
    ("count the jobs of all states", |conn, _| {
        job_search::counts(conn).map(drop)
    }),
    ("find what a text names", |conn, rows| {
        assert!(named::is_job(conn, rows.jobs[0])?);
        named::known_classes(conn)?;
        named::named(conn, "plan").map(drop)
    }),
];
