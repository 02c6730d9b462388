//! What a change of a recurring task prints.

use crate::cli::words::time;
use crate::recurring::window::NEVER;
use crate::terminal::output::Report;
use crate::terminal::table::printable;
use chrono::{DateTime, NaiveDateTime, Utc};
use serde::Serialize;

/// A task that was added, changed or removed.
#[derive(Debug, Serialize)]
pub(crate) struct ChangedTask {
    key: String,
    #[serde(skip)]
    done: &'static str,
    next_run_at: Option<DateTime<Utc>>,
}

impl ChangedTask {
    pub(crate) fn new(key: &str, done: &'static str, next: Option<NaiveDateTime>) -> Self {
        ChangedTask {
            key: key.to_owned(),
            done,
            next_run_at: next.filter(|next| *next < NEVER).map(|next| next.and_utc()),
        }
    }
}

impl Report for ChangedTask {
    fn text(&self, _width: Option<usize>) -> String {
        let (done, key) = (self.done, printable(&self.key));
        match self.next_run_at {
            Some(next) => format!("{done} {key}; its next tick is at {}.\n", time(next)),
            None if done == "Removed" => format!("{done} {key}.\n"),
            None => format!("{done} {key}; it has no further tick.\n"),
        }
    }
}
