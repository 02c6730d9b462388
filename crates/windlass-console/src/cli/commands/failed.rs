//! `windlass failed ...`.

use crate::cli::done::{Deed, Done, SpreadOver};
use crate::cli::listed::{ListedJobs, time};
use crate::cli::select::{Background, How, Selection, Which, connect, tagged, with_progress};
use crate::terminal::{Column, Report, Table, printable};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use windlass::failed::{FailedGroups, RetryRate, groups};
use windlass::jobs::{Change, Changed, Jobs};
use windlass::{Database, DbConnection, Error, Result};

/// List and group failed jobs, and retry or discard them
#[derive(Debug, clap::Subcommand)]
pub(crate) enum FailedCommand {
    List(ListFailed),
    Groups(GroupFailed),
    Retry(RetryFailed),
    Discard(DiscardFailed),
}

/// Selects failed jobs.
#[derive(Debug, clap::Args)]
struct WhichFailed {
    #[command(flatten)]
    which: Which,

    /// Only jobs whose error contains this text
    #[arg(long, value_name = "TEXT", conflicts_with = "all")]
    error: Option<String>,

    #[command(flatten)]
    failure: WhichFailure,
}

/// Selects failures.
#[derive(Debug, clap::Args)]
struct WhichFailure {
    /// Only jobs that failed with this kind of error
    #[arg(long, value_name = "KIND")]
    kind: Option<String>,

    /// Only jobs with this fingerprint, as `failed groups` shows it
    #[arg(long, value_name = "HEX")]
    fingerprint: Option<String>,
}

impl WhichFailure {
    fn is_any(&self) -> bool {
        self.kind.is_some() || self.fingerprint.is_some()
    }

    fn narrow(&self, mut jobs: Jobs) -> Jobs {
        if let Some(kind) = &self.kind {
            jobs = jobs.kind(kind);
        }
        if let Some(fingerprint) = &self.fingerprint {
            jobs = jobs.fingerprint(fingerprint);
        }
        jobs
    }
}

impl WhichFailed {
    fn select(&self) -> Result<Selection> {
        let failed = self.failure.narrow(Jobs::failed());
        match &self.error {
            Some(error) => Ok(self.which.narrow(failed.error_contains(error))),
            None if self.failure.is_any() => Ok(self.which.narrow(failed)),
            None => self.which.select(failed),
        }
    }
}

/// List failed jobs, newest first
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  windlass failed list
  windlass failed list --class import --error 'connection refused' --json")]
pub(crate) struct ListFailed {
    /// Only jobs of this class
    #[arg(long, value_name = "NAME")]
    class: Option<String>,

    /// Only jobs on this queue
    #[arg(long, value_name = "NAME")]
    queue: Option<String>,

    /// Only jobs whose error contains this text
    #[arg(long, value_name = "TEXT")]
    error: Option<String>,

    #[command(flatten)]
    failure: WhichFailure,

    /// Only jobs with this tag; if repeated, with all of them
    #[arg(long = "tag", value_name = "TEXT")]
    tags: Vec<String>,

    /// Only jobs with this tag; if repeated, with at least one of them
    #[arg(long, value_name = "TEXT")]
    any_tag: Vec<String>,

    /// Show at most this many jobs
    #[arg(long, value_name = "COUNT", default_value_t = 100)]
    limit: u64,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

impl ListFailed {
    pub(crate) fn run(&self, database: &Database) -> Result<ListedJobs> {
        let mut jobs = self.failure.narrow(Jobs::failed()).limit(self.limit);
        if let Some(class) = &self.class {
            jobs = jobs.class(class);
        }
        if let Some(queue) = &self.queue {
            jobs = jobs.queue(queue);
        }
        if let Some(error) = &self.error {
            jobs = jobs.error_contains(error);
        }
        let jobs = tagged(jobs, &self.tags, &self.any_tag);
        let is_tagged = !(self.tags.is_empty() && self.any_tag.is_empty());
        let is_narrow =
            self.class.is_some() || self.queue.is_some() || self.error.is_some() || is_tagged;
        let is_narrow = is_narrow || self.failure.is_any();
        let none = if is_narrow {
            "No failed job matches."
        } else {
            "No job has failed."
        };
        ListedJobs::read(&mut connect(database)?, &jobs, none)
    }
}

/// Retry failed jobs, with all their attempts available again
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  windlass failed retry 4711
  windlass failed retry --error 'connection refused' --dry-run
  windlass failed retry --all --limit 1000
  windlass failed retry --class import --rate 50/s")]
pub(crate) struct RetryFailed {
    #[command(flatten)]
    which: WhichFailed,

    /// Also retry at-most-once jobs: they have started before, and may do their work twice
    #[arg(long)]
    even_at_most_once: bool,

    /// Make the jobs due one after the other, as `50/s`, `100/min` or `20/h`
    #[arg(long, value_name = "RATE")]
    rate: Option<RetryRate>,

    #[command(flatten)]
    background: Background,
    #[command(flatten)]
    pub(crate) how: How,
}

impl RetryFailed {
    pub(crate) fn run(&self, database: &Database) -> Result<Done> {
        let even_at_most_once = self.even_at_most_once;
        let change = Change::Retry { even_at_most_once };
        let deed = Deed {
            done: "retried",
            but: "has not failed",
        };
        let jobs = self.which.select()?;
        match self.rate {
            None => self
                .background
                .run(&self.how, database, &jobs, change, deed),
            Some(rate) if self.background.is_asked_for() => {
                let start = |jobs: &Jobs| jobs.in_background(change).rate(rate);
                self.how.start(database, &jobs, false, deed, start)
            }
            Some(rate) => self.spread(database, &jobs, deed, rate),
        }
    }

    /// Retries the jobs one after the other. A signal ends it after a chunk, so that what was done
    /// can be reported.
    fn spread(
        &self,
        database: &Database,
        jobs: &Selection,
        deed: Deed,
        rate: RetryRate,
    ) -> Result<Done> {
        let stopped = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&stopped)).map_err(|source| {
                Error::Io {
                    action: "install the signal handlers of",
                    path: "this program".into(),
                    source,
                }
            })?;
        }
        let is_stopped = || stopped.load(Ordering::Relaxed);
        let retry = |connection: &mut DbConnection, jobs: &Jobs| {
            with_progress(connection, jobs, deed, |connection, reached| {
                let reach = |done: &Changed| {
                    reached(done);
                    match is_stopped() {
                        true => ControlFlow::Break(()),
                        false => ControlFlow::Continue(()),
                    }
                };
                jobs.retry_at_rate(connection, rate, self.even_at_most_once, reach)
            })
        };
        let mut done = self.how.run_by(database, jobs, false, deed, retry)?;
        let time = rate.time_for(done.count());
        done.spread = Some(SpreadOver {
            seconds: time.as_secs_f64(),
            stopped: is_stopped(),
            time,
        });
        Ok(done)
    }
}

/// Delete failed jobs
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  windlass failed discard 4711
  windlass failed discard --class import --dry-run")]
pub(crate) struct DiscardFailed {
    #[command(flatten)]
    which: WhichFailed,
    #[command(flatten)]
    background: Background,
    #[command(flatten)]
    pub(crate) how: How,
}

impl DiscardFailed {
    pub(crate) fn run(&self, database: &Database) -> Result<Done> {
        let deed = Deed {
            done: "discarded",
            but: "has not failed",
        };
        let jobs = self.which.select()?;
        let change = Change::Discard;
        self.background
            .run(&self.how, database, &jobs, change, deed)
    }
}

// --- `windlass failed groups` ---

/// List failed jobs grouped by class, kind and message, the last seen first
///
/// Jobs are in one group if their messages differ only in numbers, ids, times, quoted texts, hosts and
/// addresses. `--fingerprint` of the other commands selects a group.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  windlass failed groups
  windlass failed retry --fingerprint 0123456789abcdef --dry-run")]
pub(crate) struct GroupFailed {
    /// Show at most this many groups
    #[arg(long, value_name = "COUNT", default_value_t = 50)]
    limit: u32,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

impl GroupFailed {
    pub(crate) fn run(&self, database: &Database) -> Result<FailedGroups> {
        groups(&mut connect(database)?, self.limit)
    }
}

impl Report for FailedGroups {
    fn text(&self, width: Option<usize>) -> String {
        if self.groups.is_empty() {
            return "No job has failed.\n".to_owned();
        }
        let mut table = Table::new(&[
            Column::text("FINGERPRINT"),
            Column::text("CLASS"),
            Column::text("KIND"),
            Column::text("MESSAGE"),
            Column::number("JOBS"),
            Column::text("FIRST"),
            Column::text("LAST"),
        ]);
        for group in &self.groups {
            let more = if group.is_exact { "" } else { "+" };
            table.add(vec![
                printable(&group.fingerprint),
                printable(&group.class_name),
                printable(&group.kind),
                printable(&group.shape),
                format!("{}{more}", group.count),
                time(group.first_at),
                time(group.last_at),
            ]);
        }
        let mut text = table.text(width);
        if !self.is_complete {
            text.push_str("\nThese are not all groups; `--limit` shows more.\n");
        }
        text
    }
}
