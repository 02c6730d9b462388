//! Passes the slots of limited jobs on: the transaction that ends a job claims the next one of its
//! key.

use crate::clock;
use crate::db::model::claim::{Claimed, NextJobs};
use crate::process::base::registration::Registration;
use crate::process::base::session::Session;
use crate::process::base::stop::Stop;
use crate::process::worker::claim::assigner::Assigner;
use crate::process::worker::in_flight::InFlight;
use crate::process::worker::release;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// How long slots are passed on without a break. After that, one round goes to a promotion, so that
/// other jobs of the same importance have their turn.
const IN_A_ROW: Duration = Duration::from_millis(50);

/// A transaction that took longer is a reason not to pass slots on for a while, see [`PAUSE`]: the
/// search for more urgent jobs may pass many deleted rows.
const SLOW: Duration = Duration::from_millis(25);

const PAUSE: Duration = Duration::from_secs(1);

/// Decides when a worker passes slots on.
pub(crate) struct SlotPassing {
    assigner: Weak<Assigner>,
    stop: Stop,
    /// Since when slots have been passed on without a break.
    since: Option<Instant>,
    paused_until: Option<Instant>,
}

/// One transaction that passes slots on.
pub(crate) struct PassOn {
    assigner: Arc<Assigner>,
    pub(crate) next: Arc<NextJobs>,
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

    /// Returns what the next transaction claims, or `None` if the slots go to a promotion.
    pub(crate) fn begin(&mut self, in_flight: &InFlight) -> Option<PassOn> {
        let now = clock::instant();
        let is_allowed = !self.stop.is_stopped() && !self.stop.is_quiet() && !in_flight.is_closed();
        if !is_allowed || self.paused_until.is_some_and(|until| now < until) {
            return None;
        }
        if now - *self.since.get_or_insert(now) > IN_A_ROW {
            self.since = None;
            return None;
        }
        let assigner = self.assigner.upgrade()?;
        let next = assigner.next_jobs()?;
        Some(PassOn {
            assigner,
            next,
            begun: now,
        })
    }

    /// Sends the jobs that were claimed to the threads. They are in memory already.
    pub(crate) fn end(
        &mut self,
        pass: PassOn,
        jobs: Vec<Arc<Claimed>>,
        registration: &Arc<Registration>,
        in_flight: &InFlight,
        session: &mut Session,
    ) {
        if pass.begun.elapsed() > SLOW {
            self.paused_until = Some(clock::deadline(PAUSE));
        }
        if jobs.is_empty() {
            return;
        }
        let assigner = pass.assigner;
        assigner.hand_out(assigner.assignments(jobs, registration));
        // A stop that began meanwhile may have looked for claims to release before.
        if self.stop.is_stopped() || in_flight.is_closed() {
            release::unstarted(in_flight, session);
        }
    }
}
