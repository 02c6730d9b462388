//! Sends claimed jobs to the threads of a worker, and knows what may be claimed next.

use crate::db::model::claim::{Claimed, NextJobs};
use crate::event::events::Event;
use crate::job::id::JobId;
use crate::process::base::registration::Registration;
use crate::process::base::session::Session;
use crate::process::worker::claim::class_filter::SharedClasses;
use crate::process::worker::pool::{Assignment, Pool};
use crate::process::worker::ranked::{Rank, RankedSender};
use crate::queue::QueueSelector;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The way to the threads. The poller owns it: once the poller has ended, nothing is sent any more,
/// and the threads end.
pub(crate) struct Assigner {
    pub(crate) pool: Arc<Pool>,
    queues: Mutex<Vec<QueueSelector>>,
    sender: Mutex<RankedSender<Assignment>>,
    classes: Arc<SharedClasses>,
    /// What may be claimed when a limited job has finished; `None` while the poller claims nothing.
    next: Mutex<Option<Arc<NextJobs>>>,
}

impl Assigner {
    pub(crate) fn new(
        pool: Arc<Pool>,
        sender: RankedSender<Assignment>,
        queues: Vec<QueueSelector>,
        classes: Arc<SharedClasses>,
    ) -> Self {
        Assigner {
            pool,
            queues: Mutex::new(queues),
            classes,
            sender: Mutex::new(sender),
            next: Mutex::default(),
        }
    }

    /// Returns assignments of claimed jobs, and reports the claims.
    pub(crate) fn assignments(
        &self,
        jobs: Vec<Arc<Claimed>>,
        registration: &Arc<Registration>,
    ) -> Vec<Assignment> {
        let assignments = jobs.into_iter().map(|job| {
            self.pool.subscriber.emit(&Event::Claimed {
                job: JobId(job.job_id),
                class: &job.class_name,
                queue: &job.queue_name,
                attempt: job.attempt(),
                claim: job.claim_id,
            });
            Assignment {
                job,
                registration: Arc::clone(registration),
            }
        });
        assignments.collect()
    }

    /// Sends jobs to the threads. A job whose class is not registered (only rows of Rails come so
    /// far) is released by the thread that gets it, like any other outcome. So many threads as
    /// `kept` are counted as busy already.
    pub(crate) fn hand_out(&self, jobs: Vec<Assignment>, kept: usize) {
        if self.pool.stop.is_stopped() {
            return;
        }
        let occupancy = self.pool.occupancy();
        occupancy.occupy(jobs.len().saturating_sub(kept));
        let sender = self.sender.lock();
        let mut sender = sender.unwrap_or_else(PoisonError::into_inner);
        let queues = self.queues();
        for assignment in jobs {
            let rank = rank(&queues, &assignment.job);
            sender.send(assignment, rank);
        }
    }

    fn queues(&self) -> MutexGuard<'_, Vec<QueueSelector>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the order of the queues.
    pub(crate) fn set_queues(&self, queues: Vec<QueueSelector>) {
        *self.queues() = queues;
    }

    fn next(&self) -> MutexGuard<'_, Option<Arc<NextJobs>>> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets what may be claimed when a limited job has finished.
    pub(crate) fn set_next(&self, jobs: Option<Arc<NextJobs>>) {
        *self.next() = jobs;
    }

    /// Returns what may be claimed when a limited job has finished. The poller may have read the
    /// paused classes long ago.
    pub(crate) fn next_jobs(&self, session: &mut Session) -> Option<Arc<NextJobs>> {
        let next = self.next().clone()?;
        let classes = self.classes.refreshed(session);
        if classes.open() == next.classes {
            return Some(next);
        }
        Some(Arc::new(NextJobs {
            queues: next.queues.clone(),
            classes: classes.open().to_vec(),
        }))
    }
}

/// Returns how important a job is for a worker of these queues.
fn rank(queues: &[QueueSelector], job: &Claimed) -> Rank {
    let queue = queues
        .iter()
        .position(|selector| selector.matches(&job.queue_name));
    Rank {
        queue: queue.unwrap_or(queues.len()),
        priority: job.priority,
    }
}
