//! Changes of one job.

use crate::web::http::{self, PageError, Response};
use crate::web::pages::job::confirm;
use crate::web::pages::words;
use crate::web::request::route::Cx;
use crate::web::show::count;
use std::time::Duration;
use windlass::JobId;
use windlass::internal::queue::check_name;
use windlass::jobs::{Change, Changed, Jobs};

/// Returns the id of the job in the address.
fn job(cx: &Cx<'_>) -> Result<i64, PageError> {
    let wrong = || PageError::NotFound("The id of a job is a number.".to_owned());
    cx.param("id").parse().map_err(|_| wrong())
}

fn path(id: i64) -> String {
    http::path(&["jobs", &id.to_string()])
}

/// Changes the job of the address, and returns what happened to it.
fn apply(cx: &mut Cx<'_>, jobs: Jobs, change: Change) -> Result<(i64, Changed), PageError> {
    let id = job(cx)?;
    let actor = words::page_actor(cx, cx.form().get("reason"));
    let jobs = jobs.ids([JobId(id)]).by_actor(actor);
    let changed = cx.write(|conn| jobs.change(conn, change))?;
    Ok((id, changed))
}

/// The message if a job is in another state than when the page was made.
const MOVED: &str = "Nothing was changed: the job moved or ended meanwhile.";

/// Cancels a job.
pub(crate) fn cancel(cx: &mut Cx<'_>) -> Result<Response, PageError> {
    let (id, done) = apply(cx, Jobs::waiting_or_running(), Change::Cancel)?;
    let message = match done {
        Changed { changed: 1.., .. } => format!("Job {} was cancelled.", count(id)),
        Changed { running: 1.., .. } => format!(
            "The process of job {} was asked to stop it: the job ends as soon as it checks for a cancellation.",
            count(id)
        ),
        Changed { in_ruby: 1.., .. } => {
            "Nothing was changed: a Ruby process runs the job, and cannot be asked to stop it."
                .to_owned()
        }
        _ => MOVED.to_owned(),
    };
    Ok(cx.done(&path(id), &message))
}

/// Discards a job, after which it has no page.
pub(crate) fn discard(cx: &mut Cx<'_>) -> Result<Response, PageError> {
    let (id, done) = apply(cx, Jobs::unfinished(), Change::Discard)?;
    Ok(match done {
        Changed { changed: 1.., .. } => {
            cx.done("/jobs", &format!("Job {} was discarded.", count(id)))
        }
        Changed { running: 1.., .. } => cx.done(
            &path(id),
            "Nothing was changed: a process runs the job. Cancel it instead.",
        ),
        _ => cx.done(&path(id), MOVED),
    })
}

/// Retries a failed job. One that runs at most once is retried only after a confirmation.
pub(crate) fn retry(cx: &mut Cx<'_>) -> Result<Response, PageError> {
    let even_at_most_once = cx.form().has(confirm::EVEN);
    let (id, done) = apply(cx, Jobs::failed(), Change::Retry { even_at_most_once })?;
    Ok(match done {
        Changed { changed: 1.., .. } => cx.done(
            &path(id),
            &format!("Job {} is ready again, with all its attempts.", count(id)),
        ),
        Changed {
            at_most_once: 1.., ..
        } => Response::see_other(cx.link(&format!("{}/retry", path(id)))),
        Changed { id_taken: 1.., .. } => cx.done(
            &path(id),
            "Nothing was changed: another job holds its unique id by now.",
        ),
        _ => cx.done(
            &path(id),
            "Nothing was changed: the job has not failed, or was retried meanwhile.",
        ),
    })
}

/// Makes a scheduled job ready.
pub(crate) fn run(cx: &mut Cx<'_>) -> Result<Response, PageError> {
    let (id, done) = apply(cx, Jobs::waiting(), Change::RunIn(Duration::ZERO))?;
    let message = match done.changed {
        0 => MOVED.to_owned(),
        _ => format!("Job {} is ready now.", count(id)),
    };
    Ok(cx.done(&path(id), &message))
}

/// Changes the queue, the priority, or both.
pub(crate) fn change(cx: &mut Cx<'_>) -> Result<Response, PageError> {
    let id = job(cx)?;
    let form = cx.form().clone();
    let queue = form
        .get("queue")
        .filter(|queue| form.get("was") != Some(*queue));
    let priority = form
        .get("priority")
        .filter(|priority| form.get("ranked") != Some(*priority))
        .map(|text| {
            let wrong = || PageError::Invalid("A priority is a whole number.".to_owned());
            text.trim().parse::<i32>().map_err(|_| wrong())
        })
        .transpose()?;
    if let Some(queue) = queue {
        check_name(queue, "queue name")?;
    }
    let mut said = Vec::new();
    if let Some(queue) = queue {
        let (_, done) = apply(cx, Jobs::waiting(), Change::Queue(queue.to_owned()))?;
        said.push(match done.changed {
            0 => MOVED.to_owned(),
            _ => format!("Job {} was moved to the queue {queue}.", count(id)),
        });
    }
    if let Some(priority) = priority {
        let (_, done) = apply(cx, Jobs::waiting(), Change::Priority(priority))?;
        said.push(match done.changed {
            0 => MOVED.to_owned(),
            _ => format!("Job {} has the priority {priority}.", count(id)),
        });
    }
    said.dedup();
    let message = match said.is_empty() {
        true => "Nothing was changed: the queue and the priority are the same.".to_owned(),
        false => said.join(" "),
    };
    Ok(cx.done(&path(id), &message))
}
