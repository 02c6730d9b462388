//! Deletes processes that are gone and recovers their claims.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::Id;
use crate::db::conn::statement::Statement;
use crate::db::model::decision::Death;
use crate::db::table::history::deltas;
use crate::db::table::processes::{CRASHED, ENDED};
use crate::db::transition::recover::{self, Recovered};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Text};

/// A process that a child program registered.
#[derive(Debug)]
pub(crate) struct RegisteredChild {
    pub(crate) id: i64,
    pub(crate) draining: bool,
}

#[derive(QueryableByName)]
struct ChildRow {
    #[diesel(sql_type = BigInt)]
    id: i64,
    #[diesel(sql_type = Bool)]
    draining: bool,
    #[diesel(sql_type = Text)]
    name: String,
}

/// Returns the processes that a child program registered, and whether each was draining. It names
/// all of them `<kind>-<token>.<number>`.
pub(crate) fn of_child(conn: &mut Conn<'_>, token: &str) -> QueryResult<Vec<RegisteredChild>> {
    let text =
        "SELECT id, draining, name FROM solid_queue_processes WHERE name LIKE $1 ORDER BY id";
    let rows: Vec<ChildRow> = Statement::new(text)
        .bind(format!("%-{token}.%"))
        .load(conn)?;
    Ok(rows
        .into_iter()
        .map(|row| RegisteredChild {
            id: row.id,
            draining: row.draining && !row.name.starts_with(CRASHED),
        })
        .collect())
}

/// Deletes a process that is gone and recovers its claims, in one transaction. Returns `None` if it
/// is alive after all, claiming right now, or pruned by another process.
///
/// `heartbeat_seq` is the count that the failure detector saw unchanged. Without it the death is
/// certain: the exit of a child.
pub(crate) fn prune(
    conn: &mut Conn<'_>,
    id: i64,
    heartbeat_seq: Option<i64>,
    death: &Death,
) -> QueryResult<Option<Recovered>> {
    conn.transaction(|conn| {
        if !lock(conn, id, heartbeat_seq)? {
            return Ok(None);
        }
        let mut recovered = recover::recover(conn, id, death)?;
        recover::drop_jobless(conn, id)?;
        delete(conn, id)?;
        count(conn, death, &mut recovered)?;
        Ok(Some(recovered))
    })
}

/// Adds a death to the history, with what the claims came to. Not counted are a process that ended
/// because it had to, and one of which claims are left.
pub(crate) fn count(
    conn: &mut Conn<'_>,
    death: &Death,
    recovered: &mut Recovered,
) -> QueryResult<()> {
    recovered.counted.died = u64::from(death.is_crash && recovered.left.is_none());
    deltas::insert_with(conn, &recovered.counted)
}

/// Deletes the row of a process.
pub(crate) fn delete(conn: &mut Conn<'_>, id: i64) -> QueryResult<usize> {
    Statement::new("DELETE FROM solid_queue_processes WHERE id = $1")
        .bind(id)
        .changes(conn)
}

/// Locks the row of a process that is gone. Returns `false` if it must not be pruned.
fn lock(conn: &mut Conn<'_>, id: i64, heartbeat_seq: Option<i64>) -> QueryResult<bool> {
    let lock = if heartbeat_seq.is_some() {
        "{lock skip}"
    } else {
        "{lock}"
    };
    let text = format!(
        "SELECT id FROM solid_queue_processes WHERE id = $1 AND heartbeat_seq = coalesce($2, heartbeat_seq) {lock}"
    );
    let row: Option<Id> = Statement::new(text)
        .bind(id)
        .bind(heartbeat_seq)
        .get_result(conn)
        .optional()?;
    Ok(row.is_some())
}

/// Does the same as [`prune`], claim by claim. While some are left, the row of the process stays
/// too, under another name, so that its heartbeats fail.
pub(crate) fn prune_one_by_one(
    conn: &mut Conn<'_>,
    id: i64,
    heartbeat_seq: Option<i64>,
    death: &Death,
) -> QueryResult<Option<Recovered>> {
    conn.transaction(|conn| {
        if !lock(conn, id, heartbeat_seq)? {
            return Ok(None);
        }
        let mut recovered = recover::recover_one_by_one(conn, id, death)?;
        if recovered.left.is_none() {
            delete(conn, id)?;
        }
        count(conn, death, &mut recovered)?;
        if recovered.left.is_none() {
            return Ok(Some(recovered));
        }
        let text = format!(
            "UPDATE solid_queue_processes SET draining = true, listening = false, \
             name = CASE WHEN name LIKE '{CRASHED}%' OR name LIKE '{ENDED}%' THEN name ELSE $1 || name END \
             WHERE id = $2"
        );
        let prefix = if death.is_crash { CRASHED } else { ENDED };
        Statement::new(text).bind(prefix).bind(id).execute(conn)?;
        Ok(Some(recovered))
    })
}

/// Returns processes of Windlass that hold claims although another program has deleted their row.
/// Only Windlass stores when a claim was started, so the claims of Rails are left to Rails.
pub(crate) fn without_row(conn: &mut Conn<'_>) -> QueryResult<Vec<i64>> {
    let text = "SELECT DISTINCT c.process_id AS id FROM solid_queue_claimed_executions c \
         WHERE c.started_at IS NOT NULL AND c.process_id IS NOT NULL \
         AND NOT EXISTS (SELECT 1 FROM solid_queue_processes p WHERE p.id = c.process_id)";
    let rows: Vec<Id> = Statement::new(text).load(conn)?;
    Ok(rows.into_iter().map(|row| row.id).collect())
}

/// Recovers the claims of a process without a row, claim by claim. Returns `None` if it has one
/// after all.
pub(crate) fn recover_without_row(
    conn: &mut Conn<'_>,
    id: i64,
    death: &Death,
) -> QueryResult<Option<Recovered>> {
    conn.transaction(|conn| {
        let text = "SELECT id FROM solid_queue_processes WHERE id = $1";
        let row: Option<Id> = Statement::new(text).bind(id).get_result(conn).optional()?;
        if row.is_some() {
            return Ok(None);
        }
        let mut recovered = recover::recover_one_by_one(conn, id, death)?;
        count(conn, death, &mut recovered)?;
        Ok(Some(recovered))
    })
}

/// Deletes the row of a process without claims. Returns `false` if it has some, or had no row.
pub(crate) fn deregister(conn: &mut Conn<'_>, id: i64) -> QueryResult<bool> {
    conn.transaction(|conn| {
        // Locked first: a claim of this process would have to lock it too.
        let text = "SELECT id FROM solid_queue_processes WHERE id = $1 {lock}";
        let row: Option<Id> = Statement::new(text).bind(id).get_result(conn).optional()?;
        if row.is_none() || !crate::db::table::claimed::held_by(conn, id)?.is_empty() {
            return Ok(false);
        }
        delete(conn, id).map(|rows| rows == 1)
    })
}
