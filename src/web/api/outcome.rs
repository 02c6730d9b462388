//! `GET /v1/jobs/{id}`: what became of a job.

use crate::admin::job_info::{self, TaskInfo, TaskStatus};
use crate::admin::secrets::Secrets;
use crate::clock;
use crate::db::query::pages::job_lines;
use crate::db::table::claimed::Progress;
use crate::error::{Doing as _, Result};
use crate::process::base::stop;
use crate::web::access::viewer::TokenLimits;
use crate::web::http::{PageError, Response};
use crate::web::reads::Writers;
use crate::web::request::route::Cx;
use crate::web::site::Site;
use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// The longest wait.
const LONGEST: Duration = Duration::from_secs(60);

/// A job, as the program that enqueued it sees it: without its arguments.
#[derive(Debug, Serialize)]
struct JobOutcome<'a> {
    id: i64,
    class: &'a str,
    status: TaskStatus,
    attempt: u32,
    finished_at: Option<DateTime<Utc>>,
    retry_at: Option<DateTime<Utc>>,
    progress: Option<&'a Progress>,
    result: Option<&'a Value>,
    error: Option<&'a str>,
}

/// Shows a job, and says whether to wait for its end.
pub(crate) fn show(cx: &mut Cx<'_>) -> Result<Response, PageError> {
    wait(cx.query().get("wait"))?;
    let text = cx.param("id").to_owned();
    let Ok(id) = text.parse::<i64>() else {
        return Err(PageError::Invalid(format!(
            "the id of a job is a number; it is {text:?}"
        )));
    };
    let known = cx.read_newest(|conn| {
        let mut known = job_info::look(conn, id)?;
        if let Some(known) = &mut known {
            Secrets::cover(conn, known).doing("read which fields are secret")?;
        }
        Ok(known)
    })?;
    let limits = cx.viewer.limits.as_deref();
    let Some(job) = known.filter(|job| limits.is_none_or(|limits| is_shown(limits, job))) else {
        return Err(PageError::NotFound(format!(
            "There is no job {id}, or it is not kept any more, or this token may not see it."
        )));
    };
    let mut response = Response::json(&JobOutcome {
        id,
        class: &job.class_name,
        status: job.status,
        attempt: job.attempt,
        finished_at: job.finished_at,
        retry_at: job.retry_at,
        progress: job.progress.as_ref(),
        result: job.result.as_ref(),
        error: job.error.as_deref(),
    });
    response.waits_for = (!job.status.has_ended()).then_some(id);
    Ok(response)
}

/// A result without its job has no queue any more.
fn is_shown(limits: &TokenLimits, job: &TaskInfo) -> bool {
    let queue = job.queue_name.as_deref();
    limits.has_class(&job.class_name)
        && (limits.queues.is_none() || queue.is_some_and(|queue| limits.has_queue(queue)))
}

/// Returns for how long a request waits: `10s`, `500ms`, or a number of seconds.
///
/// # Errors
/// If it is no such time, or too long.
pub(crate) fn wait(text: Option<&str>) -> Result<Duration, PageError> {
    let Some(text) = text else {
        return Ok(Duration::ZERO);
    };
    let seconds = text.parse::<u64>().map(Duration::from_secs);
    let time = seconds.or_else(|_| humantime::parse_duration(text));
    match time {
        Ok(time) if time <= LONGEST => Ok(time),
        _ => Err(PageError::Invalid(format!(
            "`wait` is a time of up to 60 s, such as `10s`; it is {text:?}"
        ))),
    }
}

// --- The thread that sees which jobs have ended: one statement asks for all that are waited for ---

/// How often the jobs that are waited for are looked at.
const LOOK: Duration = Duration::from_millis(50);

/// After a failed look.
const REST: Duration = Duration::from_secs(1);

/// Starts the thread that looks; it ends with the server.
pub(crate) fn start(site: &Arc<Site>) -> Result<JoinHandle<()>> {
    let site = Arc::clone(site);
    stop::spawn("web-waits", move || {
        let mut writers = Writers::new(&site);
        while let Some(jobs) = site.waits.jobs() {
            let mut pause = (!jobs.is_empty()).then_some(LOOK);
            for (database, jobs) in jobs {
                if let Err(error) = look(&site, &mut writers, database, &jobs) {
                    log::debug!("web: cannot see which jobs have ended: {error}");
                    pause = Some(REST);
                }
            }
            // Between two looks, another wait changes nothing.
            match pause {
                Some(pause) => clock::nap(pause),
                None => drop(site.waits.woken.recv()),
            }
        }
    })
}

fn look(site: &Site, writers: &mut Writers, database: usize, jobs: &[i64]) -> Result<()> {
    let open = writers.look(database, |conn| {
        job_lines::not_ended(conn, jobs).doing("see which jobs have ended")
    })?;
    let open: BTreeSet<i64> = open.into_iter().collect();
    let ended = jobs.iter().copied().filter(|job| !open.contains(job));
    site.waits.ended(database, ended);
    Ok(())
}
