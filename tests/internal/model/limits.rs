//! Concurrency limits, by the reference and by a database.

use crate::db::internal_tests::model::reference::Answer;
use crate::db::internal_tests::model::state::{Job, Model, Place};
use crate::db::internal_tests::model::transitions::Taken;
use crate::db::model::new_row::NewLimit;
use crate::db::transition::promote;
use diesel::QueryResult;
use std::collections::BTreeSet;

/// The slots of each key. Jobs of the last one do not wait.
pub const SLOTS: [usize; 3] = [1, 2, 1];

const DISCARDS: u8 = 2;

/// What a job of this key is enqueued with.
pub fn new_limit(key: u8) -> NewLimit {
    NewLimit {
        key: format!("group/{key}"),
        slots: SLOTS[usize::from(key)] as i32,
        discards: key == DISCARDS,
    }
}

/// Where a job goes that may run now: with a key, only a promotion lets it.
pub fn enter(job: &Job) -> Place {
    let has_begun = job.last_claim.is_some() || job.attempts > 0 || job.crash_count > 0;
    match job.new.limit {
        None => Place::Ready,
        Some(key) => Place::Blocked {
            waits: key != DISCARDS || has_begun,
        },
    }
}

impl Model {
    pub fn promote(&mut self) -> Answer {
        let (mut ready, mut discarded) = (BTreeSet::new(), BTreeSet::new());
        for (key, slots) in SLOTS.into_iter().enumerate() {
            let of_key = |job: &Job| job.new.limit.map(usize::from) == Some(key);
            let is_held =
                |job: &&Job| of_key(job) && matches!(job.place, Place::Ready | Place::Claimed(_));
            let held = self.jobs.iter().filter(is_held).count();
            let jobs = self.jobs.iter().enumerate();
            let mut blocked: Vec<_> = jobs
                .filter(|(_, job)| of_key(job) && matches!(job.place, Place::Blocked { .. }))
                .map(|(number, job)| (job.new.priority, number))
                .collect();
            blocked.sort_unstable();
            for (place, (_, number)) in blocked.into_iter().enumerate() {
                let job = &mut self.jobs[number];
                if held + place < slots {
                    job.place = Place::Ready;
                    ready.insert(number);
                } else if (job.place == Place::Blocked { waits: false }) {
                    job.place = Place::Finished;
                    job.attempts_kept += 1;
                    discarded.insert(number);
                }
            }
        }
        Answer::Moved(ready, discarded)
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
