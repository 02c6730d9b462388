//! Tells the service manager how a process is: systemd's `Type=notify`.

use super::handle::{CUT_SHORT, Handle, Stopped};
use super::parent;
use super::watchdog::end_program;
use crate::clock;
use sd_notify::NotifyState;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Signs of life of a loop, for the thread that speaks to the manager.
#[derive(Debug, Clone, Default)]
pub(crate) struct Vital(Arc<Signs>);

#[derive(Debug, Default)]
struct Signs {
    turns: AtomicU64,
    /// Since when a database is waited for that does not answer, which for a
    /// while is no reason to be started again: milliseconds on the clock of
    /// [`since_boot`](clock::since_boot), 0 for not.
    waiting_since: AtomicU64,
    /// For how long: milliseconds, 0 for without end.
    patience: AtomicU64,
    /// It has no loop that could hang.
    is_thread: AtomicBool,
    running: AtomicU64,
    places: AtomicU64,
}

impl Vital {
    /// The loop has gone round once more.
    pub(crate) fn turn(&self, running: usize, places: usize) {
        self.0.running.store(running as u64, Ordering::Relaxed);
        self.0.places.store(places as u64, Ordering::Relaxed);
        self.0.turns.fetch_add(1, Ordering::Relaxed);
    }

    /// Waiting for the database counts as alive for this long, and no longer.
    pub(crate) fn waits_at_most(&self, patience: Duration) {
        self.0.patience.store(millis(patience), Ordering::Relaxed);
    }

    /// Does what may have to wait for the database.
    pub(crate) fn waiting<T>(&self, work: impl FnOnce() -> T) -> T {
        self.rest();
        let done = work();
        self.0.waiting_since.store(0, Ordering::Relaxed);
        done
    }

    /// The loop has ended: what is left is to leave the database.
    pub(crate) fn rest(&self) {
        let now = millis(clock::since_boot()).max(1);
        self.0.waiting_since.store(now, Ordering::Relaxed);
    }

    /// For what has no such loop.
    pub(crate) fn of_a_thread() -> Self {
        let vital = Self::default();
        vital.0.is_thread.store(true, Ordering::Relaxed);
        vital
    }

    fn turns(&self) -> u64 {
        self.0.turns.load(Ordering::Relaxed)
    }

    fn is_waiting(&self) -> bool {
        let since = self.0.waiting_since.load(Ordering::Relaxed);
        let patience = self.0.patience.load(Ordering::Relaxed);
        let waits = millis(clock::since_boot()).saturating_sub(since);
        let in_time = patience == 0 || waits < patience;
        self.0.is_thread.load(Ordering::Relaxed) || (since != 0 && in_time)
    }

    fn status(&self) -> String {
        let (running, places) = (&self.0.running, &self.0.places);
        match places.load(Ordering::Relaxed) {
            0 => "running".to_owned(),
            places => {
                let running = running.load(Ordering::Relaxed);
                format!("{running} of {places} children run")
            }
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// How often the manager is told of what changed, and the least often a stop
/// is looked for.
const LOOK: Duration = Duration::from_millis(500);

/// Waits for the end of what `handle` holds, and meanwhile tells the service
/// manager, if there is one, that it is ready, alive, and stopping.
///
/// Ends the program when its stop is overdue.
pub(crate) fn attend(handle: Handle, vital: &Vital) -> Stopped {
    let stopped = wait(handle, vital);
    if stopped.is_overdue() {
        log::error!(
            "the stop takes too long, as the database gives no answer: this process ends as it is"
        );
        log::logger().flush();
        end_program(CUT_SHORT);
    }
    stopped
}

fn wait(mut handle: Handle, vital: &Vital) -> Stopped {
    // A supervisor answers for its children.
    if parent::is_supervised() || !parent::has_manager() {
        return handle.wait();
    }
    let mut manager = Manager::new(vital);
    let stop = handle.stopper();
    while !stop.is_stopped() {
        manager.look();
        stop.wait(manager.pause());
    }
    tell(&[NotifyState::Stopping, NotifyState::Status("stopping")]);
    loop {
        manager.pet();
        if let Some(stopped) = handle.join(manager.pause()) {
            return stopped;
        }
    }
}

struct Manager<'v> {
    vital: &'v Vital,
    watchdog: Option<Duration>,
    is_ready: bool,
    turns: u64,
    status: String,
    next_pet: std::time::Instant,
}

impl<'v> Manager<'v> {
    fn new(vital: &'v Vital) -> Self {
        Manager {
            vital,
            watchdog: sd_notify::watchdog_enabled(),
            is_ready: false,
            turns: 0,
            status: String::new(),
            next_pet: clock::instant(),
        }
    }

    /// A third of the watchdog's time: one that is late does no harm.
    fn pause(&self) -> Duration {
        let pause = if self.is_ready { LOOK } else { LOOK / 20 };
        self.watchdog
            .map_or(pause, |watchdog| pause.min(watchdog / 3))
    }

    fn look(&mut self) {
        if !self.is_ready {
            // Children are started in the first turn.
            if self.vital.turns() == 0 && !self.vital.is_waiting() {
                return;
            }
            self.is_ready = true;
            tell(&[NotifyState::Ready]);
        }
        let status = self.vital.status();
        if status != self.status {
            tell(&[NotifyState::Status(&status)]);
            self.status = status;
        }
        self.pet();
    }

    /// Says that the loop is alive, if it is.
    fn pet(&mut self) {
        let Some(watchdog) = self.watchdog else {
            return;
        };
        let now = clock::instant();
        if now >= self.next_pet && self.is_alive() {
            self.next_pet = now + watchdog / 4;
            tell(&[NotifyState::Watchdog]);
        }
    }

    /// Whether the loop has gone round since the last time, or has a reason
    /// not to.
    fn is_alive(&mut self) -> bool {
        let turns = self.vital.turns();
        std::mem::replace(&mut self.turns, turns) != turns || self.vital.is_waiting()
    }
}

fn tell(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        log::warn!("cannot tell the service manager ({state:?}): {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_that_hangs_is_not_alive() {
        let vital = Vital::default();
        let mut manager = Manager::new(&vital);
        assert!(!manager.is_alive());
        vital.turn(1, 2);
        assert!(manager.is_alive());
        assert!(!manager.is_alive());
        // A database that does not answer is no reason to start again.
        vital.waiting(|| assert!(manager.is_alive() && manager.is_alive()));
        assert!(!manager.is_alive());
        vital.rest();
        assert!(manager.is_alive());
    }

    #[test]
    fn waiting_for_the_database_is_life_for_a_while_only() {
        let vital = Vital::default();
        let mut manager = Manager::new(&vital);
        vital.waits_at_most(Duration::from_millis(50));
        let start = clock::instant();
        vital.waiting(|| {
            while manager.is_alive() {
                assert!(start.elapsed() < Duration::from_secs(60));
                clock::nap(Duration::from_millis(5));
            }
        });
        assert!(start.elapsed() >= Duration::from_millis(45));
        vital.waiting(|| assert!(manager.is_alive(), "the next wait starts anew"));
        // What has no loop of its own never hangs.
        assert!(Vital::of_a_thread().is_waiting());
    }

    #[test]
    fn the_manager_is_told_how_many_children_run() {
        let vital = Vital::default();
        assert_eq!(vital.status(), "running");
        vital.turn(1, 2);
        assert_eq!(vital.status(), "1 of 2 children run");
    }
}
