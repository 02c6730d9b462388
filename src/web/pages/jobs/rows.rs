//! The rows of a list of jobs.

use crate::admin::job_list::ListedJob;
use crate::db::model::outcome;
use crate::db::model::state::JobState;
use crate::db::model::wait_keys::{UNIQUE_SUCCESSOR, WAITS_FOR_EVENT, WAITS_FOR_PARENTS};
use crate::db::table::claimed::Note;
use crate::web::pages::words::{job_link, of_state};
use crate::web::request::shell::Shell;
use crate::web::show::json::{cut, line};
use crate::web::show::markup::{Markup, escaped, verdict};
use crate::web::show::numbers::count;
use crate::web::show::times;
use serde_json::Value;

/// The longest text of a row, in characters.
const LONGEST: usize = 160;

/// A job as a row shows it.
#[derive(Debug)]
pub(crate) struct JobListRow {
    pub(crate) id: i64,
    pub(crate) class: String,
    pub(crate) queue: String,
    pub(crate) priority: i32,
    /// A class of the style sheet.
    pub(crate) mark: &'static str,
    pub(crate) state: &'static str,
    /// Why it is in its state, or since when.
    pub(crate) why: Markup,
    pub(crate) arguments: Markup,
    pub(crate) tags: Vec<String>,
    /// `2 of 5`
    pub(crate) attempts: String,
    /// `<time>` around how long ago it was enqueued.
    pub(crate) age: Markup,
    pub(crate) href: String,
    pub(crate) queue_href: String,
}

impl JobListRow {
    pub(crate) fn of(job: &ListedJob, shell: &Shell) -> Self {
        let line = &job.line;
        let (mark, state) = of_state(job.state);
        let attempts = match line.max_attempts {
            Some(most) => format!("{} of {most}", line.runs),
            None => line.runs.to_string(),
        };
        JobListRow {
            id: line.job_id,
            class: line.class_name.clone(),
            queue: line.queue_name.clone(),
            priority: line.priority,
            mark,
            state,
            why: why(job, shell),
            arguments: arguments(job),
            tags: job.tags.clone(),
            attempts,
            age: times::time(line.created_at, &times::about(line.age_seconds)),
            href: shell.to(["jobs", &line.job_id.to_string()]),
            queue_href: shell.to(["queues", &line.queue_name]),
        }
    }

    pub(crate) fn shown_id(&self) -> String {
        count(self.id)
    }
}

/// Returns the arguments that Ruby passed, without Active Job's envelope.
pub(crate) fn passed(arguments: &Value, of_ruby: bool) -> &Value {
    let list = arguments.get("arguments").filter(|_| of_ruby);
    list.unwrap_or(arguments)
}

fn arguments(job: &ListedJob) -> Markup {
    match &job.arguments {
        Some(value) => line(passed(value, job.line.of_ruby), LONGEST),
        None => Markup::trusted("<var>long</var>".to_owned()),
    }
}

fn text(text: &str) -> Markup {
    Markup::trusted(escaped(&cut(text, LONGEST)))
}

fn why(job: &ListedJob, shell: &Shell) -> Markup {
    let line = &job.line;
    match job.state {
        Some(JobState::Ready) => match &job.but {
            Some(but) => verdict("warn", &format!("but {but}")),
            None => text("waits for a free thread"),
        },
        Some(JobState::Scheduled) => text(&scheduled(job)),
        Some(JobState::Blocked) => blocked(job, shell),
        Some(JobState::Claimed) => text(&running(job)),
        Some(JobState::Failed) => {
            let error = line.error.as_deref().unwrap_or_default();
            text(outcome::in_words(error).lines().next().unwrap_or_default())
        }
        Some(JobState::Finished) => line.finished_at.map_or_else(Markup::default, |at| {
            let at = shell.time(&at);
            Markup::trusted(format!("at {at}"))
        }),
        Some(JobState::Cancelled | JobState::Discarded) => {
            let error = line.last_error.as_deref().unwrap_or_default();
            text(error.lines().next().unwrap_or_default())
        }
        None => verdict("bad", "it has no execution: the row was deleted by hand"),
    }
}

fn scheduled(job: &ListedJob) -> String {
    let due = job.line.due_seconds.unwrap_or_default();
    let when = match due < 0.0 {
        true => format!("in {}", times::duration(-due)),
        false => format!("has been due for {}", times::duration(due)),
    };
    match job.line.runs {
        0 => when,
        runs => format!("{when}, for attempt {}", runs.saturating_add(1)),
    }
}

fn blocked(job: &ListedJob, shell: &Shell) -> Markup {
    let key = job.line.blocked_key.as_deref().unwrap_or_default();
    match job.line.after_job_id {
        _ if key == WAITS_FOR_PARENTS => text("waits for a batch"),
        _ if key == WAITS_FOR_EVENT => text("waits for an event"),
        _ if key != UNIQUE_SUCCESSOR => text(&format!("waits for a slot of {key}")),
        Some(other) => {
            let link = job_link(shell, other);
            Markup::trusted(format!("behind {link}: same unique id"))
        }
        None => text("behind a job with the same unique id"),
    }
}

fn running(job: &ListedJob) -> String {
    let line = &job.line;
    let held = times::duration(line.claimed_seconds.unwrap_or_default());
    let place = match (&line.hostname, line.pid) {
        (Some(host), Some(pid)) => format!("on {host}:{pid}"),
        (Some(host), None) => format!("on {host}"),
        (None, _) => "by a dead process".to_owned(),
    };
    let note = Note::of_column(line.note.as_deref());
    match note.progress {
        Some(progress) => format!("at {:.0} %, for {held}, {place}", progress.percent),
        None => format!("for {held}, {place}"),
    }
}
