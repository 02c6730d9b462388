//! The definition of a recurring task in a program.

use crate::db::model::recurring::{Definition, Overlap};
use crate::error::{Error, Result};
use crate::job::arguments::readable::written;
use crate::job::arguments::{decode, listed};
use crate::job::class::Job;
use crate::job::concurrency::Concurrency;
use crate::job::new_job::NewJob;
use crate::job::policy::{Delivery, Policy};
use crate::queue::check_name;
use crate::recurring::schedule::Schedule;
use crate::recurring::stored::{Options, hash};
use crate::recurring::time_zone::Zone;
use crate::recurring::timing::{MissedTicks, TickWindow, Timing, Timings};
use chrono::{DateTime, Utc};
use std::sync::Arc;
use std::time::Duration;

/// A job that is enqueued repeatedly on a schedule.
///
/// ```
/// # use serde::{Deserialize, Serialize};
/// # use windlass::{Context, Job, JobResult};
/// # #[derive(Serialize, Deserialize)] struct Cleanup { days: u32 }
/// # impl Job for Cleanup {
/// #     const NAME: &'static str = "cleanup";
/// #     type State = (); type Output = ();
/// #     fn perform(self, _: &Context<'_, ()>) -> JobResult { Ok(()) }
/// # }
/// use std::time::Duration;
/// use windlass::{MissedTicks, Overlap, RecurringTask};
///
/// let task = RecurringTask::new("cleanup", "30 3 * * *", &Cleanup { days: 30 })?
///     .time_zone("Europe/Berlin")?
///     .queue("slow")
///     .missed(MissedTicks::AllWithin(Duration::from_secs(3 * 86_400)))
///     .overlap(Overlap::Skip)
///     .description("Deletes what is older than a month");
/// # let _ = task;
/// # Ok::<(), windlass::Error>(())
/// ```
#[derive(Debug, Clone)]
#[must_use = "a task does nothing until it is given to a scheduler or scheduled"]
pub struct RecurringTask {
    pub(crate) key: String,
    pub(crate) schedule: Schedule,
    class_name: String,
    arguments: String,
    queue_name: String,
    priority: i32,
    description: Option<String>,
    policy: Policy,
    concurrency: Option<Concurrency>,
    max_arguments: usize,
    missed: MissedTicks,
    overlap: Overlap,
    pub(crate) jitter: Option<Duration>,
    pub(crate) window: TickWindow,
    /// That of its schedule, if it has one.
    timings: Timings,
    /// Its class was given by name, so a program may not know it.
    is_by_name: bool,
    /// The location in the configuration that declares it.
    location: Option<String>,
}

impl RecurringTask {
    /// Creates a task with the defaults of its job type; see [`Schedule`] for the text.
    ///
    /// The key identifies the task, with up to 255 ASCII letters, digits and `_` `.` `:` `/` `-`.
    ///
    /// # Errors
    /// If the key or the schedule is invalid, or the arguments cannot be serialized to JSON and read
    /// from it again.
    pub fn new<J: Job>(key: impl Into<String>, schedule: &str, job: &J) -> Result<Self> {
        let arguments = written(J::NAME, job, J::REDACT, decode::<J>)?;
        let mut task = Self::of_class(key, schedule, J::NAME, arguments)?
            .queue(J::QUEUE)
            .priority(J::PRIORITY)
            .policy(J::policy().with_version(J::VERSION));
        task.is_by_name = false;
        task.concurrency = job.concurrency();
        task.max_arguments = J::MAX_ARGUMENTS;
        Ok(task)
    }

    /// Creates a task whose jobs are of a class that this program does not define, with their
    /// arguments as JSON text.
    ///
    /// # Errors
    /// If the key or the schedule is invalid.
    pub fn of_class(
        key: impl Into<String>,
        schedule: &str,
        class: impl Into<String>,
        arguments: impl Into<String>,
    ) -> Result<Self> {
        let key = key.into();
        check_name(&key, "key of a recurring task")?;
        Ok(RecurringTask {
            key,
            schedule: schedule.parse()?,
            class_name: class.into(),
            arguments: arguments.into(),
            queue_name: "default".to_owned(),
            priority: 0,
            description: None,
            policy: Policy::new(),
            concurrency: None,
            max_arguments: 64 * 1024,
            missed: MissedTicks::default(),
            overlap: Overlap::default(),
            jitter: None,
            window: TickWindow::default(),
            timings: Timings::default(),
            is_by_name: true,
            location: None,
        })
    }

    /// Creates a task whose jobs are like this one.
    pub(crate) fn of_job(key: &str, schedule: &str, job: NewJob) -> Result<Self> {
        let is_by_name = job.is_text;
        let (row, policy, concurrency, max_arguments) = job.into_parts();
        let mut task = Self::of_class(key, schedule, row.class_name, row.arguments)?
            .queue(row.queue_name)
            .priority(row.priority)
            .policy(policy);
        task.concurrency = concurrency;
        task.max_arguments = max_arguments;
        task.is_by_name = is_by_name;
        Ok(task)
    }

    /// Records the location in a configuration that declares it.
    #[cfg(feature = "config")]
    pub(crate) fn declared_at(mut self, location: &impl std::fmt::Display) -> Self {
        self.location = Some(location.to_string());
        self
    }

    /// Returns the location in a configuration that declares it.
    pub(crate) fn location(&self) -> Option<&str> {
        self.location.as_deref()
    }

    /// Returns the class of its jobs, if it was given by name.
    pub(crate) fn named_class(&self) -> Option<&str> {
        Some(&*self.class_name).filter(|_| self.is_by_name)
    }

    /// Returns its key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Returns its schedule.
    pub fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// Sets the time zone of its schedule by name. Default: the one in the schedule's text,
    /// otherwise the scheduler's, otherwise UTC.
    ///
    /// # Errors
    /// If there is no such time zone.
    pub fn time_zone(mut self, name: &str) -> Result<Self> {
        self.schedule = self.schedule.in_time_zone(name)?;
        Ok(self)
    }

    /// Sets the queue of its jobs.
    pub fn queue(mut self, name: impl Into<String>) -> Self {
        self.queue_name = name.into();
        self
    }

    /// Sets the priority of its jobs; a smaller number is more important. It overrides a priority by
    /// time, which their policy may have.
    pub fn priority(mut self, priority: i32) -> Self {
        self.priority = priority;
        self.policy.ahead_by = None;
        self
    }

    /// Sets a description for readers.
    pub fn description(mut self, text: impl Into<String>) -> Self {
        self.description = Some(text.into());
        self
    }

    /// Sets the policy of its jobs; its values override those of their type.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy.or(&self.policy);
        self
    }

    /// Sets the concurrency limit of its jobs. Default: that of their type.
    pub fn concurrency(mut self, limit: Concurrency) -> Self {
        self.concurrency = Some(limit);
        self
    }

    /// Sets what happens to missed ticks. Default: the latest is fired.
    pub fn missed(mut self, missed: MissedTicks) -> Self {
        self.missed = missed;
        self
    }

    /// Sets what happens to a tick if the job of the previous one has not ended. Default: it is
    /// fired.
    pub fn overlap(mut self, overlap: Overlap) -> Self {
        self.overlap = overlap;
        self
    }

    /// Discards a job that has not started so long after it is due, which is after the enqueue for
    /// its tick and the [jitter](Self::jitter); see [`Policy::expires_in`]. Default: that of its type,
    /// or never.
    pub fn expires_in(self, time: Duration) -> Self {
        self.policy(Policy::new().expires_in(time))
    }

    /// Delays the job of each tick by a time below this, which is fixed for each task and tick. So many
    /// tasks with the same schedule do not start at once. Default: none.
    ///
    /// The tick itself, its history and its priority by time are not affected, nor is
    /// [`run_now`](crate::recurring::run_now).
    pub fn jitter(mut self, most: Duration) -> Self {
        self.jitter = Some(most);
        self
    }

    /// Sets the first time at which the task may be due. Ticks before it are not due, and do not
    /// count as missed. Default: none.
    pub fn from(mut self, time: DateTime<Utc>) -> Self {
        self.window.from = Some(time);
        self
    }

    /// Sets the time from which the task is no longer due; a tick at this very time is not fired. A
    /// tick before it that no scheduler has fired yet is [missed](Self::missed) as any other.
    /// Default: none.
    ///
    /// The task stays, so it can be changed and looked at, until it is unscheduled.
    pub fn until(mut self, time: DateTime<Utc>) -> Self {
        self.window.until = Some(time);
        self
    }

    /// Sets the [`Timing`] that its schedule, `@timing NAME`, names. It has no effect on a task with
    /// another schedule.
    pub fn timing(mut self, timing: Arc<dyn Timing>) -> Self {
        if let Some(name) = self.schedule.named() {
            self.timings = Timings::default();
            self.timings.add(name, timing);
        }
        self
    }

    /// Returns the timing of its schedule, if it has one.
    pub(crate) fn timings(&self) -> &Timings {
        &self.timings
    }

    /// Returns what is stored, after checking the limits of its jobs.
    pub(crate) fn definition(&self, revision: Option<i64>, default: Zone) -> Result<Definition> {
        // Checks now whether a job can be enqueued, not at every tick.
        NewJob::of_class(&self.class_name, &self.arguments)
            .queue(&self.queue_name)
            .max_arguments(self.max_arguments)
            .policy(self.policy.clone())
            .limited(self.concurrency.clone())
            .into_row()?;
        let options = Options {
            missed: self.missed,
            overlap: self.overlap,
            policy: self.policy.clone(),
            concurrency: self.concurrency.clone(),
            max_attempts: self.policy.max_attempts,
            max_crashes: self.policy.max_crashes,
            delivery: self
                .policy
                .delivery
                .map(Delivery::as_every_version_knows_it),
            ahead_by: self.policy.ahead_by,
            jitter: self.jitter,
            from: self.window.from,
            until: self.window.until,
            place: self.location.clone().filter(|_| revision.is_some()),
        };
        if let Some(reason) = options.problem() {
            let key = self.key.clone();
            return Err(Error::RecurringTask { key, reason });
        }
        Ok(Definition {
            key: self.key.clone(),
            schedule: self.schedule.text().to_owned(),
            in_ruby: self.schedule.clone().or_in(default).in_ruby(),
            time_zone: self
                .schedule
                .time_zone()
                .unwrap_or(default.name())
                .to_owned(),
            class_name: self.class_name.clone(),
            arguments: listed(&self.arguments),
            queue_name: self.queue_name.clone(),
            priority: self.priority,
            description: self.description.clone(),
            options: options.to_column(),
            revision,
            start: None,
        })
    }

    /// Returns what identifies a start of this task that no deployment is named for: its class and
    /// its arguments. The space makes it different from every name of a deployment.
    pub(crate) fn unnamed_start(&self) -> String {
        let bytes = self.class_name.bytes().chain([0]);
        format!(" {:016x}", hash(bytes.chain(self.arguments.bytes())))
    }
}
