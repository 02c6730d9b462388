//! Walks over the jobs of a batch and of the batches in it, a page at a time.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::Id;
use crate::db::conn::statement::Statement;
use crate::db::model::decision::JobState;
use crate::db::model::new_row::WAITS_FOR_PARENTS;
use crate::db::query::doctor::{FIRST, Inconsistent};
use crate::db::table::flows::batches::{IS_OPEN, IS_OURS};
use crate::db::table::wanted_keys::{BATCH, CHILD, is_requested_sql};
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

// --- The rules of `doctor` about batches, each checked for a bounded number of rows ---

/// The most rows that a check reads: the oldest batches that are not over, or jobs that wait for others.
pub(crate) const READ: u32 = 10_000;

/// The age from which a batch is reported by a check, in microseconds.
const SETTLED: i64 = 300_000_000;

/// A rule about batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BatchRule {
    /// A batch without a job that has not ended is marked as over, or that was requested.
    IsMarked,
    /// A job that follows a batch which is not over waits.
    Waits,
    /// A job that waits has something to wait for.
    HasParent,
    /// A job whose parents are over does not wait, or its promotion was requested.
    IsLetGo,
}

impl BatchRule {
    pub(crate) const ALL: [BatchRule; 4] = [
        BatchRule::IsMarked,
        BatchRule::Waits,
        BatchRule::HasParent,
        BatchRule::IsLetGo,
    ];

    /// Returns a SELECT of what breaks it, as `id`: of batches, or of jobs. Each is one statement, so that it sees the end
    /// of a job together with the request that this end makes.
    fn query(self) -> String {
        let open = format!(
            "(SELECT id FROM solid_queue_batches WHERE finished_at IS NULL ORDER BY id LIMIT {READ}) AS oldest \
             JOIN solid_queue_batches b ON b.id = oldest.id"
        );
        let waiting = format!(
            "(SELECT x.job_id FROM solid_queue_blocked_executions x WHERE x.concurrency_key = '{WAITS_FOR_PARENTS}' \
             ORDER BY x.priority, x.job_id LIMIT {READ}) AS x"
        );
        let lost = "coalesce((SELECT f.is_final FROM windlass_batch_failures f WHERE f.batch_id = w.parent_batch_id \
             AND f.is_final LIMIT 1), false)";
        let edge = "(SELECT w.id FROM windlass_edges w WHERE w.child_job_id = x.job_id LIMIT 1) IS NOT NULL";
        match self {
            BatchRule::IsMarked => format!(
                "SELECT b.id FROM {open} WHERE {IS_OURS} AND b.enqueued_at < {{later $1}} AND NOT {IS_OPEN} AND NOT {}",
                is_requested_sql(BATCH, "b.id")
            ),
            // The edges of each batch by their index.
            BatchRule::Waits => format!(
                "SELECT w.child_job_id AS id FROM {open} JOIN windlass_edges w ON w.parent_batch_id = b.id \
                 WHERE {IS_OURS} AND b.enqueued_at < {{later $1}} AND w.outcome IS NULL \
                 AND (SELECT j.id FROM solid_queue_jobs j WHERE j.id = w.child_job_id AND j.finished_at IS NULL) IS NOT NULL \
                 AND (SELECT x.id FROM solid_queue_blocked_executions x WHERE x.job_id = w.child_job_id \
                   AND x.concurrency_key || '' = '{WAITS_FOR_PARENTS}') IS NULL"
            ),
            BatchRule::HasParent => format!(
                "SELECT x.job_id AS id FROM {waiting} WHERE NOT {edge} \
                 AND (SELECT j.id FROM solid_queue_jobs j WHERE j.id = x.job_id AND j.created_at < {{later $1}}) IS NOT NULL"
            ),
            BatchRule::IsLetGo => format!(
                "SELECT x.job_id AS id FROM {waiting} WHERE {edge} \
                 AND (SELECT j.id FROM solid_queue_jobs j WHERE j.id = x.job_id AND j.created_at < {{later $1}}) IS NOT NULL \
                 AND (SELECT w.id FROM windlass_edges w WHERE w.child_job_id = x.job_id AND (w.outcome IS NULL \
                   OR w.otherwise = 'wait' AND (w.runs_on = 'success' AND w.outcome <> 'succeeded' AND NOT {lost} \
                     OR w.runs_on = 'failure' AND w.outcome <> 'failed')) LIMIT 1) IS NULL \
                 AND NOT {}",
                is_requested_sql(CHILD, "x.job_id")
            ),
        }
    }
}

/// Finds what breaks a rule: batches for [`BatchRule::IsMarked`], jobs for the others.
pub(crate) fn broken(conn: &mut Conn<'_>, rule: BatchRule) -> QueryResult<Inconsistent> {
    let text = format!(
        "SELECT id FROM ({}) AS broken ORDER BY id LIMIT {READ}",
        rule.query()
    );
    let rows: Vec<Id> = Statement::new(text).uncached().bind(-SETTLED).load(conn)?;
    Ok(Inconsistent {
        count: rows.len() as i64,
        jobs: rows.into_iter().take(FIRST).map(|row| row.id).collect(),
    })
}
