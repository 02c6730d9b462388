//! Enqueueing flows.

use crate::db::model::extras::{Follows, Parent};
use crate::db::model::new_row::EnqueueOutcome;
use crate::db::transition::enqueue::connect::{Parents, connect};
use crate::db::transition::enqueue::whole;
use crate::db::{AsConn, Conn, own};
use crate::error::{Doing as _, Error, Result};
use crate::flow::batch::Batch;
use crate::flow::batch::enqueue::{EnqueuedBatch, insert};
use crate::flow::graph::{Flow, FlowWork};
use crate::job::enqueued::Enqueued;
use crate::job::new_job::parents::check_parents;
use crate::job::new_job::{NewJob, enqueue_each};
use crate::job::unknown_parents::{name_unknown, refuse_unknown_of};
use std::collections::BTreeMap;

/// What the enqueue of a [`Flow`] returns.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct EnqueuedFlow {
    /// Its jobs, by their names.
    pub jobs: BTreeMap<String, Enqueued>,
    /// Its batches, by their names.
    pub batches: BTreeMap<String, EnqueuedBatch>,
}

/// A job to enqueue, with what it waits for besides others of the flow.
struct Planned {
    name: String,
    class: String,
    follows: Follows,
    parents: Vec<usize>,
}

impl Flow {
    /// Enqueues all of it, or nothing, on the given connection: as part of its transaction if one is open.
    ///
    /// A job that exists already, by its idempotency key, keeps what it waits for. Those that wait for it wait for the
    /// existing job.
    ///
    /// # Errors
    /// If a job or a batch exceeds a limit, before any SQL is sent, a job that waits has a unique id or a quota, or as for
    /// [`enqueue_all`](crate::enqueue_all).
    pub fn enqueue<C: AsConn + ?Sized>(self, conn: &mut C) -> Result<EnqueuedFlow> {
        let (mut jobs, mut plans, mut batches) = (Vec::new(), Vec::new(), Vec::new());
        for (place, member) in self.members.into_iter().enumerate() {
            match member.what {
                FlowWork::Batch(batch) => {
                    batch.check()?;
                    batches.push((place, member.name, batch));
                }
                FlowWork::Job(mut job) => {
                    let follows = job.follows.take().map(|follows| *follows);
                    let plan = Planned {
                        name: member.name,
                        class: job.row.class_name.clone(),
                        follows: follows.unwrap_or_default(),
                        parents: member.parents,
                    };
                    plan.check(&job)?;
                    job.row.is_connected_later = plan.waits();
                    plans.push((place, plan));
                    jobs.push(*job);
                }
            }
        }
        let flow = whole(&mut own(conn), |conn| {
            insert_all(conn, jobs, plans, batches)
        })?;
        conn.after_enqueue()?;
        Ok(flow)
    }
}

impl Planned {
    fn waits(&self) -> bool {
        !self.parents.is_empty() || !self.follows.parents.is_empty()
    }

    fn check(&self, job: &NewJob) -> Result<()> {
        job.check()?;
        let count = self.parents.len() + self.follows.parents.len();
        if count == 0 && self.follows.is_default() {
            return Ok(());
        }
        check_parents(job, &self.follows, count).map_or(Ok(()), |reason| {
            Err(Error::InvalidJob {
                class: self.class.clone(),
                reason,
            })
        })
    }
}

fn insert_all(
    conn: &mut Conn<'_>,
    jobs: Vec<NewJob>,
    plans: Vec<(usize, Planned)>,
    batches: Vec<(usize, String, Batch)>,
) -> Result<EnqueuedFlow> {
    let others = plans.iter().map(|(_, plan)| (&*plan.class, &plan.follows));
    refuse_unknown_of(conn, others)?;
    let mut ids: BTreeMap<usize, (Parent, String)> = BTreeMap::new();
    let mut flow = EnqueuedFlow {
        jobs: BTreeMap::new(),
        batches: BTreeMap::new(),
    };
    for (place, name, batch) in batches {
        let enqueued = insert(conn, batch)?;
        ids.insert(place, (Parent::Batch(enqueued.id.0), name.clone()));
        flow.batches.insert(name, enqueued);
    }
    let enqueued = enqueue_each(conn, jobs)?;
    for ((place, plan), job) in plans.iter().zip(&enqueued) {
        ids.insert(*place, (Parent::Job(job.id.0), plan.name.clone()));
        flow.jobs.insert(plan.name.clone(), *job);
    }
    // A job that was shed has ended already: a promotion has to look at it.
    let is_new = |job: &Enqueued| job.outcome == EnqueueOutcome::New;
    let are_new = enqueued.iter().all(is_new);
    let has_others = plans
        .iter()
        .any(|(_, plan)| !plan.follows.parents.is_empty());
    let mut children: Vec<(i64, Planned)> = Vec::new();
    for ((_, mut plan), job) in plans.into_iter().zip(&enqueued) {
        let parents = plan.parents.iter().filter_map(|place| ids.get(place));
        let parents = parents.map(|(parent, name)| (*parent, Some(name.clone())));
        plan.follows.parents.extend(parents);
        if job.is_new && !plan.follows.parents.is_empty() {
            children.push((job.id.0, plan));
        }
    }
    let follows = children.iter().map(|(job, plan)| (*job, &plan.follows));
    let found = match are_new && !has_others {
        true => Parents::New,
        false => Parents::Existing,
    };
    let connected = connect(conn, &follows.collect::<Vec<_>>(), found).doing("enqueue the flow");
    let all = children.iter();
    let all = all.map(|(_, plan)| (&*plan.class, &plan.follows));
    name_unknown(conn, all, connected)?;
    Ok(flow)
}
