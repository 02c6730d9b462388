//! Flows: jobs with names that wait for each other.

pub(crate) mod enqueue;

use crate::error::{Error, Result};
use crate::flow::batch::Batch;
use crate::flow::batch::to_job::ToNewJob;
use crate::job::new_job::NewJob;
use crate::job::new_job::parents::wrong_name;
use std::collections::BTreeMap;

/// Jobs and batches that are enqueued together and wait for each other.
///
/// ```
/// # use diesel::prelude::*;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// use windlass::{Batch, Flow, NewJob, On};
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
    /// The places of those that it waits for.
    parents: Vec<usize>,
    /// Whether others wait for it.
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
        let child = self.place(name)?;
        if matches!(self.members[child].what, FlowWork::Batch(_)) {
            return Err(Error::Flow(format!(
                "the batch `{name}` cannot wait: let a job of the flow enqueue it"
            )));
        }
        for parent in parents {
            let parent = self.place(parent.as_ref())?;
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

    fn place(&self, name: &str) -> Result<usize> {
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
