//! Claims jobs in the transaction of the promotion that lets them through: without a ready execution, which this process would
//! delete again at once.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{Dialect, Id, id_list};
use crate::db::conn::statement::Statement;
use crate::db::model::claim::{ClaimQueues, Claimed, ClaimedRow, ClaimsAtGate};
use crate::db::table::claimed::ENQUEUED_AT;
use crate::db::transition::claim::sqlite;
use diesel::prelude::*;
use std::sync::LazyLock;

/// Claims those of these jobs, up to the most that the process starts at once, that it may run. The caller makes the others ready:
/// also those that must not be marked as started before a thread is free for them.
///
/// It waits for no lock of the process's row, since the promotion has locked gates.
pub(crate) fn claim_passed(
    conn: &mut Conn<'_>,
    passed: &[i64],
    by: &ClaimsAtGate,
) -> QueryResult<Vec<Claimed>> {
    let first = &passed[..passed.len().min(by.most)];
    if first.is_empty() {
        return Ok(Vec::new());
    }
    let names: &[String] = match &by.next.queues {
        ClaimQueues::All => &[],
        ClaimQueues::Named(names) => names,
    };
    match conn.dialect() {
        Dialect::Postgres => {
            let statement = Statement::new(&**POSTGRES).bind(by.process_id).bind(first);
            let statement = statement.bind(&by.next.classes[..]).bind(names);
            statement.bind(by.is_ahead).load(conn)
        }
        Dialect::Sqlite => {
            let json = |texts: &[String]| serde_json::to_string(texts).unwrap_or_default();
            let statement = Statement::new(&**SQLITE).bind(by.process_id);
            let statement = statement.bind(id_list(first)).bind(json(&by.next.classes));
            let statement = statement.bind(json(names)).bind(by.is_ahead);
            let claims: Vec<Id> = statement.load(conn)?;
            let claims: Vec<i64> = claims.into_iter().map(|claim| claim.id).collect();
            if claims.is_empty() {
                return Ok(Vec::new());
            }
            sqlite::held(conn, &claims)
        }
    }
}

static POSTGRES: LazyLock<String> = LazyLock::new(|| {
    let row = ClaimedRow {
        claim_id: "one.id",
        waited: "CAST(0 AS float8)",
        created_at: ENQUEUED_AT,
        begun: "true",
        is_wanted: "false",
        has_blocked: "false",
    };
    let held = held(
        "id = ANY ($2) AND class_name = ANY ($3) AND (cardinality($4) = 0 OR queue_name = ANY ($4)) \
         AND EXISTS (SELECT 1 FROM me)",
    );
    format!(
        "WITH me AS MATERIALIZED (SELECT id FROM solid_queue_processes WHERE id = $1 AND NOT draining FOR KEY SHARE SKIP LOCKED), \
         begun AS ({held} RETURNING id, job_id) \
         SELECT {} FROM begun AS one JOIN solid_queue_jobs j ON j.id = one.job_id",
        row.columns()
    )
});

static SQLITE: LazyLock<String> = LazyLock::new(|| {
    let held = held(
        "id IN (SELECT value FROM json_each($2)) AND class_name IN (SELECT value FROM json_each($3)) \
         AND ($4 = '[]' OR queue_name IN (SELECT value FROM json_each($4))) \
         AND EXISTS (SELECT 1 FROM solid_queue_processes WHERE id = $1 AND NOT draining)",
    );
    format!("{held} RETURNING id")
});

/// Returns an INSERT of claims of the jobs of a condition. `$5` is true if more are claimed than threads are free.
fn held(condition: &str) -> String {
    format!(
        "INSERT INTO solid_queue_claimed_executions (job_id, process_id, created_at, started_at, concurrency_key, prefetched, ready_at) \
         SELECT id, $1, {{now}}, {{now}}, CASE WHEN concurrency_slots IS NOT NULL THEN concurrency_key END, \
           CASE WHEN $5 THEN true END, {{now}} \
         FROM solid_queue_jobs WHERE {condition} AND NOT {{cautious}} \
           AND queue_name NOT IN (SELECT queue_name FROM solid_queue_pauses) \
         ORDER BY priority, id ON CONFLICT (job_id) DO NOTHING"
    )
}
