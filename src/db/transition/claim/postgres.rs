//! A claim on Postgres: one statement.

use crate::db::conn::connection::Conn;
use crate::db::conn::statement::Statement;
use crate::db::model::claim::{Begins, ClaimQueues, ClaimRequest, Claimed, PausedScan};
use crate::db::table::blocked;
use crate::db::table::claimed::{ENQUEUED_AT, columns, semaphore_of};
use crate::db::table::wanted_keys::is_requested_after;
use crate::mutant;
use diesel::prelude::*;

/// Claims in one statement, or in a transaction that first deletes the ready executions of jobs
/// that are claimed already.
///
/// Only another program can insert such an execution, so the claim checks for them only when it has
/// met one. To insert with ON CONFLICT would write each row twice into the log, a tenth of the
/// claim's time. (A NOT EXISTS costs less, until the planner believes that nothing is claimed and
/// reads, for each job, all rows that vacuum has left.)
pub(crate) fn insert_or_skip(
    conn: &mut Conn<'_>,
    request: &ClaimRequest<'_>,
    scan: Option<PausedScan>,
) -> QueryResult<Vec<Claimed>> {
    use diesel::result::{DatabaseErrorKind::UniqueViolation, Error::DatabaseError};
    // An error would end the caller's transaction.
    if !conn.is_in_transaction() {
        match in_one_statement(conn, request, scan, "") {
            Err(DatabaseError(UniqueViolation, _)) => {}
            done => return done,
        }
    }
    in_one_statement(conn, request, scan, "ON CONFLICT (job_id) DO NOTHING")
}

/// Claims in one statement in autocommit, so that a client that freezes can hold no lock. It locks
/// the process's own row first: a process that was pruned must claim nothing, and one that is
/// claiming cannot be pruned. That row is always returned; no row at all means that the process is
/// gone.
///
/// - `me` locks the row of the process.
/// - `moment` computes the time once, and as a floating point number: the difference of two times
///   would be an `interval`, whose seconds are a `numeric`, at 0.5 µs a row.
/// - `picked` is MATERIALIZED: the planner might otherwise run the LIMIT more than once and take
///   too many.
/// - `gone` deletes the picked rows by their ctid, without a second index lookup. A row that was
///   moved while it was being locked is left for the next claim.
///
/// Ruby makes jobs ready without checking the limits of Windlass, and stores no class in the row.
/// Those that have a limit are blocked, for a promotion to decide. The claims of the others note the
/// semaphore of Ruby that they hold. Only for rows without a class is the job's row read.
fn in_one_statement(
    conn: &mut Conn<'_>,
    request: &ClaimRequest<'_>,
    scan: Option<PausedScan>,
    on_conflict: &str,
) -> QueryResult<Vec<Claimed>> {
    let newer_than = newer_than(scan);
    let picked = match newer_than {
        Some(_) => PICKED_NEWER,
        None => picked(request.queues),
    };
    let sorted_out = blocked::sorted_out_ctes("gone");
    let me = if mutant::is("claim_without_process") {
        "SELECT $1::bigint AS id"
    } else {
        "SELECT id FROM solid_queue_processes WHERE id = $1 AND NOT draining FOR KEY SHARE"
    };
    let text = format!(
        "WITH me AS MATERIALIZED ( \
           {me}), \
         moment AS MATERIALIZED (SELECT {{now}} AS now, date_part('epoch', {{now}}) AS seconds), \
         picked AS MATERIALIZED ({picked}), \
         gone AS (DELETE FROM solid_queue_ready_executions WHERE ctid = ANY (ARRAY(SELECT spot FROM picked)) \
           RETURNING id, job_id, {is_left} AS is_left, concurrency_key, class_name, created_at), \
         {sorted_out}, \
         held AS (INSERT INTO solid_queue_claimed_executions (job_id, process_id, created_at, started_at, concurrency_key, semaphore_id, prefetched, ready_at) \
           SELECT job_id, $1, (SELECT now FROM moment), \
             CASE WHEN $5 > 0 AND is_left THEN NULL ELSE (SELECT now FROM moment) END, \
             concurrency_key, CASE WHEN class_name IS NULL THEN {semaphore} END, \
             CASE WHEN $5 > 0 AND NOT is_left THEN true END, created_at FROM gone \
           WHERE class_name IS NOT NULL OR job_id NOT IN (SELECT id FROM over) {on_conflict} \
           RETURNING id, job_id, started_at, ready_at) \
         SELECT coalesce(held.id, 0) AS claim_id, held.started_at IS NOT NULL AS begun, \
           (SELECT seconds FROM moment) - date_part('epoch', held.ready_at) AS waited, \
           {is_wanted} OR EXISTS (SELECT 1 FROM wanted) AS is_wanted, \
           EXISTS (SELECT 1 FROM over) AS has_blocked, {columns} \
         FROM me LEFT JOIN held ON true LEFT JOIN solid_queue_jobs j ON j.id = held.job_id",
        is_left = Begins::is_left("solid_queue_ready_executions", "$5"),
        semaphore = semaphore_of("gone"),
        is_wanted = is_requested_after("$8"),
        columns = columns(ENQUEUED_AT),
    );
    let statement = bound(Statement::new(text), request, newer_than.is_some());
    match newer_than {
        Some(id) => statement.bind(id).load(conn),
        None => statement.load(conn),
    }
}

fn newer_than(scan: Option<PausedScan>) -> Option<i64> {
    match scan? {
        PausedScan::NewerThan(id) => Some(id),
        PausedScan::FromCursors => None,
    }
}

/// Binds what all claims have. Only claims of newer rows name all queues together.
fn bound<'v>(
    statement: Statement<'v>,
    request: &'v ClaimRequest<'_>,
    names_all: bool,
) -> Statement<'v> {
    let (mut names, marks): (Vec<&str>, Vec<_>) = request.slots().into_iter().unzip();
    let priorities: Vec<i32> = marks.iter().map(|mark| mark.priority).collect();
    let jobs: Vec<i64> = marks.iter().map(|mark| mark.job_id).collect();
    if matches!(request.queues, ClaimQueues::All) && !names_all {
        names.clear();
    }
    statement
        .bind(request.process_id)
        .bind(request.max_jobs as i64)
        .bind(request.classes)
        .bind(&names[..])
        .bind(request.begins.number())
        .bind(priorities)
        .bind(jobs)
        .bind(request.wanted_after)
}

/// A SELECT of the ctids of rows that are newer than `$9` and come before the cursors, locked. They
/// are found by their ids: the other indexes would pass all executions of paused classes, so none of
/// them fits these conditions.
const PICKED_NEWER: &str = "SELECT r.ctid AS spot FROM solid_queue_ready_executions r \
     JOIN unnest($4, $6, $7) WITH ORDINALITY AS q (name, priority, job_id, place) \
       ON (q.name = '' OR q.name = r.queue_name || '') \
       AND (r.priority + 0, r.job_id + 0) < (q.priority, q.job_id) \
     WHERE EXISTS (SELECT 1 FROM me) AND r.id > $9 \
     AND (r.class_name IS NULL OR r.class_name = ANY ($3)) \
     AND r.queue_name || '' NOT IN (SELECT queue_name FROM solid_queue_pauses) \
     ORDER BY q.place, r.priority + 0, r.job_id + 0 LIMIT $2 FOR UPDATE OF r SKIP LOCKED";

/// Returns a SELECT of the ctids of the rows to take, locked.
fn picked(queues: &ClaimQueues) -> &'static str {
    match queues {
        ClaimQueues::All => {
            "SELECT r.ctid AS spot FROM solid_queue_ready_executions r \
             WHERE EXISTS (SELECT 1 FROM me) AND cardinality($4) = 0 \
             AND (r.priority, r.job_id) >= (($6)[1], ($7)[1]) \
             AND (r.class_name IS NULL OR r.class_name = ANY ($3)) \
             AND r.queue_name NOT IN (SELECT queue_name FROM solid_queue_pauses) \
             ORDER BY r.priority, r.job_id LIMIT $2 FOR UPDATE OF r SKIP LOCKED"
        }
        ClaimQueues::Named(_) => {
            "SELECT r.spot FROM unnest($4, $6, $7) WITH ORDINALITY AS q (name, priority, job_id, place) \
             CROSS JOIN LATERAL ( \
               SELECT ctid AS spot FROM solid_queue_ready_executions \
               WHERE queue_name = q.name AND (priority, job_id) >= (q.priority, q.job_id) \
               AND (class_name IS NULL OR class_name = ANY ($3)) \
               ORDER BY priority, job_id LIMIT $2 FOR UPDATE SKIP LOCKED) AS r \
             WHERE EXISTS (SELECT 1 FROM me) \
             AND q.name NOT IN (SELECT queue_name FROM solid_queue_pauses) LIMIT $2"
        }
    }
}
