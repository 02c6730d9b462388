//! The result of a change to jobs, as text and as JSON.

use crate::cli::listed::name;
use crate::terminal::{Column, Report, Table, printable};
use serde::Serialize;
use std::time::Duration;
use windlass::internal::clock;
use windlass::jobs::{Changed, JobCount, JobState, TaskStatus};

/// The result of a change, or of a dry run.
#[derive(Debug, Serialize)]
pub(crate) struct Done {
    /// The change.
    #[serde(skip)]
    pub(crate) deed: Deed,
    pub(crate) dry_run: bool,
    /// The limit of a dry run: the most of the selected jobs that it would change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) limit: Option<u64>,
    /// The user declined the change.
    #[serde(skip)]
    pub(crate) refused: bool,
    /// The jobs that a dry run selected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) selected: Option<Vec<Selected>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(flatten)]
    pub(crate) changed: Option<Changed>,
    /// The operation that makes the change in the background.
    #[serde(skip_serializing_if = "Option::is_none", rename = "operation_id")]
    pub(crate) operation: Option<i64>,
    /// Over which time retried jobs were spread.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(flatten)]
    pub(crate) spread: Option<SpreadOver>,
    /// True if the jobs were named by their ids.
    #[serde(skip)]
    pub(crate) are_named: bool,
    /// Named jobs that are not in a state that allows the change.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) not_selected: Vec<NotSelected>,
}

/// Over which time retried jobs are due.
#[derive(Debug, Serialize)]
pub(crate) struct SpreadOver {
    pub(crate) seconds: f64,
    /// A signal ended the command before all jobs were retried.
    pub(crate) stopped: bool,
    #[serde(skip)]
    pub(crate) time: Duration,
}

impl SpreadOver {
    fn text(&self, count: u64, dry_run: bool) -> String {
        let mut text = String::new();
        if count > 0 {
            let would = if dry_run { "would become" } else { "become" };
            text = format!(
                "They {would} due one after the other within {}; a dispatcher makes them ready.\n",
                clock::in_units(self.time)
            );
        }
        if self.stopped {
            text.push_str("A signal stopped the command: the other jobs are left as they are.\n");
        }
        text
    }
}

#[derive(Debug, Serialize)]
pub(crate) struct Selected {
    pub(crate) state: JobState,
    #[serde(flatten)]
    pub(crate) jobs: JobCount,
}

#[derive(Debug, Serialize)]
pub(crate) struct NotSelected {
    pub(crate) job_id: i64,
    /// `None` if there is no such job.
    pub(crate) status: Option<TaskStatus>,
}

/// A change in words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Deed {
    /// `cancelled`, `retried` and so on.
    pub(crate) done: &'static str,
    /// The reason why a named job is not changed: `has not failed`.
    pub(crate) but: &'static str,
}

impl Done {
    /// Returns the exit code.
    pub(crate) fn code(&self) -> u8 {
        let stopped = self.spread.as_ref().is_some_and(|spread| spread.stopped);
        let left = self.changed.map_or(0, |changed| {
            // A cancel asks running jobs to stop.
            let running = match self.deed.done {
                "cancelled" => 0,
                _ => changed.running,
            };
            changed.left_alone() + changed.passed_over + running
        });
        let is_partial = !self.not_selected.is_empty() || (self.are_named && left > 0);
        u8::from(self.refused || stopped || is_partial)
    }

    /// Returns the number of jobs that were changed, or that would be without a dry run.
    pub(crate) fn count(&self) -> u64 {
        let found = sum(self.selected.iter().flatten());
        let planned = self.limit.map_or(found, |limit| limit.min(found));
        self.changed.map_or(planned, |changed| changed.changed)
    }
}

impl Report for Done {
    fn text(&self, width: Option<usize>) -> String {
        let mut text: String = self
            .not_selected
            .iter()
            .map(|missing| missing.text(self.deed.but))
            .collect();
        let done = self.deed.done;
        text.push_str(&match (&self.selected, &self.changed) {
            (Some(selected), _) => planned(selected, self.count(), done, width),
            (None, Some(changed)) => told(changed, done),
            (None, None) if self.operation.is_some() => started(self.operation, done),
            (None, None) => format!("No job was {done}.\n"),
        });
        if let Some(spread) = &self.spread {
            text.push_str(&spread.text(self.count(), self.dry_run));
        }
        text
    }
}

fn started(operation: Option<i64>, done: &str) -> String {
    let id = operation.unwrap_or_default();
    format!(
        "Operation {id} was started: the jobs are {done} in the background; `windlass operations show {id}` \
         shows how far it is.\n"
    )
}

impl NotSelected {
    fn text(&self, but: &str) -> String {
        let id = self.job_id;
        let is = match self.status {
            None => return format!("There is no job {id}.\n"),
            Some(TaskStatus::Queued) => "it waits",
            Some(TaskStatus::Running) => "it runs",
            Some(TaskStatus::Succeeded) => "it has finished",
            Some(TaskStatus::Failed) => "it has failed",
            Some(TaskStatus::Cancelled) => "it was cancelled",
            Some(TaskStatus::Discarded) => "it was discarded",
        };
        format!("Job {id} {but}: {is}.\n")
    }
}

/// `1 job`, `2 jobs`.
pub(crate) fn plural(count: u64, word: &str) -> String {
    format!("{count} {word}{}", if count == 1 { "" } else { "s" })
}

/// Returns one of two words, for one or for many.
fn by(count: u64, one: &'static str, many: &'static str) -> &'static str {
    if count == 1 { one } else { many }
}

fn sum<'s>(selected: impl Iterator<Item = &'s Selected>) -> u64 {
    let sum: i64 = selected.map(|selected| selected.jobs.count).sum();
    u64::try_from(sum).unwrap_or(0)
}

/// Returns what a dry run found, and how many of it would be changed.
fn planned(selected: &[Selected], count: u64, word: &str, width: Option<usize>) -> String {
    if count == 0 {
        return format!("No job would be {word}.\n");
    }
    let mut table = Table::new(&[
        Column::text("STATE"),
        Column::text("CLASS"),
        Column::text("QUEUE"),
        Column::text("DELIVERY"),
        Column::number("JOBS"),
    ]);
    for Selected { state, jobs } in selected {
        table.add(vec![
            name(*state).to_owned(),
            printable(&jobs.class_name),
            printable(&jobs.queue_name),
            delivery(jobs.at_most_once).to_owned(),
            jobs.count.to_string(),
        ]);
    }
    let found = sum(selected.iter());
    let jobs = match count < found {
        true => format!("{count} of {}, by the limit", plural(found, "job")),
        false => plural(count, "job"),
    };
    format!(
        "{}\nA dry run: nothing was changed. Selected to be {word}: {jobs}.\n",
        table.text(width)
    )
}

fn delivery(at_most_once: bool) -> &'static str {
    if at_most_once {
        "at most once"
    } else {
        "at least once"
    }
}

fn told(changed: &Changed, word: &str) -> String {
    let count = changed.changed;
    let mut text = match count {
        0 => format!("No job was {word}.\n"),
        _ => format!("{} {} {word}.\n", plural(count, "job"), were(count)),
    };
    let running = if word == "cancelled" {
        asked(changed.running)
    } else {
        let is = by(changed.running, "is", "are");
        left_alone(changed.running, is, "running", ".")
    };
    text.push_str(&running);
    text.push_str(&left_alone(
        changed.in_ruby,
        by(changed.in_ruby, "is", "are"),
        "running in a Ruby process, which cannot be asked to stop a job,",
        ".",
    ));
    text.push_str(&left_alone(
        changed.at_most_once,
        "may",
        "run at most once",
        ": each has started before, and may have done all or part of its work. \
         `--even-at-most-once` runs them again nevertheless.",
    ));
    text.push_str(&left_alone(
        changed.id_taken,
        by(changed.id_taken, "has", "have"),
        "a unique id that another job holds by now,",
        ".",
    ));
    if changed.passed_over > 0 {
        let turn = by(changed.passed_over, "its", "their");
        text.push_str(&format!(
            "{} had been moved or had ended before {turn} turn came.\n",
            changed.passed_over
        ));
    }
    text
}

fn were(count: u64) -> &'static str {
    by(count, "was", "were")
}

/// Returns a line about jobs that a change left as they are, or nothing if there are none.
fn left_alone(count: u64, verb: &str, why: &str, end: &str) -> String {
    if count == 0 {
        return String::new();
    }
    format!("{count} {verb} {why} and {} left alone{end}\n", were(count))
}

/// Returns a line about running jobs that were asked to stop, or nothing if there are none.
fn asked(running: u64) -> String {
    if running == 0 {
        return String::new();
    }
    let is = by(
        running,
        "more is running: it is notified",
        "more are running: they are notified",
    );
    let their = by(running, "its", "their");
    format!("{running} {is} with the next heartbeat of {their} process.\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_left_alone_is_told() {
        let changed = Changed {
            changed: 3,
            running: 2,
            in_ruby: 0,
            at_most_once: 1,
            id_taken: 1,
            passed_over: 0,
        };
        let text = told(&changed, "retried");
        assert!(
            text.starts_with("3 jobs were retried.\n2 are running and were"),
            "{text}"
        );
        assert!(text.contains("--even-at-most-once"), "{text}");
        assert!(text.contains("1 has a unique id"), "{text}");
        assert!(told(&changed, "cancelled").contains("2 more are running"));
    }
}
