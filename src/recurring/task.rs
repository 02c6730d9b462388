//! A recurring task: of a program, a configuration or a command, and as its row stores it.

use crate::db::model::new_row::NewRow;
use crate::db::model::recurring::{Definition, Overlap, RecurringTaskRow};
use crate::db::transition::enqueue::rank::rank;
use crate::error::{Error, Result};
use crate::job::arguments::readable::written;
use crate::job::arguments::{decode, listed, unlisted};
use crate::job::bounds::MAX_ARGUMENTS;
use crate::job::class::Job;
use crate::job::concurrency::Concurrency;
use crate::job::new_job::NewJob;
use crate::job::policy::{Policy, Tick};
use crate::queue::check_name;
use crate::recurring::options::{TaskOptions, hash, starts_at};
use crate::recurring::schedule::{Schedule, time_zone};
use crate::recurring::time_zone::Zone;
use crate::recurring::timing::{MissedTicks, TickTimes, Timing, Timings};
use chrono::{DateTime, NaiveDateTime, Utc};
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
/// use windlass::RecurringTask;
/// use windlass::recurring::{MissedTicks, Overlap};
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
    #[doc(hidden)]
    pub schedule: Schedule,
    #[doc(hidden)]
    pub class_name: String,
    #[doc(hidden)]
    pub arguments: String,
    queue_name: String,
    #[doc(hidden)]
    pub priority: i32,
    #[doc(hidden)]
    pub description: Option<String>,
    #[doc(hidden)]
    pub options: TaskOptions,
    max_arguments: usize,
    /// That of its schedule, if it has one.
    timings: Timings,
    /// Its class was given by name, so a program may not know it.
    is_by_name: bool,
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
            .policy(J::policy().with_version(J::VERSION).with_rates(job.rates()));
        task.is_by_name = false;
        task.options.concurrency = job.concurrency();
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
            options: TaskOptions::default(),
            max_arguments: MAX_ARGUMENTS,
            timings: Timings::default(),
            is_by_name: true,
        })
    }

    /// Creates a task whose jobs are like this one.
    #[doc(hidden)]
    pub fn of_job(key: &str, schedule: &str, job: NewJob) -> Result<Self> {
        let is_by_name = job.is_text;
        let (row, policy, concurrency, max_arguments) = job.into_parts();
        let mut task = Self::of_class(key, schedule, row.class_name, row.arguments)?
            .queue(row.queue_name)
            .priority(row.priority)
            .policy(policy);
        task.options.concurrency = concurrency;
        task.max_arguments = max_arguments;
        task.is_by_name = is_by_name;
        Ok(task)
    }

    /// Returns the task of a row, in whose schedule its time zone is.
    ///
    /// # Errors
    /// If another program wrote values that this version cannot read.
    #[doc(hidden)]
    pub fn read(row: &RecurringTaskRow) -> Result<Self> {
        let schedule: Schedule = row.schedule.parse()?;
        Ok(RecurringTask {
            key: row.key.clone(),
            schedule: schedule.or_in(time_zone(&row.time_zone)?),
            class_name: row.class_name.clone(),
            arguments: unlisted(&row.arguments).to_owned(),
            queue_name: row.queue_name.clone(),
            priority: row.priority,
            description: row.description.clone(),
            options: TaskOptions::read(row)?,
            // Their size was checked when the task was scheduled.
            max_arguments: usize::MAX,
            timings: Timings::default(),
            is_by_name: true,
        })
    }

    /// Records the location in a configuration that declares it.
    #[doc(hidden)]
    pub fn declared_at(mut self, location: &impl std::fmt::Display) -> Self {
        self.options.place = Some(location.to_string());
        self
    }

    /// Returns the location in a configuration that declares it.
    pub(crate) fn location(&self) -> Option<&str> {
        self.options.place.as_deref()
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

    /// Replaces its schedule. Its time zone stays if the text names none.
    ///
    /// # Errors
    /// If the schedule is invalid.
    #[doc(hidden)]
    pub fn reschedule(&mut self, text: &str) -> Result<()> {
        let new: Schedule = text.parse()?;
        self.schedule = match self.schedule.time_zone() {
            Some(zone) => new.or_in(time_zone(zone)?),
            None => new,
        };
        Ok(())
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
        self.options.policy.ahead_by = None;
        self
    }

    /// Sets a description for readers.
    pub fn description(mut self, text: impl Into<String>) -> Self {
        self.description = Some(text.into());
        self
    }

    /// Sets the policy of its jobs; its values override those of their type.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.options.policy = policy.or(&self.options.policy);
        self
    }

    /// Sets the concurrency limit of its jobs. Default: that of their type.
    pub fn concurrency(mut self, limit: Concurrency) -> Self {
        self.options.concurrency = Some(limit);
        self
    }

    /// Sets what happens to missed ticks. Default: the latest is fired.
    pub fn missed(mut self, missed: MissedTicks) -> Self {
        self.options.missed = missed;
        self
    }

    /// Sets what happens to a tick if the job of the previous one has not ended. Default: it is
    /// fired.
    pub fn overlap(mut self, overlap: Overlap) -> Self {
        self.options.overlap = overlap;
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
        self.options.jitter = Some(most);
        self
    }

    /// Sets the first time at which the task may be due. Ticks before it are not due, and do not
    /// count as missed. Default: none.
    pub fn from(mut self, time: DateTime<Utc>) -> Self {
        self.options.window.from = Some(time);
        self
    }

    /// Sets the time from which the task is no longer due; a tick at this very time is not fired. A
    /// tick before it that no scheduler has fired yet is [missed](Self::missed) as any other.
    /// Default: none.
    ///
    /// The task stays, so it can be changed and looked at, until it is unscheduled.
    pub fn until(mut self, time: DateTime<Utc>) -> Self {
        self.options.window.until = Some(time);
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

    /// Returns its times, in the scheduler's time zone if it has none of its own.
    #[doc(hidden)]
    pub fn times_in(&self, default: Zone) -> TickTimes {
        TickTimes {
            schedule: self.schedule.clone().or_in(default),
            window: self.options.window,
        }
    }

    /// Returns what is stored, after checking the limits of its jobs.
    #[doc(hidden)]
    pub fn definition(&self, revision: Option<i64>, default: Zone) -> Result<Definition> {
        // Checks now whether a job can be enqueued, not at every tick.
        self.new_job(self.options.policy.clone()).into_row()?;
        if let Some(reason) = self.options.problem() {
            let key = self.key.clone();
            return Err(Error::RecurringTask { key, reason });
        }
        let schedule = self.schedule.clone().or_in(default);
        let mut options = self.options.clone();
        options.place = options.place.filter(|_| revision.is_some());
        Ok(Definition {
            key: self.key.clone(),
            schedule: schedule.text().to_owned(),
            in_ruby: schedule.in_ruby(),
            time_zone: schedule.time_zone().unwrap_or_default().to_owned(),
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

    fn new_job(&self, policy: Policy) -> NewJob {
        NewJob::of_class(&self.class_name, &self.arguments)
            .queue(&self.queue_name)
            .priority(self.priority)
            .max_arguments(self.max_arguments)
            .policy(policy)
            .limited(self.options.concurrency.clone())
    }

    /// Returns the job of a tick, which starts later by the task's jitter.
    ///
    /// # Errors
    /// If another program wrote values that no job may have.
    pub(crate) fn job(&self, tick: NaiveDateTime) -> Result<NewRow> {
        let mut job = self.job_at_once(tick)?;
        if self.options.jitter.is_some_and(|jitter| !jitter.is_zero()) {
            job.at = starts_at(&self.key, tick, self.options.jitter);
        }
        Ok(job)
    }

    /// Returns the job of a tick.
    ///
    /// # Errors
    /// If another program wrote values that no job may have.
    pub(crate) fn job_at_once(&self, tick: NaiveDateTime) -> Result<NewRow> {
        let mut policy = self.options.policy.clone();
        policy.tick = Some(Tick {
            task: self.key.clone(),
            at: tick.and_utc(),
        });
        // The tick's time counts, not that of its enqueue.
        let priority = match policy.ahead_by.take() {
            Some(ahead_by) => rank(tick, ahead_by),
            None => self.priority,
        };
        self.new_job(policy).priority(priority).into_row()
    }

    /// Returns what identifies a start of this task that no deployment is named for: its class and
    /// its arguments. The space makes it different from every name of a deployment.
    pub(crate) fn unnamed_start(&self) -> String {
        let bytes = self.class_name.bytes().chain([0]);
        format!(" {:016x}", hash(bytes.chain(self.arguments.bytes())))
    }
}
