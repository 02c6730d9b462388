//! Stops a worker from claiming while it is quiet, and while it is being recycled.

use crate::clock;
use crate::event::Event;
use crate::event::logging::Subscriber;
use crate::process::base::duty_turns::DutyTurns;
use crate::process::base::session::Session;
use crate::process::base::stop::Stop;
use crate::process::upkeep::{Upkeep, due};
use crate::process::worker::claim::wakeups::Wakeups;
use crate::process::worker::pool::Pool;
use crate::process::worker::settings::Recycle;
use std::time::{Duration, Instant};

/// Decides whether the poller claims.
#[derive(Debug)]
pub(crate) struct ClaimGate {
    monitor: RecycleMonitor,
    was_quiet: bool,
    is_retiring: bool,
}

/// The next action of the poller.
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

// --- The end of a worker that runs until it is idle ---

/// Notices that no job is left. A worker is idle if it holds no job at one claim, and finds none at
/// the next.
pub(crate) struct IdleEnd {
    pub(crate) is_wanted: bool,
    /// True if the worker held no job at the last claim, and has found none since.
    was_idle: bool,
    /// Makes jobs ready, as no dispatcher may run.
    upkeep: Upkeep,
}

/// The most jobs that each duty moves at once.
const CHUNK: usize = 500;

/// The pause before the next claim while jobs run.
const WHILE_JOBS_RUN: Duration = Duration::from_millis(100);

impl IdleEnd {
    pub(crate) fn new(is_wanted: bool) -> Self {
        IdleEnd {
            is_wanted,
            was_idle: false,
            upkeep: Upkeep::new(due::duties(CHUNK, WHILE_JOBS_RUN), &DutyTurns::default()),
        }
    }

    /// Notes how many jobs a claim has found.
    pub(crate) fn note_claimed(&mut self, jobs: usize) {
        self.was_idle &= jobs == 0;
    }

    /// Makes jobs ready that are due, after a claim that found no ready job. Stops the
    /// worker if there are none, and it has none. Waits while jobs run.
    pub(crate) fn stop_or_wait(
        &mut self,
        is_idle: bool,
        session: &mut Session,
        wakeups: &mut Wakeups,
        stop: &Stop,
    ) {
        match self.upkeep.turn_all(session) {
            Ok(0) if is_idle && self.was_idle => {
                log::info!("no job is left that this worker could run: it stops");
                stop.stop();
            }
            Ok(0) if is_idle => self.was_idle = true,
            Ok(0) => wakeups.wait_for_end(stop, WHILE_JOBS_RUN),
            Ok(_) => self.was_idle = false,
            Err(delay) => drop(stop.wait(delay)),
        }
    }
}

// --- Recycling a worker ---

/// Checks the age, the jobs and the memory of a worker.
#[derive(Debug)]
pub(crate) struct RecycleMonitor {
    /// The time at which the worker reaches its age limit.
    old_at: Option<Instant>,
    /// The number of jobs that it may still claim.
    jobs_left: Option<u64>,
    memory: Option<u64>,
    next_reading: Instant,
    /// True if it has claimed a job. A worker that exceeds a limit from the start still runs one,
    /// instead of restarting again and again.
    is_used: bool,
}

/// The time between two readings of the memory.
const MEMORY_INTERVAL: Duration = Duration::from_secs(1);

impl RecycleMonitor {
    pub(crate) fn new(recycle: Recycle) -> Self {
        RecycleMonitor {
            old_at: recycle.after.map(|age| {
                // A time that is as good as never cannot be made a tenth longer.
                clock::deadline(clock::jittered(age))
            }),
            jobs_left: recycle.after_jobs,
            memory: recycle.above_memory,
            next_reading: clock::instant(),
            is_used: false,
        }
    }

    /// Returns how many jobs may be claimed for `idle` threads.
    pub(crate) fn remaining(&self, idle: usize) -> usize {
        self.jobs_left.map_or(idle, |left| {
            usize::try_from(left).unwrap_or(usize::MAX).min(idle)
        })
    }

    /// Returns whether it limits the number of jobs.
    pub(crate) fn counts_jobs(&self) -> bool {
        self.jobs_left.is_some()
    }

    /// Counts claimed jobs.
    pub(crate) fn count(&mut self, jobs: usize) {
        self.is_used |= jobs > 0;
        if let Some(left) = &mut self.jobs_left {
            *left = left.saturating_sub(jobs as u64);
        }
    }

    /// Returns how long to wait at most before checking again.
    pub(crate) fn patience(&self, pause: Duration) -> Duration {
        let old = self.old_at.map_or(Duration::MAX, |at| {
            at.saturating_duration_since(clock::instant())
        });
        let reading = if self.memory.is_some() {
            MEMORY_INTERVAL
        } else {
            Duration::MAX
        };
        pause.min(old).min(reading)
    }

    /// Returns why the worker must be recycled, or `None` if it need not be.
    pub(crate) fn reason(&mut self) -> Option<String> {
        let now = clock::instant();
        if self.jobs_left == Some(0) {
            return Some("it has run its number of jobs".to_owned());
        }
        if self.old_at.is_some_and(|at| now >= at) {
            return Some("it has reached its age".to_owned());
        }
        let limit = self.memory?;
        if now < self.next_reading || !self.is_used {
            return None;
        }
        self.next_reading = now + MEMORY_INTERVAL;
        let taken = resident_memory().filter(|taken| *taken > limit)?;
        Some(format!(
            "it uses {} MiB of memory, more than {} MiB",
            taken >> 20,
            limit >> 20
        ))
    }
}

/// Returns how much of the host's memory the process uses, in bytes.
#[cfg(target_os = "linux")]
fn resident_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

#[cfg(not(target_os = "linux"))]
fn resident_memory() -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_wears_out_by_jobs() {
        let mut wear = RecycleMonitor::new(Recycle::new().after_jobs(5));
        assert_eq!((wear.remaining(3), wear.remaining(9)), (3, 5));
        wear.count(3);
        assert_eq!((wear.remaining(3), wear.reason()), (2, None));
        wear.count(2);
        assert!(wear.reason().is_some());
    }

    #[test]
    fn by_age() {
        let mut wear = RecycleMonitor::new(Recycle::new().after(Duration::ZERO));
        assert!(wear.reason().is_some());
        let mut wear = RecycleMonitor::new(Recycle::new().after(Duration::from_secs(3600)));
        assert_eq!(wear.reason(), None);
        assert!(wear.patience(Duration::MAX) <= Duration::from_secs(3960));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn and_by_memory() {
        let mut wear = RecycleMonitor::new(Recycle::new().above_memory(1 << 10));
        assert_eq!(wear.reason(), None);
        wear.count(1);
        let reason = wear.reason().unwrap();
        assert!(reason.contains("of memory"), "{reason}");
        // The memory is not read again within a second.
        assert_eq!(wear.reason(), None);
        let mut wear = RecycleMonitor::new(Recycle::new().above_memory(1 << 50));
        wear.count(1);
        assert_eq!(wear.reason(), None);
    }

    #[test]
    fn or_never() {
        let mut wear = RecycleMonitor::new(Recycle::new());
        wear.count(1_000_000);
        assert_eq!((wear.remaining(7), wear.reason()), (7, None));
        assert_eq!(wear.patience(Duration::MAX), Duration::MAX);
    }
}
