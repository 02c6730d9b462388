//! A claim on Postgres: one statement.

use crate::clock;
use crate::db::conn::connection::Conn;
use crate::db::conn::statement::Statement;
use crate::db::model::claim::{Begins, ClaimQueues, ClaimRequest, Claimed, ClaimedRow, PausedScan};
use crate::db::table::blocked;
use crate::db::table::claimed::{ENQUEUED_AT, semaphore_of};
use crate::db::table::ready::NOTHING;
use crate::db::table::wanted_keys::is_requested_after;
use crate::mutant;
use diesel::prelude::*;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The rows that a statement expects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expected {
    /// Only those that Windlass made ready. It leaves those of Ruby, and says that there are some.
    Ours,
    /// Those of Ruby too, whose limits are to be checked: the plan is twice as large, and so is the time to start it.
    RubysToo,
    /// Executions of jobs that are claimed already, too.
    Claimed,
}

/// Claims in one statement, or in a second one if the first has met rows of Ruby, or executions of jobs that are claimed
/// already.
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
    // An error would end the caller's transaction.
    if conn.is_in_transaction() {
        return in_one_statement(conn, request, scan, Expected::Claimed);
    }
    let (mut first, mut from) = (Vec::new(), request.from);
    if scan.is_none() && !MetRuby::recently() {
        match unless_claimed(conn, request, scan, Expected::Ours)? {
            Some(rows) if !has_rest(&rows) => return Ok(rows),
            Some(rows) => first = rows,
            None => return in_one_statement(conn, request, scan, Expected::Claimed),
        }
        MetRuby::now();
        first.retain(|row| row.claim_id != NOTHING);
        // The first statement has locked them, so that a scan from cursors would pass them.
        from = &[];
    }
    let rest = ClaimRequest {
        max_jobs: request.max_jobs.saturating_sub(first.len()),
        from,
        ..*request
    };
    let found = unless_claimed(conn, &rest, scan, Expected::RubysToo);
    let found = match found {
        Ok(None) => in_one_statement(conn, &rest, scan, Expected::Claimed),
        Ok(Some(rows)) => Ok(rows),
        Err(error) => Err(error),
    };
    match found {
        found if first.is_empty() => found,
        // The jobs found so far must be kept.
        Ok(rows) if rows.is_empty() => Ok(without_rest(first)),
        Err(_) => Ok(without_rest(first)),
        Ok(mut rows) => {
            rows.extend(first);
            Ok(rows)
        }
    }
}

/// Returns `None` if there are executions of jobs that are claimed already.
fn unless_claimed(
    conn: &mut Conn<'_>,
    request: &ClaimRequest<'_>,
    scan: Option<PausedScan>,
    expected: Expected,
) -> QueryResult<Option<Vec<Claimed>>> {
    use diesel::result::{DatabaseErrorKind::UniqueViolation, Error::DatabaseError};
    match in_one_statement(conn, request, scan, expected) {
        Err(DatabaseError(UniqueViolation, _)) => Ok(None),
        done => done.map(Some),
    }
}

fn has_rest(rows: &[Claimed]) -> bool {
    rows.first().is_some_and(|row| row.has_blocked)
}

fn without_rest(mut rows: Vec<Claimed>) -> Vec<Claimed> {
    rows.iter_mut().for_each(|row| row.has_blocked = false);
    rows
}

/// Notes that rows of Ruby were met, so that the claims of the next second expect some at once.
struct MetRuby;

impl MetRuby {
    fn at() -> &'static Mutex<Option<Instant>> {
        static AT: Mutex<Option<Instant>> = Mutex::new(None);
        &AT
    }

    fn now() {
        *Self::at().lock().unwrap_or_else(PoisonError::into_inner) = Some(clock::instant());
    }

    fn recently() -> bool {
        let at = *Self::at().lock().unwrap_or_else(PoisonError::into_inner);
        at.is_some_and(|at| at.elapsed() < EXPECTING)
    }
}

const EXPECTING: Duration = Duration::from_secs(1);

/// Lets the next claim expect no rows of Ruby.
#[cfg(all(test, feature = "internal-tests"))]
pub(crate) fn expect_ours() {
    *MetRuby::at().lock().unwrap_or_else(PoisonError::into_inner) = None;
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
/// - A scan from cursors passes rows with an `xmax`: others are taking most of them, and to try the lock of each costs
///   five times as much. The next scan from the beginning finds the rest.
///
/// Ruby makes jobs ready without checking the limits of Windlass, and stores no class in the row.
/// Those that have a limit are blocked, for a promotion to decide. The claims of the others note the
/// semaphore of Ruby that they hold. Only for rows without a class is the job's row read.
fn in_one_statement(
    conn: &mut Conn<'_>,
    request: &ClaimRequest<'_>,
    scan: Option<PausedScan>,
    expected: Expected,
) -> QueryResult<Vec<Claimed>> {
    let newer_than = newer_than(scan);
    let statement = Statement::new(text(request, scan, expected));
    let statement = bound(statement, request, newer_than.is_some());
    match newer_than {
        Some(id) => statement.bind(id).load(conn),
        None => statement.load(conn),
    }
}

fn text(request: &ClaimRequest<'_>, scan: Option<PausedScan>, expected: Expected) -> String {
    let picked = match newer_than(scan) {
        Some(_) => PICKED_NEWER,
        None => picked(request.queues),
    };
    let is_from_cursors = scan.is_none() && !request.from.is_empty();
    let free = if is_from_cursors { "AND xmax = 0" } else { "" };
    let me = if mutant::is("claim_without_process") {
        "SELECT $1::bigint AS id"
    } else {
        "SELECT id FROM solid_queue_processes WHERE id = $1 AND NOT draining FOR KEY SHARE"
    };
    let of = ExpectedParts::of(expected);
    format!(
        "WITH me AS MATERIALIZED ( \
           {me}), \
         moment AS MATERIALIZED (SELECT {{now}} AS now, date_part('epoch', {{now}}) AS seconds), \
         picked AS MATERIALIZED ({picked}), \
         gone AS (DELETE FROM solid_queue_ready_executions WHERE {gone} = ANY (ARRAY(SELECT spot FROM picked)) \
           RETURNING id, job_id, {is_left} AS is_left, concurrency_key, class_name, created_at), \
         {sorted_out}\
         held AS (INSERT INTO solid_queue_claimed_executions (job_id, process_id, created_at, started_at, concurrency_key, semaphore_id, prefetched, ready_at) \
           SELECT job_id, $1, (SELECT now FROM moment), \
             CASE WHEN $5 > 0 AND is_left THEN NULL ELSE (SELECT now FROM moment) END, \
             concurrency_key, {semaphore}, \
             CASE WHEN $5 > 0 AND NOT is_left THEN true END, created_at FROM gone \
           {held} RETURNING id, job_id, started_at, ready_at) \
         SELECT {columns} \
         FROM me LEFT JOIN held ON true LEFT JOIN solid_queue_jobs j ON j.id = held.job_id",
        picked = picked.replace("{free}", free),
        gone = of.gone,
        is_left = Begins::is_left("solid_queue_ready_executions", "$5"),
        sorted_out = of.sorted_out,
        semaphore = of.semaphore,
        held = of.held,
        columns = columns(&of),
    )
}

/// Returns what is read of each claim, in `held`.
fn columns(of: &ExpectedParts) -> String {
    let row = ClaimedRow {
        claim_id: "coalesce(held.id, 0)",
        waited: "(SELECT seconds FROM moment) - date_part('epoch', held.ready_at)",
        created_at: ENQUEUED_AT,
        begun: "held.started_at IS NOT NULL",
        is_wanted: &format!("{} {}", is_requested_after("$8"), of.is_wanted),
        has_blocked: of.has_rest,
    };
    row.columns()
}

/// The parts of the statement that depend on which rows it expects.
struct ExpectedParts {
    gone: &'static str,
    sorted_out: String,
    semaphore: String,
    held: &'static str,
    is_wanted: &'static str,
    has_rest: &'static str,
}

impl ExpectedParts {
    fn of(expected: Expected) -> Self {
        if expected == Expected::Ours {
            return ExpectedParts {
                gone: "class_name IS NOT NULL AND ctid",
                sorted_out: String::new(),
                semaphore: "CAST(NULL AS bigint)".to_owned(),
                held: "",
                is_wanted: "",
                has_rest: "EXISTS (SELECT 1 FROM picked WHERE is_rubys)",
            };
        }
        let semaphore = semaphore_of("gone");
        ExpectedParts {
            gone: "ctid",
            sorted_out: blocked::sorted_out_ctes("gone") + ", ",
            semaphore: format!("CASE WHEN class_name IS NULL THEN {semaphore} END"),
            held: match expected {
                Expected::Claimed => {
                    "WHERE class_name IS NOT NULL OR job_id NOT IN (SELECT id FROM over) ON CONFLICT (job_id) DO NOTHING"
                }
                _ => "WHERE class_name IS NOT NULL OR job_id NOT IN (SELECT id FROM over)",
            },
            is_wanted: "OR EXISTS (SELECT 1 FROM wanted)",
            has_rest: "EXISTS (SELECT 1 FROM over)",
        }
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
const PICKED_NEWER: &str = "SELECT r.ctid AS spot, r.class_name IS NULL AS is_rubys FROM solid_queue_ready_executions r \
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
            "SELECT r.ctid AS spot, r.class_name IS NULL AS is_rubys FROM solid_queue_ready_executions r \
             WHERE EXISTS (SELECT 1 FROM me) AND cardinality($4) = 0 \
             AND (r.priority, r.job_id) >= (($6)[1], ($7)[1]) \
             AND (r.class_name IS NULL OR r.class_name = ANY ($3)) \
             AND r.queue_name NOT IN (SELECT queue_name FROM solid_queue_pauses) {free} \
             ORDER BY r.priority, r.job_id LIMIT $2 FOR UPDATE OF r SKIP LOCKED"
        }
        ClaimQueues::Named(_) => {
            "SELECT r.spot, r.is_rubys FROM unnest($4, $6, $7) WITH ORDINALITY AS q (name, priority, job_id, place) \
             CROSS JOIN LATERAL ( \
               SELECT ctid AS spot, class_name IS NULL AS is_rubys FROM solid_queue_ready_executions \
               WHERE queue_name = q.name AND (priority, job_id) >= (q.priority, q.job_id) \
               AND (class_name IS NULL OR class_name = ANY ($3)) {free} \
               ORDER BY priority, job_id LIMIT $2 FOR UPDATE SKIP LOCKED) AS r \
             WHERE EXISTS (SELECT 1 FROM me) \
             AND q.name NOT IN (SELECT queue_name FROM solid_queue_pauses) LIMIT $2"
        }
    }
}
