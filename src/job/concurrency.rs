//! Concurrency limits: how many jobs of a key may be under way at once.

use crate::db::model::new_row::NewLimit;
use crate::db::table::semaphores::{self, SemaphoreStatus};
use crate::db::table::unique_jobs;
use crate::db::{AsConn, own};
use crate::error::{Doing, Result};
use serde::{Deserialize, Serialize};

/// How many jobs of one key may be ready or running at once.
///
/// A job type says it in [`Job::concurrency`](crate::Job::concurrency), one enqueue in
/// [`NewJob::concurrency`](crate::NewJob::concurrency).
///
/// ```
/// use serde::{Deserialize, Serialize};
/// use windlass::{Concurrency, Context, Job, JobResult};
///
/// #[derive(Serialize, Deserialize)]
/// struct SyncAccount {
///     account: u64,
/// }
///
/// impl Job for SyncAccount {
///     const NAME: &'static str = "sync_account";
///     type State = ();
///     type Output = ();
///
///     /// Two at once for each account; the others wait.
///     fn concurrency(&self) -> Option<Concurrency> {
///         Some(Concurrency::new(self.account).limit(2))
///     }
///
///     fn perform(self, _cx: &Context<'_, ()>) -> JobResult {
///         Ok(())
///     }
/// }
///
/// # use diesel::prelude::*;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// SyncAccount { account: 7 }.enqueue(&mut conn)?;
/// let waiting = &windlass::semaphores(&mut conn)?[0];
/// assert_eq!((&*waiting.key, waiting.limit), ("sync_account/7", 2));
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// A job has a slot from when it is ready to when its run has ended, whatever
/// the way, and gives it up while it waits for another attempt. The job that
/// holds a slot is known by its row: a slot is given back in the transaction
/// that ends the run, also when that is the pruning of a dead process, so no
/// time needs to be set after which it would be free.
///
/// When the limit of a key is changed, that of the youngest job counts for all
/// of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[must_use = "a limit does nothing until a job has it"]
pub struct Concurrency {
    key: String,
    group: Option<String>,
    limit: u32,
    on_conflict: LimitConflict,
}

/// What becomes of a job for which there is no slot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum LimitConflict {
    /// It is blocked until a slot is free. Blocked jobs go on by priority, and
    /// then by age.
    #[default]
    Block,
    /// It ends as [discarded](crate::AttemptOutcome::Discarded), a moment after its enqueue was
    /// committed or its time has come. One that has begun before, and comes
    /// back for another attempt, waits.
    Discard,
}

impl Concurrency {
    /// One at a time for this key, which may be anything that can be written:
    /// a number, a name; a constant, for one at a time in all. With its group
    /// it has at most 255 bytes.
    pub fn new(key: impl ToString) -> Self {
        Concurrency {
            key: key.to_string(),
            group: None,
            limit: 1,
            on_conflict: LimitConflict::default(),
        }
    }

    /// So many at once; at least 1. Default: 1.
    pub fn limit(mut self, jobs: u32) -> Self {
        self.limit = jobs;
        self
    }

    /// Job types that name the same group share their keys. Default: the name
    /// of the type, whose keys are its own then.
    pub fn group(mut self, name: impl Into<String>) -> Self {
        self.group = Some(name.into());
        self
    }

    /// What becomes of those that find no slot. Default: they wait.
    pub fn on_conflict(mut self, policy: LimitConflict) -> Self {
        self.on_conflict = policy;
        self
    }

    /// The columns of a job of this class; an error says what is wrong.
    pub(crate) fn of_class(&self, class: &str) -> std::result::Result<NewLimit, String> {
        let group = self.group.as_deref().unwrap_or(class);
        let key = format!("{group}/{}", self.key);
        if self.key.is_empty() || group.is_empty() || key.len() > MAX_KEY || key.contains('\0') {
            return Err(
                "its concurrency key and group must not be empty, have at most 255 bytes together, and no NUL"
                    .to_owned(),
            );
        }
        if key == unique_jobs::AGAIN {
            return Err(format!(
                "the concurrency key `{key}` is taken by Windlass itself"
            ));
        }
        let slots = i32::try_from(self.limit).unwrap_or(i32::MAX);
        if slots == 0 {
            return Err(
                "its concurrency limit is 0, so that it could never run; pause its queue instead"
                    .to_owned(),
            );
        }
        Ok(NewLimit {
            key,
            slots,
            discards: self.on_conflict == LimitConflict::Discard,
        })
    }
}

const MAX_KEY: usize = 255;

/// Every concurrency key with jobs that wait or run, and how its slots stand.
///
/// # Errors
/// When the database does not answer or has no tables.
pub fn semaphores<C: AsConn + ?Sized>(conn: &mut C) -> Result<Vec<SemaphoreStatus>> {
    semaphores::all(&mut own(conn)).doing("look at the concurrency keys")
}

/// What of the limits does not hold, one sentence each.
///
/// Nothing, unless rows were changed by hand, or a limit was lowered while
/// more jobs ran than the new one allows. Reads every job that is ready or
/// runs.
///
/// # Errors
/// When the database does not answer or has no tables.
pub fn check_semaphores<C: AsConn + ?Sized>(conn: &mut C) -> Result<Vec<String>> {
    semaphores::check(&mut own(conn)).doing("check the concurrency limits")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_written_as_solid_queue_does() {
        let limit = Concurrency::new(7).limit(3).of_class("import").unwrap();
        assert_eq!(
            (&*limit.key, limit.slots, limit.discards),
            ("import/7", 3, false)
        );
        let shared = Concurrency::new("a").group("disk").of_class("import");
        assert_eq!(shared.unwrap().key, "disk/a");
    }

    #[test]
    fn what_could_never_run_is_refused() {
        for (limit, word) in [
            (Concurrency::new(""), "empty"),
            (Concurrency::new("x".repeat(260)), "255"),
            (Concurrency::new("a\0"), "NUL"),
            (Concurrency::new("a").group(""), "empty"),
            (Concurrency::new("a").limit(0), "never run"),
            (Concurrency::new("again").group("windlass"), "taken"),
        ] {
            let error = limit.of_class("import").unwrap_err();
            assert!(error.contains(word), "{error}");
        }
    }
}
