//! Concurrency limits, by the reference and by a database.

use crate::db::internal_tests::model::reference::Answer;
use crate::db::internal_tests::model::state::{Claim, Job, Model, Place};
use crate::db::internal_tests::model::step::Next;
use crate::db::internal_tests::model::transitions::Taken;
use crate::db::model::claim::EqualJobs;
use crate::db::model::new_row::NewLimit;
use crate::db::transition::promote;
use crate::job::policy::Delivery;
use diesel::QueryResult;
use std::collections::BTreeSet;

/// The slots of each key. Jobs of the third do not wait; those of the last one run in order.
pub const SLOTS: [usize; 4] = [1, 2, 1, 1];

const DISCARDS: u8 = 2;
pub const ORDERED: u8 = 3;

/// Returns the limit with which a job of this key is enqueued.
pub fn new_limit(key: u8) -> NewLimit {
    NewLimit {
        key: format!("group/{key}"),
        slots: SLOTS[usize::from(key)] as i32,
        discards: key == DISCARDS,
        ordered: key == ORDERED,
    }
}

/// Returns the place of a job that may run now. A job with a key is blocked until a promotion.
pub fn enter(job: &Job) -> Place {
    let has_begun = job.last_claim.is_some() || job.attempts > 0 || job.crash_count > 0;
    match job.new.limit {
        None => Place::Ready,
        Some(key) => Place::Blocked {
            waits: key != DISCARDS || has_begun,
        },
    }
}

/// Returns whether a job holds a slot of its key.
pub fn is_held(job: &Job) -> bool {
    match job.place {
        Place::Ready | Place::Claimed(_) => true,
        Place::Scheduled(_) => job.keeps_place && job.new.limit == Some(ORDERED),
        _ => false,
    }
}

/// The place of a job among the blocked ones of its key.
fn rank(job: &Job) -> i32 {
    match job.new.limit {
        Some(ORDERED) => 0,
        _ => job.new.priority,
    }
}

impl Model {
    pub fn promote(&mut self) -> Answer {
        let (mut ready, mut discarded) = (BTreeSet::new(), BTreeSet::new());
        for key in 0..SLOTS.len() {
            let slots = self.slots(key);
            let of_key = |job: &Job| job.new.limit.map(usize::from) == Some(key);
            let held = self
                .jobs
                .iter()
                .filter(|job| of_key(job) && is_held(job))
                .count();
            let jobs = self.jobs.iter().enumerate();
            let mut blocked: Vec<_> = jobs
                .filter(|(_, job)| of_key(job) && matches!(job.place, Place::Blocked { .. }))
                .map(|(number, job)| (rank(job), number))
                .collect();
            blocked.sort_unstable();
            for (place, (_, number)) in blocked.into_iter().enumerate() {
                let job = &mut self.jobs[number];
                if held + place < slots {
                    job.place = Place::Ready;
                    ready.insert(number);
                } else if (job.place == Place::Blocked { waits: false }) {
                    job.place = Place::Finished;
                    job.is_discarded = true;
                    job.has_result |= job.new.name.is_some();
                    job.attempts_kept += 1;
                    discarded.insert(number);
                }
            }
        }
        Answer::Moved(ready, discarded)
    }
}

impl Model {
    /// Claims, in the place of claims that have ended, the next jobs of their keys.
    pub fn take_next(
        &mut self,
        process: usize,
        ended: &BTreeSet<usize>,
        next: &Next,
    ) -> Vec<(usize, usize)> {
        let of = self.processes[process];
        if !of.registered || of.draining {
            return Vec::new();
        }
        let mut taken = Vec::new();
        for key in 0..SLOTS.len() {
            let slots = self.slots(key);
            let of_key = |job: &Job| job.new.limit.map(usize::from) == Some(key);
            let freed = ended
                .iter()
                .map(|claim| &self.jobs[self.claims[*claim].job]);
            let freed = freed.filter(|job| of_key(job)).count();
            let held = self
                .jobs
                .iter()
                .filter(|job| of_key(job) && is_held(job))
                .count();
            let jobs = self.jobs.iter().enumerate();
            let mut blocked: Vec<_> = jobs
                .filter(|(_, job)| of_key(job) && matches!(job.place, Place::Blocked { .. }))
                .map(|(number, job)| (rank(job), number))
                .collect();
            blocked.sort_unstable();
            blocked.truncate(freed.min(slots.saturating_sub(held)));
            let next = blocked
                .into_iter()
                .filter(|(_, job)| self.may_run(*job, next));
            taken.extend(next.map(|(_, job)| (self.jobs[job].new.priority, job)));
        }
        taken.sort_unstable();
        taken
            .into_iter()
            .map(|(_, job)| {
                let claim = self.claims.len();
                self.jobs[job].place = Place::Claimed(claim);
                self.claims.push(Claim {
                    job,
                    process,
                    cancelled: false,
                    is_next: true,
                    verdict: None,
                });
                (claim, job)
            })
            .collect()
    }

    /// Returns whether a blocked job may be claimed at once, before all ready jobs.
    fn may_run(&self, job: usize, next: &Next) -> bool {
        let job = &self.jobs[job];
        let place = |queue: u8| match &next.queues {
            None => Some(0),
            Some(queues) => queues.iter().position(|name| *name == queue),
        };
        let Some(mine) = place(job.new.queue) else {
            return false;
        };
        let ready = self.jobs.iter().filter(|job| job.place == Place::Ready);
        let mut before = ready.filter_map(|job| Some((place(job.new.queue)?, job.new.priority)));
        let margin = i32::from(next.equal == EqualJobs::GoFirst);
        let is_cautious = job.new.delivery != Delivery::AtLeastOnce
            || job.crash_count > 0
            || job.new.max_crashes == Some(0);
        self.is_open(next.classes, job.new.class)
            && !self.paused.contains(&job.new.queue)
            && !is_cautious
            && !before.any(|before| before < (mine, job.new.priority.saturating_add(margin)))
    }
}

impl Taken<'_> {
    /// With every key that is wanted: at most three, each named by few steps.
    pub fn promote(&mut self) -> QueryResult<Answer> {
        let done = promote::promote(&mut self.conn, 10_000)?;
        let discarded = done.discarded.iter().map(|job| job.id).collect();
        Ok(Answer::Moved(
            self.job_numbers(done.ready),
            self.job_numbers(discarded),
        ))
    }
}
