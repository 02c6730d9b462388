//! The parts of jobs that applications write and enqueue: job types, contexts, policies and steps;
//! and performing one job.

pub mod arguments;
pub(crate) mod around;
pub(crate) mod bounds;
pub mod class;
pub(crate) mod concurrency;
pub mod context;
pub mod error;
pub(crate) mod extras;
pub(crate) mod function;
pub mod new_job;
pub mod options;
pub(crate) mod output;
pub(crate) mod perform;
pub mod policy;
pub(crate) mod rate;
pub(crate) mod rate_limit;
pub mod registry;
pub mod ruby;
pub(crate) mod ruby_call;
pub mod run_log;
pub(crate) mod running;
pub(crate) mod steps;
pub(crate) mod trace;

use crate::db::model::new_row::{self, EnqueueOutcome};
use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fmt;

// --- The result of an enqueue ---

/// The result of an enqueue.
///
/// ```
/// # use diesel::prelude::*;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// use windlass::NewJob;
/// use windlass::jobs::EnqueueOutcome;
///
/// let enqueued = NewJob::of_class("import", "{}").enqueue(&mut conn)?;
/// println!("job {}", enqueued.id);
/// assert_eq!((enqueued.is_new, enqueued.outcome), (true, EnqueueOutcome::New));
/// # Ok::<(), windlass::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Enqueued {
    /// The job's id.
    pub id: JobId,
    /// `false` if the idempotency key or the unique id matched an existing job; `id` is then the id
    /// of that job.
    pub is_new: bool,
    /// The outcome of the enqueue.
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

// --- Public tokens, by which outsiders see a job ---

/// A secret text that leads to one job; see
/// [`NewJob::public_token`](crate::NewJob::public_token).
///
/// It has 160 bits of the operating system's random source. [`Display`](fmt::Display) writes it as
/// 40 hexadecimal digits, [`Debug`] hides it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PublicToken([u8; 20]);

impl fmt::Display for PublicToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for PublicToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PublicToken([hidden])")
    }
}

impl PublicToken {
    /// # Errors
    /// If the operating system has no random bytes.
    pub(crate) fn generate() -> Result<Self> {
        let mut bytes = [0; 20];
        getrandom::fill(&mut bytes).map_err(|error| Error::Io {
            action: "read",
            path: "the system's random source".into(),
            source: std::io::Error::other(error.to_string()),
        })?;
        Ok(PublicToken(bytes))
    }
}

/// Returns the digest that is stored of a token's text.
pub(crate) fn digest(token: &str) -> String {
    let digest = Sha256::digest(token.as_bytes());
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

// --- The ids of jobs and of batches ---

/// The id of a job: its row in `solid_queue_jobs`.
///
/// ```
/// # use diesel::prelude::*;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// use windlass::{JobId, jobs};
///
/// let id = JobId(4711); // such as from an address
/// assert!(jobs::status(&mut conn, id)?.is_none());
/// # Ok::<(), windlass::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JobId(pub i64);

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The id of a [`Batch`](crate::Batch): its row in `solid_queue_batches`.
///
/// ```
/// # use diesel::prelude::*;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// use windlass::{Batch, BatchId, NewJob};
///
/// let batch = Batch::new("import").add([NewJob::of_class("import", "{}")]).enqueue(&mut conn)?;
/// let id = BatchId(batch.id.0); // such as from an address
/// assert!(!id.status(&mut conn)?.is_over());
/// # Ok::<(), windlass::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BatchId(pub i64);

impl fmt::Display for BatchId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_new_long_and_hidden() {
        let [one, other] = [(), ()].map(|()| PublicToken::generate().unwrap());
        assert_ne!(one, other);
        let text = one.to_string();
        assert_eq!(text.len(), 40);
        assert!(text.bytes().all(|byte| byte.is_ascii_hexdigit()));
        assert!(!format!("{one:?}").contains(&text));
    }

    #[test]
    fn the_digest_is_sha_256() {
        assert_eq!(
            digest("abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }
}
