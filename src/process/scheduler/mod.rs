//! The scheduler: fires the ticks of recurring tasks.

pub(crate) mod run;

use crate::db::Database;
use crate::db::model::recurring::Definition;
use crate::error::{Error, Result};
use crate::event::hooks::Hooks;
use crate::event::logging::Subscriber;
use crate::process::base::context::ProcessContext;
use crate::process::base::handle::{Handle, ProcessEnd, Stopped};
use crate::process::base::heartbeat::Heartbeat;
use crate::process::base::registration::Identity;
use crate::process::base::service::{self, RunningLoop, Service, ServiceSettings};
use crate::process::base::stop::{self, Stop};
use crate::process::scheduler::run::{RunningScheduler, SchedulerSetup};
use crate::recurring::schedule::time_zone;
use crate::recurring::task::RecurringTask;
use crate::recurring::time_zone::Zone;
use crate::recurring::timing::{Timing, Timings};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

// --- Enqueues the jobs of recurring tasks when they are due ---

/// Fires the ticks of recurring tasks: of those it declares, and of all that were scheduled at run
/// time.
///
/// Any number of schedulers may run at once, on any host; each tick is fired once, by the first
/// scheduler that reaches it.
///
/// ```no_run
/// # use serde::{Deserialize, Serialize};
/// # use windlass::{Context, Job, JobResult};
/// # #[derive(Serialize, Deserialize)] struct Cleanup { days: u32 }
/// # impl Job for Cleanup {
/// #     const NAME: &'static str = "cleanup";
/// #     type State = (); type Output = ();
/// #     fn perform(self, _: &Context<'_, ()>) -> JobResult { Ok(()) }
/// # }
/// # use windlass::{Database, RecurringTask, Scheduler, Supervisor};
/// # fn main() -> windlass::Result<()> {
/// # let database = Database::open("app.db")?;
/// let scheduler = Scheduler::new(&database)
///     .time_zone("Europe/Berlin")?
///     .task(RecurringTask::new("cleanup", "30 3 * * *", &Cleanup { days: 30 })?);
/// Supervisor::new(&database).scheduler(scheduler).run()?;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
#[must_use = "a scheduler does nothing until `run` or `start`"]
pub struct Scheduler {
    service: ServiceSettings,
    pub(crate) tasks: Vec<RecurringTask>,
    pub(crate) zone: Zone,
    revision: u32,
    deployment: Option<String>,
    timings: Vec<(String, Arc<dyn Timing>)>,
    pub(crate) grace: Duration,
    pub(crate) polling_interval: Duration,
}

impl Scheduler {
    /// Creates a scheduler for the tasks that were scheduled at run time.
    pub fn new(database: &Database) -> Self {
        Scheduler {
            service: ServiceSettings::new(database),
            tasks: Vec::new(),
            zone: Zone::UTC,
            revision: 0,
            deployment: None,
            timings: Vec::new(),
            grace: Duration::from_secs(10),
            polling_interval: Duration::from_secs(1),
        }
    }

    /// Declares a task. Only the schedulers that declare a task fire it. So a task that a new
    /// version of a program no longer declares ends with the last process of the old version.
    pub fn task(mut self, task: RecurringTask) -> Self {
        self.tasks.push(task);
        self
    }

    /// Declares several tasks.
    pub fn tasks(mut self, tasks: impl IntoIterator<Item = RecurringTask>) -> Self {
        self.tasks.extend(tasks);
        self
    }

    /// Sets the time zone of declared tasks that have none of their own. Default: UTC.
    ///
    /// # Errors
    /// Returns an error if there is no time zone of this name.
    pub fn time_zone(mut self, name: &str) -> Result<Self> {
        self.zone = time_zone(name)?;
        Ok(self)
    }

    /// Sets the time zone as [`time_zone`](Self::time_zone) does, to a known zone.
    #[doc(hidden)]
    pub fn in_zone(mut self, zone: Zone) -> Self {
        self.zone = zone;
        self
    }

    /// Sets the number of this version of the declarations. If versions of a program that declare a
    /// task differently run at the same time, the highest number applies; among equal numbers, the
    /// scheduler that was started last. Default: 0.
    pub fn revision(mut self, number: u32) -> Self {
        self.revision = number;
        self
    }

    /// Sets the name of this deployment, such as a commit or a release. Each declared task with the
    /// schedule `@start` is due once for each name, however many schedulers start and how often; one
    /// of an earlier deployment that starts again has had its start. Up to 255 bytes.
    ///
    /// Default: the environment variable `WINDLASS_REVISION`; otherwise the
    /// [`revision`](Self::revision) if it is set; otherwise such a task is due once, and again when
    /// its class or its arguments change. The last 100 deployments of a task are remembered.
    pub fn deployment(mut self, name: impl Into<String>) -> Self {
        self.deployment = Some(name.into());
        self
    }

    /// Gives the scheduler a [`Timing`], for tasks with the schedule `@timing NAME` that are
    /// scheduled at run time or declared in a file.
    pub fn timing(mut self, name: impl Into<String>, timing: Arc<dyn Timing>) -> Self {
        self.timings.push((name.into(), timing));
        self
    }

    /// Sets how late a tick may be fired before it counts as missed. Ticks within this time are all
    /// fired. Default: 10 s.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Sets the longest time between two looks, and so how late a task that is scheduled at run
    /// time may be noticed. The scheduler looks earlier when an earlier tick is known. Default: 1
    /// s.
    pub fn polling_interval(mut self, interval: Duration) -> Self {
        self.polling_interval = interval;
        self
    }

    /// Sets how often the scheduler sends a heartbeat. Default: 10 s.
    pub fn heartbeat_interval(mut self, interval: Duration) -> Self {
        self.service.heartbeat.interval = interval;
        self
    }

    /// Sets after how long without a heartbeat it is treated as dead. Default: 60 s.
    pub fn alive_threshold(mut self, threshold: Duration) -> Self {
        self.service.heartbeat.threshold = threshold;
        self
    }

    /// Sets the hooks to call when the scheduler starts, stops and ends.
    pub fn hooks(mut self, hooks: Hooks) -> Self {
        self.service.hooks = hooks;
        self
    }

    /// Sets the subscriber that receives the scheduler's events.
    pub fn subscriber(mut self, subscriber: Subscriber) -> Self {
        self.service.subscriber = subscriber;
        self
    }

    /// Schedules until SIGTERM or SIGINT; see [`Worker::run`](crate::Worker::run).
    ///
    /// # Errors
    /// As for [`start`](Self::start).
    pub fn run(self) -> Result<Stopped> {
        service::run(self)
    }

    /// Starts scheduling on a thread of this program.
    ///
    /// # Errors
    /// Returns an error if the settings are impossible, two tasks have the same key, a limit of a
    /// task's jobs is broken, or the tables are missing or too old.
    pub fn start(self) -> Result<Handle> {
        service::start(self)
    }

    fn run_settings<'a>(&'a self, timings: &'a Timings) -> SchedulerSetup<'a> {
        SchedulerSetup {
            tasks: &self.tasks,
            timings,
            zone: self.zone,
            grace: self.grace,
            polling_interval: self.polling_interval,
        }
    }

    /// Returns the name of this deployment, if there is one.
    fn deployment_name(&self) -> Result<Option<String>> {
        let given = self.deployment.clone();
        let given = given.or_else(|| stop::variable(stop::REVISION));
        let name = given.map(|name| name.trim().to_owned());
        let name = name.filter(|name| !name.is_empty());
        if name
            .as_ref()
            .is_some_and(|name| name.len() > 255 || name.contains('\0'))
        {
            return Err(Error::Settings(
                "the name of a deployment may have up to 255 bytes, and no NUL".to_owned(),
            ));
        }
        let number = Some(self.revision).filter(|number| *number > 0);
        Ok(name.or_else(|| number.map(|number| number.to_string())))
    }

    /// Returns the timings of the scheduler and of its tasks.
    fn all_timings(&self) -> Result<Timings> {
        let mut all = Timings::default();
        let own = self
            .timings
            .iter()
            .map(|(name, timing)| (name.as_str(), timing));
        for (name, timing) in own.chain(self.tasks.iter().flat_map(|task| task.timings().iter())) {
            if !all.add(name, Arc::clone(timing)) {
                return Err(Error::Settings(format!(
                    "two timings have the name `{name}`"
                )));
            }
        }
        for task in &self.tasks {
            if let Some(name) = task.schedule().named()
                && !all.has(name)
            {
                return Err(Error::Settings(format!(
                    "the recurring task `{}` has the schedule `@timing {name}`, and the scheduler has no \
                     timing of this name",
                    task.key()
                )));
            }
        }
        Ok(all)
    }

    /// Returns the rows of the declared tasks, after checking these.
    fn declarations(&self) -> Result<Vec<Definition>> {
        if self.polling_interval.is_zero() {
            return Err(Error::Settings(
                "a scheduler needs a polling interval above zero".to_owned(),
            ));
        }
        let mut keys = BTreeMap::new();
        for task in &self.tasks {
            if let Some(first) = keys.insert(task.key(), task.location()) {
                let place = first.or(task.location());
                let place = place.map_or(String::new(), |place| format!("; one is at {place}"));
                return Err(Error::Settings(format!(
                    "two recurring tasks have the key `{}`{place}",
                    task.key()
                )));
            }
        }
        let revision = Some(i64::from(self.revision));
        let deployment = self.deployment_name()?;
        let tasks = self.tasks.iter();
        tasks
            .map(|task| {
                let mut definition = task.definition(revision, self.zone)?;
                if task.schedule().is_start() {
                    let start = deployment.clone();
                    definition.start = Some(start.unwrap_or_else(|| task.unnamed_start()));
                }
                Ok(definition)
            })
            .collect()
    }
}

impl Service for Scheduler {
    const KIND: &'static str = "Scheduler";
    const NAME: &'static str = "scheduler";
    /// The rows of the declared tasks, and all timings.
    type Checked = (Vec<Definition>, Timings);
    type Running = RunningLoop;

    fn settings(&self) -> &ServiceSettings {
        &self.service
    }

    fn settings_mut(&mut self) -> &mut ServiceSettings {
        &mut self.service
    }

    fn check(&self) -> Result<Self::Checked> {
        let declarations = self.declarations()?;
        let timings = self.all_timings()?;
        self.service.heartbeat.check()?;
        Ok((declarations, timings))
    }

    fn identity(&self) -> Identity {
        let keys: Vec<&str> = self.tasks.iter().map(RecurringTask::key).collect();
        Identity {
            channel: None,
            kind: Self::KIND,
            metadata: serde_json::json!({
                "polling_interval": self.polling_interval.as_secs_f64(),
                "recurring_schedule": keys,
                "windlass": env!("CARGO_PKG_VERSION"),
            })
            .to_string(),
        }
    }

    fn launch(
        self,
        (declarations, timings): Self::Checked,
        context: &ProcessContext,
        heartbeat: Arc<Heartbeat>,
    ) -> Result<RunningLoop> {
        RunningLoop::start(context, &heartbeat, move |context, stop| {
            RunningScheduler::new(self.run_settings(&timings), declarations, context).run(stop);
        })
    }

    fn work(running: RunningLoop, stop: &Stop) -> ProcessEnd {
        running.work::<Self>(stop)
    }
}
