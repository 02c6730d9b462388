//! What an enqueue returns.

use crate::db::model::new_row::{self, EnqueueOutcome};
use crate::job::extras::token::PublicToken;
use crate::job::id::JobId;

/// The result of an enqueue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Enqueued {
    /// The job's id.
    pub id: JobId,
    /// `false` if the idempotency key or the unique id matched an existing job; `id` is then the id
    /// of that job.
    pub is_new: bool,
    /// What happened to the job.
    pub outcome: EnqueueOutcome,
    /// The token that was requested by [`NewJob::public_token`](crate::NewJob::public_token).
    /// `None` if none was, or if the job belongs to another caller.
    pub public_token: Option<PublicToken>,
}

impl From<new_row::Inserted> for Enqueued {
    fn from(inserted: new_row::Inserted) -> Self {
        Enqueued {
            id: JobId(inserted.id),
            is_new: inserted.is_new,
            outcome: inserted.outcome,
            public_token: None,
        }
    }
}
