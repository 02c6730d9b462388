//! The rows that enqueues leave, without what differs from one database to another: ids and the time
//! of the enqueue.

use super::TestDb;

/// Returns all jobs, executions and unique ids; a job is named by its place among the jobs.
pub fn rows(db: &TestDb) -> Vec<String> {
    let place = "(SELECT count(*) FROM solid_queue_jobs o WHERE o.id <= j.id)";
    let text = |column: &str| format!("coalesce(CAST({column} AS text), '-')");
    // A delay is seen by its distance from now, another time as it is.
    let time = |column: &str| match db.is_postgres() {
        true => format!(
            "CASE WHEN {column} BETWEEN '2026-01-01' AND '2099-01-01' OR {column} BETWEEN '3000-01-01' AND '9998-01-01' \
             THEN CAST(round(extract(epoch FROM {column} - j.updated_at), 2) AS text) \
             ELSE coalesce(to_char({column}, 'YYYY-MM-DD HH24:MI:SS.US'), '-') END"
        ),
        false => format!(
            "CASE WHEN {column} BETWEEN '2026-01-01' AND '2099-01-01' OR {column} BETWEEN '3000-01-01' AND '9998-01-01' \
             THEN CAST(round((julianday({column}) - julianday(j.updated_at)) * 86400, 2) AS text) \
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
        "policy",
        "unique_id",
        "concurrency_limit",
        "concurrency_on_conflict",
        "traceparent",
    ];
    let of = |table: &str, columns: &[&str], times: &[&str]| {
        let columns = columns.iter().map(|name| text(&format!("e.{name}")));
        let times = times.iter().map(|name| time(&format!("e.{name}")));
        let shown: Vec<String> = columns.chain(times).collect();
        format!(
            "SELECT '{table} ' || {place} || ' ' || {} AS t FROM {table} e JOIN solid_queue_jobs j ON j.id = {} ORDER BY j.id",
            shown.join(" || '|' || "),
            if table == "solid_queue_jobs" {
                "e.id"
            } else {
                "e.job_id"
            },
        )
    };
    let execution = ["queue_name", "priority"];
    [
        of("solid_queue_jobs", &columns, &["scheduled_at"]),
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
            &["queue_name", "priority", "concurrency_key"],
            &["expires_at"],
        ),
        of(
            "windlass_unique_jobs",
            &["unique_id", "scope", "after_job_id"],
            &[],
        ),
        "SELECT DISTINCT 'wanted ' || key AS t FROM windlass_wanted_keys ORDER BY 1".to_owned(),
    ]
    .iter()
    .flat_map(|query| db.texts(query))
    .collect()
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
