//! A running scheduler: it declares its tasks and fires their ticks.

use crate::clock;
use crate::db::model::recurring::{
    self, Definition, DueTick, Fired, Firing, RecurringTaskRow, Scheduled,
};
use crate::db::table::recurring_tasks;
use crate::db::transition::{fire, schedule};
use crate::db::{LockWait, with_lock_wait};
use crate::error::{Error, Result};
use crate::event::Event;
use crate::job::JobId;
use crate::process::base::context::ProcessContext;
use crate::process::base::session::Session;
use crate::process::base::stop::Stop;
use crate::recurring::plan;
use crate::recurring::task::RecurringTask;
use crate::recurring::tasks::{next_or_failed, refusal};
use crate::recurring::time_zone::Zone;
use crate::recurring::timing::Timings;
use std::cell::RefCell;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// The interval at which a scheduler declares its tasks again.
const DECLARE_EVERY: Duration = Duration::from_secs(3600);

/// The pause before another look at tasks that another scheduler has locked.
const TAKEN: Duration = Duration::from_millis(100);

/// The settings of a [`Scheduler`](crate::Scheduler).
#[derive(Debug, Clone, Copy)]
pub(crate) struct SchedulerSetup<'a> {
    pub(crate) tasks: &'a [RecurringTask],
    pub(crate) timings: &'a Timings,
    pub(crate) zone: Zone,
    pub(crate) grace: Duration,
    pub(crate) polling_interval: Duration,
}

/// A running scheduler.
pub(crate) struct RunningScheduler<'a> {
    settings: SchedulerSetup<'a>,
    declarations: Vec<Definition>,
    session: Session,
    declared: Option<DeclaredKeys>,
    /// The tasks that could not be read, by id, with their version: each is reported once.
    unreadable: HashMap<i64, i64>,
}

/// The tasks that a scheduler has declared.
struct DeclaredKeys {
    /// Their keys, as JSON.
    keys: String,
    since: Instant,
}

impl<'a> RunningScheduler<'a> {
    pub(crate) fn new(
        settings: SchedulerSetup<'a>,
        declarations: Vec<Definition>,
        context: &ProcessContext,
    ) -> Self {
        RunningScheduler {
            settings,
            declarations,
            session: Session::of_loop(context, "scheduler"),
            declared: None,
            unreadable: HashMap::new(),
        }
    }

    /// Fires due ticks until it is stopped.
    pub(crate) fn run(&mut self, stop: &Stop) {
        while !stop.is_stopped() {
            self.session.moves();
            let pause = match self.turn(stop) {
                Ok(pause) | Err(pause) => pause,
            };
            self.session.rests();
            stop.wait(pause);
        }
    }

    /// Fires due ticks, and returns how long to wait for the next.
    fn turn(&mut self, stop: &Stop) -> Result<Duration, Duration> {
        let declared = self.declare()?;
        // Ticks that become due from here on may or may not be found below.
        let since = self
            .session
            .run("read the database's clock", recurring_tasks::now)?;
        let mut longest = self.settings.polling_interval;
        let mut after = Some(0);
        // All pages are read: no task may block the tasks behind it.
        while let Some(last) = after {
            let due = self.session.run("look for due recurring tasks", |conn| {
                recurring_tasks::due(conn, &declared, last)
            })?;
            if stop.is_stopped() {
                return Ok(Duration::ZERO);
            }
            let due_ticks = due.iter().filter_map(|task| Some((task, self.read(task)?)));
            let due_ticks: Vec<(&RecurringTaskRow, Ticks)> = due_ticks.collect();
            match self.fire(&due_ticks, stop) {
                Err(delay) if !self.session.is_well() => return Err(delay),
                Ok(next) | Err(next) => longest = longest.min(next),
            }
            after = due
                .last()
                .filter(|_| due.len() == recurring_tasks::PAGE)
                .map(|task| task.id);
        }
        let next = self
            .session
            .run("look for the next recurring task", |conn| {
                recurring_tasks::next_tick(conn, &declared, since)
            })?;
        // A little after the tick, so that the look does not come just before it.
        Ok(next.map_or(longest, |next| {
            (next + Duration::from_millis(2)).min(longest)
        }))
    }

    /// Declares the tasks of this program, at the start and then every hour, and returns the keys
    /// of those that this scheduler fires.
    fn declare(&mut self) -> Result<String, Duration> {
        let now = clock::instant();
        if let Some(declared) = &self.declared
            && now - declared.since < DECLARE_EVERY
        {
            return Ok(declared.keys.clone());
        }
        let (mut keys, mut is_whole) = (Vec::new(), true);
        for (task, definition) in self.settings.tasks.iter().zip(&self.declarations) {
            let failed = RefCell::new(None);
            let next = next_or_failed(task, self.settings.zone, self.settings.timings, &failed);
            let scheduled = self.session.run("declare a recurring task", |conn| {
                schedule::schedule(conn, definition, &next)
            });
            match scheduled {
                Err(delay) if !self.session.is_well() => return Err(delay),
                // The others are declared all the same, and this one with the next turn.
                Err(_) => is_whole = false,
                Ok(Scheduled::Done(_) | Scheduled::Newer) => keys.push(task.key()),
                Ok(refused) => self.settings_error(&refusal(task.key(), refused, failed.take())),
            }
        }
        self.session.run("delete undeclared tasks", |conn| {
            recurring_tasks::forget(conn)
        })?;
        let keys = serde_json::json!(keys).to_string();
        let declared = DeclaredKeys {
            keys: keys.clone(),
            since: now,
        };
        self.declared = Some(declared).filter(|_| is_whole);
        Ok(keys)
    }

    fn settings_error(&self, error: &Error) {
        self.session.subscriber().emit(&Event::TaskRefused {
            reason: &error.to_string(),
        });
    }

    /// Fires ticks of tasks in one transaction, and returns when to look again at the latest. If
    /// they are refused together, each task is tried alone, so that one cannot hold up the others.
    fn fire(
        &mut self,
        due: &[(&RecurringTaskRow, Ticks)],
        stop: &Stop,
    ) -> Result<Duration, Duration> {
        if due.is_empty() {
            return Ok(Duration::MAX);
        }
        let firings = due.iter().map(|(task, ticks)| Firing {
            task,
            ticks: &ticks.ticks,
            next_run_at: ticks.next_run_at,
            overlap: ticks.overlap,
        });
        let firings: Vec<Firing<'_>> = firings.collect();
        // One job whose unique id another transaction has locked must not hold up the others long.
        let wait = LockWait::short_if(due.len() > 1);
        let fired = self.session.run("fire recurring tasks", |conn| {
            with_lock_wait(conn, wait, |conn| fire::fire(conn, &firings))
        });
        let fired = match fired {
            Ok(fired) => fired,
            Err(_) if due.len() > 1 && self.session.is_well() => {
                return self.fire_one_by_one(due, stop);
            }
            Err(delay) => return Err(delay),
        };
        let mut again = Duration::MAX;
        for ((task, ticks), fired) in due.iter().zip(&fired) {
            let Some(fired) = fired else {
                // Another scheduler has locked it.
                again = again.min(TAKEN);
                continue;
            };
            self.tell(task, ticks, fired);
            if ticks.next_run_at <= task.now {
                // Some ticks are left for another transaction.
                again = Duration::ZERO;
            }
        }
        Ok(again)
    }

    fn fire_one_by_one(
        &mut self,
        due: &[(&RecurringTaskRow, Ticks)],
        stop: &Stop,
    ) -> Result<Duration, Duration> {
        let mut again = Ok(Duration::MAX);
        for one in due {
            let fired = self.fire(std::slice::from_ref(one), stop);
            let is_lost = fired.is_err() && !self.session.is_well();
            again = match (again, fired) {
                (Ok(again), Ok(next)) => Ok(again.min(next)),
                (Err(delay), _) | (_, Err(delay)) => Err(delay),
            };
            if is_lost || stop.is_stopped() {
                break;
            }
        }
        again
    }

    /// Returns which ticks of the task to fire, with their jobs. Returns `None` if its row cannot be
    /// read or its ticks cannot be computed, until it changes; the other tasks continue.
    fn read(&mut self, task: &RecurringTaskRow) -> Option<Ticks> {
        if self.unreadable.get(&task.id) == Some(&task.row_version) {
            return None;
        }
        match Ticks::of(task, self.settings) {
            Ok(ticks) => ticks,
            Err(error) => {
                self.unreadable.insert(task.id, task.row_version);
                self.settings_error(&error);
                None
            }
        }
    }

    fn tell(&self, task: &RecurringTaskRow, firing: &Ticks, fired: &Fired) {
        let subscriber = self.session.subscriber();
        if let Some(tick) = firing.missed {
            subscriber.emit(&Event::TicksMissed {
                task: &task.key,
                since: tick.and_utc(),
            });
        }
        for tick in &fired.jobs {
            subscriber.emit(&Event::Ticked {
                task: &task.key,
                tick: tick.at.and_utc(),
                job: JobId(tick.job_id),
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

/// The ticks of a task to fire now.
struct Ticks {
    ticks: Vec<DueTick>,
    next_run_at: chrono::NaiveDateTime,
    missed: Option<chrono::NaiveDateTime>,
    overlap: recurring::Overlap,
}

impl Ticks {
    fn of(task: &RecurringTaskRow, setup: SchedulerSetup<'_>) -> Result<Option<Self>> {
        let Some(from) = task.next_run_at else {
            return Ok(None);
        };
        let stored = RecurringTask::read(task)?;
        let plan = plan::plan(&stored, setup.timings, from, task, setup.grace)?;
        let due = task.queued_run_at.into_iter().chain(plan.ticks);
        let ticks = due.map(|tick| {
            Ok(DueTick {
                at: tick,
                job: stored.job(tick)?,
            })
        });
        Ok(Some(Ticks {
            ticks: ticks.collect::<Result<_>>()?,
            next_run_at: plan.next_run_at,
            missed: plan.missed,
            overlap: stored.options.overlap,
        }))
    }
}
