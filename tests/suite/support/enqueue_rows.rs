//! The rows that enqueues leave, without what differs from one database to another: ids and the time
//! of the enqueue.

use super::TestDb;
use super::db::texts;
use serde_json::Value;
use windlass::{AsConn, Conn};

/// Returns all jobs, executions and unique ids; a job is named by its place among the jobs.
pub fn rows(db: &TestDb) -> Vec<String> {
    rows_after(&mut db.connection(), 0)
}

/// Returns the same of the jobs that are behind the first `known`, and of those that later jobs may
/// change: they hold a unique id.
pub fn rows_after<C: AsConn>(conn: &mut C, known: i64) -> Vec<String> {
    let is_sqlite = matches!(conn.as_conn(), Conn::Sqlite(_));
    // Counted once for all jobs, not once for each.
    let placed = "(SELECT o.id, o.updated_at, row_number() OVER (ORDER BY o.id) AS place FROM solid_queue_jobs o)";
    let text = |column: &str| format!("coalesce(CAST({column} AS text), '-')");
    // A delay is seen by its distance from now, another time as it is. An expiry counts from a later statement.
    let time = |column: &str, unit: &str| match is_sqlite {
        false => format!(
            "CASE WHEN {column} BETWEEN '2026-01-01' AND '2099-01-01' OR {column} BETWEEN '3000-01-01' AND '9998-01-01' \
             THEN CAST(round(extract(epoch FROM {column} - j.updated_at) / {unit}, 2) AS text) \
             ELSE coalesce(to_char({column}, 'YYYY-MM-DD HH24:MI:SS.US'), '-') END"
        ),
        true => format!(
            "CASE WHEN {column} BETWEEN '2026-01-01' AND '2099-01-01' OR {column} BETWEEN '3000-01-01' AND '9998-01-01' \
             THEN CAST(round((julianday({column}) - julianday(j.updated_at)) * 86400 / {unit}, 2) AS text) \
             ELSE coalesce({column}, '-') END"
        ),
    };
    let columns = [
        "queue_name",
        "class_name",
        "arguments",
        "priority",
        "active_job_id",
        "concurrency_key",
        "attempts",
        "max_attempts",
        "crash_count",
        "max_crashes",
        "at_most_once",
        "idempotency_key",
        "unique_id",
        "concurrency_slots",
        "concurrency_conflict",
        "traceparent",
        "tenant",
        "batch_id",
        "rates",
        "gate",
    ];
    let of = |table: &str, columns: &[&str], times: &[&str]| {
        let columns = columns.iter().map(|name| text(&format!("e.{name}")));
        let unit = match table {
            "windlass_expiries" => "10000",
            _ => "1",
        };
        let times = times.iter().map(|name| time(&format!("e.{name}"), unit));
        let shown: Vec<String> = columns.chain(times).collect();
        format!(
            "WITH placed AS MATERIALIZED {placed} SELECT '{table} ' || j.place || ' ' || {} AS t \
             FROM {table} e JOIN placed j ON j.id = {} \
             WHERE j.place > {known} OR j.id IN (SELECT job_id FROM windlass_unique_jobs) ORDER BY j.id",
            shown.join(" || '|' || "),
            match table {
                "solid_queue_jobs" => "e.id",
                "windlass_edges" => "e.child_job_id",
                _ => "e.job_id",
            },
        )
    };
    let execution = ["queue_name", "priority"];
    let policies = policies(conn, known);
    [
        of("solid_queue_jobs", &columns, &["scheduled_at"]),
        of("windlass_expiries", &[], &["expires_at"]),
        of(
            "solid_queue_ready_executions",
            &[
                "queue_name",
                "priority",
                "class_name",
                "cautious",
                "concurrency_key",
            ],
            &[],
        ),
        of(
            "solid_queue_scheduled_executions",
            &execution,
            &["scheduled_at"],
        ),
        of(
            "solid_queue_blocked_executions",
            &["queue_name", "priority", "concurrency_key", "gate"],
            &["expires_at"],
        ),
        of(
            "windlass_unique_jobs",
            &["unique_id", "scope", "after_job_id"],
            &[],
        ),
        of("solid_queue_batch_executions", &["batch_id"], &[]),
        of(
            "windlass_edges",
            &["parent_job_id", "parent_batch_id", "runs_on", "otherwise"],
            &[],
        ),
        "SELECT DISTINCT 'wanted ' || coalesce(key, kind || ' ' || CASE WHEN kind = 'batch' THEN target_id ELSE 0 END || coalesce(' ' || name, '')) AS t \
         FROM windlass_wanted_keys ORDER BY 1"
            .to_owned(),
        "SELECT 'added ' || target_id || ' ' || coalesce(sum(amount), 0) AS t FROM windlass_wanted_keys WHERE kind = 'batch' \
         GROUP BY target_id ORDER BY 1"
            .to_owned(),
    ]
    .iter()
    .flat_map(|query| texts(conn, query))
    .chain(policies)
    .collect()
}

/// Returns the policies of jobs. Databases write the same JSON differently.
fn policies<C: AsConn>(conn: &mut C, known: i64) -> Vec<String> {
    let text = format!(
        "SELECT j.place || ' ' || j.policy AS t FROM \
         (SELECT o.policy, o.id, row_number() OVER (ORDER BY o.id) AS place FROM solid_queue_jobs o) j \
         WHERE j.policy IS NOT NULL AND (j.place > {known} OR j.id IN (SELECT job_id FROM windlass_unique_jobs)) ORDER BY j.id"
    );
    let read = |row: String| {
        let (place, policy) = row.split_once(' ').unwrap();
        let policy: Value = serde_json::from_str(policy).unwrap();
        format!("policy {place} {policy}")
    };
    texts(conn, &text).into_iter().map(read).collect()
}

/// Compares the rows of two databases, and shows only those that differ.
pub fn compare(of: &str, one: Vec<String>, other: Vec<String>) {
    let differ = |these: &[String], those: &[String]| -> Vec<String> {
        let differ = these.iter().filter(|row| !those.contains(row));
        differ.cloned().collect()
    };
    let (left, right) = (differ(&one, &other), differ(&other, &one));
    assert!(one == other, "{of}: {left:#?} and {right:#?}");
}
