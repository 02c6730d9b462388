//! All stored information about one job.

use crate::admin::explain::{self, Explanation, Reason};
use crate::admin::job_info::JobKey;
use crate::admin::secrets::Secrets;
use crate::db::query::job_view::{JobView, TextLimits};
use crate::db::table::attempts::{self, Attempt};
use crate::db::table::job_logs::{self, JobLog};
use crate::db::table::steps;
use crate::db::{AsConn, Conn, own};
use crate::error::{ErrorContext, Result};
use crate::job::JobId;
use chrono::{DateTime, NaiveDateTime, Utc};
use serde_json::Value;
use std::collections::BTreeMap;

/// All stored information about one job.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
#[non_exhaustive]
pub struct JobDetails {
    /// Its state, the reason for it, and its outcome.
    #[serde(flatten)]
    pub explanation: Explanation,
    /// Its arguments as JSON, or as text if they are not valid JSON. `None` if its row was deleted.
    ///
    /// Secret fields are `[hidden]`. If no worker has registered the class, all arguments are
    /// hidden.
    pub arguments: Option<Value>,
    /// The [version](crate::Job::VERSION) of its arguments; `None` if its row was deleted.
    pub arguments_version: Option<u32>,
    /// Its metadata, hidden like the arguments.
    pub meta: BTreeMap<String, Value>,
    /// True if all arguments are hidden because no worker has registered which of them are secret.
    pub unknown_class: bool,
    /// The runs that did not succeed, oldest first; at most the last 20.
    pub attempts: Vec<Attempt>,
    /// The steps it has completed, until it has ended; at most 1000.
    pub steps: Vec<StepDone>,
    /// The lines that its runs logged with [`Context::log`](crate::Context::log), the oldest run first; at most the last 10 runs
    /// that logged anything.
    ///
    /// ```
    /// use diesel::prelude::*;
    /// use windlass::{Function, Registry, jobs, testing};
    ///
    /// const COUNT: Function<u32> = Function::new("count");
    /// let registry = Registry::new().function(COUNT, |number, cx| {
    ///     cx.log(format!("counted to {number}"));
    ///     Ok(())
    /// });
    /// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
    /// # windlass::migrate(&mut conn).unwrap();
    /// let id = COUNT.enqueue(&mut conn, &3)?.id;
    /// testing::drain(&mut conn, &registry)?.assert_all_finished(1);
    /// let job = jobs::find(&mut conn, id)?.expect("it is stored");
    /// assert_eq!(job.logs[0].attempt, 1);
    /// assert_eq!(job.logs[0].lines[0].text, "counted to 3");
    /// # Ok::<(), windlass::Error>(())
    /// ```
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub logs: Vec<JobLog>,
    /// Its events in order, by the database's clock.
    pub timeline: Vec<Moment>,
}

/// A completed step of a job.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
#[non_exhaustive]
pub struct StepDone {
    /// Its name.
    pub name: String,
    /// Its result, hidden like the arguments.
    pub value: Value,
    /// The time of its completion.
    pub at: Option<DateTime<Utc>>,
}

/// A past or future event of a job.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct Moment {
    /// The time of the event.
    pub at: DateTime<Utc>,
    /// A description of the event.
    pub what: String,
}

/// Returns all stored information about a job. Returns `None` if nothing is stored.
///
/// Fields named in [`Job::REDACT`](crate::Job::REDACT) are hidden in arguments, steps, results and
/// metadata, and so are their values in the tags. If no worker has registered the class within the last
/// 30 days, all of these but the tags are hidden. [`reveal`] shows them.
///
/// ```
/// # use diesel::prelude::*;
/// # use windlass::NewJob;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// use windlass::jobs;
///
/// let id = NewJob::of_class("import", r#"{"file":"a.csv"}"#).enqueue(&mut conn)?.id;
/// let job = jobs::find(&mut conn, id)?.expect("it is stored");
/// assert_eq!(job.explanation.task.class_name, "import");
/// for attempt in &job.attempts {
///     println!("{}. {}: {}", attempt.attempt, attempt.kind, attempt.message);
/// }
/// assert!(job.unknown_class, "no worker performs it, so its arguments are hidden");
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// # Errors
/// If the database does not answer or has no tables.
pub fn find<C: AsConn + ?Sized>(
    conn: &mut C,
    job: impl Into<JobKey>,
) -> Result<Option<JobDetails>> {
    job_details(conn, job, false)
}

/// Returns what [`find`] returns, and hides nothing.
///
/// ```
/// # use diesel::prelude::*;
/// # use windlass::NewJob;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// use windlass::jobs;
///
/// let id = NewJob::of_class("import", r#"{"file":"a.csv"}"#).enqueue(&mut conn)?.id;
/// let job = jobs::reveal(&mut conn, id)?.expect("it is stored");
/// assert_eq!(job.arguments.expect("its row is kept")["file"], "a.csv");
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// # Errors
/// If the database does not answer or has no tables.
pub fn reveal<C: AsConn + ?Sized>(
    conn: &mut C,
    job: impl Into<JobKey>,
) -> Result<Option<JobDetails>> {
    job_details(conn, job, true)
}

/// Returns what [`find`] or [`reveal`] returns.
pub(crate) fn job_details<C: AsConn + ?Sized>(
    conn: &mut C,
    job: impl Into<JobKey>,
    reveal: bool,
) -> Result<Option<JobDetails>> {
    let found = read(&mut own(conn), job.into(), reveal)?;
    Ok(found.map(|(details, _)| details))
}

/// Reads a job with all that is stored of it, and its view if it has a row.
pub fn read(
    conn: &mut Conn<'_>,
    job: JobKey,
    reveal: bool,
) -> Result<Option<(JobDetails, Option<JobView>)>> {
    let Some((mut explanation, view)) = explain::find(conn, job, TextLimits::WHOLE)? else {
        return Ok(None);
    };
    let secrets = match reveal {
        true => Secrets::None,
        false => Secrets::of_class(conn, &explanation.task.class_name).during(LOOKING)?,
    };
    let arguments = view.as_ref().and_then(|job| job.arguments.as_deref());
    let of_job = secrets.with_stored(arguments);
    of_job.hide_in_task(&mut explanation.task);
    let mut found = read_rest(conn, explanation, view.as_ref(), &of_job)?;
    // By the names alone: short values would hide parts of others.
    found.arguments = arguments.map(|arguments| secrets.show(arguments));
    Ok(Some((found, view)))
}

const MOST_STEPS: i64 = 1000;

const LOOKING: &str = "look the job up";

/// Reads everything but the arguments.
fn read_rest(
    conn: &mut Conn<'_>,
    explanation: Explanation,
    row: Option<&JobView>,
    secrets: &Secrets,
) -> Result<JobDetails> {
    let JobId(id) = explanation.task.job_id;
    let mut attempts = attempts::of_job(conn, id).during(LOOKING)?;
    attempts.reverse();
    let steps = steps::first(conn, id, MOST_STEPS).during(LOOKING)?;
    let steps = steps.into_iter().map(|step| StepDone {
        name: step.name,
        value: secrets.show(&step.value),
        at: step.created_at.map(|at| at.and_utc()),
    });
    let extras = row.map(JobView::extras).unwrap_or_default();
    Ok(JobDetails {
        logs: job_logs::of_job(conn, id).during(LOOKING)?,
        arguments_version: row.map(|_| extras.arguments_version()),
        meta: secrets.hide_in_meta(extras.meta),
        steps: steps.collect(),
        timeline: timeline(&explanation, row, &attempts),
        arguments: None,
        unknown_class: matches!(secrets, Secrets::All),
        attempts,
        explanation,
    })
}

fn timeline(explanation: &Explanation, row: Option<&JobView>, attempts: &[Attempt]) -> Vec<Moment> {
    let mut moments = Vec::new();
    let mut add = |at: Option<DateTime<Utc>>, what: String| {
        moments.extend(at.map(|at| Moment { at, what }));
    };
    let in_utc = |time: Option<NaiveDateTime>| time.map(|time| time.and_utc());
    if let Some(row) = row {
        add(in_utc(row.created_at), "enqueued".to_owned());
        add(in_utc(row.scheduled_at), "due".to_owned());
    }
    for attempt in attempts {
        let host = attempt.hostname.as_deref().unwrap_or("an unknown host");
        let by = attempt
            .process_name
            .as_ref()
            .map(|name| format!("{name} on {host}"));
        add(
            attempt.started_at,
            format!("started by {}", by.as_deref().unwrap_or("a process")),
        );
        let outcome = serde_json::to_value(attempt.outcome).unwrap_or_default();
        let outcome = outcome.as_str().unwrap_or("ended").to_owned();
        add(
            Some(attempt.ended_at),
            format!("{outcome}: {}", attempt.kind),
        );
    }
    if let Reason::Claimed { since, .. } = &explanation.reason {
        add(*since, "claimed by the process that holds it".to_owned());
    }
    if explanation.task.status == crate::admin::job_info::TaskStatus::Succeeded {
        add(explanation.task.finished_at, "finished".to_owned());
    }
    moments.sort_by_key(|moment| moment.at);
    moments
}
