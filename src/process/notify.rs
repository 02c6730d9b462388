//! Tells the service manager how a process is: systemd's `Type=notify`.

use super::children;
use super::handle::{Handle, Stopped};
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
    /// A database that does not answer is waited for, and no reason to be
    /// started again.
    is_waiting: AtomicBool,
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

    /// Does what may have to wait for the database.
    pub(crate) fn waiting<T>(&self, work: impl FnOnce() -> T) -> T {
        self.0.is_waiting.store(true, Ordering::Relaxed);
        let done = work();
        self.0.is_waiting.store(false, Ordering::Relaxed);
        done
    }

    /// The loop has ended: what is left is to leave the database.
    pub(crate) fn rest(&self) {
        self.0.is_waiting.store(true, Ordering::Relaxed);
    }

    /// For what has no such loop.
    pub(crate) fn of_a_thread() -> Self {
        let vital = Self::default();
        vital.rest();
        vital
    }

    fn turns(&self) -> u64 {
        self.0.turns.load(Ordering::Relaxed)
    }

    fn is_waiting(&self) -> bool {
        self.0.is_waiting.load(Ordering::Relaxed)
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

/// How often the manager is told of what changed, and the least often a stop
/// is looked for.
const LOOK: Duration = Duration::from_millis(500);

/// Waits for the end of what `handle` holds, and meanwhile tells the service
/// manager, if there is one, that it is ready, alive, and stopping.
pub(crate) fn attend(mut handle: Handle, vital: &Vital) -> Stopped {
    // A supervisor answers for its children.
    if children::is_supervised() || !children::has_manager() {
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
    fn the_manager_is_told_how_many_children_run() {
        let vital = Vital::default();
        assert_eq!(vital.status(), "running");
        vital.turn(1, 2);
        assert_eq!(vital.status(), "1 of 2 children run");
    }
}
