//! `windlass_operations`: changes of many jobs, and how far each of them is.
//!
//! An operation has a row of its own beside
//! its rows in `windlass_audit`, because the database refuses to change those, and keeps them for longer.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{Id, micros};
use crate::db::conn::statement::Statement;
use crate::db::model::audit::{Actor, Via};
use chrono::NaiveDateTime;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Nullable, Text, Timestamp};
use std::time::Duration;

/// An operation to insert.
#[derive(Debug)]
pub(crate) struct NewOperationRow<'a> {
    pub(crate) actor: &'a Actor,
    pub(crate) action: &'static str,
    pub(crate) parameters: &'a str,
    pub(crate) filter: &'a str,
    pub(crate) bounds: &'a str,
    pub(crate) place: &'a str,
    pub(crate) total: Option<i64>,
    pub(crate) total_is_exact: bool,
    /// Names the request that starts it, so that it is started once.
    pub(crate) request_id: Option<&'a str>,
}

/// Inserts an operation and returns its id. `None` if its request has started one already.
pub(crate) fn insert_operation(
    conn: &mut Conn<'_>,
    new: &NewOperationRow<'_>,
) -> QueryResult<Option<i64>> {
    let text = "INSERT INTO windlass_operations (action, parameters, filter, bounds, place, counts, total, total_is_exact, \
           state, actor, via, origin, reason, request_id, created_at, moved_at) \
         VALUES ($1, $2, $3, $4, $5, $12, $6, $7, 'waiting', $8, $9, $10, $11, $13, {now}, {now}) \
         ON CONFLICT (request_id) WHERE request_id IS NOT NULL DO NOTHING RETURNING id";
    let row: Option<Id> = Statement::new(text)
        .bind(new.action)
        .bind(new.parameters)
        .bind(new.filter)
        .bind(new.bounds)
        .bind(new.place)
        .bind(new.total)
        .bind(new.total_is_exact)
        .bind(&new.actor.name)
        .bind(new.actor.via.column())
        .bind(&new.actor.origin)
        .bind(&new.actor.reason)
        .bind("{}") // no counts yet
        .bind(new.request_id)
        .uncached()
        .get_result(conn)
        .optional()?;
    Ok(row.map(|row| row.id))
}

/// Returns the operation that a request has started.
pub(crate) fn of_request(conn: &mut Conn<'_>, request_id: &str) -> QueryResult<Option<i64>> {
    let text = "SELECT id FROM windlass_operations WHERE request_id = $1";
    let row: Option<Id> = Statement::new(text)
        .bind(request_id)
        .uncached()
        .get_result(conn)
        .optional()?;
    Ok(row.map(|row| row.id))
}

/// Stores the row of the audit about the start of an operation.
pub(crate) fn set_audit(conn: &mut Conn<'_>, id: i64, audit: i64) -> QueryResult<()> {
    let text = "UPDATE windlass_operations SET audit_id = $1 WHERE id = $2";
    Statement::new(text)
        .bind(audit)
        .bind(id)
        .uncached()
        .execute(conn)
}

/// A stored operation.
#[doc(hidden)]
#[derive(Debug, Clone, QueryableByName)]
pub struct OperationRow {
    #[diesel(sql_type = BigInt)]
    pub id: i64,
    #[diesel(sql_type = Text)]
    pub action: String,
    #[diesel(sql_type = Text)]
    pub(crate) parameters: String,
    #[diesel(sql_type = Text)]
    pub(crate) filter: String,
    #[diesel(sql_type = Text)]
    pub(crate) bounds: String,
    #[diesel(sql_type = Text)]
    pub(crate) place: String,
    #[diesel(sql_type = Text)]
    pub(crate) counts: String,
    #[diesel(sql_type = Nullable<BigInt>)]
    pub(crate) total: Option<i64>,
    #[diesel(sql_type = Bool)]
    pub(crate) total_is_exact: bool,
    #[diesel(sql_type = BigInt)]
    pub(crate) looked_at: i64,
    #[diesel(sql_type = BigInt)]
    pub(crate) changed: i64,
    #[diesel(sql_type = Text)]
    pub(crate) state: String,
    #[diesel(sql_type = Nullable<Text>)]
    pub(crate) error: Option<String>,
    #[diesel(sql_type = Text)]
    pub(crate) actor: String,
    #[diesel(sql_type = Text)]
    pub(crate) via: String,
    #[diesel(sql_type = Nullable<Text>)]
    pub(crate) origin: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    pub(crate) reason: Option<String>,
    #[diesel(sql_type = Nullable<BigInt>)]
    pub(crate) audit_id: Option<i64>,
    #[diesel(sql_type = Timestamp)]
    pub(crate) created_at: NaiveDateTime,
    #[diesel(sql_type = Nullable<Timestamp>)]
    pub(crate) started_at: Option<NaiveDateTime>,
    #[diesel(sql_type = Timestamp)]
    pub moved_at: NaiveDateTime,
    #[diesel(sql_type = Nullable<Timestamp>)]
    pub(crate) ended_at: Option<NaiveDateTime>,
    #[diesel(sql_type = Timestamp)]
    pub now: NaiveDateTime,
}

impl OperationRow {
    /// Returns the actor who started it.
    pub(crate) fn by(&self) -> Actor {
        let actor = Actor::new(
            self.actor.clone(),
            Via::of_column(&self.via),
            self.origin.clone(),
        );
        actor.reason(self.reason.clone().unwrap_or_default())
    }
}

const COLUMNS: &str = "id, action, parameters, filter, bounds, place, counts, total, total_is_exact, looked_at, changed, \
     state, error, actor, via, origin, reason, audit_id, coalesce({moment created_at}, {now}) AS created_at, \
     {moment started_at} AS started_at, coalesce({moment moved_at}, {now}) AS moved_at, {moment ended_at} AS ended_at, \
     {now} AS now";

/// Returns the newest operations, before an id if one is given.
pub(crate) fn list_operations(
    conn: &mut Conn<'_>,
    before: Option<i64>,
    limit: usize,
) -> QueryResult<Vec<OperationRow>> {
    let text = format!(
        "SELECT {COLUMNS} FROM windlass_operations WHERE id < $1 ORDER BY id DESC LIMIT $2"
    );
    Statement::new(text)
        .bind(before.unwrap_or(i64::MAX))
        .bind(limit as i64)
        .uncached()
        .load(conn)
}

/// Returns one operation.
pub(crate) fn find(conn: &mut Conn<'_>, id: i64) -> QueryResult<Option<OperationRow>> {
    let text = format!("SELECT {COLUMNS} FROM windlass_operations WHERE id = $1");
    Statement::new(text)
        .bind(id)
        .uncached()
        .get_result(conn)
        .optional()
}

/// Returns open operations. Those come first that have not moved for longest, so that each has its turn.
pub(crate) fn open(conn: &mut Conn<'_>, limit: usize) -> QueryResult<Vec<i64>> {
    let text = "SELECT id FROM windlass_operations WHERE ended_at IS NULL AND id > 0 ORDER BY moved_at, id LIMIT $1";
    let rows: Vec<Id> = Statement::new(text).bind(limit as i64).load(conn)?;
    Ok(rows.into_iter().map(|row| row.id).collect())
}

/// Returns the open operation that has not moved for longest.
pub fn stillest(conn: &mut Conn<'_>) -> QueryResult<Option<OperationRow>> {
    let text = format!(
        "SELECT {COLUMNS} FROM windlass_operations WHERE ended_at IS NULL AND id > 0 ORDER BY moved_at LIMIT 1"
    );
    Statement::new(text).uncached().get_result(conn).optional()
}

/// Locks an open operation. `None` if it has ended, or another process runs a chunk of it.
pub(crate) fn lock_open(conn: &mut Conn<'_>, id: i64) -> QueryResult<Option<OperationRow>> {
    let text = format!(
        "SELECT {COLUMNS} FROM windlass_operations WHERE id = $1 AND ended_at IS NULL {{lock skip}}"
    );
    Statement::new(text).bind(id).get_result(conn).optional()
}

/// The progress of an operation after a chunk.
#[derive(Debug, Clone)]
pub(crate) struct OperationAdvance {
    pub(crate) place: String,
    pub(crate) counts: String,
    /// The number of jobs that the chunk had; `changed` is the number of those that were affected.
    pub(crate) looked_at: u64,
    pub(crate) changed: u64,
    pub(crate) is_done: bool,
    /// Why a job was left, if the database refused one.
    pub(crate) error: Option<String>,
}

/// Stores how far a locked operation is.
pub(crate) fn advance(conn: &mut Conn<'_>, id: i64, advance: &OperationAdvance) -> QueryResult<()> {
    let text = "UPDATE windlass_operations SET place = $1, counts = $2, looked_at = looked_at + $3, changed = changed + $4, \
           state = CASE WHEN $5 THEN 'done' ELSE 'running' END, error = coalesce($6, error), \
           started_at = coalesce(started_at, {now}), moved_at = {now}, ended_at = CASE WHEN $5 THEN {now} END \
         WHERE id = $7";
    let count = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    Statement::new(text)
        .bind(&advance.place)
        .bind(&advance.counts)
        .bind(count(advance.looked_at))
        .bind(count(advance.changed))
        .bind(advance.is_done)
        .bind(&advance.error)
        .bind(id)
        .execute(conn)
}

/// Ends an open operation in this state. Returns `false` if it had ended. It waits for a chunk that
/// is under way.
pub(crate) fn end(
    conn: &mut Conn<'_>,
    id: i64,
    state: &'static str,
    error: Option<&str>,
) -> QueryResult<bool> {
    let text = "UPDATE windlass_operations SET state = $1, error = coalesce($2, error), moved_at = {now}, ended_at = {now} \
         WHERE id = $3 AND ended_at IS NULL";
    let changed = Statement::new(text)
        .bind(state)
        .bind(error)
        .bind(id)
        .uncached()
        .changes(conn)?;
    Ok(changed > 0)
}

/// Deletes up to `chunk` operations that ended this long ago, and returns how many.
pub(crate) fn clear(conn: &mut Conn<'_>, age: Duration, chunk: usize) -> QueryResult<usize> {
    let text = "DELETE FROM windlass_operations WHERE id IN (SELECT id FROM windlass_operations \
         WHERE ended_at IS NOT NULL AND ended_at <= {later $1} ORDER BY ended_at LIMIT $2)";
    Statement::new(text)
        .bind(-micros(age))
        .bind(chunk as i64)
        .uncached()
        .changes(conn)
}
