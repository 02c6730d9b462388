//! Enqueues the jobs of recurring tasks when they are due.

use super::handle::{Ending, Handle, Stopped};
use super::hooked::Hooked;
use super::lifeline::Lifeline;
use super::link::Link;
use super::notify::{self, Vital};
use super::registration::{Heart, Pulse, Who};
use super::stop::Stop;
use super::{signals, threads};
use crate::clock;
use crate::db::Database;
use crate::db::recurring::{self as tasks, Definition, Row, Scheduled};
use crate::db::ticks::{self, Fired, Firing};
use crate::error::{Error, Result};
use crate::event::{Event, Subscriber};
use crate::hooks::Hooks;
use crate::job::JobId;
use crate::recurring::{RecurringTask, Stored, plan, refusal};
use crate::schedule::time_zone;
use chrono_tz::Tz;
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

/// Fires the ticks of recurring tasks: of those it is given, and of all that
/// were scheduled at run time. Any number may run at once, on any host: each
/// tick is fired once, by whichever comes first.
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
    database: Database,
    tasks: Vec<RecurringTask>,
    zone: Tz,
    revision: u32,
    grace: Duration,
    polling_interval: Duration,
    pulse: Pulse,
    subscriber: Subscriber,
    hooks: Hooks,
}

/// How often a scheduler says again which tasks it has.
const DECLARE_EVERY: Duration = Duration::from_secs(3600);

/// For how long a declared task is kept that no scheduler has any more.
const KEPT: Duration = Duration::from_secs(7 * 24 * 3600);

impl Scheduler {
    /// A scheduler of the tasks that were scheduled at run time.
    pub fn new(database: &Database) -> Self {
        Scheduler {
            database: database.clone(),
            tasks: Vec::new(),
            zone: Tz::UTC,
            revision: 0,
            grace: Duration::from_secs(10),
            polling_interval: Duration::from_secs(1),
            pulse: Pulse::default(),
            subscriber: Subscriber::default(),
            hooks: Hooks::new(),
        }
    }

    /// Declares a task. It is fired by the schedulers that declare it, and by
    /// no other: what a new version of a program does not have any more ends
    /// with the last process of the old one.
    pub fn task(mut self, task: RecurringTask) -> Self {
        self.tasks.push(task);
        self
    }

    /// Declares several tasks.
    pub fn tasks(mut self, tasks: impl IntoIterator<Item = RecurringTask>) -> Self {
        self.tasks.extend(tasks);
        self
    }

    /// The time zone of declared tasks that have none of their own. Default:
    /// UTC.
    ///
    /// # Errors
    /// When there is no time zone of this name.
    pub fn time_zone(mut self, name: &str) -> Result<Self> {
        self.zone = time_zone(name)?;
        Ok(self)
    }

    /// The same, of a zone that is known.
    #[cfg(feature = "config")]
    pub(super) fn in_zone(mut self, zone: Tz) -> Self {
        self.zone = zone;
        self
    }

    /// Where versions of a program run side by side that declare a task in
    /// different ways, the one with the highest number says how it is. Among
    /// equal ones it is the one that was started last. Default: 0.
    pub fn revision(mut self, number: u32) -> Self {
        self.revision = number;
        self
    }

    /// How late a tick may be without having been missed: so late, every tick
    /// is still fired. Default: 10 s.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// The longest time between two looks, and so how late a task that is
    /// scheduled at run time may be noticed; it looks earlier when it knows of
    /// an earlier tick. Default: 1 s.
    pub fn polling_interval(mut self, interval: Duration) -> Self {
        self.polling_interval = interval;
        self
    }

    /// How often to beat. Default: 10 s.
    pub fn heartbeat_interval(mut self, interval: Duration) -> Self {
        self.pulse.interval = interval;
        self
    }

    /// After how long without a heartbeat it is taken for dead. Default: 60 s.
    pub fn alive_threshold(mut self, threshold: Duration) -> Self {
        self.pulse.threshold = threshold;
        self
    }

    /// What to do when it starts, stops and ends.
    pub fn hooks(mut self, hooks: Hooks) -> Self {
        self.hooks = hooks;
        self
    }

    /// Who hears of events.
    pub fn subscriber(mut self, subscriber: Subscriber) -> Self {
        self.subscriber = subscriber;
        self
    }

    /// Schedules until SIGTERM or SIGINT; see [`Worker::run`](super::Worker::run).
    ///
    /// # Errors
    /// As for [`start`](Self::start).
    pub fn run(self) -> Result<Stopped> {
        signals::install()?;
        let handle = self.start()?;
        signals::forward(&handle);
        Ok(notify::attend(handle, &Vital::of_a_thread()))
    }

    /// Starts scheduling on a thread of this program.
    ///
    /// # Errors
    /// When the settings are impossible, two tasks have one key, a limit of a
    /// task's jobs is broken, or the tables are missing or too old.
    pub fn start(self) -> Result<Handle> {
        let declarations = self.declarations()?;
        self.pulse.check()?;
        let lifeline = Lifeline::open(&self.database, &self.subscriber)?;
        let keys: Vec<&str> = self.tasks.iter().map(RecurringTask::key).collect();
        let who = Who {
            kind: "Scheduler",
            metadata: serde_json::json!({
                "polling_interval": self.polling_interval.as_secs_f64(),
                "recurring_schedule": keys,
                "windlass": env!("CARGO_PKG_VERSION"),
            })
            .to_string(),
        };
        let heart = Heart::new(&lifeline, self.pulse, who);
        let start = || heart.start(|_, _| {});
        Handle::start(
            "scheduler",
            &lifeline.stop.clone(),
            Hooked::new(&self.hooks, "Scheduler"),
            start,
            move |beats, stop| {
                threads::guard("scheduler", stop, || {
                    Scheduling::new(&self, declarations, &lifeline).run(stop);
                });
                let stopping = Event::Stopping { kind: "Scheduler" };
                lifeline.subscriber.emit(&stopping);
                drop(beats);
                Ending::default()
            },
        )
    }

    /// What is stored of the tasks, once nothing is wrong with them.
    fn declarations(&self) -> Result<Vec<Definition>> {
        if self.polling_interval.is_zero() {
            return Err(Error::Settings(
                "a scheduler needs a polling interval above zero".to_owned(),
            ));
        }
        let mut keys = BTreeMap::new();
        for task in &self.tasks {
            if let Some(first) = keys.insert(task.key(), task.place()) {
                let place = first.or(task.place());
                let place = place.map_or(String::new(), |place| format!("; one is at {place}"));
                return Err(Error::Settings(format!(
                    "two recurring tasks have the key `{}`{place}",
                    task.key()
                )));
            }
        }
        let revision = Some(i64::from(self.revision));
        let tasks = self.tasks.iter();
        tasks
            .map(|task| task.definition(revision, self.zone))
            .collect()
    }
}

/// A scheduler at work.
struct Scheduling<'a> {
    settings: &'a Scheduler,
    declarations: Vec<Definition>,
    link: Link,
    /// The keys of the tasks that it has declared, as JSON, and since when.
    declared: Option<(String, Instant)>,
    /// What could not be read, by task and version: it is told once.
    unreadable: HashMap<i64, i64>,
}

/// What a look at one task came to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Look {
    /// Its ticks up to now are dealt with, or wait.
    Done,
    /// Some are left for another transaction.
    Partly,
    /// Somebody else is at it.
    Taken,
}

impl<'a> Scheduling<'a> {
    fn new(settings: &'a Scheduler, declarations: Vec<Definition>, lifeline: &Lifeline) -> Self {
        Scheduling {
            settings,
            declarations,
            link: Link::new(lifeline),
            declared: None,
            unreadable: HashMap::new(),
        }
    }

    fn run(&mut self, stop: &Stop) {
        while !stop.is_stopped() {
            let pause = match self.turn(stop) {
                Ok(pause) | Err(pause) => pause,
            };
            stop.wait(pause);
        }
    }

    /// Fires what is due; how long to wait for the next.
    fn turn(&mut self, stop: &Stop) -> Result<Duration, Duration> {
        let declared = self.declare()?;
        let mut longest = self.settings.polling_interval;
        let mut after = Some(0);
        // All pages: no task may stand in the way of those behind it.
        while let Some(last) = after {
            let due = self.link.write("look for due recurring tasks", |conn| {
                tasks::due(conn, &declared, last)
            })?;
            for task in &due {
                if stop.is_stopped() {
                    return Ok(Duration::ZERO);
                }
                longest = match self.look_at(task)? {
                    Look::Done => longest,
                    Look::Partly => Duration::ZERO,
                    Look::Taken => longest.min(Duration::from_millis(100)),
                };
            }
            after = due
                .last()
                .filter(|_| due.len() == tasks::PAGE)
                .map(|task| task.id);
        }
        let next = self
            .link
            .write("look for the next recurring task", |conn| {
                tasks::next_tick(conn, &declared)
            })?;
        // A little past the tick, so as not to come just before it.
        Ok(next.map_or(longest, |next| {
            (next + Duration::from_millis(2)).min(longest)
        }))
    }

    /// Says which tasks this program has, at the start and then every hour,
    /// and returns the keys of those that are this scheduler's to fire.
    fn declare(&mut self) -> Result<String, Duration> {
        let now = clock::instant();
        if let Some((keys, since)) = &self.declared
            && now - *since < DECLARE_EVERY
        {
            return Ok(keys.clone());
        }
        let mut keys = Vec::new();
        for (task, definition) in self.settings.tasks.iter().zip(&self.declarations) {
            let next = task.next_in(self.settings.zone);
            let scheduled = self.link.write("declare a recurring task", |conn| {
                tasks::schedule(conn, definition, &next)
            })?;
            match scheduled {
                Scheduled::Done(_) | Scheduled::Newer => keys.push(task.key()),
                refused => self.settings_error(&refusal(task.key(), refused)),
            }
        }
        self.link.write("forget what nobody declares", |conn| {
            tasks::forget(conn, KEPT)
        })?;
        let keys = serde_json::json!(keys).to_string();
        self.declared = Some((keys.clone(), now));
        Ok(keys)
    }

    fn settings_error(&self, error: &Error) {
        self.link.subscriber().emit(&Event::TaskRefused {
            reason: &error.to_string(),
        });
    }

    fn look_at(&mut self, task: &Row) -> Result<Look, Duration> {
        let Some(firing) = self.read(task) else {
            return Ok(Look::Done);
        };
        let fired = self.link.write("fire a recurring task", |conn| {
            ticks::fire(
                conn,
                &Firing {
                    task,
                    ticks: &firing.ticks,
                    next_run_at: firing.next_run_at,
                    overlap: firing.overlap,
                },
            )
        })?;
        let Some(fired) = fired else {
            return Ok(Look::Taken);
        };
        self.tell(task, &firing, &fired);
        Ok(match firing.next_run_at <= task.now {
            true => Look::Partly,
            false => Look::Done,
        })
    }

    /// Which ticks of the task to fire, with their jobs. `None`: somebody has
    /// written what cannot be read; the other tasks go on.
    fn read(&mut self, task: &Row) -> Option<Ticks> {
        match Ticks::of(task, self.settings.grace) {
            Ok(ticks) => ticks,
            Err(error) => {
                let told = self.unreadable.insert(task.id, task.lock_version);
                if told != Some(task.lock_version) {
                    self.settings_error(&error);
                }
                None
            }
        }
    }

    fn tell(&self, task: &Row, firing: &Ticks, fired: &Fired) {
        let subscriber = self.link.subscriber();
        if let Some(tick) = firing.missed {
            subscriber.emit(&Event::TicksMissed {
                task: &task.key,
                since: tick.and_utc(),
            });
        }
        for (tick, job) in &fired.jobs {
            subscriber.emit(&Event::Ticked {
                task: &task.key,
                tick: tick.and_utc(),
                job: JobId(*job),
            });
        }
        for tick in &fired.dropped {
            subscriber.emit(&Event::TickDropped {
                task: &task.key,
                tick: tick.and_utc(),
            });
        }
    }
}

/// The ticks of a task that are to be fired now.
struct Ticks {
    ticks: Vec<(chrono::NaiveDateTime, crate::db::jobs::NewRow)>,
    next_run_at: chrono::NaiveDateTime,
    missed: Option<chrono::NaiveDateTime>,
    overlap: ticks::Overlap,
}

impl Ticks {
    fn of(task: &Row, grace: Duration) -> Result<Option<Self>> {
        let Some(from) = task.next_run_at else {
            return Ok(None);
        };
        let stored = Stored::read(task)?;
        let plan = plan(&stored, from, task.now, grace);
        let due = task.queued_run_at.into_iter().chain(plan.ticks);
        let ticks = due.map(|tick| Ok((tick, stored.job(task, tick)?)));
        Ok(Some(Ticks {
            ticks: ticks.collect::<Result<_>>()?,
            next_run_at: plan.next_run_at,
            missed: plan.missed,
            overlap: stored.overlap,
        }))
    }
}
