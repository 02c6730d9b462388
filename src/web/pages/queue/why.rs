//! The answer on top of a queue: whether its jobs start in time, and if not, why.

use crate::admin::now::QueueNow;
use crate::web::pages::queue::now::QueueDetails;
use crate::web::read::concerns::{ready_jobs, who_and_why};
use crate::web::read::verdict::QueueVerdict;
use crate::web::show::numbers::count;
use crate::web::show::times::{ago, duration};
use std::time::Duration;

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Why {
    /// A class of the style sheet: `bad`, `warn`, or nothing.
    pub(crate) class: &'static str,
    pub(crate) lead: String,
    /// What explains it, or what to do.
    pub(crate) text: String,
}

/// Returns the answer.
pub(crate) fn of(details: &QueueDetails) -> Why {
    let queue = &details.queue;
    let waited = duration(queue.oldest_seconds.unwrap_or_default());
    let why = |class, lead: String, text: String| Why { class, lead, text };
    match queue.verdict {
        QueueVerdict::Late { promise } => why(
            "bad",
            format!("Late: {}", promised(&waited, promise)),
            threads(details),
        ),
        QueueVerdict::Unserved | QueueVerdict::Silent | QueueVerdict::Quiet => {
            unserved(queue, &waited)
        }
        QueueVerdict::Paused => paused(queue),
        QueueVerdict::InTime { promise } => why(
            "",
            format!("In time: {}", promised(&waited, promise)),
            String::new(),
        ),
        QueueVerdict::Unjudged => why(
            "",
            format!("Its oldest ready job has waited for {waited}."),
            threads(details),
        ),
        QueueVerdict::Empty => {
            let lead = "No job is ready on this queue.".to_owned();
            why("", lead, String::new())
        }
    }
}

fn promised(waited: &str, promise: Duration) -> String {
    let promise = duration(promise.as_secs_f64());
    format!("its oldest ready job has waited for {waited}, and {promise} is promised.")
}

/// Returns why no worker takes the jobs of a queue, and what to do.
fn unserved(queue: &QueueNow, waited: &str) -> Why {
    let (class, why, text) = match queue.verdict {
        QueueVerdict::Silent => (
            "bad",
            "and the workers of the queue have had no heartbeat for 60 s.",
            "Start workers, and a supervisor that gives the jobs of dead ones to others."
                .to_owned(),
        ),
        QueueVerdict::Quiet => (
            "warn",
            "and all workers of the queue are quiet or stopping.",
            "A quiet worker claims nothing until it receives SIGCONT.".to_owned(),
        ),
        _ => (
            "warn",
            "and no worker serves the queue.",
            format!(
                "Start a worker whose queues include {}: its oldest ready job has waited for {waited}.",
                queue.name
            ),
        ),
    };
    Why {
        class,
        lead: format!("Unserved: {}, {why}", ready_jobs(queue)),
        text,
    }
}

fn paused(queue: &QueueNow) -> Why {
    let said = queue.pause.as_ref().map(|pause| {
        let who = who_and_why(pause.paused_by.as_deref(), pause.pause_reason.as_deref());
        format!(" {}{who}", ago(pause.paused_seconds))
    });
    Why {
        class: "warn",
        lead: format!("Paused{}.", said.unwrap_or_default()),
        text: format!(
            "{}. None starts until the queue is resumed.",
            first_upper(&ready_jobs(queue))
        ),
    }
}

fn first_upper(text: &str) -> String {
    let mut chars = text.chars();
    match chars.next() {
        Some(first) => first.to_uppercase().chain(chars).collect(),
        None => String::new(),
    }
}

/// Returns whether threads are free.
fn threads(details: &QueueDetails) -> String {
    let ((threads, busy), here) = (details.threads(), details.running());
    let jobs = match here {
        0 => "none of them with a job of this queue".to_owned(),
        1 => "1 of them with a job of this queue".to_owned(),
        here => format!("{} of them with jobs of this queue", count(here)),
    };
    match (threads, busy) {
        (0, _) => String::new(),
        (threads, busy) if busy >= threads => format!(
            "All {} threads of the workers that serve it are busy, {jobs}.",
            count(threads)
        ),
        (threads, busy) => format!(
            "{} of the {} threads of the workers that serve it are busy, {jobs}. If jobs wait although \
             threads are free, their classes may be paused, or registered with no worker: look at one of the jobs.",
            count(busy),
            count(threads)
        ),
    }
}
