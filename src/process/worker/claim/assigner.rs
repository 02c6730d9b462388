//! Sends claimed jobs to the threads of a worker, and knows what may be claimed next.

use crate::db::model::claim::{Claimed, NextJobs};
use crate::db::table::claimed;
use crate::event::Event;
use crate::job::JobId;
use crate::process::base::registration::Registration;
use crate::process::base::session::Session;
use crate::process::worker::claim::class_filter::SharedClasses;
use crate::process::worker::pool::{Assignment, Pool};
use crate::process::worker::ranked::{Rank, RankedSender};
use crate::queue::QueueSelector;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The way to the threads. The poller owns it: once the poller has ended, nothing is sent any more,
/// and the threads end.
pub(crate) struct Assigner {
    pub(crate) pool: Arc<Pool>,
    queues: Mutex<Vec<QueueSelector>>,
    sender: Mutex<RankedSender<Assignment>>,
    classes: Arc<SharedClasses>,
    /// The jobs that may be claimed when a limited job has finished; `None` while the poller claims
    /// nothing.
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
    /// far) is released by the thread that gets it, like any other outcome.
    pub(crate) fn hand_out(&self, jobs: Vec<Assignment>, threads: HandOutTo) {
        if self.pool.stop.is_stopped() {
            return;
        }
        let occupancy = self.pool.occupancy();
        occupancy.occupy(jobs.len().saturating_sub(threads.reserved));
        let sender = self.sender.lock();
        let mut sender = sender.unwrap_or_else(PoisonError::into_inner);
        let queues = self.queues();
        let jobs = jobs.into_iter();
        let ranked = jobs.map(|assignment| (rank(&queues, &assignment.job), assignment));
        sender.send(ranked, self.pool.prefetch.are_short(), threads.coming);
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

/// The threads for jobs that are sent, if they are not just any.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct HandOutTo {
    /// So many of them are counted as busy already.
    pub(crate) reserved: usize,
    /// So many come without being woken.
    pub(crate) coming: usize,
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

// --- The handoff of claimed jobs to the threads ---

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
        self.assigner.hand_out(begun, HandOutTo::default());
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
                self.assigner.hand_out(ours, HandOutTo::default());
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
