//! Stops a worker from claiming while it is quiet, and while it is being recycled.

use crate::event::events::Event;
use crate::event::subscriber::Subscriber;
use crate::process::base::stop::Stop;
use crate::process::worker::claim::recycle::RecycleMonitor;
use crate::process::worker::pool::Pool;
use crate::recycle::Recycle;
use std::time::Duration;

/// Decides whether the poller claims.
#[derive(Debug)]
pub(crate) struct ClaimGate {
    monitor: RecycleMonitor,
    was_quiet: bool,
    is_retiring: bool,
}

/// What the poller does next.
pub(crate) enum GateState {
    Claim,
    /// Wait for a change.
    Wait,
    /// Nothing runs any more: end the process.
    Recycle,
}

impl ClaimGate {
    pub(crate) fn new(recycle: Recycle) -> Self {
        ClaimGate {
            monitor: RecycleMonitor::new(recycle),
            was_quiet: false,
            is_retiring: false,
        }
    }

    /// Returns how many of the wanted jobs may be claimed.
    pub(crate) fn remaining(&self, wanted: usize) -> usize {
        self.monitor.remaining(wanted)
    }

    /// Returns whether the worker may claim only a number of jobs.
    pub(crate) fn counts_jobs(&self) -> bool {
        self.monitor.counts_jobs()
    }

    /// Counts claimed jobs.
    pub(crate) fn count(&mut self, jobs: usize) {
        self.monitor.count(jobs);
    }

    /// Returns how long to wait before checking again, at most `pause`.
    pub(crate) fn patience(&self, pause: Duration) -> Duration {
        self.monitor.patience(pause)
    }

    /// Returns whether the poller claims at present.
    pub(crate) fn state(&mut self, stop: &Stop, pool: &Pool, subscriber: &Subscriber) -> GateState {
        let is_quiet = stop.is_quiet();
        if is_quiet != self.was_quiet {
            self.was_quiet = is_quiet;
            subscriber.emit(&if is_quiet {
                Event::Quieted
            } else {
                Event::Resumed
            });
        }
        if !self.is_retiring
            && let Some(why) = self.monitor.reason()
        {
            self.is_retiring = true;
            subscriber.emit(&Event::Recycling { why: &why });
        }
        // Only the poller gives jobs to threads then, so once all threads are idle, they stay idle.
        if self.is_retiring && pool.occupancy().busy() == 0 {
            GateState::Recycle
        } else if self.is_retiring || is_quiet {
            GateState::Wait
        } else {
            GateState::Claim
        }
    }
}
