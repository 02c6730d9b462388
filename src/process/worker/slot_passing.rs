//! Passes the slots of limited jobs on: the transaction that ends a job claims the next one of its
//! key.

use crate::clock;
use crate::db::model::claim::{Claimed, EqualJobs, NextJobs};
use crate::process::base::registration::Registration;
use crate::process::base::session::Session;
use crate::process::base::stop::Stop;
use crate::process::worker::claim::assigner::Assigner;
use crate::process::worker::claim::plan::Levels;
use crate::process::worker::in_flight::InFlight;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// The time for which slots are passed on before ready jobs of the same priority. In the round
/// after that, these go first.
const IN_A_ROW: Duration = Duration::from_millis(50);

/// A transaction that took longer is a reason not to pass slots on for a while, see [`PAUSE`]: the
/// search for more urgent jobs may pass many deleted rows.
const SLOW: Duration = Duration::from_millis(200);

const PAUSE: Duration = Duration::from_secs(1);

/// Decides when a worker passes slots on.
pub(crate) struct SlotPassing {
    assigner: Weak<Assigner>,
    stop: Stop,
    /// The time at which slots were first passed on since the last round in which equal jobs went
    /// first.
    since: Option<Instant>,
    paused_until: Option<Instant>,
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

    /// Sends the jobs that were claimed to the threads, so many of which were reserved for them. They
    /// are in memory already.
    pub(crate) fn end(&mut self, pass: PassOn, jobs: Vec<Arc<Claimed>>, reserved: usize) {
        if pass.begun.elapsed() > SLOW {
            self.pause();
        }
        let assignments = pass.assigner.assignments(jobs, &pass.registration);
        pass.assigner.hand_out(assignments, reserved);
        // No thread has become free, but shorter jobs may leave room for more.
        let pool = &pass.assigner.pool;
        if pool.occupancy().busy() <= Levels::by_estimate(pool).low {
            pool.occupancy().tell();
        }
    }
}
