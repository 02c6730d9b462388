//! What a job waits for before it runs: a time, other jobs, batches.

use crate::db::model::extras::{Follows, On, Otherwise, Parent};
use crate::job::new_job::NewJob;
use crate::job::{BatchId, Enqueued, JobId};
use crate::queue::MAX_NAME;
use std::collections::BTreeSet;
use std::time::Duration;

/// How many jobs and batches a job may wait for. More are better the jobs of one batch.
pub(crate) const MOST_PARENTS: usize = 1_000;

impl NewJob {
    /// Runs the job after a delay, or after other jobs or batches have ended.
    ///
    /// | `after` | |
    /// |---|---|
    /// | `Duration` | after this delay or later, by the database's clock; at most 1000 years |
    /// | [`JobId`](crate::JobId), [`Enqueued`](crate::Enqueued) | when this job has ended |
    /// | [`BatchId`](crate::BatchId) | when this batch is over |
    /// | `("name", id)` | the same, and [`Context::input`](crate::Context::input) reads the job's result by the name |
    /// | an array, a `Vec` or a slice of these | when all of them have ended |
    ///
    /// It can be called several times, and everything counts. Until then the job is blocked, and takes no slot of its
    /// [`Concurrency`](crate::Concurrency). By default it runs if all of them succeed, and is discarded as soon as one does
    /// not; see [`when`](Self::when) and [`wait_for_retries`](Self::wait_for_retries).
    ///
    /// A job succeeds if it finishes. One that fails for good, is parked, cancelled, discarded, or deleted while it waits
    /// does not. A batch succeeds as [`Batch`](crate::Batch) says.
    ///
    /// What it waits for must be stored already: enqueue all of them in one transaction, or use a [`Flow`](crate::Flow). A
    /// job that waits can have no unique id and no quota, and waits for at most 1,000 jobs and batches: to wait for more, put
    /// them into a batch.
    ///
    /// ```
    /// # use diesel::prelude::*;
    /// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
    /// # windlass::migrate(&mut conn).unwrap();
    /// use windlass::NewJob;
    ///
    /// let report = conn.transaction::<_, windlass::Error, _>(|conn| {
    ///     let orders = NewJob::of_class("read_orders", "{}").enqueue(conn)?;
    ///     let rates = NewJob::of_class("read_rates", "{}").enqueue(conn)?;
    ///     NewJob::of_class("report", "{}")
    ///         .after([("orders", orders), ("rates", rates)])
    ///         .enqueue(conn)
    /// })?;
    /// # let _ = report;
    /// # Ok::<(), windlass::Error>(())
    /// ```
    pub fn after(self, what: impl After) -> Self {
        what.apply(self)
    }

    /// Sets on which outcome of what it [waits for](Self::after) the job runs. Default: [`On::Success`]. If the outcome is
    /// another, the job is discarded.
    pub fn when(mut self, on: On) -> Self {
        self.follows_mut().on = on;
        self
    }

    /// Keeps the job although something that it [waits for](Self::after) has failed: it runs when what failed was retried by
    /// hand and has succeeded. It is discarded when no retry can bring that any more. Default: it is discarded at once.
    pub fn wait_for_retries(mut self) -> Self {
        self.follows_mut().otherwise = Otherwise::Wait;
        self
    }

    pub(crate) fn follows_mut(&mut self) -> &mut Follows {
        self.follows.get_or_insert_default()
    }

    /// Returns what is wrong with what the job waits for.
    pub(crate) fn wrong_parents(&self) -> Option<String> {
        let follows = self.follows.as_deref()?;
        check_parents(self, follows, follows.parents.len())
    }
}

/// Returns what is wrong with what a job waits for: `count` jobs and batches, among them those of `follows`.
pub(crate) fn check_parents(job: &NewJob, follows: &Follows, count: usize) -> Option<String> {
    if count == 0 {
        let reason = "it waits for nothing: `when` and `wait_for_retries` belong to `after`, with jobs or batches";
        return Some(reason.to_owned());
    }
    if count > MOST_PARENTS {
        return Some(format!(
            "it waits for {count} jobs and batches, and at most {MOST_PARENTS} are possible: put them into a `Batch`"
        ));
    }
    let has = [
        (job.row.unique_id.is_some(), "a unique id"),
        (job.quota.is_some(), "a quota"),
    ];
    if let Some((_, what)) = has.iter().find(|(has, _)| *has) {
        return Some(format!("it waits for others, and cannot have {what}"));
    }
    let parents = &follows.parents;
    let all: BTreeSet<Parent> = parents.iter().map(|(parent, _)| *parent).collect();
    if all.len() < parents.len() {
        return Some("it waits for the same job or batch twice".to_owned());
    }
    wrong_name(parents.iter().filter_map(|(_, name)| name.as_deref()))
}

/// Returns what is wrong with the names of what a job waits for.
pub(crate) fn wrong_name<'n>(names: impl Iterator<Item = &'n str>) -> Option<String> {
    let mut seen = BTreeSet::new();
    for name in names {
        if name.is_empty() || name.len() > MAX_NAME || name.contains('\0') {
            let reason = "the name of what it waits for must have 1 to 255 bytes and no NUL";
            return Some(reason.to_owned());
        }
        if !seen.insert(name) {
            return Some(format!("it waits for two that have the name `{name}`"));
        }
    }
    None
}

// --- What `NewJob::after` takes ---

/// What [`NewJob::after`] takes: a delay, or jobs and batches.
pub trait After {
    #[doc(hidden)]
    fn apply(self, job: NewJob) -> NewJob;
}

/// A job or a batch, with or without a name, that another job can wait for; see [`NewJob::after`].
pub trait ToParent {
    #[doc(hidden)]
    fn add_to(self, job: &mut NewJob);
}

impl After for Duration {
    fn apply(self, mut job: NewJob) -> NewJob {
        // A longer delay is rejected, not shortened.
        job.row.delay = Some(i64::try_from(self.as_micros()).unwrap_or(i64::MAX));
        job.row.at = None;
        job
    }
}

fn add(job: &mut NewJob, parent: Parent, name: Option<String>) {
    job.follows_mut().parents.push((parent, name));
}

fn apply(parent: impl ToParent, mut job: NewJob) -> NewJob {
    parent.add_to(&mut job);
    job
}

fn apply_all<P: ToParent>(parents: impl IntoIterator<Item = P>, mut job: NewJob) -> NewJob {
    for parent in parents {
        parent.add_to(&mut job);
    }
    job
}

impl ToParent for JobId {
    fn add_to(self, job: &mut NewJob) {
        add(job, Parent::Job(self.0), None);
    }
}

impl ToParent for Enqueued {
    fn add_to(self, job: &mut NewJob) {
        self.id.add_to(job);
    }
}

impl ToParent for BatchId {
    fn add_to(self, job: &mut NewJob) {
        add(job, Parent::Batch(self.0), None);
    }
}

impl<N: Into<String>> ToParent for (N, JobId) {
    fn add_to(self, job: &mut NewJob) {
        add(job, Parent::Job(self.1.0), Some(self.0.into()));
    }
}

impl<N: Into<String>> ToParent for (N, Enqueued) {
    fn add_to(self, job: &mut NewJob) {
        (self.0, self.1.id).add_to(job);
    }
}

impl<N: Into<String>> ToParent for (N, BatchId) {
    fn add_to(self, job: &mut NewJob) {
        add(job, Parent::Batch(self.1.0), Some(self.0.into()));
    }
}

impl After for JobId {
    fn apply(self, job: NewJob) -> NewJob {
        apply(self, job)
    }
}

impl After for Enqueued {
    fn apply(self, job: NewJob) -> NewJob {
        apply(self, job)
    }
}

impl After for BatchId {
    fn apply(self, job: NewJob) -> NewJob {
        apply(self, job)
    }
}

impl<N, I> After for (N, I)
where
    (N, I): ToParent,
{
    fn apply(self, job: NewJob) -> NewJob {
        apply(self, job)
    }
}

impl<P: ToParent, const N: usize> After for [P; N] {
    fn apply(self, job: NewJob) -> NewJob {
        apply_all(self, job)
    }
}

impl<P: ToParent> After for Vec<P> {
    fn apply(self, job: NewJob) -> NewJob {
        apply_all(self, job)
    }
}

impl<P: ToParent + Clone> After for &[P] {
    fn apply(self, job: NewJob) -> NewJob {
        apply_all(self.iter().cloned(), job)
    }
}
