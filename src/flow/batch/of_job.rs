//! The batch of a job that runs.

use crate::job::context::Context;
use crate::job::error::JobError;
use crate::job::id::BatchId;

impl<S: ?Sized> Context<'_, S> {
    /// Returns the batch of this job. Jobs are added to it by [`BatchId::add`].
    ///
    /// # Errors
    /// If the job belongs to no batch. The job fails for good if you return that.
    pub fn batch(&self) -> Result<BatchId, JobError> {
        self.run().batch_id.map(BatchId).ok_or_else(|| {
            let message = "this job belongs to no batch: enqueue it with `Batch::add`";
            JobError::new("no_batch", message).fail()
        })
    }
}
