//! Starts, watches and restarts what works; recovers what the dead held.

use super::children::{Child, Exit, Slot};
use super::clearing::Clearing;
use super::handle::{Ending, Handle, Stopped};
use super::hooked::Hooked;
use super::lifeline::Lifeline;
use super::link::Link;
use super::maintenance::{self, Watch};
use super::registration::{Beats, Heart, Pulse, Who};
use super::stop::Stop;
use super::{Dispatcher, Worker, signals, threads};
use crate::clock;
use crate::db::Database;
use crate::error::Result;
use crate::event::{Event, Subscriber};
use crate::hooks::Hooks;
use crate::retention::Retention;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Runs child programs, dispatchers and workers, and prunes dead processes:
/// a child at once, any other after the alive threshold. Any number of
/// supervisors may run, on any host.
///
/// ```no_run
/// # use windlass::{Child, Database, Dispatcher, Supervisor};
/// # fn main() -> windlass::Result<()> {
/// let database = Database::open("postgres://localhost/app")?;
/// Supervisor::new(&database)
///     .child(Child::this_program(["worker"])?.processes(2))
///     .dispatcher(Dispatcher::new(&database))
///     .run()?; // until SIGTERM or SIGINT
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
#[must_use = "a supervisor does nothing until `run` or `start`"]
pub struct Supervisor {
    database: Database,
    children: Vec<Child>,
    dispatchers: Vec<Dispatcher>,
    workers: Vec<Worker>,
    pulse: Pulse,
    shutdown_timeout: Duration,
    retention: Retention,
    subscriber: Subscriber,
    hooks: Hooks,
}

/// How often children are looked at: how late a death can be noticed.
const LOOK: Duration = Duration::from_millis(20);

/// After the shutdown timeout, how long a child may take to end by itself.
pub(super) const MERCY: Duration = Duration::from_secs(5);

impl Supervisor {
    /// A supervisor that only prunes dead processes and clears what is old.
    pub fn new(database: &Database) -> Self {
        Supervisor {
            database: database.clone(),
            children: Vec::new(),
            dispatchers: Vec::new(),
            workers: Vec::new(),
            pulse: Pulse::default(),
            shutdown_timeout: Duration::from_secs(25),
            retention: Retention::new(),
            subscriber: Subscriber::default(),
            hooks: Hooks::new(),
        }
    }

    /// Runs a child program, and runs it again when it ends.
    pub fn child(mut self, child: Child) -> Self {
        self.children.push(child);
        self
    }

    /// Runs a dispatcher on a thread of this process.
    pub fn dispatcher(mut self, dispatcher: Dispatcher) -> Self {
        self.dispatchers.push(dispatcher);
        self
    }

    /// Runs a worker on threads of this process.
    pub fn worker(mut self, worker: Worker) -> Self {
        self.workers.push(worker);
        self
    }

    /// How often to beat. Default: 10 s.
    pub fn heartbeat_interval(mut self, interval: Duration) -> Self {
        self.pulse.interval = interval;
        self
    }

    /// After how long without a heartbeat a process is taken for dead. The
    /// processes must beat at least three times in it. Default: 60 s.
    pub fn alive_threshold(mut self, threshold: Duration) -> Self {
        self.pulse.threshold = threshold;
        self
    }

    /// How long children may take to stop; theirs should be as long.
    /// Default: 25 s.
    pub fn shutdown_timeout(mut self, timeout: Duration) -> Self {
        self.shutdown_timeout = timeout;
        self
    }

    /// How long jobs that have ended are kept. Default: finished ones for a
    /// day, failed ones for ever.
    pub fn retention(mut self, retention: Retention) -> Self {
        self.retention = retention;
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

    /// Supervises until SIGTERM or SIGINT. For the main thread of a program.
    ///
    /// # Errors
    /// As for [`start`](Self::start).
    pub fn run(self) -> Result<Stopped> {
        signals::install()?;
        let handle = self.start()?;
        signals::forward(&handle);
        Ok(handle.wait())
    }

    /// Starts supervising on threads of this program and returns at once. No
    /// signal handler is installed.
    ///
    /// # Errors
    /// When the settings are impossible, or the tables missing or too old.
    pub fn start(self) -> Result<Handle> {
        self.pulse.check()?;
        let lifeline = Lifeline::open(&self.database, &self.subscriber)?;
        let who = Who {
            kind: "Supervisor",
            metadata: serde_json::json!({
                "children": self.children.iter().map(|child| child.processes).sum::<usize>(),
                "windlass": env!("CARGO_PKG_VERSION"),
            })
            .to_string(),
        };
        let heart = Heart::new(&lifeline, self.pulse, who);
        // What fails drops the rest, and that ends it.
        let clearing = Clearing::new(&lifeline, self.retention);
        let stop = lifeline.stop.clone();
        let start = || {
            let (threads, beats) = (self.start_threads()?, heart.start(|_, _| {})?);
            let clears = threads::spawn_vital("clearing", &stop, || clearing.run())?;
            Ok((threads, beats, clears))
        };
        let settings = self.clone();
        let hooked = Hooked::new(&self.hooks, "Supervisor");
        Handle::start("supervisor", &stop, hooked, start, {
            let heart = Arc::clone(&heart);
            move |(threads, beats, clears), stop| {
                let ending =
                    Supervising::new(&settings, &lifeline, heart, threads).run(stop, beats);
                threads::join(clears);
                ending
            }
        })
    }

    fn start_threads(&self) -> Result<Vec<Handle>> {
        let dispatchers = self.dispatchers.iter().cloned().map(Dispatcher::start);
        let workers = self.workers.iter().cloned().map(Worker::start);
        dispatchers.chain(workers).collect()
    }
}

/// A supervisor at work.
struct Supervising {
    shutdown_timeout: Duration,
    subscriber: Subscriber,
    heart: Arc<Heart>,
    link: Link,
    slots: Vec<Slot>,
    threads: Vec<Handle>,
    watch: Watch,
    watch_interval: Duration,
    next_watch: Instant,
    /// Children that ended and whose claims could not be given back yet.
    unburied: Vec<Exit>,
    next_burial: Instant,
}

impl Supervising {
    fn new(
        settings: &Supervisor,
        lifeline: &Lifeline,
        heart: Arc<Heart>,
        threads: Vec<Handle>,
    ) -> Self {
        let interval = settings.pulse.threshold / 6;
        Supervising {
            shutdown_timeout: settings.shutdown_timeout,
            subscriber: lifeline.subscriber.clone(),
            heart,
            link: Link::new(lifeline),
            slots: Slot::all_of(&settings.children),
            threads,
            watch: Watch::new(settings.pulse.threshold, interval),
            watch_interval: interval,
            next_watch: clock::instant(),
            unburied: Vec::new(),
            next_burial: clock::instant(),
        }
    }

    fn run(mut self, stop: &Stop, beats: Beats) -> Ending {
        threads::guard("supervisor", stop, || self.supervise(stop));
        let stopping = Event::Stopping { kind: "Supervisor" };
        self.subscriber.emit(&stopping);
        let cut_short = !self.stop_all(stop);
        drop(beats);
        let mut unfinished = Vec::new();
        for mut handle in self.threads {
            if let Some(stopped) = handle.join(self.shutdown_timeout.saturating_add(MERCY)) {
                unfinished.extend(stopped.unfinished);
            }
        }
        Ending {
            unfinished,
            cut_short,
        }
    }

    fn supervise(&mut self, stop: &Stop) {
        while !stop.is_stopped() {
            self.start_children();
            self.reap();
            self.watch();
            // Nobody else stops them: who ends by itself has broken down.
            if self.threads.iter_mut().any(Handle::has_ended) {
                log::error!(
                    "a worker or dispatcher of this process broke down: this process stops"
                );
                stop.break_down();
            }
            stop.wait(LOOK);
        }
    }

    fn start_children(&mut self) {
        let id = self.heart.current().map(|registration| registration.id);
        for slot in &mut self.slots {
            match slot.start(id) {
                Ok(Some(pid)) => self.subscriber.emit(&Event::ChildStarted { pid }),
                Ok(None) => {}
                Err(error) => self.subscriber.emit(&Event::Unreachable {
                    action: "start a child",
                    reason: &error.to_string(),
                }),
            }
        }
    }

    fn reap(&mut self) {
        for slot in &mut self.slots {
            if let Some(exit) = slot.reap() {
                self.subscriber.emit(&Event::ChildExited {
                    pid: exit.pid,
                    how: &exit.how,
                });
                self.unburied.push(exit);
            }
        }
        if self.unburied.is_empty() || clock::instant() < self.next_burial {
            return;
        }
        while let Some(exit) = self.unburied.last() {
            match maintenance::prune_child(&mut self.link, exit, &self.subscriber) {
                Ok(()) => drop(self.unburied.pop()),
                Err(delay) => {
                    self.next_burial = clock::instant() + delay;
                    return;
                }
            }
        }
    }

    fn watch(&mut self) {
        let now = clock::instant();
        if now < self.next_watch {
            return;
        }
        // Where a supervisor cannot beat, perhaps nobody can: a full disk, or a
        // database that is read-only, is still readable.
        if !self.heart.is_beating() {
            self.watch.forget();
            return;
        }
        let own: Vec<i64> = self
            .heart
            .all()
            .iter()
            .map(|registration| registration.id)
            .collect();
        let result =
            maintenance::prune_dead(&mut self.link, &mut self.watch, &own, &self.subscriber);
        self.next_watch =
            clock::deadline(result.map_or_else(|delay| delay, |()| self.watch_interval));
    }

    /// Stops children and threads, reaping and giving back until the end.
    /// False: something had to be killed.
    fn stop_all(&mut self, stop: &Stop) -> bool {
        self.slots.iter_mut().for_each(Slot::stop);
        self.threads.iter().for_each(Handle::stop);
        let deadline = clock::deadline(self.shutdown_timeout.saturating_add(MERCY));
        let mut graceful = true;
        while self.slots.iter().any(Slot::is_running)
            || self.threads.iter_mut().any(|handle| !handle.has_ended())
        {
            if stop.is_now() || clock::instant() >= deadline {
                graceful = false;
                self.slots.iter_mut().for_each(Slot::kill);
                self.threads.iter().for_each(Handle::stop_now);
            }
            self.reap();
            clock::nap(Duration::from_millis(5));
        }
        self.reap();
        graceful
    }
}
