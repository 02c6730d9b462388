//! The queries of `windlass doctor`: read-only, one snapshot each.

pub(crate) mod batches;
pub(crate) mod unserved;
#[cfg(feature = "sqlite")]
pub(crate) mod write_lock;

use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Double, Integer, Nullable, Text};
use std::collections::BTreeSet;
use windlass::Conn;
use windlass::database::Dialect;
use windlass::internal::db::conn::connection::age;
use windlass::internal::db::conn::dialect::{Id, Lossy};
use windlass::internal::db::conn::statement::Statement;
use windlass::internal::db::schema::migrations;
use windlass::internal::db::table::recurring_tasks;

/// A rule that every transaction keeps, and that only a change by another program can break.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// A job that has not finished has an execution.
    IsSomewhere,
    /// No job has two executions.
    IsInOneState,
    /// A finished job has no execution.
    HasLeft,
    /// An execution has a job.
    IsThere,
    /// A claim has a process.
    IsHeld,
}

impl Rule {
    pub(crate) const ALL: [Rule; 5] = [
        Rule::IsSomewhere,
        Rule::IsInOneState,
        Rule::HasLeft,
        Rule::IsThere,
        Rule::IsHeld,
    ];

    /// Returns the name of its check.
    pub(crate) fn check(self) -> &'static str {
        match self {
            Rule::IsSomewhere => "lost",
            Rule::IsInOneState => "places",
            Rule::HasLeft => "finished",
            Rule::IsThere => "orphans",
            Rule::IsHeld => "claims",
        }
    }

    /// Returns a SELECT of the jobs that break it, as `id`.
    fn query(self) -> String {
        let states = ["ready", "claimed", "scheduled", "blocked", "failed"];
        let table = |state: &str| format!("solid_queue_{state}_executions");
        let all = states.map(|state| format!("SELECT job_id FROM {}", table(state)));
        let all = all.join(" UNION ALL ");
        match self {
            Rule::IsSomewhere => {
                let nowhere = states.map(|state| {
                    format!(
                        "NOT EXISTS (SELECT 1 FROM {} e WHERE e.job_id = j.id)",
                        table(state)
                    )
                });
                format!(
                    "SELECT j.id FROM solid_queue_jobs j WHERE j.finished_at IS NULL AND {}",
                    nowhere.join(" AND ")
                )
            }
            Rule::IsInOneState => {
                format!("SELECT job_id AS id FROM ({all}) AS e GROUP BY job_id HAVING count(*) > 1")
            }
            Rule::HasLeft => format!(
                "SELECT j.id FROM ({all}) AS e JOIN solid_queue_jobs j ON j.id = e.job_id WHERE j.finished_at IS NOT NULL"
            ),
            Rule::IsThere => format!(
                "SELECT e.job_id AS id FROM ({all}) AS e \
                 WHERE NOT EXISTS (SELECT 1 FROM solid_queue_jobs j WHERE j.id = e.job_id)"
            ),
            Rule::IsHeld => "SELECT c.job_id AS id FROM solid_queue_claimed_executions c \
                 WHERE NOT EXISTS (SELECT 1 FROM solid_queue_processes p WHERE p.id = c.process_id)"
                .to_owned(),
        }
    }
}

/// The jobs that break a rule: their number, and the first few.
#[derive(Debug, Default)]
pub(crate) struct Inconsistent {
    pub(crate) count: i64,
    pub(crate) jobs: Vec<i64>,
}

#[derive(QueryableByName)]
struct InconsistentJob {
    #[diesel(sql_type = BigInt)]
    id: i64,
    #[diesel(sql_type = BigInt)]
    count: i64,
}

/// The most jobs that are named.
pub(crate) const FIRST: usize = 5;

/// Finds the jobs that break a rule.
pub(crate) fn inconsistent(conn: &mut Conn<'_>, rule: Rule) -> QueryResult<Inconsistent> {
    let text = format!(
        "WITH inconsistent AS ({}) SELECT id, (SELECT count(*) FROM inconsistent) AS count FROM inconsistent ORDER BY id LIMIT {FIRST}",
        rule.query()
    );
    let rows: Vec<InconsistentJob> = Statement::new(text).uncached().load(conn)?;
    Ok(Inconsistent {
        count: rows.first().map_or(0, |row| row.count),
        jobs: rows.iter().map(|row| row.id).collect(),
    })
}

/// The migrations of a database, compared with those of this program.
#[derive(Debug)]
pub(crate) struct MigrationDifference {
    pub(crate) lacking: Vec<String>,
    /// Applied, and not known to this program.
    pub(crate) unknown: Vec<String>,
}

/// Compares the migrations.
pub(crate) fn migrations(conn: &mut Conn<'_>) -> windlass::Result<MigrationDifference> {
    let known = migrations::known();
    let applied = migrations::applied(conn)?;
    let less = |a: &BTreeSet<String>, b: &BTreeSet<String>| a.difference(b).cloned().collect();
    Ok(MigrationDifference {
        lacking: less(&known, &applied),
        unknown: less(&applied, &known),
    })
}

/// The version of the database.
#[derive(Debug, QueryableByName)]
pub(crate) struct DatabaseVersion {
    /// The version as the database reports it.
    #[diesel(sql_type = Text)]
    pub(crate) version: String,
    /// The version as a number: 150004 for Postgres 15.4.
    #[diesel(sql_type = Integer)]
    pub(crate) number: i32,
    /// SQLite's journal mode; `server` for Postgres.
    #[diesel(sql_type = Text)]
    pub(crate) journal: String,
    /// SQLite's file; empty for a server and for a database in memory.
    #[diesel(sql_type = Text)]
    pub(crate) file: String,
}

pub(crate) fn version(conn: &mut Conn<'_>) -> QueryResult<DatabaseVersion> {
    let text = match conn.dialect() {
        Dialect::Postgres => {
            "SELECT 'Postgres ' || current_setting('server_version') AS version, \
             current_setting('server_version_num')::integer AS number, 'server' AS journal, '' AS file"
        }
        // Older versions are refused when a connection is opened.
        Dialect::Sqlite => {
            "SELECT 'SQLite ' || sqlite_version() AS version, 0 AS number, \
             (SELECT journal_mode FROM pragma_journal_mode) AS journal, \
             (SELECT file FROM pragma_database_list WHERE name = 'main') AS file"
        }
    };
    Statement::new(text).uncached().get_result(conn)
}

/// The standbys of a server, and what a commit waits for.
#[derive(Debug, QueryableByName)]
pub(crate) struct Replication {
    #[diesel(sql_type = BigInt)]
    pub(crate) standbys: i64,
    /// Those that confirm commits.
    #[diesel(sql_type = BigInt)]
    pub(crate) synchronous: i64,
    /// Those whose state this role may not see.
    #[diesel(sql_type = BigInt)]
    pub(crate) hidden: i64,
    /// `synchronous_commit`.
    #[diesel(sql_type = Text)]
    pub(crate) commit: String,
}

/// Returns nothing for SQLite, which has no standbys.
pub(crate) fn replication(conn: &mut Conn<'_>) -> QueryResult<Option<Replication>> {
    // A backup that is under way is no standby; what a role may not see is NULL.
    let text = match conn.dialect() {
        Dialect::Postgres => {
            "SELECT count(pid) AS standbys, count(*) FILTER (WHERE sync_state IN ('sync', 'quorum')) AS synchronous, \
             count(pid) FILTER (WHERE state IS NULL) AS hidden, current_setting('synchronous_commit') AS \"commit\" \
             FROM pg_stat_replication WHERE state IS NULL OR state IN ('streaming', 'catchup')"
        }
        Dialect::Sqlite => return Ok(None),
    };
    Statement::new(text).uncached().get_result(conn).map(Some)
}

/// Counts the triggers of the audit that are disabled. SQLite cannot disable one.
pub(crate) fn disabled_triggers(conn: &mut Conn<'_>) -> QueryResult<i64> {
    let text = match conn.dialect() {
        Dialect::Postgres => {
            "SELECT count(*) AS id FROM pg_trigger WHERE tgrelid = 'windlass_audit'::regclass \
             AND tgenabled NOT IN ('O', 'A')"
        }
        Dialect::Sqlite => "SELECT 0 AS id",
    };
    let row: Id = Statement::new(text).uncached().get_result(conn)?;
    Ok(row.id)
}

/// The waiting jobs, and what keeps dead rows from being removed.
#[derive(Debug, QueryableByName)]
pub(crate) struct Load {
    /// Seconds since the first scheduled job was due.
    #[diesel(sql_type = Nullable<Double>)]
    pub(crate) overdue: Option<f64>,
    /// That job.
    #[diesel(sql_type = Nullable<BigInt>)]
    pub(crate) first_due: Option<i64>,
    /// True if jobs are ready on a queue that is not paused.
    #[diesel(sql_type = Bool)]
    pub(crate) has_ready: bool,
    #[diesel(sql_type = Bool)]
    pub(crate) has_scheduled: bool,
    #[diesel(sql_type = Bool)]
    pub(crate) has_blocked: bool,
    /// Seconds since the oldest other open transaction of this database started. `None` if there is
    /// none, or if it cannot be determined.
    #[diesel(sql_type = Nullable<Double>)]
    pub(crate) transaction: Option<f64>,
    /// The session of that transaction.
    #[diesel(sql_type = Nullable<Text>)]
    pub(crate) holder: Option<String>,
}

pub(crate) fn load(conn: &mut Conn<'_>) -> QueryResult<Load> {
    let overdue = age(conn, "min(scheduled_at)");
    let oldest = match conn.dialect() {
        Dialect::Postgres => {
            "SELECT extract(epoch FROM clock_timestamp() - xact_start)::float8 AS \"transaction\", \
             'pid ' || pid || coalesce(' (' || nullif(application_name, '') || ')', '') || ', ' || state AS holder \
             FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() \
             AND backend_type = 'client backend' AND xact_start IS NOT NULL ORDER BY xact_start LIMIT 1"
        }
        Dialect::Sqlite => {
            "SELECT CAST(NULL AS double precision) AS \"transaction\", CAST(NULL AS text) AS holder"
        }
    };
    let text = format!(
        "SELECT (SELECT {overdue} FROM solid_queue_scheduled_executions WHERE scheduled_at <= {{now}}) AS overdue, \
         (SELECT job_id FROM solid_queue_scheduled_executions WHERE scheduled_at <= {{now}} \
           ORDER BY scheduled_at, priority, job_id LIMIT 1) AS first_due, \
         EXISTS (SELECT 1 FROM solid_queue_ready_executions r WHERE r.queue_name NOT IN \
           (SELECT p.queue_name FROM solid_queue_pauses p)) AS has_ready, \
         EXISTS (SELECT 1 FROM solid_queue_scheduled_executions) AS has_scheduled, \
         EXISTS (SELECT 1 FROM solid_queue_blocked_executions) AS has_blocked, oldest.* \
         FROM (SELECT 1) AS one LEFT JOIN ({oldest}) AS oldest ON true"
    );
    Statement::new(text).uncached().get_result(conn)
}

/// The recurring tasks of Windlass that are not paused.
#[derive(Debug)]
pub(crate) struct TaskCounts {
    pub(crate) known: i64,
    pub(crate) overdue: i64,
    /// The task that has been due for longest, if it is overdue.
    pub(crate) late: Option<LateTask>,
    /// Those that no scheduler declares any more, which are counted nowhere else.
    pub(crate) undeclared: Vec<String>,
}

#[derive(Debug)]
pub(crate) struct LateTask {
    pub(crate) key: String,
    pub(crate) seconds: f64,
    /// True if a program declares it; then only that program's schedulers fire it.
    pub(crate) is_declared: bool,
}

#[derive(QueryableByName)]
struct TaskDue {
    #[diesel(sql_type = Text)]
    key: String,
    #[diesel(sql_type = Nullable<Double>)]
    seconds: Option<f64>,
    #[diesel(sql_type = Bool)]
    is_declared: bool,
    #[diesel(sql_type = Bool)]
    is_undeclared: bool,
}

/// Reads the recurring tasks. One is late if it has been due for `late` seconds by the database's
/// clock.
pub(crate) fn tasks(conn: &mut Conn<'_>, late: f64) -> QueryResult<TaskCounts> {
    let age = age(conn, "next_run_at");
    let text = format!(
        "SELECT key, {age} AS seconds, declared_at IS NOT NULL AS is_declared, {} AS is_undeclared \
         FROM solid_queue_recurring_tasks WHERE next_run_at IS NOT NULL AND paused_at IS NULL ORDER BY next_run_at, id",
        recurring_tasks::is_undeclared(conn)
    );
    let rows: Vec<TaskDue> = Statement::new(text).uncached().load(conn)?;
    let (undeclared, rows): (Vec<TaskDue>, Vec<TaskDue>) =
        rows.into_iter().partition(|row| row.is_undeclared);
    let known = rows.len() as i64;
    let is_late = |row: &TaskDue| row.seconds.is_some_and(|seconds| seconds > late);
    let mut overdue = rows.into_iter().filter(is_late);
    let first = overdue.next();
    Ok(TaskCounts {
        known,
        overdue: overdue.count() as i64 + i64::from(first.is_some()),
        late: first.map(|row| LateTask {
            key: row.key,
            seconds: row.seconds.unwrap_or_default(),
            is_declared: row.is_declared,
        }),
        undeclared: undeclared.into_iter().map(|row| row.key).collect(),
    })
}

// --- Requests for promotions that are not handled ---

/// The most requests that are read, the oldest first.
pub(crate) const READ: u32 = 10_000;

/// From this number on, a promotion that was refused is reported.
pub(crate) const OFTEN: i32 = 10;

/// For how long a request has waited that is reported, in microseconds.
const LONG: i64 = 60_000_000;

/// A request that has waited for long, or whose promotion the database has refused often.
#[derive(Debug, QueryableByName)]
pub(crate) struct StuckRequest {
    #[diesel(sql_type = Text, deserialize_as = Lossy)]
    pub(crate) key: String,
    #[diesel(sql_type = Integer)]
    pub(crate) failures: i32,
    #[diesel(sql_type = Double)]
    pub(crate) seconds: f64,
}

/// Returns those requests.
pub(crate) fn stuck(conn: &mut Conn<'_>) -> QueryResult<Vec<StuckRequest>> {
    let text = format!(
        "SELECT w.key, coalesce(w.failures, 0) AS failures, coalesce({}, 0) AS seconds \
         FROM (SELECT id, key, failures, waiting_since FROM windlass_wanted_keys WHERE id > 0 ORDER BY id LIMIT {READ}) AS w \
         WHERE w.failures >= {OFTEN} OR w.waiting_since < {{later $1}}",
        age(conn, "w.waiting_since"),
    );
    Statement::new(text).uncached().bind(-LONG).load(conn)
}
