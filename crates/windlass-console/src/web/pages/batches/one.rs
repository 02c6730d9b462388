//! One batch: its progress, its jobs, and what follows.

use crate::web::http::{PageError, Response};
use crate::web::pages::jobs::filters::STATES;
use crate::web::request::panels::Panel;
use crate::web::request::route::Cx;
use crate::web::request::shell::Shell;
use crate::web::show::{CutText, Markup, count, cut, filters, lines, state};
use crate::web::site::Section;
use askama::Template;
use serde_json::Value;
use windlass::BatchId;
use windlass::batches::{
    BatchDetails, BatchFollower, BatchState, BatchSummary, FailedOfBatch, FollowerState,
};
use windlass::internal::admin;
use windlass::internal::db::query::batches::{self, ListedBatch};
use windlass::internal::error::ErrorContext as _;
use windlass::jobs::{BoundedCount, TaskStatus};

/// The longest metadata and error that are shown, in characters.
const METADATA: usize = 64 * 1024;
const ERROR: usize = 300;

/// The number up to which the jobs are counted.
const COUNTED: i64 = 1_000_000;

/// A job that follows, or has failed.
struct JobLink {
    name: String,
    href: String,
    /// Why it is here.
    note: String,
    state: Markup,
}

/// The content of a batch's panel.
struct BatchParts {
    view: BatchView,
    around: Vec<JobLink>,
    follows: Vec<JobLink>,
    failed: Vec<JobLink>,
}

#[derive(Template)]
#[template(path = "batches/one.html")]
struct BatchPage {
    shell: Shell,
    id: i64,
    name: String,
    is_of_ruby: bool,
    metadata: Option<CutText>,
    created: Markup,
    enqueued: Option<Markup>,
    ended: Option<Markup>,
    parts: Panel<BatchParts>,
    all_jobs: String,
    /// Links to its jobs in each state.
    states: Vec<(&'static str, String)>,
}

/// Reads the row of the batch of the address.
pub(crate) fn find(cx: &mut Cx<'_>) -> Result<ListedBatch, PageError> {
    let text = cx.param("id").to_owned();
    let id: i64 = text.parse().map_err(|_| no_such_batch(&text))?;
    cx.read(|conn| batches::one(conn, id, 0).during("look the batch up"))?
        .ok_or_else(|| no_such_batch(&text))
}

pub(crate) fn no_such_batch(id: &str) -> PageError {
    PageError::NotFound(format!(
        "There is no batch {id}: it never existed, or its row was deleted some time after its end."
    ))
}

/// Shows a batch.
pub(crate) fn show(cx: &mut Cx<'_>) -> Result<Response, PageError> {
    let row = find(cx)?;
    let (id, name) = (row.id, name(row.id, &row.name));
    let shell = cx.shell(&name, Section::Batches)?;
    let parts = cx.panel("the jobs of the batch", |conn| {
        admin::batches::read(conn, BatchId(id), COUNTED)
    });
    let parts = match parts {
        // It was deleted meanwhile.
        Panel::Ready(None) => {
            return Err(PageError::NotFound(format!(
                "There is no batch {id} any more."
            )));
        }
        Panel::Ready(Some(details)) => Panel::Ready(BatchParts::of(&details, &shell)),
        Panel::Missing(missing) => Panel::Missing(missing),
    };
    let json = |text: &str| serde_json::from_str(text).unwrap_or_else(|_| Value::from(text));
    let batch = id.to_string();
    let states = STATES.iter().map(|(state, _)| {
        let href = shell.find("/jobs", [("state", state), ("batch", &batch)]);
        (*state, href)
    });
    cx.render(&BatchPage {
        states: states.collect(),
        all_jobs: shell.find("/jobs", [("batch", &batch)]),
        id,
        is_of_ruby: !row.is_ours,
        metadata: row.metadata.map(|text| lines(&json(&text), METADATA)),
        created: shell.time(&row.created_at),
        enqueued: row.enqueued_at.map(|at| shell.time(&at)),
        ended: row.finished_at.map(|at| shell.time(&at)),
        name,
        parts,
        shell,
    })
}

impl BatchParts {
    fn of(details: &BatchDetails, shell: &Shell) -> Self {
        let link = |batch: &BatchId, note: &str| JobLink {
            name: format!("batch {batch}"),
            href: path(shell, batch.0),
            note: note.to_owned(),
            state: Markup::default(),
        };
        let outer = details.outer.iter().map(|batch| link(batch, "around it"));
        let inner = details.inner.iter().map(|batch| link(batch, "in it"));
        BatchParts {
            view: BatchView::of(&details.batch, shell),
            around: outer.chain(inner).collect(),
            follows: details
                .follows
                .iter()
                .map(|job| follower(job, shell))
                .collect(),
            failed: details
                .failed
                .iter()
                .map(|job| failed(job, shell))
                .collect(),
        }
    }
}

fn job_path(shell: &Shell, id: i64) -> String {
    shell.to(["jobs", &id.to_string()])
}

fn class_of(class: Option<&str>, id: i64) -> String {
    class.map_or_else(|| format!("job {id}"), str::to_owned)
}

fn follower(job: &BatchFollower, shell: &Shell) -> JobLink {
    let on = match &*job.runs_on {
        "success" => "on success",
        "failure" => "on failure",
        _ => "on any outcome",
    };
    let grey = |text: &str| Markup::element("span", "q", text);
    JobLink {
        name: class_of(job.class_name.as_deref(), job.job_id.0),
        href: match job.status {
            Some(_) => job_path(shell, job.job_id.0),
            None => String::new(),
        },
        note: on.to_owned(),
        state: match job.state {
            FollowerState::Waits => grey("waits for the end of the batch"),
            FollowerState::WaitsForRetries => {
                grey("waits until failed jobs are retried and have succeeded")
            }
            FollowerState::NotWanted => grey("deleted: the batch had another outcome"),
            FollowerState::Follows | FollowerState::Withdrawn => status(job.status),
        },
    }
}

fn failed(job: &FailedOfBatch, shell: &Shell) -> JobLink {
    let error = cut(job.error.as_deref().unwrap_or_default(), ERROR);
    match job.inner {
        Some(batch) => JobLink {
            name: format!("batch {batch}"),
            href: path(shell, batch.0),
            note: String::new(),
            state: status(Some(TaskStatus::Failed)),
        },
        None => JobLink {
            name: class_of(job.class_name.as_deref(), job.job_id.0),
            href: match job.status {
                Some(_) => job_path(shell, job.job_id.0),
                None => String::new(),
            },
            note: error,
            state: status(job.status),
        },
    }
}

impl BatchPage {
    fn action(&self, action: &str) -> String {
        self.shell.to(["batches", &self.id.to_string(), action])
    }

    /// Why none of its jobs can be cancelled, if so.
    fn cancel_refusal(&self) -> Option<&'static str> {
        let has_ended = self.ended.is_some();
        has_ended.then_some("The batch is over: none of its jobs is open.")
    }

    /// Why the batch cannot be changed, if so.
    fn refusal(&self) -> Option<&'static str> {
        match (self.is_of_ruby, self.shell.is_operator) {
            (true, _) => Some("A batch of Ruby is not changed as a whole: select its jobs."),
            (false, false) => Some("Only an operator may change batches."),
            (false, true) => None,
        }
    }
}

// --- A batch as pages show it ---

/// A batch.
#[derive(Debug)]
pub(crate) struct BatchView {
    pub(crate) id: i64,
    /// Its name, or `batch 7` if it has none.
    pub(crate) name: String,
    pub(crate) is_of_ruby: bool,
    pub(crate) is_open: bool,
    pub(crate) state: Markup,
    /// From 0 to 100; empty if too many jobs are open to be counted.
    pub(crate) percent: String,
    pub(crate) total: String,
    pub(crate) open: String,
    pub(crate) failures: String,
    pub(crate) has_failures: bool,
    pub(crate) created: Markup,
    pub(crate) ended: Markup,
    pub(crate) href: String,
}

/// Returns `1,204`, or `10,000+` if there are more.
pub(crate) fn bounded(number: BoundedCount) -> String {
    let more = if number.is_exact { "" } else { "+" };
    format!("{}{more}", count(number.count))
}

/// Returns the name of a batch, which one of Ruby may not have.
pub(crate) fn name(id: i64, name: &str) -> String {
    match name.trim() {
        "" => format!("batch {id}"),
        _ => name.to_owned(),
    }
}

impl BatchView {
    pub(crate) fn of(batch: &BatchSummary, shell: &Shell) -> Self {
        let (class, word) = match batch.state {
            BatchState::Open => ("run ink", "open"),
            BatchState::Succeeded => ("done ink", "succeeded"),
            BatchState::Failed => ("fail ink", "failed"),
        };
        let percent = batch.ended().map(|ended| match batch.total {
            _ if batch.state != BatchState::Open => 100,
            0 => 0,
            total => ended.saturating_mul(100) / total,
        });
        let id = batch.id.0;
        BatchView {
            id,
            name: name(id, &batch.name),
            is_of_ruby: batch.is_of_ruby,
            is_open: batch.state == BatchState::Open,
            state: state(class, word),
            percent: percent.map_or_else(String::new, |percent| percent.to_string()),
            total: count(batch.total),
            open: bounded(batch.open),
            failures: bounded(batch.failures),
            has_failures: batch.failures.count > 0,
            created: shell.time_ago(&batch.created_at.naive_utc()),
            ended: batch
                .finished_at
                .map_or_else(Markup::default, |at| shell.time_ago(&at.naive_utc())),
            href: path(shell, id),
        }
    }
}

/// Returns a link to a batch.
pub(crate) fn path(shell: &Shell, id: i64) -> String {
    shell.to(["batches", &id.to_string()])
}

/// Returns the status of a job that may not be kept any more.
pub(crate) fn status(status: Option<TaskStatus>) -> Markup {
    let (class, word) = match status {
        None => return Markup::element("span", "q", "not kept any more"),
        Some(TaskStatus::Queued) => ("ready ink", "waits"),
        Some(TaskStatus::Running) => ("run ink", "running"),
        Some(TaskStatus::Succeeded) => ("done ink", "finished"),
        Some(TaskStatus::Failed) => ("fail ink", "failed"),
        Some(TaskStatus::Cancelled) => ("disc ink", "cancelled"),
        Some(TaskStatus::Discarded) => ("disc ink", "discarded"),
    };
    state(class, word)
}
