//! The numbers of jobs in each state.

use crate::read::sql::doctor::{FIRST, Inconsistent, Rule};
use crate::read::sql::newest_job::newest_id;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Double, Nullable, Text};
use windlass::Conn;
use windlass::database::Dialect;
use windlass::internal::db::conn::connection::age;
use windlass::internal::db::conn::dialect::{Id, Lossy};
use windlass::internal::db::conn::statement::Statement;
use windlass::internal::db::query::ready::{CappedCount, MOST};

/// The executions of each kind.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct StateTotals {
    pub(crate) ready: CappedCount,
    pub(crate) scheduled: CappedCount,
    pub(crate) claimed: CappedCount,
    pub(crate) blocked: CappedCount,
    pub(crate) failed: CappedCount,
}

impl StateTotals {
    /// Returns the sum, by state.
    pub(crate) fn plus(self, other: StateTotals) -> Self {
        StateTotals {
            ready: self.ready.plus(other.ready),
            scheduled: self.scheduled.plus(other.scheduled),
            claimed: self.claimed.plus(other.claimed),
            blocked: self.blocked.plus(other.blocked),
            failed: self.failed.plus(other.failed),
        }
    }

    /// Returns whether any state has more than was counted.
    pub(crate) fn is_more(&self) -> bool {
        let all = [
            self.ready,
            self.scheduled,
            self.claimed,
            self.blocked,
            self.failed,
        ];
        all.iter().any(|count| count.is_more)
    }
}

#[derive(QueryableByName)]
struct TotalsRow {
    #[diesel(sql_type = BigInt)]
    ready: i64,
    #[diesel(sql_type = BigInt)]
    scheduled: i64,
    #[diesel(sql_type = BigInt)]
    claimed: i64,
    #[diesel(sql_type = BigInt)]
    blocked: i64,
    #[diesel(sql_type = BigInt)]
    failed: i64,
}

/// Returns the expression that counts the executions of a kind, from the newest on: the rows that have
/// been deleted were the oldest.
fn count(state: &str) -> String {
    format!(
        "(SELECT count(*) FROM (SELECT 1 FROM solid_queue_{state}_executions WHERE id > 0 \
         ORDER BY id DESC LIMIT {}) AS {state}_rows) AS {state}",
        MOST + 1
    )
}

/// Counts the executions of each kind.
pub(crate) fn totals(conn: &mut Conn<'_>) -> QueryResult<StateTotals> {
    let counts = ["ready", "scheduled", "claimed", "blocked", "failed"].map(count);
    let text = format!("SELECT {}", counts.join(", "));
    let row: TotalsRow = Statement::new(text).get_result(conn)?;
    let of = |rows| CappedCount::of(rows, MOST);
    Ok(StateTotals {
        ready: of(row.ready),
        scheduled: of(row.scheduled),
        claimed: of(row.claimed),
        blocked: of(row.blocked),
        failed: of(row.failed),
    })
}

#[derive(QueryableByName)]
struct BlockedTotal {
    #[diesel(sql_type = BigInt)]
    blocked: i64,
}

/// Counts the blocked executions.
pub(crate) fn blocked(conn: &mut Conn<'_>) -> QueryResult<CappedCount> {
    let row: BlockedTotal =
        Statement::new(format!("SELECT {}", count("blocked"))).get_result(conn)?;
    Ok(CappedCount::of(row.blocked, MOST))
}

#[derive(QueryableByName)]
struct JobsEstimate {
    #[diesel(sql_type = BigInt)]
    jobs: i64,
}

/// Estimates the number of rows of jobs, finished ones as well: from the statistics of Postgres, and
/// from the lowest and the highest id on SQLite.
pub(crate) fn estimated_jobs(conn: &mut Conn<'_>) -> QueryResult<u64> {
    let by_ids = "(SELECT coalesce(max(id), 0) FROM solid_queue_jobs) - (SELECT coalesce(min(id), 1) FROM solid_queue_jobs) + 1";
    let text = match conn.dialect() {
        // A table that was never analyzed has -1 rows.
        Dialect::Postgres => format!(
            "SELECT CASE WHEN known.jobs >= 0 THEN known.jobs ELSE {by_ids} END AS jobs FROM \
             (SELECT CAST(reltuples AS bigint) AS jobs FROM pg_class \
              WHERE oid = CAST('solid_queue_jobs' AS regclass)) AS known"
        ),
        Dialect::Sqlite => format!("SELECT {by_ids} AS jobs"),
    };
    let row: JobsEstimate = Statement::new(text).get_result(conn)?;
    Ok(u64::try_from(row.jobs).unwrap_or(0))
}

// --- The rules of `doctor`, checked for the newest rows only ---

/// The number of the newest rows of each table that are checked.
pub(crate) const NEWEST: u32 = 500;

const STATES: [&str; 5] = ["ready", "claimed", "scheduled", "blocked", "failed"];

/// Among how many of the newest ids of jobs they are: Postgres passes each that was deleted lately.
const NEWEST_IDS: u32 = 100 * NEWEST;

/// Returns the id after which the newest jobs are.
fn before_newest(dialect: Dialect) -> String {
    match dialect {
        Dialect::Sqlite => "0".to_owned(),
        Dialect::Postgres => format!(
            "greatest({}, {NEWEST_IDS}) - {NEWEST_IDS}",
            newest_id(dialect)
        ),
    }
}

/// Returns a SELECT of the newest executions of a kind, with conditions on an execution `newest`.
fn newest(state: &str, condition: &str) -> String {
    format!(
        "SELECT newest.job_id AS id FROM (SELECT job_id, id FROM solid_queue_{state}_executions WHERE id > 0 \
         ORDER BY id DESC LIMIT {NEWEST}) AS newest WHERE {condition}"
    )
}

/// Returns an expression for how many executions of a kind a job has: one or none.
///
/// For EXISTS, Postgres may read the whole table once, instead of looking each job up.
fn count_in(state: &str, job: &str) -> String {
    format!("(SELECT count(*) FROM solid_queue_{state}_executions o WHERE o.job_id = {job})")
}

fn query(rule: Rule, dialect: Dialect) -> String {
    let of_all = |condition: &str| {
        STATES
            .map(|state| newest(state, condition))
            .join(" UNION ALL ")
    };
    let jobs = |condition: &str| {
        format!("(SELECT count(*) FROM solid_queue_jobs j WHERE j.id = newest.job_id{condition})")
    };
    match rule {
        Rule::IsSomewhere => {
            let everywhere = STATES.map(|state| count_in(state, "newest.id"));
            format!(
                "SELECT newest.id FROM (SELECT id, finished_at FROM solid_queue_jobs \
                   WHERE id > {} ORDER BY id DESC LIMIT {NEWEST}) \
                 AS newest WHERE newest.finished_at IS NULL AND {} = 0",
                before_newest(dialect),
                everywhere.join(" + ")
            )
        }
        Rule::IsInOneState => {
            let of_states = STATES.map(|state| {
                let others = STATES.iter().filter(|other| **other != state);
                let others: Vec<String> = others
                    .map(|other| count_in(other, "newest.job_id"))
                    .collect();
                newest(state, &format!("{} > 0", others.join(" + ")))
            });
            of_states.join(" UNION ")
        }
        Rule::HasLeft => of_all(&format!("{} > 0", jobs(" AND j.finished_at IS NOT NULL"))),
        Rule::IsThere => of_all(&format!("{} = 0", jobs(""))),
        Rule::IsHeld => format!(
            "SELECT newest.job_id AS id FROM (SELECT job_id, process_id, id FROM solid_queue_claimed_executions WHERE id > 0 \
             ORDER BY id DESC LIMIT {NEWEST}) AS newest \
             WHERE (SELECT count(*) FROM solid_queue_processes p WHERE p.id = newest.process_id) = 0"
        ),
    }
}

/// Finds the jobs that break a rule, among the newest rows.
pub(crate) fn inconsistent(conn: &mut Conn<'_>, rule: Rule) -> QueryResult<Inconsistent> {
    let text = format!(
        "SELECT id FROM ({}) AS inconsistent ORDER BY id",
        query(rule, conn.dialect())
    );
    let rows: Vec<Id> = Statement::new(text).uncached().load(conn)?;
    Ok(Inconsistent {
        count: rows.len() as i64,
        jobs: rows.into_iter().take(FIRST).map(|row| row.id).collect(),
    })
}

// --- One queue: what is next, what is scheduled, and its classes ---

/// Returns the ready jobs of a queue that are claimed next, in order.
pub(crate) fn next(conn: &mut Conn<'_>, queue: &str, limit: i64) -> QueryResult<Vec<i64>> {
    let text = "SELECT job_id AS id FROM solid_queue_ready_executions WHERE queue_name = $1 ORDER BY priority, job_id LIMIT $2";
    let rows: Vec<Id> = Statement::new(text).bind(queue).bind(limit).load(conn)?;
    Ok(rows.into_iter().map(|row| row.id).collect())
}

/// The scheduled jobs of a queue.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ScheduledJobs {
    pub(crate) count: CappedCount,
    /// Seconds until the first of them is due; negative if it is overdue.
    pub(crate) next_seconds: Option<f64>,
}

#[derive(QueryableByName)]
struct ScheduledRow {
    #[diesel(sql_type = BigInt)]
    jobs: i64,
    #[diesel(sql_type = BigInt)]
    of_all: i64,
    #[diesel(sql_type = Nullable<Double>)]
    due_seconds: Option<f64>,
}

/// Returns the scheduled jobs of a queue, among the first 10,000 of all queues.
pub(crate) fn scheduled(conn: &mut Conn<'_>, queue: &str) -> QueryResult<ScheduledJobs> {
    let text = format!(
        "WITH first AS MATERIALIZED (SELECT queue_name, scheduled_at FROM solid_queue_scheduled_executions \
           WHERE scheduled_at > {{time '0001-01-01 00:00:00.000000'}} ORDER BY scheduled_at, priority, job_id LIMIT {}), \
         own AS MATERIALIZED (SELECT count(*) AS jobs, min(scheduled_at) AS due FROM first WHERE queue_name = $1) \
         SELECT jobs, (SELECT count(*) FROM first) AS of_all, {} AS due_seconds FROM own",
        MOST + 1,
        age(conn, "due")
    );
    let row: ScheduledRow = Statement::new(text).bind(queue).get_result(conn)?;
    Ok(ScheduledJobs {
        count: CappedCount::part(row.jobs, row.of_all > MOST),
        next_seconds: row.due_seconds.map(|seconds| -seconds),
    })
}

/// The jobs of a class in one state.
#[derive(Debug, QueryableByName)]
pub(crate) struct ClassCount {
    #[diesel(sql_type = Text, deserialize_as = Lossy)]
    pub(crate) class_name: String,
    #[diesel(sql_type = BigInt)]
    pub(crate) jobs: i64,
}

/// The number of the next ready jobs that are counted by class.
const NEXT_CLASSES: i64 = 2_000;

/// Counts the next 2,000 ready jobs of a queue by class, and says whether there are more.
pub(crate) fn ready_classes(
    conn: &mut Conn<'_>,
    queue: &str,
) -> QueryResult<(Vec<ClassCount>, bool)> {
    // Ruby's processes do not store the class with the execution.
    let text = format!(
        "SELECT class_name, count(*) AS jobs FROM (SELECT coalesce(next.class_name, \
           (SELECT j.class_name FROM solid_queue_jobs j WHERE j.id = next.job_id), '') AS class_name FROM ( \
             SELECT job_id, class_name FROM solid_queue_ready_executions WHERE queue_name = $1 \
             ORDER BY priority, job_id LIMIT {}) AS next) AS named GROUP BY class_name",
        NEXT_CLASSES + 1
    );
    let classes: Vec<ClassCount> = Statement::new(text).bind(queue).load(conn)?;
    let read: i64 = classes.iter().map(|class| class.jobs).sum();
    Ok((classes, read > NEXT_CLASSES))
}
