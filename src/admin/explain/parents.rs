//! What `explain` says of a job that waits for jobs, for a batch, or for an event.

use crate::admin::explain::Reason;
use crate::admin::explain::word::{Word, Words, text};
use crate::job::id::JobId;
use chrono::{DateTime, Utc};

/// Says what the job waits for.
pub(super) fn awaited(reason: &Reason) -> Words {
    match reason {
        Reason::Batch {
            name,
            open,
            total,
            oldest,
            ..
        } => batch(name, *open, *total, *oldest),
        Reason::Jobs {
            open,
            total,
            oldest,
            failed,
        } => jobs(*open, *total, *oldest, *failed),
        Reason::Event { name, step, until } => event(name, step, *until),
        _ => Words::new(),
    }
}

/// Says by what the job is blocked, for its timeline.
#[cfg(feature = "web")]
pub(crate) fn blocker(reason: &Reason) -> Words {
    let named =
        |what: &str, name: &str| vec![text(format!("by {what} ")), Word::Name(name.to_owned())];
    match reason {
        Reason::Batch { name, .. } => named("batch", name),
        Reason::Event { name, .. } => named("event", name),
        Reason::Jobs { oldest, failed, .. } => match failed.or(*oldest) {
            Some(job) => vec![text("by job "), Word::Job(job)],
            None => vec![text("by other jobs")],
        },
        _ => Words::new(),
    }
}

fn batch(name: &str, open: u64, total: u64, oldest: Option<JobId>) -> Words {
    let mut words = vec![Word::State("It waits")];
    match oldest {
        Some(job) => {
            let jobs = if open > 10_000 {
                "more than 10,000".to_owned()
            } else {
                open.to_string()
            };
            words.push(text(format!(" for {jobs} of {total} jobs of batch ")));
            words.extend([Word::Name(name.to_owned()), text("; the oldest is ")]);
            words.push(Word::Job(job));
        }
        None => {
            words.push(text(" for a retry of the failed jobs of batch "));
            words.push(Word::Name(name.to_owned()));
        }
    }
    words.push(text("."));
    words
}

fn jobs(open: u64, total: u64, oldest: Option<JobId>, failed: Option<JobId>) -> Words {
    let mut words = vec![Word::State("It waits")];
    match (oldest, failed) {
        (_, Some(failed)) => {
            words.extend([text(" for a retry of job "), Word::Job(failed)]);
            words.push(text(", which has not succeeded"));
        }
        (Some(oldest), None) if total == 1 => {
            words.extend([text(" for job "), Word::Job(oldest), text(" to end")]);
        }
        (Some(oldest), None) => {
            words.push(text(format!(" for {open} of {total} jobs; the oldest is ")));
            words.push(Word::Job(oldest));
        }
        (None, None) => words.push(text(" for other jobs")),
    }
    words.push(text("."));
    words
}

fn event(event: &str, step: &str, until: Option<DateTime<Utc>>) -> Words {
    let mut words = vec![Word::State("It waits"), text(" for event ")];
    words.extend([Word::Name(event.to_owned()), text(" at its step ")]);
    words.push(Word::Name(step.to_owned()));
    if let Some(at) = until {
        words.extend([text(" until "), Word::Time(at)]);
    }
    words.push(text("."));
    words
}
