//! The words of a sentence, for the terminal and for pages.

use crate::job::JobId;
use chrono::{DateTime, Utc};

/// A part of a sentence. Names are as they are stored: whatever shows them escapes them.
#[doc(hidden)]
#[derive(Debug, Clone, PartialEq)]
pub enum Word {
    /// The words that say which state the job is in.
    State(&'static str),
    Text(String),
    Job(JobId),
    /// A concurrency key.
    Key(String),
    /// Another name: a unique id, a host.
    Name(String),
    /// The name of a process.
    Process(String),
    Time(DateTime<Utc>),
    Command(&'static str),
}

/// A sentence, with its full stop if it has one.
pub type Words = Vec<Word>;

#[doc(hidden)]
pub fn text(text: impl Into<String>) -> Word {
    Word::Text(text.into())
}
