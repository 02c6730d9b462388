//! A batch as pages show it.

use crate::admin::batches::{BatchState, BatchSummary};
use crate::admin::job_info::TaskStatus;
use crate::admin::jobs::BoundedCount;
use crate::web::request::shell::Shell;
use crate::web::show::markup::{Markup, state};
use crate::web::show::numbers::count;

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
