//! What a new job waits for.

use serde::{Deserialize, Serialize};

/// A job or a batch that a job waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Parent {
    Job(i64),
    Batch(i64),
}

impl Parent {
    pub(crate) fn job(self) -> Option<i64> {
        match self {
            Parent::Job(id) => Some(id),
            Parent::Batch(_) => None,
        }
    }

    pub(crate) fn batch(self) -> Option<i64> {
        match self {
            Parent::Batch(id) => Some(id),
            Parent::Job(_) => None,
        }
    }
}

/// On which outcome of what it waits for a job runs; see [`NewJob::when`](crate::NewJob::when).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum On {
    /// All have succeeded.
    #[default]
    Success,
    /// All have ended, and at least one of them has not succeeded.
    Failure,
    /// All have ended, whatever their outcome.
    Finish,
}

impl On {
    pub(crate) fn column(self) -> &'static str {
        match self {
            On::Success => "success",
            On::Failure => "failure",
            On::Finish => "finish",
        }
    }
}

/// What becomes of a job whose parents have another outcome.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Otherwise {
    /// It is discarded, with the reason.
    #[default]
    Discard,
    /// It is deleted.
    Drop,
    /// It waits until what failed was retried, and has succeeded.
    Wait,
    /// It runs all the same: it waits in the middle of its work.
    Join,
    /// It is deleted: it undoes the step of its parent that has the name of the edge.
    Undo,
    /// It ends with its parent, without a run: it stands for that batch in another.
    Nest,
}

impl Otherwise {
    pub(crate) fn column(self) -> &'static str {
        match self {
            Otherwise::Discard => "discard",
            Otherwise::Drop => "drop",
            Otherwise::Wait => "wait",
            Otherwise::Join => "join",
            Otherwise::Undo => "undo",
            Otherwise::Nest => "nest",
        }
    }
}

/// What a new job waits for.
#[derive(Debug, Clone, Default)]
pub(crate) struct Follows {
    /// Each with the name by which the job reads its result, if it has one.
    pub(crate) parents: Vec<(Parent, Option<String>)>,
    pub(crate) on: On,
    pub(crate) otherwise: Otherwise,
}

impl Follows {
    pub(crate) fn is_default(&self) -> bool {
        self.parents.is_empty()
            && self.on == On::default()
            && self.otherwise == Otherwise::default()
    }
}
