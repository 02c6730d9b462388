//! What can be added to a batch.

use crate::error::Result;
use crate::job::class::Job;
use crate::job::new_job::NewJob;

/// A job that can be added to a [`Batch`](crate::Batch): a job type's value, a [`NewJob`], or the result of
/// [`NewJob::new`].
pub trait ToNewJob {
    /// Returns the job.
    ///
    /// # Errors
    /// If its arguments cannot be written as JSON.
    fn to_new_job(self) -> Result<NewJob>;
}

impl ToNewJob for NewJob {
    fn to_new_job(self) -> Result<NewJob> {
        Ok(self)
    }
}

impl ToNewJob for Result<NewJob> {
    fn to_new_job(self) -> Result<NewJob> {
        self
    }
}

impl<J: Job> ToNewJob for &J {
    fn to_new_job(self) -> Result<NewJob> {
        NewJob::new(self)
    }
}
