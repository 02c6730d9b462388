//! Flows: jobs with names that wait for each other.

use crate::db::model::extras::{Follows, Parent};
use crate::db::model::new_row::EnqueueOutcome;
use crate::db::transition::enqueue::all_or_none;
use crate::db::transition::enqueue::connect::{Parents, connect};
use crate::db::{AsConn, Conn, own};
use crate::error::{Error, ErrorContext as _, Result};
use crate::flow::batch::{Batch, EnqueuedBatch, ToNewJob, insert_batch_and_jobs};
use crate::job::Enqueued;
use crate::job::extras::{explain_missing, refuse_unknown_of};
use crate::job::new_job::NewJob;
use crate::job::new_job::enqueue::enqueue_each;
use crate::job::new_job::parents::{check_parents, wrong_name};
use std::collections::BTreeMap;

/// Jobs and batches that are enqueued together and wait for each other.
///
/// ```
/// # use diesel::prelude::*;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// use windlass::flows::On;
/// use windlass::{Batch, Flow, NewJob};
///
/// let files = ["a.csv", "b.csv"].map(|file| NewJob::of_class("import", format!("\"{file}\"")));
/// let flow = Flow::new()
///     .job("download", NewJob::of_class("download", "{}"))?
///     .batch("files", Batch::new("files").add(files))?
///     .job("merge", NewJob::of_class("merge", "{}"))?
///     .job("clean up", NewJob::of_class("clean_up", "{}").when(On::Finish))?
///     .after("merge", ["download", "files"])?
///     .after("clean up", ["merge"])?
///     .enqueue(&mut conn)?;
/// assert!(flow.jobs["merge"].is_new);
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// A job runs when all that it waits for has succeeded, or as its [`NewJob::when`] says; see [`NewJob::after`]. In it,
/// [`Context::input`](crate::Context::input) returns what another one has returned, by its name.
#[derive(Debug, Clone, Default)]
#[must_use = "a flow is enqueued by `enqueue`"]
pub struct Flow {
    members: Vec<FlowMember>,
    by_name: BTreeMap<String, usize>,
}

/// A job or a batch of a flow.
#[derive(Debug, Clone)]
struct FlowMember {
    name: String,
    what: FlowWork,
    /// The positions of those that it waits for.
    parents: Vec<usize>,
    /// True if others wait for it.
    is_awaited: bool,
}

#[derive(Debug, Clone)]
enum FlowWork {
    Job(Box<NewJob>),
    Batch(Batch),
}

impl Flow {
    /// Creates an empty flow.
    pub fn new() -> Self {
        Flow::default()
    }

    /// Adds a job. Its name is one of 1 to 255 bytes that nothing else in the flow has.
    ///
    /// # Errors
    /// [`Error::Flow`] if the name is taken, and the errors of [`NewJob::new`].
    pub fn job(self, name: impl Into<String>, job: impl ToNewJob) -> Result<Self> {
        let job = Box::new(job.to_new_job()?);
        self.add(name.into(), FlowWork::Job(job))
    }

    /// Adds a batch, for which jobs can wait. It waits for nothing itself.
    ///
    /// # Errors
    /// [`Error::Flow`] if the name is taken.
    pub fn batch(self, name: impl Into<String>, batch: Batch) -> Result<Self> {
        self.add(name.into(), FlowWork::Batch(batch))
    }

    fn add(mut self, name: String, what: FlowWork) -> Result<Self> {
        if let Some(reason) = wrong_name([&*name].into_iter()) {
            return Err(Error::Flow(reason));
        }
        if self.by_name.contains_key(&name) {
            return Err(Error::Flow(format!("it has two of the name `{name}`")));
        }
        self.by_name.insert(name.clone(), self.members.len());
        self.members.push(FlowMember {
            name,
            what,
            parents: Vec::new(),
            is_awaited: false,
        });
        Ok(self)
    }

    /// Lets the job `name` wait for others of the flow, which were added before.
    ///
    /// # Errors
    /// [`Error::Flow`] if there is no such name, `name` is a batch, or it would wait for itself.
    pub fn after<N: AsRef<str>>(
        mut self,
        name: &str,
        parents: impl IntoIterator<Item = N>,
    ) -> Result<Self> {
        let child = self.position(name)?;
        if matches!(self.members[child].what, FlowWork::Batch(_)) {
            return Err(Error::Flow(format!(
                "the batch `{name}` cannot wait: let a job of the flow enqueue it"
            )));
        }
        for parent in parents {
            let parent = self.position(parent.as_ref())?;
            if let Some(way) = self.way(parent, child) {
                let way: Vec<&str> = way.iter().map(|one| &*self.members[*one].name).collect();
                return Err(Error::Flow(format!(
                    "`{name}` would wait for itself: `{name}` after `{}`",
                    way.join("` after `")
                )));
            }
            if !self.members[child].parents.contains(&parent) {
                self.members[child].parents.push(parent);
            }
            self.members[parent].is_awaited = true;
        }
        Ok(self)
    }

    fn position(&self, name: &str) -> Result<usize> {
        self.by_name.get(name).copied().ok_or_else(|| {
            Error::Flow(format!(
                "it has nothing of the name `{name}`: add it before"
            ))
        })
    }

    /// Returns how `from` waits for `to`, if it does.
    fn way(&self, from: usize, to: usize) -> Option<Vec<usize>> {
        if from == to {
            return Some(vec![to]);
        }
        // Mostly the new one comes last.
        if !self.members[to].is_awaited {
            return None;
        }
        let mut came_from: BTreeMap<usize, usize> = BTreeMap::new();
        let mut todo = vec![from];
        while let Some(one) = todo.pop() {
            for parent in &self.members[one].parents {
                if came_from.contains_key(parent) {
                    continue;
                }
                came_from.insert(*parent, one);
                if *parent == to {
                    let mut way = vec![to];
                    while way.last() != Some(&from) {
                        way.push(came_from[&way[way.len() - 1]]);
                    }
                    way.reverse();
                    return Some(way);
                }
                todo.push(*parent);
            }
        }
        None
    }
}

// --- Enqueueing flows ---

/// The result of enqueueing a [`Flow`].
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
        for (position, member) in self.members.into_iter().enumerate() {
            match member.what {
                FlowWork::Batch(batch) => {
                    batch.check()?;
                    batches.push((position, member.name, batch));
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
                    job.row.is_connected_later = plan.is_dependent();
                    plans.push((position, plan));
                    jobs.push(*job);
                }
            }
        }
        let flow = all_or_none(&mut own(conn), |conn| {
            insert_all(conn, jobs, plans, batches)
        })?;
        conn.after_enqueue()?;
        Ok(flow)
    }
}

impl Planned {
    fn is_dependent(&self) -> bool {
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
    for (position, name, batch) in batches {
        let enqueued = insert_batch_and_jobs(conn, batch)?;
        ids.insert(position, (Parent::Batch(enqueued.id.0), name.clone()));
        flow.batches.insert(name, enqueued);
    }
    let enqueued = enqueue_each(conn, jobs)?;
    for ((position, plan), job) in plans.iter().zip(&enqueued) {
        ids.insert(*position, (Parent::Job(job.id.0), plan.name.clone()));
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
        let parents = plan.parents.iter().filter_map(|position| ids.get(position));
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
    let connected = connect(conn, &follows.collect::<Vec<_>>(), found).during("enqueue the flow");
    let all = children.iter();
    let all = all.map(|(_, plan)| (&*plan.class, &plan.follows));
    explain_missing(conn, all, connected)?;
    Ok(flow)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(names: &[&str]) -> Flow {
        names.iter().fold(Flow::new(), |flow, name| {
            flow.job(*name, NewJob::of_class("x", "{}")).unwrap()
        })
    }

    #[test]
    fn a_circle_is_refused() {
        let flow = flow(&["a", "b", "c"]).after("b", ["a"]).unwrap();
        let flow = flow.after("c", ["b"]).unwrap();
        let error = flow.clone().after("a", ["c"]).unwrap_err().to_string();
        assert!(
            error.contains("`a` after `c` after `b` after `a`"),
            "{error}"
        );
        let error = flow.after("a", ["a"]).unwrap_err().to_string();
        assert!(error.contains("`a` after `a`"), "{error}");
    }

    #[test]
    fn unknown_and_second_names_are_refused() {
        let error = flow(&["a"]).after("b", ["a"]).unwrap_err().to_string();
        assert!(error.contains("nothing of the name `b`"), "{error}");
        let error = flow(&["a"]).after("a", ["b"]).unwrap_err().to_string();
        assert!(error.contains("nothing of the name `b`"), "{error}");
        let again = flow(&["a"]).job("a", NewJob::of_class("x", "{}"));
        assert!(again.unwrap_err().to_string().contains("two of the name"));
        let batch = flow(&["a"]).batch("b", Batch::new("b")).unwrap();
        let error = batch.after("b", ["a"]).unwrap_err().to_string();
        assert!(error.contains("the batch `b` cannot wait"), "{error}");
        assert!(flow(&[]).job("", NewJob::of_class("x", "{}")).is_err());
    }
}
