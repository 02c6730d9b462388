//! How claimed jobs reach the threads: at once, or when one is free.

use crate::db::model::claim::{Claimed, NextJobs};
use crate::db::table::claimed;
use crate::process::base::registration::Registration;
use crate::process::base::session::Session;
use crate::process::worker::claim::assigner::Assigner;
use crate::process::worker::pool::{Assignment, Pool};
use crate::queue::QueueSelector;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Passes claimed jobs to the threads of a worker.
pub(crate) struct Handoff {
    assigner: Arc<Assigner>,
    /// Jobs that were claimed ahead, and that must not be marked as started before a thread is
    /// free.
    cautious: VecDeque<Assignment>,
}

impl Handoff {
    pub(crate) fn new(assigner: Arc<Assigner>) -> Self {
        Handoff {
            assigner,
            cautious: VecDeque::new(),
        }
    }

    pub(crate) fn pool(&self) -> &Arc<Pool> {
        &self.assigner.pool
    }

    /// Sets what may be claimed when a limited job has finished. It is nothing while claims wait for
    /// a free thread, because a thread whose job passes its slot on is never free.
    pub(crate) fn set_next(&self, jobs: Option<Arc<NextJobs>>) {
        self.assigner
            .set_next(jobs.filter(|_| !self.has_cautious()));
    }

    /// Returns whether claims wait that may start only on a free thread.
    pub(crate) fn has_cautious(&self) -> bool {
        !self.cautious.is_empty()
    }

    /// Removes the waiting claims, because they are released.
    pub(crate) fn clear(&mut self) {
        self.cautious.clear();
    }

    /// Removes the waiting claims of some classes, because they are released.
    pub(crate) fn clear_classes(&mut self, is_paused: impl Fn(&str) -> bool) {
        self.cautious.retain(|one| !is_paused(&one.job.class_name));
    }

    /// Changes the order of the queues.
    pub(crate) fn set_queues(&self, queues: Vec<QueueSelector>) {
        self.assigner.set_queues(queues);
    }

    /// Sends claimed jobs to the threads, and keeps those that must not be marked as started before
    /// a thread is free.
    pub(crate) fn take_over(&mut self, jobs: Vec<Arc<Claimed>>, registration: &Arc<Registration>) {
        let assignments = self.assigner.assignments(jobs, registration).into_iter();
        let (begun, cautious): (Vec<_>, Vec<_>) = assignments.partition(|one| one.job.begun);
        self.cautious.extend(cautious);
        self.assigner.hand_out(begun, 0);
    }

    /// Marks claims as started for the idle threads, and sends them. Returns `false` if no thread
    /// is idle.
    pub(crate) fn begin_cautious(&mut self, session: &mut Session) -> Result<bool, Duration> {
        let next = self.take_next(self.pool().occupancy().idle());
        let Some(first) = next.first() else {
            return Ok(false);
        };
        let process_id = first.registration.id;
        let ids: Vec<i64> = next.iter().map(|one| one.job.claim_id).collect();
        let begun = session.run("start jobs", |conn| {
            claimed::mark_started(conn, process_id, &ids)
        });
        match begun {
            Ok(begun) => {
                let (ours, lost): (Vec<_>, Vec<_>) = next
                    .into_iter()
                    .partition(|one| begun.contains(&one.job.claim_id));
                let lost: Vec<i64> = lost.iter().map(|one| one.job.claim_id).collect();
                self.pool().in_flight.remove(&lost);
                self.assigner.hand_out(ours, 0);
                Ok(true)
            }
            Err(delay) => {
                let back = next.into_iter().rev();
                back.for_each(|one| self.cautious.push_front(one));
                Err(delay)
            }
        }
    }

    /// Takes up to `most` of the waiting claims, in their order and of one registration.
    fn take_next(&mut self, most: usize) -> Vec<Assignment> {
        let first = self.cautious.front().map(|one| one.registration.id);
        let same = self
            .cautious
            .iter()
            .take(most)
            .take_while(|one| Some(one.registration.id) == first)
            .count();
        self.cautious.drain(..same).collect()
    }
}
