//! Notifies the service manager of a process' state: systemd's `Type=notify`.

use crate::clock;
use crate::process::base::exit_codes::CUT_SHORT;
use crate::process::base::exit_codes::end_program;
use crate::process::base::handle::{Handle, Stopped};
use crate::process::base::liveness::Liveness;
#[cfg(all(feature = "cli", feature = "web"))]
use crate::process::base::stop::Stop;
use crate::process::base::{environment, parent};
use sd_notify::NotifyState;
use std::time::Duration;

/// How often the manager is notified of changes, and the longest time between two checks for a
/// stop.
const LOOK: Duration = Duration::from_millis(500);

/// Waits until the process of `handle` has ended. Meanwhile it notifies the service manager, if
/// there is one, that the process is ready, alive, and stopping.
///
/// Ends the program when its stop is overdue.
pub(crate) fn notify_until_stopped(handle: Handle) -> Stopped {
    let stopped = wait(handle);
    if stopped.is_overdue() {
        log::error!(
            "the stop takes too long, as the database gives no answer: this process ends as it is"
        );
        log::logger().flush();
        end_program(CUT_SHORT);
    }
    stopped
}

fn wait(mut handle: Handle) -> Stopped {
    // A supervisor reports for its children.
    if parent::is_supervised() || !environment::has_manager() {
        return handle.wait();
    }
    let mut manager = ServiceManager::new(handle.liveness());
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

/// Waits for a stop, or until something that the program serves has ended. Meanwhile it notifies the
/// service manager, if there is one, that the program is ready, alive, and stopping.
#[cfg(all(feature = "cli", feature = "web"))]
pub(crate) fn notify_until(stop: &Stop, is_alive: impl Fn() -> bool) {
    let has_manager = environment::has_manager();
    let notify = |state: NotifyState<'_>| {
        if has_manager {
            tell(&[state]);
        }
    };
    notify(NotifyState::Ready);
    let watchdog = sd_notify::watchdog_enabled().filter(|_| has_manager);
    let pause = watchdog.map_or(LOOK, |watchdog| LOOK.min(watchdog / 3));
    while !stop.wait(pause) && is_alive() {
        if watchdog.is_some() {
            notify(NotifyState::Watchdog);
        }
    }
    notify(NotifyState::Stopping);
}

struct ServiceManager {
    liveness: Liveness,
    watchdog: Option<Duration>,
    is_ready: bool,
    turns: u64,
    status: String,
    next_pet: std::time::Instant,
}

impl ServiceManager {
    fn new(liveness: Liveness) -> Self {
        ServiceManager {
            liveness,
            watchdog: sd_notify::watchdog_enabled(),
            is_ready: false,
            turns: 0,
            status: String::new(),
            next_pet: clock::instant(),
        }
    }

    /// Returns a third of the watchdog's time, so that one late notification does no harm.
    fn pause(&self) -> Duration {
        let pause = if self.is_ready { LOOK } else { LOOK / 20 };
        self.watchdog
            .map_or(pause, |watchdog| pause.min(watchdog / 3))
    }

    fn look(&mut self) {
        if !self.is_ready {
            // Children are started in the first turn. A process without a loop is ready at once: it
            // may have to wait for the database.
            if self.liveness.turns() == 0 && !self.liveness.is_waiting() {
                return;
            }
            self.is_ready = true;
            tell(&[NotifyState::Ready]);
        }
        let status = self.liveness.status();
        if status != self.status {
            tell(&[NotifyState::Status(&status)]);
            self.status = status;
        }
        self.pet();
    }

    /// Notifies the watchdog, if the process is alive.
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

    /// Returns whether the loop has turned since the last time, or has a reason not to. A process
    /// without a loop is alive while its heartbeats succeed.
    fn is_alive(&mut self) -> bool {
        let turns = self.liveness.turns();
        std::mem::replace(&mut self.turns, turns) != turns || self.liveness.is_waiting()
    }
}

fn tell(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        log::warn!("cannot notify the service manager ({state:?}): {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manager() -> (ServiceManager, Liveness) {
        let liveness = Liveness::default();
        liveness.waits_at_most(Duration::from_secs(3600));
        (ServiceManager::new(liveness.clone()), liveness)
    }

    #[test]
    fn a_loop_that_hangs_is_not_alive() {
        let (mut manager, liveness) = manager();
        liveness.has_loop();
        assert!(!manager.is_alive());
        liveness.turn(1, 2);
        assert!(manager.is_alive());
        assert!(!manager.is_alive());
        // The heartbeat is a thread of its own.
        liveness.beat();
        assert!(!manager.is_alive());
        // A database that does not answer is no reason for a restart.
        liveness.waiting(|| assert!(manager.is_alive() && manager.is_alive()));
        assert!(!manager.is_alive());
        liveness.rest();
        assert!(manager.is_alive());
    }

    /// Waits until the process does not count as alive any more, and returns how long that took.
    fn dies(manager: &mut ServiceManager) -> Duration {
        let start = clock::instant();
        while manager.is_alive() {
            assert!(start.elapsed() < Duration::from_secs(60));
            clock::nap(Duration::from_millis(5));
        }
        start.elapsed()
    }

    #[test]
    fn waiting_for_the_database_is_life_for_a_while_only() {
        let (mut manager, liveness) = manager();
        liveness.has_loop();
        liveness.waits_at_most(Duration::from_millis(50));
        let lived = liveness.waiting(|| dies(&mut manager));
        assert!(lived >= Duration::from_millis(45), "{lived:?}");
        liveness.waiting(|| assert!(manager.is_alive(), "the next wait starts anew"));
    }

    #[test]
    fn what_has_no_loop_lives_while_it_beats() {
        let (mut manager, liveness) = manager();
        assert!(!manager.is_alive(), "it has not started");
        liveness.waits_at_most(Duration::from_millis(50));
        liveness.beat();
        let lived = dies(&mut manager);
        assert!(lived >= Duration::from_millis(45), "{lived:?}");
        liveness.beat();
        assert!(manager.is_alive());
    }

    #[test]
    fn the_manager_is_told_how_many_children_run() {
        let liveness = Liveness::default();
        assert_eq!(liveness.status(), "running");
        liveness.turn(1, 2);
        assert_eq!(liveness.status(), "1 of 2 children run");
    }
}
