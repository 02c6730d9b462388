//! The shares of queues that the jobs of a process use, until a promotion takes them into account.

use crate::db::model::claim::Claimed;
use crate::db::table::shares::ShareKey;
use crate::db::transition::gate::{GateWatch, UsedTimes};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The shares that the jobs of a process use. All its loops have the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct SharesInUse(Arc<Mutex<UnseenShares>>);

/// Shares of jobs that no promotion has seen yet.
#[derive(Debug, Default)]
struct UnseenShares {
    /// The queues of which jobs have started.
    started: BTreeSet<String>,
    /// The queues whose threads are shared by time, as far as a promotion has said so.
    by_time: BTreeSet<String>,
    /// The jobs of these that run.
    running: HashMap<i64, ShareKey>,
    /// The number of those that have ended, and their time in microseconds.
    ended: UsedTimes,
}

/// The most jobs, and tenants, that are kept in mind: what is lost counts as the estimate that it had.
const MOST: usize = 10_000;

impl SharesInUse {
    fn unseen(&self) -> MutexGuard<'_, UnseenShares> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what was claimed. Returns those of the jobs whose time counts: [`Self::measure`] says for whom.
    pub(crate) fn note_claimed(&self, jobs: &[Arc<Claimed>]) -> Vec<i64> {
        let mut shared = jobs.iter().filter(|job| job.has_share).peekable();
        if shared.peek().is_none() {
            return Vec::new();
        }
        let mut unseen = self.unseen();
        let mut timed = Vec::new();
        for job in shared {
            if unseen.by_time.contains(&job.queue_name) {
                timed.push(job.job_id);
            }
            unseen.started.insert(job.queue_name.clone());
        }
        timed
    }

    /// Measures the time of jobs.
    pub(crate) fn measure(&self, jobs: Vec<(i64, ShareKey)>) {
        let mut unseen = self.unseen();
        // Some are released before they start.
        if unseen.running.len() > MOST {
            unseen.running.clear();
        }
        unseen.running.extend(jobs);
    }

    /// Notes the time that a job has taken.
    pub(crate) fn note_time(&self, job: i64, ran: Duration) {
        let mut unseen = self.unseen();
        if let Some(key) = unseen.running.remove(&job) {
            let (jobs, micros) = unseen.ended.entry(key).or_default();
            *jobs += 1;
            *micros = micros.saturating_add(i64::try_from(ran.as_micros()).unwrap_or(i64::MAX));
        }
    }

    /// Returns whether jobs have started that no promotion has seen.
    pub(crate) fn has_started(&self) -> bool {
        !self.unseen().started.is_empty()
    }

    /// Passes what no promotion has seen to one.
    pub(crate) fn pass_to(&self, watch: &mut GateWatch) {
        let mut unseen = self.unseen();
        watch.started.append(&mut unseen.started);
        // Those of queues that no promotion has looked at meanwhile are added up.
        if watch.times.len() > MOST {
            watch.times.clear();
        }
        for (key, (jobs, micros)) in std::mem::take(&mut unseen.ended) {
            let all = watch.times.entry(key).or_default();
            *all = (all.0 + jobs, all.1.saturating_add(micros));
        }
    }

    /// Notes how the threads of a queue are shared.
    pub(crate) fn note_by_time(&self, queues: &BTreeMap<String, bool>) {
        if queues.is_empty() {
            return;
        }
        let mut unseen = self.unseen();
        for (queue, is_by_time) in queues {
            match is_by_time {
                true => drop(unseen.by_time.insert(queue.clone())),
                false => drop(unseen.by_time.remove(queue)),
            }
        }
        if unseen.by_time.is_empty() {
            unseen.running.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Those of a queue that nothing looks at any more hold up no other.
    #[test]
    fn times_are_added_up_until_a_promotion_takes_them() {
        let shares = SharesInUse::default();
        let mut watch = GateWatch::default();
        let key = |queue: &str| (queue.to_owned(), 0, "acme".to_owned());
        for (job, queue) in [(1, "left"), (2, "left"), (3, "other")] {
            shares.measure(vec![(job, key(queue))]);
            shares.note_time(job, Duration::from_micros(70));
            shares.note_time(job, Duration::from_micros(70));
            shares.pass_to(&mut watch);
        }
        assert_eq!(watch.times[&key("left")], (2, 140));
        assert_eq!(watch.times[&key("other")], (1, 70));
    }
}
