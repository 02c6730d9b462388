//! A claim on SQLite while classes are paused. What may take long, to pass the executions of these,
//! is done before the write lock is taken.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::id_list;
use crate::db::conn::statement::Statement;
use crate::db::model::claim::{ClaimRequest, Claimed, PausedScan};
use crate::db::table::wanted_keys::is_requested_after;
use crate::db::transition::claim::sqlite::{Candidate, MAY_TAKE, me, nothing, take};
use diesel::prelude::*;
use diesel::sql_types::Bool;

/// Claims what a scan has found. Returns `None` if the process is not registered.
pub(super) fn step_by_step(
    conn: &mut Conn<'_>,
    request: &ClaimRequest<'_>,
    scan: PausedScan,
) -> QueryResult<Option<Vec<Claimed>>> {
    loop {
        let found = match scan {
            PausedScan::FromCursors => from_cursors(conn, request)?,
            PausedScan::NewerThan(id) => newer_than(conn, request, id)?,
        };
        if found.is_empty() {
            return Ok(is_wanted(conn, request)?.map(nothing));
        }
        let ids: Vec<i64> = found.iter().map(|one| one.id).collect();
        let taken = conn.transaction(|conn| {
            let Some(is_wanted) = is_wanted(conn, request)? else {
                return Ok(TakeResult::Unregistered);
            };
            let is_any_left = is_any_left(conn, &ids)?;
            match is_any_left {
                true => take(conn, request, &found, is_wanted).map(TakeResult::Rows),
                false => Ok(TakeResult::ByOthers),
            }
        })?;
        match taken {
            TakeResult::Rows(rows) => return Ok(Some(rows)),
            TakeResult::Unregistered => return Ok(None),
            // There may be more of them.
            TakeResult::ByOthers => {}
        }
    }
}

/// The result of claiming the executions that a scan found.
enum TakeResult {
    Rows(Vec<Claimed>),
    /// Other processes have taken all of them.
    ByOthers,
    Unregistered,
}

#[derive(QueryableByName)]
struct Wanted {
    #[diesel(sql_type = Bool)]
    is_wanted: bool,
}

/// Returns whether keys wait for a promotion, or `None` if the process is not registered.
fn is_wanted(conn: &mut Conn<'_>, request: &ClaimRequest<'_>) -> QueryResult<Option<bool>> {
    let text = format!(
        "SELECT {} AS is_wanted FROM {}",
        is_requested_after("0"),
        me("$1")
    );
    let row: Option<Wanted> = Statement::new(text)
        .bind(request.process_id)
        .get_result(conn)
        .optional()?;
    Ok(row.map(|row| row.is_wanted))
}

#[derive(QueryableByName)]
struct Left {
    #[diesel(sql_type = Bool)]
    is_any: bool,
}

fn is_any_left(conn: &mut Conn<'_>, ids: &[i64]) -> QueryResult<bool> {
    let text =
        "SELECT EXISTS (SELECT 1 FROM solid_queue_ready_executions WHERE id IN {in $1}) AS is_any";
    let left: Left = Statement::new(text).bind(id_list(ids)).get_result(conn)?;
    Ok(left.is_any)
}

/// Returns what comes at the cursors or after them.
fn from_cursors(conn: &mut Conn<'_>, request: &ClaimRequest<'_>) -> QueryResult<Vec<Candidate>> {
    let classes = json(request.classes);
    let mut found = Vec::new();
    for (name, from) in request.slots() {
        let left = request.max_jobs - found.len();
        if left == 0 {
            break;
        }
        let queue = if name.is_empty() {
            "$1 = ''"
        } else {
            "queue_name = $1"
        };
        let text = format!(
            "SELECT id, class_name IS NULL AS is_foreign FROM solid_queue_ready_executions \
             WHERE {queue} AND (priority, job_id) >= ($4, $5) AND {MAY_TAKE} \
             ORDER BY priority, job_id LIMIT $3"
        );
        let rows: Vec<Candidate> = Statement::new(text)
            .bind(name)
            .bind(&classes)
            .bind(left as i64)
            .bind(from.priority)
            .bind(from.job_id)
            .load(conn)?;
        found.extend(rows);
    }
    Ok(found)
}

/// Returns what comes before the cursors, of the executions with a greater id. They are found by
/// their ids: the other indexes would pass all executions of paused classes.
fn newer_than(
    conn: &mut Conn<'_>,
    request: &ClaimRequest<'_>,
    id: i64,
) -> QueryResult<Vec<Candidate>> {
    let slots = request.slots();
    let slots: Vec<_> = slots
        .iter()
        .map(|(name, from)| (name, from.priority, from.job_id))
        .collect();
    let text = format!(
        "SELECT r.id, class_name IS NULL AS is_foreign \
         FROM solid_queue_ready_executions AS r NOT INDEXED CROSS JOIN json_each($1) AS slot \
         WHERE r.id > $4 AND slot.value ->> 0 IN ('', queue_name) \
         AND (priority, job_id) < (slot.value ->> 1, slot.value ->> 2) AND {MAY_TAKE} \
         ORDER BY slot.key, priority, job_id LIMIT $3"
    );
    Statement::new(text)
        .bind(json(&slots))
        .bind(json(request.classes))
        .bind(request.max_jobs as i64)
        .bind(id)
        .load(conn)
}

fn json<T: serde::Serialize + ?Sized>(values: &T) -> String {
    serde_json::to_string(values).unwrap_or_default()
}
