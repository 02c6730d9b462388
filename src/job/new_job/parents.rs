//! The conditions for which a job waits before it runs: a time, other jobs, batches.

use crate::db::model::extras::{Extras, FIRST_VERSION, Follows, On, Otherwise, Parent};
use crate::job::context::Context;
use crate::job::new_job::NewJob;
use crate::job::policy::{Policy, PropagationStyle};
use crate::job::{BatchId, Enqueued, JobId};
use crate::queue::MAX_NAME;
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::Duration;

/// The most jobs and batches that a job may wait for. More are better the jobs of one batch.
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
    /// The jobs and batches that it waits for must be stored already: enqueue all of them in one transaction, or use a
    /// [`Flow`](crate::Flow). A job that waits can have no unique id and no quota, and waits for at most 1,000 jobs and
    /// batches: to wait for more, put them into a batch.
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

    /// Adds the job to a batch, as [`BatchId::add`](crate::BatchId::add) does: the batch must not be over. A job that exists
    /// already, by its unique id or idempotency key, does not join it.
    ///
    /// ```
    /// # use diesel::prelude::*;
    /// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
    /// # windlass::migrate(&mut conn).unwrap();
    /// use windlass::{Batch, NewJob};
    ///
    /// let import = conn.transaction::<_, windlass::Error, _>(|conn| {
    ///     let batch = Batch::new("import").enqueue(conn)?.id;
    ///     NewJob::of_class("import", "{}").batch(batch).enqueue(conn)?;
    ///     Ok(batch)
    /// })?;
    /// assert_eq!(import.status(&mut conn)?.open, 1);
    /// # Ok::<(), windlass::Error>(())
    /// ```
    pub fn batch(mut self, batch: BatchId) -> Self {
        self.row.batch_id = Some(batch.0);
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
    let own = job.row.batch_id.map(Parent::Batch);
    if own.is_some() && parents.iter().any(|(parent, _)| Some(*parent) == own) {
        return Some("it waits for its own batch, which could not end".to_owned());
    }
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

// --- The arguments of `NewJob::after` ---

/// An argument of [`NewJob::after`]: a delay, or jobs and batches.
///
/// ```
/// # use diesel::prelude::*;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// use windlass::NewJob;
///
/// let read = NewJob::of_class("read", "{}").enqueue(&mut conn)?;
/// let check = NewJob::of_class("check", "{}").enqueue(&mut conn)?;
/// NewJob::of_class("report", "{}").after([("lines", read), ("errors", check)]).enqueue(&mut conn)?;
/// # Ok::<(), windlass::Error>(())
/// ```
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

// --- Tags, metadata and the version of the arguments: set at the enqueue, read by the job ---

impl Policy {
    fn extras_mut(&mut self) -> &mut Extras {
        self.extras.get_or_insert_default()
    }

    /// Adds a tag; see [`NewJob::tag`]. A tag of a program-wide policy has no effect.
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.extras_mut().add_tag(tag.into());
        self
    }

    /// Adds a value to the metadata; see [`NewJob::meta`]. A value of a program-wide policy has no
    /// effect.
    pub fn meta(mut self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        self.extras_mut().meta.insert(key.into(), value.into());
        self
    }

    /// Sets the version of the arguments.
    pub(crate) fn with_version(mut self, version: u32) -> Self {
        if version != FIRST_VERSION {
            self.extras_mut().version = Some(version);
        }
        self
    }

    /// Replaces the version of the arguments.
    #[doc(hidden)]
    pub fn set_version(&mut self, version: u32) {
        let mut extras = self.extras.take().unwrap_or_default();
        extras.version = Some(version).filter(|version| *version != FIRST_VERSION);
        self.extras = Some(extras).filter(|extras| **extras != Extras::default());
    }

    /// Returns the version of the arguments.
    #[doc(hidden)]
    pub fn arguments_version(&self) -> u32 {
        let extras = self.extras.as_deref();
        extras.map_or(FIRST_VERSION, Extras::arguments_version)
    }
}

impl NewJob {
    /// Adds a tag, by which [`Jobs::tagged`](crate::jobs::Jobs::tagged) and `windlass jobs list --tag` find
    /// the job. A tag that the job already has is added once.
    ///
    /// A job has at most 32 tags of 1 to 100 bytes each, without NUL. [`Job::policy`] can have tags
    /// for all jobs of a type; those of the enqueue are added to them.
    ///
    /// ```
    /// # use diesel::prelude::*;
    /// # use windlass::NewJob;
    /// # use windlass::jobs::Jobs;
    /// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
    /// # windlass::migrate(&mut conn).unwrap();
    /// NewJob::of_class("import", "{}")
    ///     .tags(["customer/7", "night"])
    ///     .meta("request", "4711")
    ///     .enqueue(&mut conn)?;
    /// assert_eq!(Jobs::waiting().tagged(["night"]).count(&mut conn)?, 1);
    /// # Ok::<(), windlass::Error>(())
    /// ```
    ///
    /// [`Job::policy`]: crate::Job::policy
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.policy = self.policy.tag(tag);
        self
    }

    /// Adds several tags; see [`tag`](Self::tag).
    pub fn tags<T: Into<String>>(mut self, tags: impl IntoIterator<Item = T>) -> Self {
        for tag in tags {
            self.policy = self.policy.tag(tag);
        }
        self
    }

    /// Adds a value to the metadata, such as the id of a request. [`Context::meta`] returns it, and
    /// `windlass jobs show` prints it. A key has one value, the last one.
    ///
    /// A job has at most 32 values, with keys of 1 to 100 bytes. Tags and metadata count towards the
    /// maximum size of the arguments. Readers see it without the fields in
    /// [`Job::REDACT`](crate::Job::REDACT).
    pub fn meta(mut self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        self.policy = self.policy.meta(key, value);
        self
    }

    /// Sets the version of the arguments of a job that was created [by name](Self::of_class); see
    /// [`Job::VERSION`](crate::Job::VERSION). Default: 1.
    pub fn arguments_version(mut self, version: u32) -> Self {
        self.policy.set_version(version);
        self
    }
}

impl<'a, S: ?Sized> Context<'a, S> {
    fn extras(&self) -> Option<&'a Extras> {
        self.run().policy.extras.as_deref()
    }

    /// Returns the job's tags when it was claimed, in the order in which they were added.
    pub fn tags(&self) -> &'a [String] {
        self.extras().map_or(&[], |extras| &extras.tags)
    }

    /// Returns a value of the job's metadata, or `None` if there is none for this key.
    pub fn meta(&self, key: &str) -> Option<&'a Value> {
        self.extras()?.meta.get(key)
    }
}

// --- The given trace of a job ---

impl NewJob {
    /// Sets the trace context of the enqueue, as a header `traceparent` of W3C Trace Context.
    ///
    /// The span of each run is linked to it, or is its child; see
    /// [`PropagationStyle`](crate::policies::PropagationStyle). Default: with the feature `otel`, the context
    /// that is active during the enqueue, if there is one; without it, none. A recurring task
    /// stores none.
    ///
    /// A value of another form is rejected when the job is enqueued. `tracestate` is not stored.
    ///
    /// ```
    /// # use windlass::NewJob;
    /// # use diesel::prelude::*;
    /// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
    /// # windlass::migrate(&mut conn).unwrap();
    /// let header = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    /// NewJob::of_class("import", "{}").traceparent(header).enqueue(&mut conn)?;
    /// # Ok::<(), windlass::Error>(())
    /// ```
    pub fn traceparent(mut self, header: impl Into<String>) -> Self {
        self.row.traceparent = Some(header.into());
        self
    }

    /// Sets the tenant of the job, a text of 1 to 255 bytes without control characters: the customer, for example. The
    /// tenants take turns in a queue whose threads are [shared](crate::tenants). Default: that of the job's
    /// [type](crate::Job::tenant).
    pub fn tenant(mut self, name: impl Into<String>) -> Self {
        self.row.tenant = Some(name.into());
        self
    }
}

impl Policy {
    /// Sets how the spans of the job's runs belong to the trace of the enqueue. Default:
    /// [`PropagationStyle::Link`].
    ///
    /// ```
    /// use windlass::Policy;
    /// use windlass::policies::PropagationStyle;
    /// let policy = Policy::new().propagation_style(PropagationStyle::Child);
    /// # let _ = policy;
    /// ```
    pub fn propagation_style(mut self, style: PropagationStyle) -> Self {
        self.propagation_style = Some(style);
        self
    }
}

impl<S: ?Sized> Context<'_, S> {
    /// Returns the trace context of the enqueue, as a header `traceparent` of W3C Trace Context.
    ///
    /// It is what the enqueue stored, the same for every run of the job. With the feature `otel`,
    /// the context of the run itself is the active one. Returns `None` if none is stored, or a text
    /// of another form.
    pub fn traceparent(&self) -> Option<String> {
        let stored = self.run().trace.origin?;
        Some(stored.to_string())
    }
}

// --- Asking for a public token ---

impl NewJob {
    /// Creates a token by which outsiders can see this job: [`Enqueued::public_token`] has it, once.
    ///
    /// A caller with the token sees the job's [`PublicTask`]; see
    /// [`jobs::status_by_token`](crate::jobs::status_by_token). The database contains only its SHA-256. A token leads
    /// to its job as long as the job's row or its result is kept, so set [`Policy::keep_result`] if finished jobs are
    /// not kept.
    ///
    /// If the enqueue finds an existing job by the same idempotency key, that job gets another
    /// token, and the earlier ones stay valid (the last 100). If it finds another job by the unique
    /// id, there is no token: the job may belong to another caller. A job that is replaced keeps its
    /// tokens.
    ///
    /// ```
    /// # use diesel::prelude::*;
    /// # use windlass::NewJob;
    /// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
    /// # windlass::migrate(&mut conn).unwrap();
    /// let job = NewJob::of_class("export", "{}").public_token().enqueue(&mut conn)?;
    /// let token = job.public_token.expect("the job is new").to_string();
    /// // Later, for a request with the token:
    /// let task = windlass::jobs::status_by_token(&mut conn, &token)?.expect("it is known");
    /// println!("{}", serde_json::to_string(&task.public()).unwrap());
    /// # assert_eq!(task.job_id, job.id);
    /// # Ok::<(), windlass::Error>(())
    /// ```
    ///
    /// [`Enqueued::public_token`]: crate::Enqueued::public_token
    /// [`PublicTask`]: crate::jobs::PublicTask
    /// [`Policy::keep_result`]: crate::Policy::keep_result
    pub fn public_token(mut self) -> Self {
        self.access.wants_token = true;
        self
    }
}
