//! The answer on top of a queue: whether its jobs start in time, and if not, why.

use crate::web::pages::now::concerns::{ready_jobs, who_and_why};
use crate::web::pages::now::verdict::QueueVerdict;
use crate::web::pages::queue::now::QueueDetails;
use crate::web::show::numbers::count;
use crate::web::show::times::{ago, duration};

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
    let waited = queue.oldest_seconds.unwrap_or_default();
    let why = |class, lead: String, text: String| Why { class, lead, text };
    match queue.verdict {
        QueueVerdict::Late { promise } => why(
            "bad",
            format!(
                "Late: its oldest ready job has waited for {}, and {} is promised.",
                duration(waited),
                duration(promise.as_secs_f64())
            ),
            threads(details),
        ),
        QueueVerdict::Unserved => why(
            "warn",
            format!(
                "Unserved: {}, and no worker serves the queue.",
                ready_jobs(queue)
            ),
            format!(
                "Start a worker whose queues include {}: its oldest ready job has waited for {}.",
                queue.name,
                duration(waited)
            ),
        ),
        QueueVerdict::Silent => why(
            "bad",
            format!(
                "Unserved: {}, and the workers of the queue have had no heartbeat for 60 s.",
                ready_jobs(queue)
            ),
            "Start workers, and a supervisor that gives the jobs of dead ones to others."
                .to_owned(),
        ),
        QueueVerdict::Quiet => why(
            "warn",
            format!(
                "Unserved: {}, and all workers of the queue are quiet or stopping.",
                ready_jobs(queue)
            ),
            "A quiet worker claims nothing until it receives SIGCONT.".to_owned(),
        ),
        QueueVerdict::Paused => {
            let (since, who) = match &queue.pause {
                Some(pause) => (
                    ago(pause.paused_seconds),
                    who_and_why(pause.paused_by.as_deref(), pause.pause_reason.as_deref()),
                ),
                None => Default::default(),
            };
            why(
                "warn",
                format!("Paused {since}{who}."),
                format!(
                    "{}. None starts until the queue is resumed.",
                    first_upper(&ready_jobs(queue))
                ),
            )
        }
        QueueVerdict::InTime { promise } => why(
            "",
            format!(
                "In time: its oldest ready job has waited for {}, and {} is promised.",
                duration(waited),
                duration(promise.as_secs_f64())
            ),
            String::new(),
        ),
        QueueVerdict::Unjudged => why(
            "",
            format!("Its oldest ready job has waited for {}.", duration(waited)),
            threads(details),
        ),
        QueueVerdict::Empty => why(
            "",
            "No job is ready on this queue.".to_owned(),
            String::new(),
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
