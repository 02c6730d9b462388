//! When a worker is recycled.

use crate::clock;
use crate::recycle::Recycle;
use std::time::{Duration, Instant};

/// Checks the age, the jobs and the memory of a worker.
#[derive(Debug)]
pub(crate) struct RecycleMonitor {
    /// When it reaches its age.
    old_at: Option<Instant>,
    /// How many jobs it may still claim.
    jobs_left: Option<u64>,
    memory: Option<u64>,
    next_look: Instant,
    /// Whether it has claimed a job. A worker that exceeds a limit from the start still runs one,
    /// instead of restarting again and again.
    is_used: bool,
}

/// The time between two readings of the memory.
const LOOK: Duration = Duration::from_secs(1);

impl RecycleMonitor {
    pub(crate) fn new(recycle: Recycle) -> Self {
        RecycleMonitor {
            old_at: recycle.after.map(|age| {
                // A time that is as good as never cannot be made a tenth longer.
                clock::deadline(clock::jittered(age))
            }),
            jobs_left: recycle.after_jobs,
            memory: recycle.above_memory,
            next_look: clock::instant(),
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
        let look = if self.memory.is_some() {
            LOOK
        } else {
            Duration::MAX
        };
        pause.min(old).min(look)
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
        if now < self.next_look || !self.is_used {
            return None;
        }
        self.next_look = now + LOOK;
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
