//! Dispatching, past jobs that the database refuses to move.

use crate::clock;
use crate::db::transition::dispatch;
use crate::process::base::session::Session;
use std::time::{Duration, Instant};

/// Due jobs that the database has refused to make ready, because of a trigger or constraint of the application. They hold
/// up no other: they are left, and tried again after a while.
#[derive(Debug, Default)]
pub(crate) struct RefusedJobs {
    jobs: Vec<i64>,
    since: Option<Instant>,
}

/// How long refused jobs are left.
const RETRIED_AFTER: Duration = Duration::from_secs(10);

/// The most that are known at once. With more, the first are tried again earlier.
const MOST: usize = 10_000;

/// How often a batch is tried of which the database has refused a part.
const ROUNDS: usize = 20;

impl RefusedJobs {
    /// Dispatches a batch, and returns how many jobs were moved.
    ///
    /// # Errors
    /// Returns how long to wait before the next attempt, if the database is away.
    pub(crate) fn dispatch(
        &mut self,
        session: &mut Session,
        batch: usize,
    ) -> Result<usize, Duration> {
        if self.jobs.len() > MOST || self.since.is_some_and(|at| at.elapsed() >= RETRIED_AFTER) {
            *self = RefusedJobs::default();
        }
        let mut count = 0;
        for _ in 0..ROUNDS {
            let action = "dispatch";
            let done = session.run(action, |conn| dispatch::dispatch(conn, batch, &self.jobs))?;
            count += done.count;
            if let Some(left) = &done.left {
                session.report(action, &format!("the database refuses job {left}"));
            }
            if done.refused.is_empty() || count > 0 {
                self.note(done.refused);
                break;
            }
            self.note(done.refused);
        }
        Ok(count)
    }

    fn note(&mut self, refused: Vec<i64>) {
        if !refused.is_empty() {
            self.since.get_or_insert_with(clock::instant);
            self.jobs.extend(refused);
        }
    }
}
