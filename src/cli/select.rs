//! Which jobs a command is about, and what came of doing something to them.

use super::output::{Progress, Report};
use super::table::{Column, Table, printable};
use crate::db::migrations;
use crate::db::{AsConn as _, Connection, Database};
use crate::error::{Error, Result};
use crate::job::JobId;
use crate::operate::{Change, Changed, Jobs};
use crate::{JobCount, JobState, JobSummary};
use serde::Serialize;

/// Opens a connection to a database with our tables.
pub(super) fn connect(database: &Database) -> Result<Connection> {
    let mut connection = database.connect()?;
    migrations::check(&mut connection.as_conn(), database)?;
    Ok(connection)
}

/// Which jobs.
#[derive(Debug, clap::Args)]
pub(super) struct Which {
    /// The ids of the jobs
    #[arg(value_name = "JOB", conflicts_with = "all")]
    ids: Vec<i64>,

    /// Only jobs of this class
    #[arg(long, value_name = "NAME", conflicts_with = "all")]
    class: Option<String>,

    /// Only jobs on this queue
    #[arg(long, value_name = "NAME", conflicts_with = "all")]
    queue: Option<String>,

    /// Every job that can be
    #[arg(long)]
    all: bool,

    /// At most so many jobs
    #[arg(long, value_name = "COUNT")]
    limit: Option<u64>,
}

impl Which {
    /// Of `jobs`, those that were asked for; `narrowed` when something else
    /// than these arguments has been said of them.
    pub(super) fn of(&self, mut jobs: Jobs, narrowed: bool) -> Result<Jobs> {
        let says = !self.ids.is_empty() || self.class.is_some() || self.queue.is_some();
        if !(says || narrowed || self.all) {
            return Err(Error::Settings(
                "no job is named: give ids, `--class` or `--queue`, or `--all` for every one"
                    .to_owned(),
            ));
        }
        if !self.ids.is_empty() {
            jobs = jobs.ids(self.ids.iter().map(|id| JobId(*id)));
        }
        if let Some(class) = &self.class {
            jobs = jobs.class(class);
        }
        if let Some(queue) = &self.queue {
            jobs = jobs.queue(queue);
        }
        Ok(match self.limit {
            Some(limit) => jobs.limit(limit),
            None => jobs,
        })
    }
}

/// How a change is made and shown.
#[derive(Debug, clap::Args)]
pub(super) struct How {
    /// Only count the jobs, and change nothing
    #[arg(long)]
    dry_run: bool,

    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// What came of a change, or would.
#[derive(Debug, Serialize)]
pub(super) struct Done {
    /// `cancelled`, `retried` and so on.
    #[serde(skip)]
    word: &'static str,
    dry_run: bool,
    /// Of a dry run: the jobs it would be about.
    #[serde(skip_serializing_if = "Option::is_none")]
    selected: Option<Vec<Selected>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(flatten)]
    changed: Option<Changed>,
}

#[derive(Debug, Serialize)]
struct Selected {
    state: JobState,
    #[serde(flatten)]
    jobs: JobCount,
}

impl How {
    /// Makes the change, or counts what it would be about.
    pub(super) fn run(
        &self,
        database: &Database,
        jobs: &Jobs,
        change: Change,
        word: &'static str,
    ) -> Result<Done> {
        let mut connection = connect(database)?;
        let mut done = Done {
            word,
            dry_run: self.dry_run,
            selected: None,
            changed: None,
        };
        if self.dry_run {
            let counts = jobs.counts(&mut connection)?;
            let selected = counts.into_iter();
            done.selected = Some(
                selected
                    .map(|(state, jobs)| Selected { state, jobs })
                    .collect(),
            );
        } else {
            let progress = Progress::of(word, || jobs.count(&mut connection))?;
            let changed = jobs.change_with_progress(&mut connection, change, |done| {
                let Changed {
                    changed,
                    running,
                    at_most_once,
                    id_taken,
                    passed_over,
                } = done;
                progress.reach(changed + running + at_most_once + id_taken + passed_over);
            });
            progress.end();
            done.changed = Some(changed?);
        }
        Ok(done)
    }
}

impl Report for Done {
    fn text(&self, width: Option<usize>) -> String {
        match (&self.selected, &self.changed) {
            (Some(selected), _) => planned(selected, self.word, width),
            (None, Some(changed)) => told(changed, self.word),
            (None, None) => String::new(),
        }
    }
}

fn planned(selected: &[Selected], word: &str, width: Option<usize>) -> String {
    let sum: i64 = selected.iter().map(|selected| selected.jobs.count).sum();
    if sum == 0 {
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
    format!(
        "{}\nA dry run: nothing was changed. {sum} jobs would be looked at, to be {word}.\n",
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
    let mut text = format!("{} jobs were {word}.\n", changed.changed);
    if changed.running > 0 && word == "cancelled" {
        text.push_str(&format!(
            "{} more are running: they hear of it with the next heartbeat of their process.\n",
            changed.running
        ));
    } else if changed.running > 0 {
        text.push_str(&format!(
            "{} are running and were left alone.\n",
            changed.running
        ));
    }
    if changed.at_most_once > 0 {
        text.push_str(&format!(
            "{} may run at most once and were left alone: each has started before, and may have done all \
             or part of its work. `--even-at-most-once` runs them again nevertheless.\n",
            changed.at_most_once
        ));
    }
    if changed.id_taken > 0 {
        text.push_str(&format!(
            "{} have a unique id that another job holds by now, and were left alone.\n",
            changed.id_taken
        ));
    }
    if changed.passed_over > 0 {
        text.push_str(&format!(
            "{} had been moved or had ended before their turn came.\n",
            changed.passed_over
        ));
    }
    text
}

/// A state as people and `--state` write it.
pub(super) fn name(state: JobState) -> &'static str {
    match state {
        JobState::Ready => "ready",
        JobState::Scheduled => "scheduled",
        JobState::Blocked => "blocked",
        JobState::Claimed => "claimed",
        JobState::Failed => "failed",
        JobState::Finished => "finished",
        JobState::Cancelled => "cancelled",
        JobState::Discarded => "discarded",
    }
}

/// Jobs, one a row.
#[derive(Debug, Serialize)]
pub(super) struct Listed {
    pub(super) jobs: Vec<JobSummary>,
}

impl Report for Listed {
    fn text(&self, width: Option<usize>) -> String {
        if self.jobs.is_empty() {
            return "No such job.\n".to_owned();
        }
        let mut table = Table::new(&[
            Column::number("JOB"),
            Column::text("CLASS"),
            Column::text("QUEUE"),
            Column::number("PRIORITY"),
            Column::text("STATE"),
            Column::text("AT"),
            Column::number("ATTEMPTS"),
            Column::text("ERROR"),
        ]);
        for job in &self.jobs {
            let error = job.error.as_deref().unwrap_or_default();
            table.add(vec![
                job.job_id.to_string(),
                printable(&job.class_name),
                printable(&job.queue_name),
                job.priority.to_string(),
                name(job.state).to_owned(),
                job.at.format("%Y-%m-%d %H:%M:%S").to_string(),
                job.attempts.to_string(),
                printable(&shortened(error)),
            ]);
        }
        table.text(width)
    }
}

/// The first line of an error, or as much of it as a table bears.
fn shortened(error: &str) -> String {
    const MOST: usize = 60;
    let line = error.lines().next().unwrap_or_default();
    if line.chars().count() <= MOST && line.len() == error.len() {
        return line.to_owned();
    }
    line.chars().take(MOST).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_shortened_to_a_line() {
        assert_eq!(shortened("short"), "short");
        assert_eq!(shortened("first\nsecond"), "first…");
        assert_eq!(shortened(&"ä".repeat(80)).chars().count(), 61);
    }

    #[test]
    fn what_was_left_alone_is_told() {
        let changed = Changed {
            changed: 3,
            running: 2,
            at_most_once: 1,
            id_taken: 1,
            passed_over: 0,
        };
        let text = told(&changed, "retried");
        assert!(
            text.starts_with("3 jobs were retried.\n2 are running"),
            "{text}"
        );
        assert!(text.contains("--even-at-most-once"), "{text}");
        assert!(text.contains("1 have a unique id"), "{text}");
        assert!(told(&changed, "cancelled").contains("2 more are running"));
    }
}
