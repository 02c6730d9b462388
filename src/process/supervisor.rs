//! Starts, watches and restarts what works; recovers what the dead held.

use super::children::{Child, Exit, Parent, Slot};
use super::clearing::Clearing;
use super::handle::{Ending, Handle, Stopped};
use super::hooked::Hooked;
use super::lifeline::Lifeline;
use super::link::Link;
use super::maintenance::{self, Watch};
use super::notify::{self, Vital};
use super::pidfile::Pidfile;
use super::registration::{Beats, Heart, Pulse, Who};
use super::stop::Stop;
use super::{Dispatcher, Worker, orphans, signals, threads};
use crate::clock;
use crate::db::Database;
use crate::error::{Error, Result};
use crate::event::{Event, Subscriber};
use crate::hooks::Hooks;
use crate::retention::Retention;
use std::path::PathBuf;
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
    pidfile: Option<PathBuf>,
    /// Whether the program is the supervisor's: all its children are.
    is_program: bool,
    begins_quiet: bool,
    vital: Vital,
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
            pidfile: None,
            is_program: false,
            begins_quiet: false,
            vital: Vital::default(),
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

    /// A file that the supervisor holds for as long as it runs, with its
    /// process id: a second one with the same file refuses to start. One that
    /// was left behind does no harm. Default: none.
    pub fn pidfile(mut self, path: impl Into<PathBuf>) -> Self {
        self.pidfile = Some(path.into());
        self
    }

    /// Who hears of events.
    pub fn subscriber(mut self, subscriber: Subscriber) -> Self {
        self.subscriber = subscriber;
        self
    }

    /// Supervises until SIGTERM or SIGINT. For the main thread of a program.
    ///
    /// SIGTSTP lets all workers claim no more, SIGCONT lets them claim again.
    /// Under systemd (`Type=notify`) it says when it is ready and when it
    /// stops, and keeps the watchdog (`WatchdogSec=`) quiet for as long as its
    /// loop goes round. As the first process of a container it reaps what jobs
    /// leave behind, unless it runs workers on threads of its own, whose jobs
    /// may have children themselves.
    ///
    /// # Errors
    /// As for [`start`](Self::start).
    pub fn run(mut self) -> Result<Stopped> {
        signals::install()?;
        self.is_program = true;
        self.begins_quiet = signals::is_quiet();
        let vital = self.vital.clone();
        let handle = self.start()?;
        signals::forward(&handle);
        Ok(notify::attend(handle, &vital))
    }

    /// Starts supervising on threads of this program and returns at once. No
    /// signal handler is installed.
    ///
    /// # Errors
    /// When the settings are impossible, the tables missing or too old, or the
    /// pidfile held by another.
    pub fn start(self) -> Result<Handle> {
        self.check()?;
        let pidfile = self.pidfile.as_deref().map(Pidfile::hold).transpose()?;
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
                stop.turn(settings.begins_quiet);
                let ending =
                    Supervising::new(&settings, &lifeline, heart, threads).run(stop, beats);
                threads::join(clears);
                drop(pidfile);
                ending
            }
        })
    }

    fn check(&self) -> Result<()> {
        if self.workers.iter().any(Worker::is_recycled) {
            return Err(Error::Settings(
                "a worker on threads of the supervisor cannot be recycled: \
                 run it as a child, or without `recycle`"
                    .to_owned(),
            ));
        }
        self.pulse.check()
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
    adopts: bool,
    is_quiet: bool,
    vital: Vital,
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
            adopts: settings.is_program && settings.workers.is_empty() && orphans::are_adopted(),
            is_quiet: false,
            vital: settings.vital.clone(),
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
            self.turn(stop.is_quiet());
            self.start_children();
            self.reap();
            self.watch();
            self.show_life();
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

    /// Passes on that nothing is to be claimed, or that it is again.
    fn turn(&mut self, quiet: bool) {
        if self.is_quiet == quiet {
            return;
        }
        self.is_quiet = quiet;
        self.subscriber.emit(&if quiet {
            Event::Quieted
        } else {
            Event::Resumed
        });
        self.slots.iter().for_each(|slot| slot.turn(quiet));
        for handle in &self.threads {
            if quiet {
                handle.quiet();
            } else {
                handle.resume();
            }
        }
    }

    fn show_life(&self) {
        let running = self.slots.iter().filter(|slot| slot.is_running()).count();
        self.vital.turn(running, self.slots.len());
    }

    fn start_children(&mut self) {
        let parent = Parent {
            id: self.heart.current().map(|registration| registration.id),
            is_quiet: self.is_quiet,
        };
        for slot in &mut self.slots {
            match slot.start(parent) {
                Ok(Some(pid)) => self.subscriber.emit(&Event::ChildStarted { pid }),
                Ok(None) => {}
                Err(error) => self.subscriber.emit(&Event::Unreachable {
                    action: "start a child",
                    reason: &error.to_string(),
                }),
            }
        }
    }

    /// The children that have ended, and with them what was adopted.
    fn ended(&mut self) -> Vec<(usize, Exit)> {
        let slots = self.slots.iter_mut().enumerate();
        let mut ended: Vec<(usize, Exit)> = slots
            .filter_map(|(index, slot)| Some((index, slot.reap()?)))
            .collect();
        while self.adopts
            && let Some((pid, status)) = orphans::reap()
        {
            // It may be a child that has ended just now.
            let mut slots = self.slots.iter_mut().enumerate();
            match slots.find(|(_, slot)| slot.pid() == Some(pid)) {
                Some((index, slot)) => ended.extend(slot.end(status).map(|exit| (index, exit))),
                None => log::debug!(pid; "reaped process {pid}, which its parent had left behind"),
            }
        }
        ended
    }

    fn reap(&mut self) {
        for (index, exit) in self.ended() {
            self.subscriber.emit(&Event::ChildExited {
                pid: exit.pid,
                how: &exit.how,
            });
            if let Some((exits, delay)) = exit.crash_loop {
                self.subscriber.emit(&Event::CrashLoop {
                    program: &self.slots[index].program(),
                    exits,
                    delay,
                });
            }
            self.unburied.push(exit);
        }
        self.bury();
    }

    /// Gives back what the children that ended had claimed.
    fn bury(&mut self) {
        if self.unburied.is_empty() || clock::instant() < self.next_burial {
            return;
        }
        while let Some(exit) = self.unburied.last() {
            let (link, subscriber) = (&mut self.link, &self.subscriber);
            let pruned = self
                .vital
                .waiting(|| maintenance::prune_child(link, exit, subscriber));
            match pruned {
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
        let (link, watch, subscriber) = (&mut self.link, &mut self.watch, &self.subscriber);
        let result = self
            .vital
            .waiting(|| maintenance::prune_dead(link, watch, &own, subscriber));
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
            self.show_life();
            clock::nap(Duration::from_millis(5));
        }
        self.reap();
        self.vital.rest();
        graceful
    }
}
