//! A claim on SQLite: several statements, under the write lock.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{Id, id_list};
use crate::db::conn::statement::Statement;
use crate::db::model::claim::{Begins, ClaimQueues, ClaimRequest, Claimed, ClaimedRow};
use crate::db::table::blocked;
use crate::db::table::claimed::semaphore_of;
use crate::db::table::ready::NOTHING;
use crate::db::table::wanted_keys::is_requested_after;
use crate::mutant;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool};
use std::sync::LazyLock;

/// Claims under the write lock, so nothing else needs locking. Returns `None` if the process is not
/// registered.
pub(crate) fn step_by_step(
    conn: &mut Conn<'_>,
    request: &ClaimRequest<'_>,
) -> QueryResult<Option<Vec<Claimed>>> {
    // First a read without the write lock: idle workers must not compete for it.
    match peek(conn, request)? {
        None => return Ok(None),
        Some(seen) if !seen.has_jobs => return Ok(Some(nothing(seen.is_wanted))),
        Some(_) => {}
    }
    conn.transaction(|conn| {
        let Some(seen) = peek(conn, request)? else {
            return Ok(None);
        };
        let picked = candidates(conn, request, request.max_jobs)?;
        take(conn, request, &picked, seen.is_wanted).map(Some)
    })
}

/// Claims those of the picked executions that are ready, under the write lock. Returns one row
/// without a job if these are none.
pub(super) fn take(
    conn: &mut Conn<'_>,
    request: &ClaimRequest<'_>,
    picked: &[Candidate],
    is_wanted: bool,
) -> QueryResult<Vec<Claimed>> {
    // Ruby makes jobs ready without checking the limits of Windlass.
    let foreign = picked.iter().filter(|one| one.is_foreign);
    let foreign: Vec<i64> = foreign.map(|one| one.id).collect();
    let has_blocked = !foreign.is_empty() && !blocked::sort_out(conn, &foreign)?.is_empty();
    let picked: Vec<i64> = picked.iter().map(|one| one.id).collect();
    let picked = id_list(&picked);
    let text = format!(
        "INSERT INTO solid_queue_claimed_executions (job_id, process_id, created_at, started_at, concurrency_key, semaphore_id, prefetched, ready_at) \
         SELECT job_id, $1, {{now}}, CASE WHEN $2 > 0 AND {is_left} THEN NULL ELSE {{now}} END, \
           concurrency_key, CASE WHEN class_name IS NULL THEN {semaphore} END, \
           CASE WHEN $2 > 0 AND NOT {is_left} THEN true END, created_at \
         FROM solid_queue_ready_executions r WHERE id IN {{in $3}} \
         ORDER BY priority, job_id ON CONFLICT (job_id) DO NOTHING RETURNING id",
        is_left = Begins::is_left("r", "$2"),
        semaphore = semaphore_of("r"),
    );
    let claims: Vec<Id> = Statement::new(text)
        .bind(request.process_id)
        .bind(request.begins.number())
        .bind(&picked)
        .load(conn)?;
    let text = "DELETE FROM solid_queue_ready_executions WHERE id IN {in $1}";
    Statement::new(text).bind(&picked).execute(conn)?;
    let claims: Vec<i64> = claims.into_iter().map(|claim| claim.id).collect();
    let mut held = held(conn, &claims)?;
    if held.is_empty() {
        held = nothing(is_wanted || has_blocked);
    }
    if let Some(first) = held.first_mut() {
        first.has_blocked = has_blocked;
    }
    Ok(held)
}

/// Returns claims with their jobs.
pub(crate) fn held(conn: &mut Conn<'_>, claims: &[i64]) -> QueryResult<Vec<Claimed>> {
    static TEXT: LazyLock<String> = LazyLock::new(|| {
        let row = ClaimedRow {
            claim_id: "c.id",
            waited: "c.ready_at || '/' || c.created_at",
            created_at: "coalesce(j.created_at, '') || '/' || c.created_at",
            begun: "c.started_at IS NOT NULL",
            is_wanted: &is_requested_after("0"),
            has_blocked: "false",
        };
        format!(
            "SELECT {} FROM solid_queue_claimed_executions c \
             LEFT JOIN solid_queue_jobs j ON j.id = c.job_id WHERE c.id IN {{in $1}}",
            row.columns(),
        )
    });
    Statement::new(&**TEXT).bind(id_list(claims)).load(conn)
}

/// Returns the one row for a registered process and no jobs.
pub(super) fn nothing(is_wanted: bool) -> Vec<Claimed> {
    vec![Claimed {
        claim_id: NOTHING,
        job_id: NOTHING,
        is_wanted,
        ..Claimed::default()
    }]
}

#[derive(QueryableByName)]
struct Availability {
    #[diesel(sql_type = Bool)]
    is_wanted: bool,
    #[diesel(sql_type = Bool)]
    has_jobs: bool,
}

/// Returns a table with the row of the process, if it is registered.
pub(super) fn me(id: &str) -> String {
    if mutant::is("claim_without_process") {
        format!("(SELECT {id} AS id)")
    } else {
        format!("solid_queue_processes WHERE id = {id} AND NOT draining")
    }
}

/// Checks whether there may be work. Returns `None` if the process is not registered.
fn peek(conn: &mut Conn<'_>, request: &ClaimRequest<'_>) -> QueryResult<Option<Availability>> {
    let me = me("$3");
    // By an index, whatever the statistics: the table may be large.
    let (has_jobs, names) = match request.queues {
        ClaimQueues::All => (
            format!(
                "(SELECT 1 FROM solid_queue_ready_executions WHERE $1 = '[]' AND {MAY_TAKE} \
                 ORDER BY priority, job_id LIMIT 1) IS NOT NULL"
            ),
            &[][..],
        ),
        ClaimQueues::Named(names) => (
            format!(
                "EXISTS (SELECT 1 FROM json_each($1) AS name CROSS JOIN solid_queue_ready_executions \
                 WHERE queue_name = name.value AND {MAY_TAKE})"
            ),
            &names[..],
        ),
    };
    let is_wanted = is_requested_after("0");
    let text = format!("SELECT {has_jobs} AS has_jobs, {is_wanted} AS is_wanted FROM {me}");
    let json = |texts: &[String]| serde_json::to_string(texts).unwrap_or_default();
    Statement::new(text)
        .bind(json(names))
        .bind(json(request.classes))
        .bind(request.process_id)
        .get_result(conn)
        .optional()
}

/// A condition: the class is one of those in `$2`, and the queue is not paused.
pub(crate) const MAY_TAKE: &str = "(class_name IS NULL OR class_name IN (SELECT value FROM json_each($2))) \
     AND queue_name NOT IN (SELECT queue_name FROM solid_queue_pauses)";

/// An execution without a class was made ready by Ruby.
#[derive(QueryableByName)]
pub(super) struct Candidate {
    #[diesel(sql_type = BigInt)]
    pub(super) id: i64,
    #[diesel(sql_type = Bool)]
    pub(super) is_foreign: bool,
}

fn candidates(
    conn: &mut Conn<'_>,
    request: &ClaimRequest<'_>,
    max_jobs: usize,
) -> QueryResult<Vec<Candidate>> {
    let classes = serde_json::to_string(request.classes).unwrap_or_default();
    let mut picked = Vec::new();
    let names = match request.queues {
        ClaimQueues::All => &[String::new()][..],
        ClaimQueues::Named(names) => names,
    };
    let queue = match request.queues {
        ClaimQueues::All => "$1 = ''",
        ClaimQueues::Named(_) => "queue_name = $1",
    };
    let text = format!(
        "SELECT id, class_name IS NULL AS is_foreign FROM solid_queue_ready_executions WHERE {queue} AND {MAY_TAKE} \
         ORDER BY priority, job_id LIMIT $3"
    );
    for name in names {
        let left = max_jobs - picked.len();
        if left == 0 {
            break;
        }
        let rows: Vec<Candidate> = Statement::new(text.clone())
            .bind(name)
            .bind(&classes)
            .bind(left as i64)
            .load(conn)?;
        picked.extend(rows);
    }
    Ok(picked)
}
