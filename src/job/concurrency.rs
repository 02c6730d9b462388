//! Concurrency limits: how many jobs with the same key may run at once.

use crate::db::model::new_row::NewLimit;
use crate::db::table::semaphores::{self, SemaphoreStatus};
use crate::db::{AsConn, own};
use crate::error::{ErrorContext, Result};
use serde::{Deserialize, Serialize};

/// Limits how many jobs with the same key are ready or running at once.
///
/// Set it for a job type in [`Job::concurrency`](crate::Job::concurrency), or for one enqueue in
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
/// let waiting = &windlass::limits::semaphores(&mut conn)?[0];
/// assert_eq!((&*waiting.key, waiting.limit), ("sync_account/7", 2));
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// A job holds a slot from when it becomes ready until its run is over, whatever the outcome. It
/// releases the slot while it waits for another attempt, unless the key is
/// [ordered](Concurrency::ordered).
///
/// A slot is released in the transaction that ends the run, even if a supervisor recovers the job
/// of a dead process. So slots need no expiry time.
///
/// If jobs with the same key have different limits, the limit of the most recently enqueued job
/// applies to all of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[must_use = "a limit does nothing until a job has it"]
pub struct Concurrency {
    key: String,
    group: Option<String>,
    limit: u32,
    on_conflict: LimitConflict,
    #[serde(default)]
    ordered: bool,
}

/// The policy for a job that finds no free slot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum LimitConflict {
    /// The job is blocked until a slot is free. Blocked jobs continue in order of priority, then
    /// age.
    #[default]
    Block,
    /// The job is [discarded](crate::jobs::AttemptOutcome::Discarded), shortly after its enqueue was
    /// committed or it became due.
    ///
    /// A job that has already run and waits for another attempt is blocked instead.
    Discard,
}

impl Concurrency {
    /// Creates a limit of one job at a time for this key.
    ///
    /// The key is anything that implements `ToString`. Use a constant to limit all jobs of the type
    /// together. Key and group may have at most 255 bytes together.
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

    /// Sets the group: job types with the same group share their keys. Default: the name of the
    /// type, so that its keys are its own.
    pub fn group(mut self, name: impl Into<String>) -> Self {
        self.group = Some(name.into());
        self
    }

    /// Sets what happens to jobs that find no free slot. Default: they wait.
    pub fn on_conflict(mut self, policy: LimitConflict) -> Self {
        self.on_conflict = policy;
        self
    }

    /// Runs the jobs of the key one at a time, in the order of their enqueue. Default: blocked jobs
    /// continue in order of priority, then age.
    ///
    /// A job keeps its place until it has ended for good. While it waits for another attempt,
    /// is snoozed, or recovers from a crash, no other job of the key runs. Its priority decides only
    /// how soon a worker takes it once it is its turn.
    ///
    /// Set it for all jobs of the key. An enqueue is refused if it has another limit than 1, or
    /// [`LimitConflict::Discard`].
    ///
    /// ```
    /// # use windlass::{Concurrency, NewJob};
    /// # use diesel::prelude::*;
    /// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
    /// # windlass::migrate(&mut conn).unwrap();
    /// let account = Concurrency::new(7).group("ledger").ordered();
    /// for entry in ["open", "pay in", "pay out"] {
    ///     let job = NewJob::of_class("book", format!("{entry:?}"));
    ///     job.concurrency(account.clone()).enqueue(&mut conn)?;
    /// }
    /// assert_eq!(windlass::limits::semaphores(&mut conn)?[0].blocked, 3);
    /// # Ok::<(), windlass::Error>(())
    /// ```
    pub fn ordered(mut self) -> Self {
        self.ordered = true;
        self
    }

    /// Returns the columns for a job of this class, or the reason why the limit is invalid.
    pub(crate) fn of_class(&self, class: &str) -> std::result::Result<NewLimit, String> {
        let group = self.group.as_deref().unwrap_or(class);
        let key = format!("{group}/{}", self.key);
        if self.key.is_empty() || group.is_empty() || key.len() > MAX_KEY || key.contains('\0') {
            return Err(
                "its concurrency key and group must not be empty, have at most 255 bytes together, and no NUL"
                    .to_owned(),
            );
        }
        let slots = i32::try_from(self.limit).unwrap_or(i32::MAX);
        if slots == 0 {
            return Err(
                "its concurrency limit is 0, so it could never run; pause its queue instead"
                    .to_owned(),
            );
        }
        if self.ordered && slots != 1 {
            return Err(format!(
                "its concurrency key is ordered, so its limit must be 1 and not {slots}"
            ));
        }
        if self.ordered && self.on_conflict == LimitConflict::Discard {
            return Err(
                "its concurrency key is ordered, so it must wait for its turn and cannot be discarded instead"
                    .to_owned(),
            );
        }
        Ok(NewLimit {
            key,
            slots,
            discards: self.on_conflict == LimitConflict::Discard,
            ordered: self.ordered,
        })
    }
}

pub(crate) const MAX_KEY: usize = 255;

/// Returns every concurrency key with waiting or running jobs, and the state of its slots.
///
/// ```
/// # use diesel::prelude::*;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// use windlass::{Concurrency, NewJob, limits};
///
/// NewJob::of_class("import", "{}").concurrency(Concurrency::new(7)).enqueue(&mut conn)?;
/// for key in limits::semaphores(&mut conn)? {
///     println!("{}: {} of {} slots, {} jobs wait", key.key, key.held(), key.limit, key.blocked);
/// }
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// # Errors
/// If the database does not answer or has no tables.
pub fn semaphores<C: AsConn + ?Sized>(conn: &mut C) -> Result<Vec<SemaphoreStatus>> {
    semaphores::list_semaphores(&mut own(conn)).during("read the concurrency keys")
}

/// Returns the violations of concurrency limits, one sentence each.
///
/// The list is empty unless rows were changed by hand, or a limit was lowered while more jobs were
/// running than it allows. This reads every ready or running job.
///
/// ```
/// # use diesel::prelude::*;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// let wrong = windlass::limits::check_semaphores(&mut conn)?;
/// assert!(wrong.is_empty(), "{wrong:?}");
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// # Errors
/// If the database does not answer or has no tables.
pub fn check_semaphores<C: AsConn + ?Sized>(conn: &mut C) -> Result<Vec<String>> {
    semaphores::check(&mut own(conn)).during("check the concurrency limits")
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
            (Concurrency::new("a").ordered().limit(2), "must be 1"),
            (
                Concurrency::new("a")
                    .ordered()
                    .on_conflict(LimitConflict::Discard),
                "wait for its turn",
            ),
        ] {
            let error = limit.of_class("import").unwrap_err();
            assert!(error.contains(word), "{error}");
        }
    }
}
