//! Passes the slots of limited jobs on: the transaction that ends a job claims the next one of its
//! key.

use crate::clock;
use crate::db::model::claim::{Claimed, EqualJobs, NextJobs};
use crate::process::base::registration::Registration;
use crate::process::base::session::Session;
use crate::process::base::stop::Stop;
use crate::process::worker::claim::assigner::{Assigner, HandOutTo};
use crate::process::worker::claim::plan::Levels;
use crate::process::worker::in_flight::InFlight;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// The time for which slots are passed on before ready jobs of the same priority. In the round
/// after that, these go first.
const IN_A_ROW: Duration = Duration::from_millis(50);

/// Transactions that took longer are a reason not to pass slots on for a while, see [`PAUSE`]: the
/// search for more urgent jobs may pass many deleted rows.
const SLOW: Duration = Duration::from_millis(200);

/// So many of them in a row. Fewer may have waited for a disk or a processor, which a promotion and a
/// claim would have to do as well.
const SLOW_IN_A_ROW: u32 = 3;

const PAUSE: Duration = Duration::from_secs(1);

/// Decides when a worker passes slots on.
pub(crate) struct SlotPassing {
    assigner: Weak<Assigner>,
    stop: Stop,
    /// The time at which slots were first passed on since the last round in which equal jobs went
    /// first.
    since: Option<Instant>,
    paused_until: Option<Instant>,
    /// The number of slow transactions since the last one that was not.
    slow: u32,
    /// True if the thread that has run the job passes its slot on, and runs the next one.
    pub(crate) is_on_job_thread: bool,
}

/// One transaction that passes slots on.
pub(crate) struct PassOn {
    assigner: Arc<Assigner>,
    pub(crate) next: Arc<NextJobs>,
    pub(crate) equal: EqualJobs,
    pub(crate) registration: Arc<Registration>,
    begun: Instant,
}

impl SlotPassing {
    pub(crate) fn new(assigner: Weak<Assigner>, stop: &Stop) -> Self {
        SlotPassing {
            assigner,
            stop: stop.clone(),
            since: None,
            paused_until: None,
            slow: 0,
            is_on_job_thread: false,
        }
    }

    /// Returns what the next transaction claims for a process, or `None` if the slots go to a
    /// promotion.
    pub(crate) fn begin(
        &mut self,
        registration: &Arc<Registration>,
        in_flight: &InFlight,
        session: &mut Session,
    ) -> Option<PassOn> {
        let now = clock::instant();
        let is_paused = self.paused_until.is_some_and(|until| now < until);
        let may_claim = !self.stop.is_quiet() && !registration.lease.is_lost();
        if is_paused || !may_claim || self.claims_no_more(in_flight) {
            return None;
        }
        let equal = if now - *self.since.get_or_insert(now) > IN_A_ROW {
            self.since = None;
            EqualJobs::GoFirst
        } else {
            EqualJobs::Wait
        };
        let assigner = self.assigner.upgrade()?;
        let next = assigner.next_jobs(session)?;
        Some(PassOn {
            assigner,
            next,
            equal,
            registration: Arc::clone(registration),
            begun: now,
        })
    }

    /// Returns whether the worker claims nothing any more.
    pub(crate) fn claims_no_more(&self, in_flight: &InFlight) -> bool {
        self.stop.is_stopped() || in_flight.is_closed()
    }

    /// Passes nothing on for a while, because a transaction has failed or taken long.
    pub(crate) fn pause(&mut self) {
        self.paused_until = Some(clock::deadline(PAUSE));
    }

    fn note_duration(&mut self, took: Duration) {
        self.slow = if took > SLOW { self.slow + 1 } else { 0 };
        if self.slow >= SLOW_IN_A_ROW {
            self.pause();
        }
    }

    /// Sends the jobs that were claimed to the threads, so many of which were reserved for them. They
    /// are in memory already.
    pub(crate) fn end(&mut self, pass: PassOn, jobs: Vec<Arc<Claimed>>, reserved: usize) {
        self.note_duration(pass.begun.elapsed());
        let assignments = pass.assigner.assignments(jobs, &pass.registration);
        let threads = HandOutTo {
            reserved,
            coming: usize::from(self.is_on_job_thread),
        };
        pass.assigner.hand_out(assignments, threads);
        // No thread has become free, but shorter jobs may leave room for more.
        let pool = &pass.assigner.pool;
        if pool.occupancy().busy() <= Levels::by_estimate(pool).low {
            pool.occupancy().tell();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_is_no_reason_to_pass_nothing_on() {
        let mut passing = SlotPassing::new(Weak::new(), &Stop::new());
        let stall = 2 * SLOW;
        for took in [stall, stall, SLOW, stall, stall, Duration::ZERO] {
            passing.note_duration(took);
            assert_eq!(passing.paused_until, None);
        }
        for _ in 0..SLOW_IN_A_ROW {
            passing.note_duration(stall);
        }
        assert!(passing.paused_until.is_some());
    }
}
