//! A list of jobs, one per row.

use crate::terminal::{Column, Report, Table, printable};
use chrono::{DateTime, Utc};
use serde::Serialize;
use std::time::Duration;
use windlass::history::QueueRate;
use windlass::internal::admin::explain::words::age;
use windlass::internal::admin::secrets::Secrets;
use windlass::internal::clock;
use windlass::internal::db::model::audit::{Actor, Via};
use windlass::internal::db::own;
use windlass::internal::error::ErrorContext as _;
use windlass::jobs::{JobState, JobSummary, Jobs};
use windlass::{DbConnection, Result};

/// Returns a state as it is shown and as `--state` accepts it.
pub(crate) fn name(state: JobState) -> &'static str {
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

/// A list of jobs, one per row.
#[derive(Debug, Serialize)]
pub(crate) struct ListedJobs {
    pub(crate) jobs: Vec<JobSummary>,
    /// The text if there are none.
    #[serde(skip)]
    pub(crate) none: &'static str,
}

impl Report for ListedJobs {
    fn text(&self, width: Option<usize>) -> String {
        if self.jobs.is_empty() {
            return format!("{}\n", self.none);
        }
        let Some(width) = width else {
            return self.table(usize::MAX).text(None);
        };
        let room = width.saturating_sub(self.table(0).width() - ERROR.len());
        if room >= LEAST_ROOM {
            self.table(room).text(Some(width))
        } else {
            let room = width.saturating_sub("  error: ".len());
            self.table(room.max(LEAST_ROOM)).text(Some(width))
        }
    }
}

const ERROR: &str = "ERROR";

/// If an error has less space than this beside the other columns, it is shown below them.
const LEAST_ROOM: usize = 30;

impl ListedJobs {
    /// Reads the jobs. `none` is shown if there are none.
    pub(crate) fn read(
        connection: &mut DbConnection,
        jobs: &Jobs,
        none: &'static str,
    ) -> Result<Self> {
        let mut jobs = jobs.list(connection)?;
        Secrets::hide_in_list(&mut own(connection), &mut jobs).during("list the jobs")?;
        Ok(ListedJobs { jobs, none })
    }

    /// Builds the table, with errors of at most `most` letters.
    fn table(&self, most: usize) -> Table {
        // Most jobs have none.
        let are_tagged = self.jobs.iter().any(|job| !job.tags.is_empty());
        let mut columns = vec![
            Column::number("JOB"),
            Column::text("CLASS"),
            Column::text("QUEUE"),
            Column::number("PRIORITY"),
            Column::text("STATE"),
            Column::text("AT"),
            Column::number("ATTEMPTS"),
            Column::text(ERROR),
        ];
        if are_tagged {
            columns.insert(columns.len() - 1, Column::text("TAGS"));
        }
        let mut table = Table::new(&columns);
        for job in &self.jobs {
            let error = job.error.as_deref().unwrap_or_default();
            let mut cells = vec![
                job.job_id.to_string(),
                printable(&job.class_name),
                printable(&job.queue_name),
                job.priority.to_string(),
                name(job.state).to_owned(),
                time(job.at),
                job.attempts.to_string(),
                shortened(&printable(error), most),
            ];
            if are_tagged {
                cells.insert(cells.len() - 1, printable(&job.tags.join(", ")));
            }
            table.add(cells);
        }
        table
    }
}

/// Shortens a text to at most `most` letters by removing its middle: an error starts with its
/// subject and ends with its cause.
fn shortened(text: &str, most: usize) -> String {
    let letters = text.chars().count();
    if letters <= most {
        return text.to_owned();
    }
    let head = most.saturating_sub(1) / 3;
    let tail = most.saturating_sub(1 + head);
    let start = text.chars().take(head).chain((most > 0).then_some('…'));
    start.chain(text.chars().skip(letters - tail)).collect()
}

// --- The rates in `windlass status` ---

/// The time over which `windlass status` measures rates.
pub(crate) const OVER: Duration = Duration::from_secs(300);

/// Returns a table of how fast the queues move.
pub(crate) fn rates(rates: &[QueueRate]) -> Table {
    let mut table = Table::new(&[
        Column::text("LAST 5 MIN"),
        Column::number("FINISHED/MIN"),
        Column::number("FAILED/MIN"),
        Column::number("WAIT P50"),
        Column::number("WAIT P99"),
    ]);
    for rate in rates {
        table.add(vec![
            printable(&rate.queue),
            per_minute(rate.finished_per_minute),
            per_minute(rate.failed_per_minute),
            rate.wait_p50_seconds.map_or(String::new(), short),
            rate.wait_p99_seconds.map_or(String::new(), short),
        ]);
    }
    table
}

fn per_minute(rate: f64) -> String {
    let digits = if rate > 0.0 && rate < 10.0 { 1 } else { 0 };
    format!("{rate:.digits$}")
}

/// Returns a duration with two or three digits, such as `35 ms`, `1.2 s` or `4 min`.
fn short(seconds: f64) -> String {
    match seconds {
        _ if seconds < 0.000_95 => "<1 ms".to_owned(),
        _ if seconds < 0.999_5 => format!("{:.0} ms", seconds * 1_000.0),
        _ if seconds < 9.95 => format!("{seconds:.1} s"),
        _ if seconds < 119.5 => format!("{seconds:.0} s"),
        _ if seconds < 7_170.0 => format!("{:.0} min", seconds / 60.0),
        _ => format!("{:.0} h", seconds / 3_600.0),
    }
}

// --- Words that several commands about recurring tasks print ---

/// In UTC, as the database has it.
pub(crate) fn time(time: DateTime<Utc>) -> String {
    time.format("%Y-%m-%d %H:%M:%SZ").to_string()
}

/// Returns `, jitter 5m`, or nothing if there is none.
pub(crate) fn jitter(jitter: Option<Duration>) -> String {
    let jitter = jitter.filter(|jitter| !jitter.is_zero());
    jitter.map_or(String::new(), |jitter| {
        format!(", jitter {}", clock::in_units(jitter))
    })
}

/// Returns what is said of a task that no scheduler declares any more.
pub(crate) fn undeclared(deleted_at: DateTime<Utc>) -> String {
    format!(
        "no longer declared, deleted on {}",
        deleted_at.format("%Y-%m-%d")
    )
}

/// Returns why a task has no upcoming run.
pub(crate) fn why_none(schedule: &str, until: Option<DateTime<Utc>>, now: DateTime<Utc>) -> String {
    match until {
        Some(until) if until <= now => format!("it ended at {}", time(until)),
        _ if schedule == "@start" => "it is due when a new deployment starts".to_owned(),
        _ if schedule.starts_with("@timing") => "only its program can compute its runs".to_owned(),
        Some(until) => format!("its schedule has none before {}", time(until)),
        None => "its schedule has none".to_owned(),
    }
}

// --- `--by` and `--reason`: who changes something, and why ---

/// By whom and why something is changed.
#[derive(Debug, clap::Args)]
pub(crate) struct ChangedBy {
    /// The reason, which `windlass audit` shows
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true
    )]
    reason: String,

    /// The name to record [default: the user of this process, at this host]
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
}

impl ChangedBy {
    pub(crate) fn actor(&self) -> Actor {
        let actor = Actor::named(self.by.as_deref().unwrap_or_default());
        actor.via(Via::Cli).reason(&*self.reason)
    }
}

/// Returns ` 3m ago by ada: the provider is down`, as far as it is known.
pub(crate) fn provenance(seconds: Option<f64>, by: Option<&str>, reason: Option<&str>) -> String {
    let mut text = String::new();
    if let Some(seconds) = seconds {
        text.push_str(&format!(" {} ago", age(seconds)));
    }
    if let Some(by) = by {
        text.push_str(&format!(" by {}", printable(by)));
    }
    if let Some(reason) = reason {
        text.push_str(&format!(": {}", printable(reason)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use chrono::DateTime;

    #[test]
    fn errors_lose_their_middle() {
        assert_eq!(shortened("short", 5), "short");
        assert_eq!(
            shortened("what it is about: the cause", 13),
            "what…he cause"
        );
        assert_eq!(shortened(&"ä".repeat(80), 61).chars().count(), 61);
        assert_eq!(shortened("any", 0), "");
    }

    #[test]
    fn a_table_of_jobs_uses_the_whole_width() {
        let job = JobSummary {
            job_id: 1,
            class_name: "import".to_owned(),
            queue_name: "default".to_owned(),
            priority: 0,
            state: JobState::Failed,
            attempts: 1,
            created_at: DateTime::default(),
            at: DateTime::default(),
            error: Some(format!("first {} the cause", "x".repeat(200))),
            tags: Vec::new(),
        };
        let listed = ListedJobs {
            jobs: vec![job],
            none: "",
        };
        let whole = listed.text(None);
        assert!(whole.contains(&"x".repeat(200)), "{whole}");
        for (width, lines) in [(200, 2), (110, 2), (70, 8)] {
            let text = listed.text(Some(width));
            assert!(
                text.contains("first x") && text.contains("x the cause"),
                "{text}"
            );
            assert_eq!(text.lines().count(), lines, "{text}");
            let longest = text.lines().map(|line| line.chars().count()).max();
            assert_eq!(longest, Some(width), "{text}");
        }
    }

    #[test]
    fn durations_and_rates_are_short() {
        for (seconds, text) in [
            (0.0, "<1 ms"),
            (0.001, "1 ms"),
            (0.0349, "35 ms"),
            (0.999_9, "1.0 s"),
            (1.24, "1.2 s"),
            (9.96, "10 s"),
            (119.0, "119 s"),
            (240.0, "4 min"),
            (7_200.0, "2 h"),
        ] {
            assert_eq!(short(seconds), text);
        }
        for (rate, text) in [(0.0, "0"), (0.2, "0.2"), (9.94, "9.9"), (1234.5, "1234")] {
            assert_eq!(per_minute(rate), text);
        }
    }
}
