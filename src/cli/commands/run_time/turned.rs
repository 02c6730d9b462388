//! What `pause` and `resume` print, of queues and of classes.

use crate::cli::said_by::said;
use crate::terminal::output::Report;
use crate::terminal::table::printable;
use serde::Serialize;

/// The result of pausing or resuming.
#[derive(Debug, Serialize)]
pub(crate) struct Turned {
    #[serde(flatten)]
    pub(crate) what: Pausable,
    pub(crate) paused: bool,
    /// Whether the state changed.
    pub(crate) changed: bool,
    /// Whether a job, a class or a pause had the name.
    #[serde(skip_serializing_if = "std::clone::Clone::clone")]
    pub(crate) known: bool,
}

/// What can be paused, with its name.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Pausable {
    QueueName(String),
    ClassName(String),
}

impl Report for Turned {
    fn text(&self, _width: Option<usize>) -> String {
        let (name, command) = match &self.what {
            Pausable::QueueName(name) => (name, "queues"),
            Pausable::ClassName(name) => (name, "classes"),
        };
        let name = printable(name);
        let text = match (self.paused, self.changed) {
            (true, true) => {
                format!("{name} is paused; `windlass {command} resume {name}` resumes it.\n")
            }
            (true, false) => format!("{name} is already paused.\n"),
            (false, true) => format!("{name} goes on.\n"),
            (false, false) => format!("{name} was not paused.\n"),
        };
        match (self.known, &self.what) {
            (true, _) => text,
            (false, Pausable::QueueName(_)) => format!("{text}{}", unknown_queue(&name)),
            (false, Pausable::ClassName(_)) => format!(
                "{text}No worker has stored the class {name}, and no recent job has it: is the name right?\n"
            ),
        }
    }
}

/// Returns the warning about the name of a queue that nothing has.
pub(crate) fn unknown_queue(name: &str) -> String {
    format!("No class has the queue {name}, and no recent job is on it: is the name right?\n")
}

/// Returns `mail was paused 3m ago by ada: the provider is down`, as far as it is known.
pub(crate) fn paused_line(
    name: &str,
    seconds: Option<f64>,
    by: Option<&str>,
    reason: Option<&str>,
) -> String {
    let said = said(seconds, by, reason);
    format!("{} was paused{said}\n", printable(name))
}
