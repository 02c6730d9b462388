//! What `NewJob::after` takes.

use crate::db::model::extras::Parent;
use crate::job::enqueued::Enqueued;
use crate::job::id::{BatchId, JobId};
use crate::job::new_job::NewJob;
use std::time::Duration;

/// What [`NewJob::after`] takes: a delay, or jobs and batches.
pub trait After {
    #[doc(hidden)]
    fn apply(self, job: NewJob) -> NewJob;
}

/// A job or a batch, with or without a name, that another job can wait for; see [`NewJob::after`].
pub trait ToParent {
    #[doc(hidden)]
    fn add_to(self, job: &mut NewJob);
}

impl After for Duration {
    fn apply(self, mut job: NewJob) -> NewJob {
        // A longer delay is rejected, not shortened.
        job.row.delay = Some(i64::try_from(self.as_micros()).unwrap_or(i64::MAX));
        job.row.at = None;
        job
    }
}

fn add(job: &mut NewJob, parent: Parent, name: Option<String>) {
    job.follows_mut().parents.push((parent, name));
}

fn apply(parent: impl ToParent, mut job: NewJob) -> NewJob {
    parent.add_to(&mut job);
    job
}

fn apply_all<P: ToParent>(parents: impl IntoIterator<Item = P>, mut job: NewJob) -> NewJob {
    for parent in parents {
        parent.add_to(&mut job);
    }
    job
}

impl ToParent for JobId {
    fn add_to(self, job: &mut NewJob) {
        add(job, Parent::Job(self.0), None);
    }
}

impl ToParent for Enqueued {
    fn add_to(self, job: &mut NewJob) {
        self.id.add_to(job);
    }
}

impl ToParent for BatchId {
    fn add_to(self, job: &mut NewJob) {
        add(job, Parent::Batch(self.0), None);
    }
}

impl<N: Into<String>> ToParent for (N, JobId) {
    fn add_to(self, job: &mut NewJob) {
        add(job, Parent::Job(self.1.0), Some(self.0.into()));
    }
}

impl<N: Into<String>> ToParent for (N, Enqueued) {
    fn add_to(self, job: &mut NewJob) {
        (self.0, self.1.id).add_to(job);
    }
}

impl<N: Into<String>> ToParent for (N, BatchId) {
    fn add_to(self, job: &mut NewJob) {
        add(job, Parent::Batch(self.1.0), Some(self.0.into()));
    }
}

impl After for JobId {
    fn apply(self, job: NewJob) -> NewJob {
        apply(self, job)
    }
}

impl After for Enqueued {
    fn apply(self, job: NewJob) -> NewJob {
        apply(self, job)
    }
}

impl After for BatchId {
    fn apply(self, job: NewJob) -> NewJob {
        apply(self, job)
    }
}

impl<N, I> After for (N, I)
where
    (N, I): ToParent,
{
    fn apply(self, job: NewJob) -> NewJob {
        apply(self, job)
    }
}

impl<P: ToParent, const N: usize> After for [P; N] {
    fn apply(self, job: NewJob) -> NewJob {
        apply_all(self, job)
    }
}

impl<P: ToParent> After for Vec<P> {
    fn apply(self, job: NewJob) -> NewJob {
        apply_all(self, job)
    }
}

impl<P: ToParent + Clone> After for &[P] {
    fn apply(self, job: NewJob) -> NewJob {
        apply_all(self.iter().cloned(), job)
    }
}
