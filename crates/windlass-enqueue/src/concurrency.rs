//! Concurrency limits: how many jobs with the same key may run at once.

/// Limits how many jobs with the same key are ready or running at once.
///
/// ```
/// use windlass_enqueue::{Concurrency, NewJob};
///
/// // At most two jobs of account 7 at once; the others wait.
/// let job = NewJob::of_class("sync_account", r#"{"account": 7}"#).concurrency(Concurrency::new(7).limit(2));
/// # let _ = job;
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a limit does nothing until a job has it"]
#[non_exhaustive]
pub struct Concurrency {
    /// The key.
    pub key: String,
    /// The group that the key belongs to. `None` is the class of the job.
    pub group: Option<String>,
    /// The number of jobs that may hold a slot at once.
    pub limit: u32,
    /// The effect on a job that finds no free slot.
    pub on_conflict: LimitConflict,
    /// True if the jobs of the key run one at a time, in the order of their enqueue.
    pub ordered: bool,
}

/// The policy for a job that finds no free slot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum LimitConflict {
    /// The job is blocked until a slot is free.
    #[default]
    Block,
    /// The job is discarded, shortly after its enqueue was committed or it became due.
    Discard,
}

impl Concurrency {
    /// Creates a limit of one job at a time for this key.
    ///
    /// Use a constant to limit all jobs of the type together. Key and group may have at most 255 bytes together.
    pub fn new(key: impl ToString) -> Self {
        Concurrency {
            key: key.to_string(),
            group: None,
            limit: 1,
            on_conflict: LimitConflict::default(),
            ordered: false,
        }
    }

    /// Sets how many jobs may hold a slot at once, at least 1. Default: 1.
    pub fn limit(mut self, jobs: u32) -> Self {
        self.limit = jobs;
        self
    }

    /// Sets the group: job types with the same group share their keys. Default: the name of the type.
    pub fn group(mut self, name: impl Into<String>) -> Self {
        self.group = Some(name.into());
        self
    }

    /// Sets what happens to jobs that find no free slot. Default: they wait.
    pub fn on_conflict(mut self, policy: LimitConflict) -> Self {
        self.on_conflict = policy;
        self
    }

    /// Runs the jobs of the key one at a time, in the order of their enqueue. Default: blocked jobs continue in order of
    /// priority, then age.
    ///
    /// The database refuses it together with another limit than 1, or with [`LimitConflict::Discard`].
    pub fn ordered(mut self) -> Self {
        self.ordered = true;
        self
    }

    /// Returns the word for the column, or `None` for its default.
    pub(crate) fn word(&self) -> Option<&'static str> {
        match (self.on_conflict, self.ordered) {
            (LimitConflict::Block, false) => None,
            (LimitConflict::Block, true) => Some("ordered"),
            (LimitConflict::Discard, false) => Some("discard"),
            // Not a word that the database accepts: its error is better than a choice between the two.
            (LimitConflict::Discard, true) => Some("discard and ordered"),
        }
    }
}
