//! `windlass_edges`: jobs that wait for a batch to end.
//!
//! Such a job is blocked under the key [`WAITS_FOR_PARENTS`] until all its edges have an outcome. Edges stay as long
//! as the batch.

use crate::db::conn::connection::Conn;
use crate::db::conn::sql::{Execution, Id, id_list, job_ids};
use crate::db::conn::statement::Statement;
use crate::db::table::flows::WAITS_FOR_PARENTS;
use crate::db::table::semaphores::NEVER_EXPIRES;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Nullable, Text};

/// The outcome of a batch whose jobs have all succeeded, or discarded themselves.
pub(crate) const SUCCEEDED: &str = "succeeded";

/// The outcome of a batch of which a job has failed, or was cancelled.
pub(crate) const FAILED: &str = "failed";

/// On which outcome of its parent a job runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunsOn {
    Success,
    Failure,
    Finish,
}

impl RunsOn {
    fn column(self) -> &'static str {
        match self {
            RunsOn::Success => "success",
            RunsOn::Failure => "failure",
            RunsOn::Finish => "finish",
        }
    }
}

/// What becomes of a job whose parent has another outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Otherwise {
    /// It is deleted.
    Drop,
    /// It waits until the failed jobs of the parent are retried, and have succeeded.
    Wait,
}

impl Otherwise {
    fn column(self) -> &'static str {
        match self {
            Otherwise::Drop => "drop",
            Otherwise::Wait => "wait",
        }
    }
}

/// Lets jobs that were just inserted wait for a batch. The caller has deleted their executions.
pub(crate) fn insert(
    conn: &mut Conn<'_>,
    children: &[i64],
    batch: i64,
    runs_on: RunsOn,
    otherwise: Otherwise,
) -> QueryResult<()> {
    let text = "INSERT INTO windlass_edges (child_job_id, parent_batch_id, runs_on, otherwise, created_at) \
         SELECT id, $1, $2, $3, {now} FROM solid_queue_jobs WHERE id IN {in $4} ORDER BY id";
    Statement::new(text)
        .unkept()
        .bind(batch)
        .bind(runs_on.column())
        .bind(otherwise.column())
        .bind(id_list(children))
        .execute(conn)?;
    let text = format!(
        "INSERT INTO solid_queue_blocked_executions (job_id, queue_name, priority, concurrency_key, expires_at, created_at) \
         SELECT id, queue_name, priority, $1, {{time '{NEVER_EXPIRES}'}}, {{now}} FROM solid_queue_jobs \
         WHERE id IN {{in $2}} ORDER BY id"
    );
    Statement::new(text)
        .unkept()
        .bind(WAITS_FOR_PARENTS)
        .bind(id_list(children))
        .execute(conn)
}

/// Stores the outcome of a batch, and returns the jobs that waited for it.
pub(crate) fn resolve(
    conn: &mut Conn<'_>,
    batches: &[i64],
    outcome: &str,
) -> QueryResult<Vec<i64>> {
    let text = "UPDATE windlass_edges SET outcome = $1 WHERE parent_batch_id IN {in $2} \
         AND coalesce(outcome, '') <> $1 RETURNING child_job_id AS job_id";
    let children: Vec<Execution> = Statement::new(text)
        .unkept()
        .bind(outcome)
        .bind(id_list(batches))
        .load(conn)?;
    Ok(job_ids(children))
}

/// Locks the executions of jobs that wait for parents, without those that other transactions have locked.
pub(crate) fn lock_free(conn: &mut Conn<'_>, children: &[i64]) -> QueryResult<Vec<i64>> {
    let text = "SELECT b.job_id FROM solid_queue_blocked_executions b WHERE b.job_id IN {in $1} \
         AND b.concurrency_key || '' = $2 ORDER BY b.id + 0 {lock skip of b}";
    Statement::new(text)
        .unkept()
        .bind(id_list(children))
        .bind(WAITS_FOR_PARENTS)
        .load(conn)
        .map(job_ids)
}

/// Returns how many of the jobs wait for parents.
pub(crate) fn waiting(conn: &mut Conn<'_>, children: &[i64]) -> QueryResult<Vec<i64>> {
    let text = "SELECT b.job_id AS id FROM solid_queue_blocked_executions b WHERE b.job_id IN {in $1} \
         AND b.concurrency_key || '' = $2";
    let rows: Vec<Id> = Statement::new(text)
        .unkept()
        .bind(id_list(children))
        .bind(WAITS_FOR_PARENTS)
        .load(conn)?;
    Ok(rows.into_iter().map(|row| row.id).collect())
}

/// An edge of a waiting job.
#[derive(Debug, QueryableByName)]
pub(crate) struct Edge {
    #[diesel(sql_type = BigInt)]
    pub(crate) child_job_id: i64,
    #[diesel(sql_type = Text)]
    pub(crate) class_name: String,
    #[diesel(sql_type = Text)]
    runs_on: String,
    #[diesel(sql_type = Text)]
    otherwise: String,
    #[diesel(sql_type = Nullable<Text>)]
    outcome: Option<String>,
}

/// What an edge says about its job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum EdgeState {
    /// The job may run.
    Open,
    /// It waits.
    Waits,
    /// It is not wanted any more.
    Dropped,
}

impl Edge {
    pub(crate) fn state(&self) -> EdgeState {
        let Some(outcome) = self.outcome.as_deref() else {
            return EdgeState::Waits;
        };
        let fits = match &*self.runs_on {
            "success" => outcome == SUCCEEDED,
            "failure" => outcome == FAILED,
            _ => true,
        };
        match (fits, &*self.otherwise) {
            (true, _) => EdgeState::Open,
            (false, "wait") => EdgeState::Waits,
            (false, _) => EdgeState::Dropped,
        }
    }

    /// Whether the parent has succeeded.
    pub(crate) fn has_succeeded(&self) -> bool {
        self.outcome.as_deref() == Some(SUCCEEDED)
    }
}

/// Returns the edges of jobs.
pub(crate) fn of(conn: &mut Conn<'_>, children: &[i64]) -> QueryResult<Vec<Edge>> {
    let text = "SELECT w.child_job_id, j.class_name, w.runs_on, w.otherwise, w.outcome FROM windlass_edges w \
         JOIN solid_queue_jobs j ON j.id = w.child_job_id WHERE w.child_job_id IN {in $1} ORDER BY w.child_job_id, w.id";
    Statement::new(text)
        .unkept()
        .bind(id_list(children))
        .load(conn)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edge_decides_by_the_outcome() {
        let state = |runs_on: &str, otherwise: &str, outcome: Option<&str>| {
            let edge = Edge {
                child_job_id: 1,
                class_name: String::new(),
                runs_on: runs_on.to_owned(),
                otherwise: otherwise.to_owned(),
                outcome: outcome.map(str::to_owned),
            };
            edge.state()
        };
        for otherwise in ["drop", "wait"] {
            for runs_on in ["success", "failure", "finish"] {
                assert_eq!(state(runs_on, otherwise, None), EdgeState::Waits);
            }
            for (runs_on, outcome) in [
                ("success", SUCCEEDED),
                ("failure", FAILED),
                ("finish", FAILED),
            ] {
                assert_eq!(state(runs_on, otherwise, Some(outcome)), EdgeState::Open);
            }
        }
        assert_eq!(state("success", "drop", Some(FAILED)), EdgeState::Dropped);
        assert_eq!(state("success", "wait", Some(FAILED)), EdgeState::Waits);
        assert_eq!(
            state("failure", "drop", Some(SUCCEEDED)),
            EdgeState::Dropped
        );
    }
}
