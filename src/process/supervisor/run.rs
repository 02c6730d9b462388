//! Starts, watches and restarts what works; recovers what the dead held.

use crate::clock;
use crate::event::events::Event;
use crate::event::subscriber::Subscriber;
use crate::process::base::context::Lifeline;
use crate::process::base::exit_codes::MERCY;
use crate::process::base::handle::{Ending, Handle};
use crate::process::base::heartbeat::{Beats, Heart};
use crate::process::base::liveness::Liveness;
use crate::process::base::registration::Pulse;
use crate::process::base::session::Link;
use crate::process::base::stop::Stop;
use crate::process::base::threads;
use crate::process::supervisor::children::{Child, Exit, Parent, Slot};
use crate::process::supervisor::prune::{self, Watch};
use crate::process::supervisor::reaper;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often children are looked at: how late a death can be noticed.
const LOOK: Duration = Duration::from_millis(20);

/// For each statement after a stop: children are looked after meanwhile.
const PATIENCE: Duration = Duration::from_secs(1);

/// At a stop, how soon it is tried again to give back what children held.
const HASTE: Duration = Duration::from_millis(200);

/// For how long that is tried after a second signal.
const LAST_TRY: Duration = Duration::from_secs(1);

/// How long a child may take to end by itself: a worker ends after 3 s,
/// whatever hangs, and what is left of the mercy is for what the child held.
const MERCY_FOR_CHILDREN: Duration = Duration::from_secs(4);

/// What a [`Supervisor`](crate::Supervisor) is set to.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) children: Vec<Child>,
    pub(crate) pulse: Pulse,
    pub(crate) shutdown_timeout: Duration,
    /// Whether processes that nobody waits for are its to reap.
    pub(crate) reaps: bool,
}

/// A supervisor at work.
pub(crate) struct Supervising {
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
    is_stopping: bool,
    /// A child left jobs behind in the stop.
    is_cut_short: bool,
    adopts: bool,
    is_quiet: bool,
    liveness: Liveness,
}

impl Supervising {
    pub(crate) fn new(
        settings: &Settings,
        lifeline: &Lifeline,
        heart: Arc<Heart>,
        threads: Vec<Handle>,
    ) -> Self {
        let interval = settings.pulse.threshold / 6;
        Supervising {
            shutdown_timeout: settings.shutdown_timeout,
            subscriber: lifeline.subscriber.clone(),
            heart,
            link: Link::new(lifeline).in_haste(PATIENCE),
            slots: Slot::all_of(&settings.children),
            threads,
            watch: Watch::new(settings.pulse.threshold, interval),
            watch_interval: interval,
            next_watch: clock::instant(),
            unburied: Vec::new(),
            next_burial: clock::instant(),
            is_stopping: false,
            is_cut_short: false,
            adopts: settings.reaps && reaper::are_adopted(),
            is_quiet: false,
            liveness: lifeline.liveness.clone(),
        }
    }

    pub(crate) fn run(mut self, stop: &Stop, beats: Beats) -> Ending {
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
                    "a worker, dispatcher or scheduler of this process broke down: this process stops"
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
        self.liveness.turn(running, self.slots.len());
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
                Err(error) => self.link.complain("start a child", &error.to_string()),
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
            && let Some((pid, status)) = reaper::reap()
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
        let most = if self.is_stopping {
            HASTE
        } else {
            Duration::MAX
        };
        let mut is_away = false;
        for mut exit in std::mem::take(&mut self.unburied) {
            if is_away {
                self.unburied.push(exit);
                continue;
            }
            let (link, subscriber) = (&mut self.link, &self.subscriber);
            let pruned = self
                .liveness
                .waiting(|| prune::prune_child(link, &mut exit, subscriber));
            self.is_cut_short |= self.is_stopping && exit.is_cut_short;
            if let Err(delay) = pruned {
                self.next_burial = clock::instant() + delay.min(most);
                // What others hold of one child holds up no other child.
                is_away = self.link.is_in_trouble();
                self.unburied.push(exit);
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
            .liveness
            .waiting(|| prune::prune_dead(link, watch, &own, subscriber));
        self.next_watch =
            clock::deadline(result.map_or_else(|delay| delay, |()| self.watch_interval));
    }

    /// Stops children and threads, reaping and giving back until the end.
    /// False: something had to be killed, or left jobs behind.
    fn stop_all(&mut self, stop: &Stop) -> bool {
        self.is_stopping = true;
        self.slots.iter_mut().for_each(Slot::stop);
        self.threads.iter().for_each(Handle::stop);
        let after = |mercy| clock::deadline(self.shutdown_timeout.saturating_add(mercy));
        let (deadline, mut give_up) = (after(MERCY_FOR_CHILDREN), after(MERCY));
        let mut graceful = true;
        loop {
            self.reap();
            self.show_life();
            let now = clock::instant();
            if stop.is_now() {
                give_up = give_up.min(now + LAST_TRY);
            }
            if self.is_anything_running() {
                if stop.is_now() || now >= deadline {
                    graceful = false;
                    self.slots.iter_mut().for_each(Slot::kill);
                    self.threads.iter().for_each(Handle::stop_now);
                }
            } else if now >= give_up || !self.unburied.iter().any(Exit::may_hold_jobs) {
                break;
            }
            clock::nap(Duration::from_millis(5));
        }
        self.liveness.rest();
        for exit in self.unburied.iter().filter(|exit| exit.may_hold_jobs()) {
            self.subscriber.emit(&Event::LeftBehind {
                pid: exit.pid,
                how: &exit.how,
            });
        }
        // What is not known to have been given back was cut short as well.
        graceful && !self.is_cut_short && !self.unburied.iter().any(Exit::may_hold_jobs)
    }

    fn is_anything_running(&mut self) -> bool {
        self.slots.iter().any(Slot::is_running)
            || self.threads.iter_mut().any(|handle| !handle.has_ended())
    }
}
