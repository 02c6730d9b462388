//! `windlass_audit`: who changed what. The database refuses to change a row, and to delete a young one.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{Id, Lossy, id_list, micros, timestamp};
use crate::db::conn::statement::Statement;
use crate::db::model::audit::Actor;
use chrono::{NaiveDateTime, TimeDelta};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Nullable, Text, Timestamp};
use std::time::Duration;

/// A row to insert.
#[derive(Debug, Clone)]
pub(crate) struct NewAudit<'a> {
    pub(crate) actor: &'a Actor,
    pub(crate) action: &'a str,
    pub(crate) target: Option<String>,
    /// The selection of the jobs, as JSON.
    pub(crate) filter: Option<String>,
    /// The values that were set, as JSON.
    pub(crate) parameters: Option<String>,
    pub(crate) operation_id: Option<i64>,
    /// The first row of the same action.
    pub(crate) part_of: Option<i64>,
}

impl<'a> NewAudit<'a> {
    pub(crate) fn new(actor: &'a Actor, action: &'a str) -> Self {
        NewAudit {
            actor,
            action,
            target: None,
            filter: None,
            parameters: None,
            operation_id: None,
            part_of: None,
        }
    }
}

/// Inserts a row and returns its id. `jobs` is the number of jobs that changed, `total` adds those of the rows of the
/// same action before.
pub(crate) fn record_audit(
    conn: &mut Conn<'_>,
    new: &NewAudit<'_>,
    jobs: Option<i64>,
    total: Option<i64>,
) -> QueryResult<i64> {
    let text = "INSERT INTO windlass_audit (created_at, actor, via, origin, action, target, filter, parameters, \
           jobs, total, reason, operation_id, part_of) \
         VALUES ({now}, $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) RETURNING id";
    let row: Id = Statement::new(text)
        .bind(&new.actor.name)
        .bind(new.actor.via.column())
        .bind(&new.actor.origin)
        .bind(new.action)
        .bind(&new.target)
        .bind(&new.filter)
        .bind(&new.parameters)
        .bind(jobs)
        .bind(total)
        .bind(&new.actor.reason)
        .bind(new.operation_id)
        .bind(new.part_of)
        .get_result(conn)?;
    Ok(row.id)
}

/// The rows to read; an empty filter reads all.
#[doc(hidden)]
#[derive(Debug, Clone, Default)]
pub struct AuditFilter {
    pub actor: Option<String>,
    pub action: Option<String>,
    pub target: Option<String>,
    pub operation: Option<i64>,
    pub since: Option<NaiveDateTime>,
    pub until: Option<NaiveDateTime>,
    pub before: Option<i64>,
    pub after: Option<i64>,
    /// The first row of an action whose parts are read.
    pub parts_of: Option<i64>,
}

impl AuditFilter {
    /// Returns its conditions on the rows `a`. Each stands only where it is asked for, so that its index
    /// is used.
    fn conditions(&self) -> String {
        let asked = [
            (self.actor.is_some(), "a.actor = $1"),
            (self.action.is_some(), "a.action = $2"),
            (self.target.is_some(), "a.target = $3"),
            (self.operation.is_some(), "a.operation_id = $4"),
            (self.since.is_some(), SINCE),
            (self.until.is_some(), UNTIL),
            (self.before.is_some(), "a.id < $7"),
            (self.after.is_some(), "a.id > $8"),
            (self.parts_of.is_some(), "a.part_of = $9"),
            (self.parts_of.is_none(), "a.part_of IS NULL"),
        ];
        let conditions = asked.into_iter().filter(|(is_asked, _)| *is_asked);
        let conditions: Vec<&str> = conditions.map(|(_, condition)| condition).collect();
        conditions.join(" AND ")
    }
}

/// A stored row.
#[derive(Debug, QueryableByName)]
pub(crate) struct AuditRow {
    #[diesel(sql_type = BigInt)]
    pub(crate) id: i64,
    #[diesel(sql_type = Timestamp)]
    pub(crate) at: NaiveDateTime,
    #[diesel(sql_type = Text, deserialize_as = Lossy)]
    pub(crate) actor: String,
    #[diesel(sql_type = Text, deserialize_as = Lossy)]
    pub(crate) via: String,
    #[diesel(sql_type = Nullable<Text>)]
    pub(crate) origin: Option<String>,
    #[diesel(sql_type = Text, deserialize_as = Lossy)]
    pub(crate) action: String,
    #[diesel(sql_type = Nullable<Text>)]
    pub(crate) target: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    pub(crate) filter: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    pub(crate) parameters: Option<String>,
    #[diesel(sql_type = Nullable<BigInt>)]
    pub(crate) jobs: Option<i64>,
    #[diesel(sql_type = Nullable<BigInt>)]
    pub(crate) total: Option<i64>,
    #[diesel(sql_type = Nullable<Text>)]
    pub(crate) reason: Option<String>,
    #[diesel(sql_type = Nullable<BigInt>)]
    pub(crate) operation_id: Option<i64>,
    #[diesel(sql_type = Nullable<BigInt>)]
    pub(crate) part_of: Option<i64>,
}

/// The largest deviation of rows from the order of their times: the longest transaction.
const DISORDER: TimeDelta = TimeDelta::hours(1);

/// The rows from a time on. The ids grow with time, so older rows need not be read.
const SINCE: &str = "a.created_at >= {time $5} AND a.id > coalesce((SELECT o.id FROM windlass_audit o \
     WHERE o.created_at < {time $11} ORDER BY o.created_at DESC LIMIT 1), 0)";

/// The rows before a time.
const UNTIL: &str = "a.created_at < {time $6} AND a.id <= coalesce((SELECT o.id FROM windlass_audit o \
     WHERE o.created_at > {time $12} ORDER BY o.created_at LIMIT 1), 9223372036854775807)";

/// Returns the rows, newest first: the first row of each action with the total of all its rows, or
/// the parts of one action.
pub(crate) fn list_audit_rows(
    conn: &mut Conn<'_>,
    filter: &AuditFilter,
    limit: usize,
) -> QueryResult<Vec<AuditRow>> {
    let text = format!(
        "SELECT a.id, coalesce({{moment a.created_at}}, {{now}}) AS at, a.actor, a.via, a.origin, a.action, a.target, \
           a.filter, a.parameters, a.jobs, coalesce((SELECT p.total FROM windlass_audit p WHERE p.part_of = a.id \
             ORDER BY p.id DESC LIMIT 1), a.total) AS total, a.reason, a.operation_id, a.part_of \
         FROM windlass_audit a WHERE {} ORDER BY a.id DESC LIMIT $10",
        filter.conditions()
    );
    Statement::new(text)
        .bind(&filter.actor)
        .bind(&filter.action)
        .bind(&filter.target)
        .bind(filter.operation)
        .bind(filter.since.map(timestamp))
        .bind(filter.until.map(timestamp))
        .bind(filter.before)
        .bind(filter.after)
        .bind(filter.parts_of)
        .bind(limit as i64)
        .bind(
            filter
                .since
                .and_then(|time| time.checked_sub_signed(DISORDER))
                .map(timestamp),
        )
        .bind(
            filter
                .until
                .and_then(|time| time.checked_add_signed(DISORDER))
                .map(timestamp),
        )
        .uncached()
        .load(conn)
}

#[derive(QueryableByName)]
struct AgedRow {
    #[diesel(sql_type = BigInt)]
    id: i64,
    #[diesel(sql_type = Bool)]
    due: bool,
}

/// Deletes up to `chunk` rows that are older than `age`, and returns how many. The triggers refuse to
/// delete younger ones than 30 days. Their ids grow with time, so only the oldest are read.
pub(crate) fn clear(conn: &mut Conn<'_>, age: Duration, chunk: usize) -> QueryResult<usize> {
    let text = "SELECT id, created_at <= {later $1} AS due FROM windlass_audit WHERE id > 0 ORDER BY id LIMIT $2";
    let seen: Vec<AgedRow> = Statement::new(text)
        .bind(-micros(age))
        .bind(chunk as i64)
        .uncached()
        .load(conn)?;
    let due = seen.iter().filter(|row| row.due).map(|row| row.id);
    let due: Vec<i64> = due.collect();
    if due.is_empty() {
        return Ok(0);
    }
    let text = "DELETE FROM windlass_audit WHERE id IN {in $1}";
    Statement::new(text)
        .bind(id_list(&due))
        .uncached()
        .changes(conn)
}
