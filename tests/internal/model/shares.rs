//! Tenants that share a queue, by the reference and by a database.

use crate::db::internal_tests::model::gates::QueueShare;
use crate::db::internal_tests::model::reference::Answer;
use crate::db::internal_tests::model::state::{Job, Model, Place};
use crate::db::internal_tests::model::step::QUEUES;
use crate::db::internal_tests::model::transitions::Taken;
use crate::db::table::shares;
use diesel::QueryResult;
use std::collections::{BTreeMap, BTreeSet};

/// A turn of a tenant counts as much as this divided by its weight.
const TURN: i64 = 6;

/// A queue, a priority of it, and two tenants that both wait there.
pub type Rivals = (u8, i32, u8, u8);

/// By how much more the first of two tenants has used than the other, since both wait: now, at least and at most.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct RivalLead {
    now: i64,
    least: i64,
    most: i64,
}

fn tenant_name(tenant: u8) -> String {
    format!("tenant {tenant}")
}

/// Returns the tenant with which a job is enqueued.
pub fn new_tenant(tenant: Option<u8>) -> Option<String> {
    tenant.map(tenant_name)
}

impl Model {
    fn turn(&self, share: QueueShare) -> i64 {
        TURN / i64::from(self.weights.get(&share).copied().unwrap_or(1))
    }

    /// Returns the first job of each tenant that waits for nothing but its turn.
    fn plain(&self) -> BTreeMap<QueueShare, usize> {
        let lines = self.lines().into_iter();
        let plain = lines.filter_map(|((share, keys, limit), jobs)| {
            let share = share.filter(|(queue, _)| self.shared.contains(queue))?;
            let is_plain = keys.is_empty() && limit.is_none();
            is_plain.then_some((share, *jobs.first()?))
        });
        plain.collect()
    }

    /// Counts turns that were taken, and returns the promise that they break, if they do. `old` jobs have become tenants'
    /// just now.
    pub fn check_turns(
        &mut self,
        ready: &BTreeSet<usize>,
        old: &BTreeSet<usize>,
    ) -> Result<(), String> {
        let waiting = self.plain();
        for job in ready {
            let Some(share) = self.share(*job) else {
                continue;
            };
            let priority = self.jobs[*job].new.priority;
            let mut before = waiting.iter().filter(|((queue, _), first)| {
                *queue == share.0
                    && self.jobs[**first].new.priority < priority
                    && !old.contains(first)
            });
            if let Some((_, first)) = before.next() {
                return Err(format!("job {first} is more important than job {job}"));
            }
            let turn = self.turn(share);
            for ((queue, of, one, other), lead) in &mut self.leads {
                if (*queue, *of) != (share.0, priority) {
                    continue;
                }
                lead.now += if *one == share.1 { turn } else { 0 };
                lead.now -= if *other == share.1 { turn } else { 0 };
            }
        }
        for ((queue, priority, one, other), lead) in &mut self.leads {
            lead.least = lead.least.min(lead.now);
            lead.most = lead.most.max(lead.now);
            let turn = |tenant: &u8| {
                TURN / i64::from(self.weights.get(&(*queue, *tenant)).copied().unwrap_or(1))
            };
            if lead.most - lead.least > turn(one) + turn(other) {
                return Err(format!(
                    "tenants {one} and {other} of {queue} at {priority}: {lead:?}"
                ));
            }
        }
        Ok(())
    }

    /// After each change: who waits beside whom.
    pub fn notice_rivals(&mut self) {
        let waiting = self.plain().into_iter();
        let waiting =
            waiting.map(|((queue, tenant), job)| (queue, self.jobs[job].new.priority, tenant));
        let waiting: Vec<(u8, i32, u8)> = waiting.collect();
        let mut leads = BTreeMap::new();
        for (queue, priority, one) in &waiting {
            for (_, _, other) in waiting
                .iter()
                .filter(|of| (of.0, of.1) == (*queue, *priority))
            {
                let rivals = (*queue, *priority, *one, *other);
                if one < other {
                    leads.insert(rivals, self.leads.get(&rivals).copied().unwrap_or_default());
                }
            }
        }
        self.leads = leads;
        for jobs in self.starting.values_mut() {
            jobs.retain(|job| self.jobs[*job].place == Place::Ready);
        }
    }

    pub fn share_queue(&mut self, queue: u8) -> Answer {
        if !self.shared.insert(queue) {
            return Answer::Is(false);
        }
        let is_old = |job: &Job| job.new.queue == queue && job.place == Place::Ready;
        let old = (0..self.jobs.len()).filter(|job| is_old(&self.jobs[*job]));
        self.starting.insert(queue, old.collect());
        Answer::Is(true)
    }

    pub fn unshare_queue(&mut self, queue: u8) -> Answer {
        self.starting.remove(&queue);
        Answer::Is(self.shared.remove(&queue))
    }

    pub fn weigh(&mut self, queue: u8, tenant: u8, weight: u8) -> Answer {
        let share = (queue, tenant);
        self.leads
            .retain(|rivals, _| rivals.0 != queue || tenant != rivals.2 && tenant != rivals.3);
        Answer::Is(match weight {
            1 => self.weights.remove(&share).is_some(),
            weight => self.weights.insert(share, weight) != Some(weight),
        })
    }

    /// A job becomes ready anew, and has not been so since before its queue was shared.
    pub fn forget_old(&mut self, number: usize) {
        for jobs in self.starting.values_mut() {
            jobs.remove(&number);
        }
    }

    /// Jobs that were ready when their queue began to be shared wait for their turn.
    pub fn block_old(&mut self) -> BTreeSet<usize> {
        let mut old = BTreeSet::new();
        for (queue, jobs) in std::mem::take(&mut self.starting) {
            for number in jobs {
                let job = &mut self.jobs[number];
                let is_plain = !job.is_gated() && job.new.limit.is_none() && job.new.queue == queue;
                if is_plain && job.new.tenant.is_some() && job.place == Place::Ready {
                    job.is_shared = true;
                    job.version += 1;
                    self.enter(number);
                    old.insert(number);
                }
            }
        }
        old
    }
}

impl Taken<'_> {
    pub fn share_queue(&mut self, queue: u8) -> QueryResult<Answer> {
        shares::begin(&mut self.conn, QUEUES[usize::from(queue)], false).map(Answer::Is)
    }

    pub fn unshare_queue(&mut self, queue: u8) -> QueryResult<Answer> {
        shares::begin_end(&mut self.conn, QUEUES[usize::from(queue)]).map(Answer::Is)
    }

    pub fn weigh(&mut self, queue: u8, tenant: u8, weight: u8) -> QueryResult<Answer> {
        let weight = Some(i32::from(weight)).filter(|weight| *weight > 1);
        let queue = QUEUES[usize::from(queue)];
        shares::set_weight(&mut self.conn, queue, &tenant_name(tenant), weight).map(Answer::Is)
    }
}
