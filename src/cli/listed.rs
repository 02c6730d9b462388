//! A list of jobs, one per row.

use crate::admin::jobs::Jobs;
use crate::admin::secrets::Secrets;
use crate::cli::words;
use crate::db::model::state::JobState;
use crate::db::query::jobs::JobSummary;
use crate::db::{DbConnection, own};
use crate::error::{Doing as _, Result};
use crate::terminal::output::Report;
use crate::terminal::table::{Column, Table, printable};
use serde::Serialize;

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
        Secrets::hide_in_list(&mut own(connection), &mut jobs).doing("list the jobs")?;
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
                words::time(job.at),
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
}
