//! The loop of a supervisor: starts, watches and restarts its children and
//! threads, and recovers the claims of dead processes.

use crate::clock;
use crate::db::model::decision::Death;
use crate::db::transition::prune;
use crate::event::Event;
use crate::event::logging::Subscriber;
use crate::process::base::context::ProcessContext;
use crate::process::base::handle::{Handle, ProcessEnd};
use crate::process::base::heartbeat::{Heartbeat, HeartbeatGuard};
use crate::process::base::liveness::Liveness;
use crate::process::base::registration::HeartbeatSettings;
use crate::process::base::session::Session;
use crate::process::base::stop::{self, KILL_GRACE, Stop};
use crate::process::supervisor::children::{
    self, Child, ChildProcess, Exit, ParentInfo, QuietMode,
};
use crate::process::supervisor::rollout::Rollout;
use crate::process::upkeep::prune::Prune;
use crate::process::upkeep::{self, Upkeep};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The interval at which children are checked: the longest delay before a death is noticed.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// The longest time that the first children wait for the registration of the supervisor, whose id
/// is in their rows. Without a database, they start all the same.
const REGISTRATION: Duration = Duration::from_secs(5);

/// The time limit of each statement after a stop was requested, so that children are watched
/// meanwhile.
const PATIENCE: Duration = Duration::from_secs(1);

/// The pause, in a stop, between two attempts to release the claims of children.
const HASTE: Duration = Duration::from_millis(200);

/// The time limit for releasing the claims of children after a second signal.
const LAST_TRY: Duration = Duration::from_secs(1);

/// The time that a child may take to end by itself after the shutdown timeout. A worker ends after
/// 3 s, whatever hangs; the rest of the kill grace is for releasing the child's claims.
const KILL_GRACE_FOR_CHILDREN: Duration = Duration::from_secs(4);

/// The settings of a [`Supervisor`](crate::Supervisor).
#[derive(Debug, Clone)]
pub(crate) struct SupervisorSetup {
    pub(crate) children: Vec<Child>,
    pub(crate) heartbeat: HeartbeatSettings,
    pub(crate) shutdown_timeout: Duration,
    /// True if it reaps processes that no other process waits for.
    pub(crate) reaps: bool,
}

/// A running supervisor.
pub(crate) struct RunningSupervisor {
    shutdown_timeout: Duration,
    subscriber: Subscriber,
    heartbeat: Arc<Heartbeat>,
    session: Session,
    children: Vec<ChildProcess>,
    threads: Vec<Handle>,
    /// Prunes dead processes.
    upkeep: Upkeep,
    /// Children that ended and whose claims could not be released yet.
    exited: Vec<Exit>,
    next_prune: Instant,
    is_stopping: bool,
    /// True if a child left jobs behind in the stop.
    is_cut_short: bool,
    adopts: bool,
    quiet: QuietMode,
    /// Until then, children are started only with the id of the supervisor's row.
    anonymous_from: Instant,
    liveness: Liveness,
    rollout: Rollout,
}

impl RunningSupervisor {
    pub(crate) fn new(
        settings: &SupervisorSetup,
        context: &ProcessContext,
        heartbeat: Arc<Heartbeat>,
        threads: Vec<Handle>,
    ) -> Self {
        let prune = Prune::new(context, &heartbeat, settings.heartbeat.threshold);
        RunningSupervisor {
            shutdown_timeout: settings.shutdown_timeout,
            subscriber: context.subscriber.clone(),
            heartbeat,
            session: Session::of_loop(context, "supervisor").in_haste(PATIENCE),
            children: ChildProcess::all_of(&settings.children),
            threads,
            upkeep: Upkeep::new(vec![Box::new(prune)], &context.duties),
            exited: Vec::new(),
            next_prune: clock::instant(),
            is_stopping: false,
            is_cut_short: false,
            adopts: settings.reaps && children::are_adopted(),
            quiet: QuietMode::default(),
            anonymous_from: clock::instant() + REGISTRATION,
            liveness: context.liveness.clone(),
            rollout: Rollout::default(),
        }
    }

    pub(crate) fn run(mut self, stop: &Stop, guard: HeartbeatGuard) -> ProcessEnd {
        stop::guard("supervisor", stop, || self.supervise(stop));
        let stopping = Event::Stopping { kind: "Supervisor" };
        self.subscriber.emit(&stopping);
        let cut_short = !self.stop_all(stop);
        drop(guard);
        let mut unfinished = Vec::new();
        for mut handle in self.threads {
            if let Some(stopped) = handle.join(self.shutdown_timeout.saturating_add(KILL_GRACE)) {
                unfinished.extend(stopped.unfinished);
            }
        }
        ProcessEnd {
            unfinished,
            cut_short,
        }
    }

    fn supervise(&mut self, stop: &Stop) {
        while !stop.is_stopped() {
            self.session.moves();
            let (quiet, subscriber) = (stop.is_quiet(), &self.subscriber);
            self.quiet
                .set(quiet, &self.children, &self.threads, subscriber);
            self.start_children();
            self.reap();
            self.roll_out(stop);
            self.upkeep.turn(&mut self.session, stop);
            self.report_liveness();
            // Nothing else stops them, so one that ended by itself broke down.
            if self.threads.iter_mut().any(Handle::has_ended) {
                log::error!(
                    "a worker, dispatcher or scheduler of this process broke down: this process stops"
                );
                stop.break_down();
            }
            stop.wait(CHECK_INTERVAL);
        }
    }

    fn report_liveness(&self) {
        let running = self
            .children
            .iter()
            .filter(|child| child.is_running())
            .count();
        self.liveness.turn(running, self.children.len());
    }

    fn start_children(&mut self) {
        let is_registered = self.heartbeat.current().is_some();
        if !is_registered && clock::instant() < self.anonymous_from {
            return;
        }
        let parent = ParentInfo {
            id: self.heartbeat.current().map(|registration| registration.id),
            is_quiet: self.quiet.is_quiet(),
        };
        for (index, child) in self.children.iter_mut().enumerate() {
            match child.start(parent) {
                Ok(Some(pid)) => self.subscriber.emit(&Event::ChildStarted { pid }),
                Ok(None) => {}
                Err(error) => {
                    let why = error.to_string();
                    self.session.report("start a child", &why);
                    let (rollout, subscriber) = (&mut self.rollout, &self.subscriber);
                    rollout.note_failed_start(index, &why, subscriber);
                }
            }
        }
    }

    /// Replaces the children one by one, if that was requested.
    fn roll_out(&mut self, stop: &Stop) {
        if stop.take_rollout() {
            self.rollout.request(self.children.len(), &self.subscriber);
        }
        if self.rollout.is_under_way() {
            let most = self
                .shutdown_timeout
                .saturating_add(KILL_GRACE_FOR_CHILDREN);
            let (rollout, children) = (&mut self.rollout, &mut self.children);
            let session = &mut self.session;
            self.liveness
                .waiting(|| rollout.turn(children, session, most));
        }
    }

    /// Returns the children that have ended, and reaps adopted processes.
    fn ended(&mut self) -> Vec<(usize, Exit)> {
        let children = self.children.iter_mut().enumerate();
        let mut ended: Vec<(usize, Exit)> = children
            .filter_map(|(index, child)| Some((index, child.reap()?)))
            .collect();
        while self.adopts
            && let Some((pid, status)) = children::reap()
        {
            // It may be a child that has ended just now.
            let mut children = self.children.iter_mut().enumerate();
            match children.find(|(_, child)| child.pid() == Some(pid)) {
                Some((index, child)) => ended.extend(child.end(status).map(|exit| (index, exit))),
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
            if let Some(crash_loop) = exit.crash_loop {
                self.subscriber.emit(&Event::CrashLoop {
                    program: &self.children[index].program(),
                    exits: crash_loop.exits,
                    delay: crash_loop.delay,
                });
            }
            let why = format!("the new child {} {}", exit.pid, exit.how);
            let (rollout, subscriber) = (&mut self.rollout, &self.subscriber);
            rollout.note_failed_start(index, &why, subscriber);
            self.exited.push(exit);
        }
        self.prune_exited();
    }

    /// Releases the claims of the children that ended.
    fn prune_exited(&mut self) {
        if self.exited.is_empty() || clock::instant() < self.next_prune {
            return;
        }
        let most = if self.is_stopping {
            HASTE
        } else {
            Duration::MAX
        };
        let mut is_away = false;
        for mut exit in std::mem::take(&mut self.exited) {
            if is_away {
                self.exited.push(exit);
                continue;
            }
            let (session, subscriber) = (&mut self.session, &self.subscriber);
            let pruned = self
                .liveness
                .waiting(|| prune_child(session, &mut exit, subscriber));
            self.is_cut_short |= self.is_stopping && exit.is_cut_short;
            if let Err(delay) = pruned {
                self.next_prune = clock::instant() + delay.min(most);
                // Locked claims of one child do not delay another child.
                is_away = self.session.is_in_trouble();
                self.exited.push(exit);
            }
        }
    }

    /// Stops children and threads, and meanwhile reaps and releases. Returns `false` if something
    /// had to be killed, or left jobs behind.
    fn stop_all(&mut self, stop: &Stop) -> bool {
        self.is_stopping = true;
        self.children.iter_mut().for_each(ChildProcess::stop);
        self.threads.iter().for_each(Handle::stop);
        let after = |kill_grace| clock::deadline(self.shutdown_timeout.saturating_add(kill_grace));
        let (deadline, mut give_up) = (after(KILL_GRACE_FOR_CHILDREN), after(KILL_GRACE));
        let mut graceful = true;
        loop {
            self.reap();
            self.report_liveness();
            let now = clock::instant();
            if stop.is_now() {
                give_up = give_up.min(now + LAST_TRY);
            }
            if self.is_anything_running() {
                if stop.is_now() || now >= deadline {
                    graceful = false;
                    self.children.iter_mut().for_each(ChildProcess::kill);
                    self.threads.iter().for_each(Handle::stop_now);
                }
            } else if now >= give_up || !self.exited.iter().any(Exit::may_hold_jobs) {
                break;
            }
            clock::nap(Duration::from_millis(5));
        }
        self.liveness.rest();
        for exit in self.exited.iter().filter(|exit| exit.may_hold_jobs()) {
            self.subscriber.emit(&Event::LeftBehind {
                pid: exit.pid,
                how: &exit.how,
            });
        }
        // A child whose claims may not have been released counts as cut short.
        graceful && !self.is_cut_short && !self.exited.iter().any(Exit::may_hold_jobs)
    }

    fn is_anything_running(&mut self) -> bool {
        self.children.iter().any(ChildProcess::is_running)
            || self.threads.iter_mut().any(|handle| !handle.has_ended())
    }
}

// --- Releases the claims of a child that has ended ---

/// The time after which a supervisor tries again to release the claims of a child.
const AGAIN: Duration = Duration::from_secs(1);

/// Prunes the registrations of a child that has ended, and notes whether it left jobs behind. If
/// something is left, the error contains when to try again.
fn prune_child(
    session: &mut Session,
    exit: &mut Exit,
    subscriber: &Subscriber,
) -> Result<(), Duration> {
    let processes = session.run("find a child's processes", |conn| {
        prune::of_child(conn, &exit.token)
    })?;
    let mut again = None;
    for process in processes {
        let death = Death {
            is_crash: exit.is_crash(process.draining),
            how: exit.how.clone(),
        };
        match upkeep::prune::prune(session, process.id, None, &death) {
            Ok(Some(recovered)) => {
                exit.is_cut_short |= recovered.is_any();
                again = again.or(recovered.left.is_some().then_some(AGAIN));
                upkeep::prune::report_pruned(subscriber, "child", &exit.token, &death, &recovered);
            }
            Ok(None) => {}
            Err(delay) if session.is_in_trouble() => return Err(delay),
            Err(delay) => again = Some(delay),
        }
    }
    again.map_or(Ok(()), Err)
}
