//! Walks over the jobs of a batch and of the batches in it, a page at a time.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::Id;
use crate::db::conn::statement::Statement;
use crate::db::model::decision::JobState;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Nullable};
use serde::{Deserialize, Serialize};

/// The jobs of a batch that a walk passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Members {
    /// Those that have not ended.
    Open,
    /// Those that ended without success.
    Failed,
}

impl Members {
    /// Returns a state of such jobs, where a change of jobs needs one: waiting and running ones are found by their ids.
    pub(crate) fn state(self) -> JobState {
        match self {
            Members::Open => JobState::Ready,
            Members::Failed => JobState::Failed,
        }
    }

    fn table(self) -> &'static str {
        match self {
            Members::Open => "solid_queue_batch_executions",
            Members::Failed => "windlass_batch_failures",
        }
    }
}

/// A part of a batch that is walked over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Part {
    /// Its jobs, and the batches in it that are among them.
    Jobs,
    /// Batches in it that are not over, for a walk over failed jobs: they may have some.
    OpenBatches,
}

/// The position of a walk in a part of a batch: the last job that it has passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct BatchPosition(i64, Part, i64);

/// The rest of a walk: positions in batches, of which the last comes next.
///
/// A job that stands for a batch in the batch around it is not passed itself: it ends with its batch.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct BatchWalk(Vec<BatchPosition>);

/// A job of a batch.
#[derive(Debug, QueryableByName)]
pub(crate) struct MemberRow {
    #[diesel(sql_type = BigInt)]
    pub(crate) job_id: i64,
    /// The batch that the job stands for.
    #[diesel(sql_type = Nullable<BigInt>)]
    pub(crate) inner_batch: Option<i64>,
}

/// The most pages without a job that are read before the walk is interrupted.
const MOST_PAGES: usize = 100;

/// The number of jobs that are read at once when only batches are looked for.
const LOOKED_AT: usize = 5_000;

impl BatchWalk {
    /// Starts a walk over jobs of a batch.
    pub(crate) fn of(batch: i64, which: Members) -> Self {
        let mut walk = BatchWalk::default();
        walk.add(batch, which);
        walk
    }

    fn add(&mut self, batch: i64, which: Members) {
        if which == Members::Failed {
            self.0.push(BatchPosition(batch, Part::OpenBatches, 0));
        }
        self.0.push(BatchPosition(batch, Part::Jobs, 0));
    }

    pub(crate) fn is_done(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the next jobs, at most `limit`. There may be none although the walk is not done. Jobs that are added
    /// to a batch during the walk are found as well, as their ids are higher.
    pub(crate) fn next(
        &mut self,
        conn: &mut Conn<'_>,
        which: Members,
        limit: usize,
    ) -> QueryResult<Vec<i64>> {
        for _ in 0..MOST_PAGES {
            let Some(BatchPosition(batch, part, after)) = self.0.pop() else {
                break;
            };
            let (table, most) = match part {
                Part::Jobs => (which, limit),
                Part::OpenBatches => (Members::Open, LOOKED_AT),
            };
            let rows = page(conn, table, (batch, after), most)?;
            if rows.len() >= most
                && let Some(last) = rows.last()
            {
                self.0.push(BatchPosition(batch, part, last.job_id));
            }
            for inner in rows.iter().rev().filter_map(|row| row.inner_batch) {
                self.add(inner, which);
            }
            let jobs = rows.iter().filter(|row| row.inner_batch.is_none());
            let jobs: Vec<i64> = jobs.map(|row| row.job_id).collect();
            if part == Part::Jobs && !jobs.is_empty() {
                return Ok(jobs);
            }
        }
        Ok(Vec::new())
    }
}

/// Returns the next jobs of one batch, at most `limit`.
pub(crate) fn page(
    conn: &mut Conn<'_>,
    which: Members,
    (batch, after): (i64, i64),
    limit: usize,
) -> QueryResult<Vec<MemberRow>> {
    let text = format!(
        "SELECT m.job_id, (SELECT w.parent_batch_id FROM windlass_edges w \
           WHERE w.child_job_id = m.job_id AND w.otherwise = 'nest' LIMIT 1) AS inner_batch \
         FROM {} m WHERE m.batch_id = $1 AND m.job_id > $2 ORDER BY m.job_id LIMIT $3",
        which.table()
    );
    Statement::new(text)
        .bind(batch)
        .bind(after)
        .bind(i64::try_from(limit).unwrap_or(i64::MAX))
        .load(conn)
}

/// Returns the last job of a batch; 0 if there is none.
pub(crate) fn last(conn: &mut Conn<'_>, which: Members, batch: i64) -> QueryResult<i64> {
    let text = format!(
        "SELECT m.job_id AS id FROM {} m WHERE m.batch_id = $1 ORDER BY m.job_id DESC LIMIT 1",
        which.table()
    );
    let row: Option<Id> = Statement::new(text)
        .uncached()
        .bind(batch)
        .get_result(conn)
        .optional()?;
    Ok(row.map_or(0, |row| row.id))
}
