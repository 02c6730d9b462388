//! `solid_queue_processes`: registered processes and their heartbeats.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{Dialect, Id};
use crate::db::conn::statement::Statement;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Nullable, Text};

/// A process to register.
#[derive(Debug)]
pub(crate) struct NewProcess<'a> {
    /// Never used before: a restarted process is a new one.
    pub(crate) name: &'a str,
    pub(crate) kind: &'a str,
    pub(crate) pid: i32,
    pub(crate) hostname: &'a str,
    pub(crate) supervisor_id: Option<i64>,
    pub(crate) metadata: &'a str,
    /// The channel on which it is notified of new work, if any.
    pub(crate) channel: Option<&'a str>,
}

/// Registers a process, and returns its id.
pub(crate) fn register(conn: &mut Conn<'_>, new: &NewProcess<'_>) -> QueryResult<i64> {
    let text = "INSERT INTO solid_queue_processes (name, kind, pid, hostname, supervisor_id, metadata, \
         channel, heartbeat_seq, listening, last_heartbeat_at, created_at) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, 0, $7 IS NOT NULL, {now}, {now}) \
         RETURNING id";
    // All rows, though there is only one: a statement of SQLite that is not read to its end does
    // not report that its commit failed.
    let rows: Vec<Id> = Statement::new(text)
        .bind(new.name)
        .bind(new.kind)
        .bind(new.pid)
        .bind(new.hostname)
        .bind(new.supervisor_id)
        .bind(new.metadata)
        .bind(new.channel)
        .load(conn)?;
    let row = rows.into_iter().next().ok_or(diesel::NotFound)?;
    Ok(row.id)
}

/// The answer to a heartbeat.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct HeartbeatReply {
    /// Claims of the process for which a cancel was requested.
    pub(crate) cancelled: Vec<i64>,
}

#[derive(QueryableByName)]
struct CancelRequest {
    #[diesel(sql_type = Nullable<Text>)]
    cancelled: Option<String>,
}

/// Sends a heartbeat. Returns `None` if the process was pruned.
///
/// The name is compared too: after a failover to a replica that lagged, an id may be assigned a
/// second time.
pub(crate) fn heartbeat(
    conn: &mut Conn<'_>,
    id: i64,
    name: &str,
) -> QueryResult<Option<HeartbeatReply>> {
    let list = match conn.dialect() {
        Dialect::Postgres => "CAST(json_agg(c.id) AS text)",
        Dialect::Sqlite => "json_group_array(c.id)",
    };
    let text = format!(
        "UPDATE solid_queue_processes SET heartbeat_seq = heartbeat_seq + 1, last_heartbeat_at = {{now}} \
         WHERE id = $1 AND name = $2 \
         RETURNING (SELECT {list} FROM solid_queue_claimed_executions c \
           WHERE c.process_id = solid_queue_processes.id AND c.cancel_requested_at IS NOT NULL) AS cancelled"
    );
    // All rows, as above.
    let heard: Vec<CancelRequest> = Statement::new(text).bind(id).bind(name).load(conn)?;
    Ok(heard.into_iter().next().map(|heard| HeartbeatReply {
        cancelled: heard
            .cancelled
            .and_then(|list| serde_json::from_str(&list).ok())
            .unwrap_or_default(),
    }))
}

#[derive(QueryableByName)]
pub(crate) struct ProcessIsLocked {
    #[diesel(sql_type = Bool)]
    is_locked: bool,
}

/// Returns whether another transaction has locked the row, so that no heartbeat succeeds. On
/// SQLite, single rows are never locked.
pub(crate) fn is_locked(conn: &mut Conn<'_>, id: i64) -> QueryResult<bool> {
    let free = match conn.dialect() {
        Dialect::Postgres => "FOR NO KEY UPDATE SKIP LOCKED",
        Dialect::Sqlite => "",
    };
    let text = format!(
        "SELECT EXISTS (SELECT 1 FROM solid_queue_processes WHERE id = $1) AND NOT EXISTS \
         (SELECT 1 FROM (SELECT id FROM solid_queue_processes WHERE id = $1 {free}) free) AS is_locked"
    );
    let row: ProcessIsLocked = Statement::new(text).bind(id).uncached().get_result(conn)?;
    Ok(row.is_locked)
}

/// Marks a process as draining: it claims no more.
pub(crate) fn drain(conn: &mut Conn<'_>, id: i64) -> QueryResult<()> {
    let text = "UPDATE solid_queue_processes SET draining = true, listening = false WHERE id = $1";
    Statement::new(text).bind(id).execute(conn)
}

/// Stores the description of a process in its row, and the channel on which it is notified.
pub(crate) fn describe(
    conn: &mut Conn<'_>,
    id: i64,
    metadata: &str,
    channel: Option<&str>,
) -> QueryResult<()> {
    let text = "UPDATE solid_queue_processes SET metadata = $1, channel = $2 WHERE id = $3";
    Statement::new(text)
        .bind(metadata)
        .bind(channel)
        .bind(id)
        .execute(conn)
}

/// Stores whether the process wants to be notified of new work.
pub(crate) fn listen(conn: &mut Conn<'_>, id: i64, listening: bool) -> QueryResult<()> {
    let text = "UPDATE solid_queue_processes SET listening = $1 WHERE id = $2";
    Statement::new(text).bind(listening).bind(id).execute(conn)
}

/// A process as a failure detector sees it.
#[derive(Debug, Clone, QueryableByName)]
pub(crate) struct Observed {
    #[diesel(sql_type = BigInt)]
    pub(crate) id: i64,
    #[diesel(sql_type = Text)]
    pub(crate) name: String,
    #[diesel(sql_type = Text)]
    pub(crate) kind: String,
    #[diesel(sql_type = BigInt)]
    pub(crate) heartbeat_seq: i64,
    /// True if it was stopping, so that its end is not a crash.
    #[diesel(sql_type = Bool)]
    pub(crate) draining: bool,
}

/// Returns every process of Windlass. Those of Rails count no heartbeats, and are left to their own
/// supervisor.
pub(crate) fn observe(conn: &mut Conn<'_>) -> QueryResult<Vec<Observed>> {
    let text = "SELECT id, name, kind, heartbeat_seq, draining FROM solid_queue_processes \
         WHERE heartbeat_seq IS NOT NULL ORDER BY id";
    let mut all: Vec<Observed> = Statement::new(text).load(conn)?;
    for process in &mut all {
        process.draining &= !process.name.starts_with(CRASHED);
    }
    Ok(all)
}

/// The prefix of a dead process's name while some of its claims are left. Its row is marked as
/// draining, so that it claims nothing should it be alive after all; the prefix keeps whether its
/// end was a crash.
pub(crate) const CRASHED: &str = "crashed-";

pub(crate) const ENDED: &str = "ended-";

/// The busy workers, other than the process `$1`, that take the same jobs as it and may have jobs to give away. One that
/// holds a single claim runs that job: among many workers, each idle one would wake all busy ones.
const BUSY_PEERS: &str = "solid_queue_processes p WHERE p.id <> $1 AND NOT p.listening AND NOT p.draining \
     AND substr(p.channel, 1, 25) = (SELECT substr(me.channel, 1, 25) FROM solid_queue_processes me WHERE me.id = $1) \
     AND (SELECT count(*) FROM (SELECT 1 FROM solid_queue_claimed_executions c WHERE c.process_id = p.id LIMIT 2) AS few) > 1";

/// Asks the busy workers that take the same jobs as this process to release those that they have
/// not started.
pub(crate) fn request_release(conn: &mut Conn<'_>, id: i64) -> QueryResult<()> {
    // First a read: mostly there is none, and an UPDATE takes SQLite's write lock.
    let text = format!("SELECT p.id FROM {BUSY_PEERS} LIMIT 1");
    let any: Vec<Id> = Statement::new(text).bind(id).load(conn)?;
    if any.is_empty() {
        return Ok(());
    }
    let update = format!(
        "UPDATE solid_queue_processes SET release_requested_at = {{now}} \
         WHERE id IN (SELECT p.id FROM {BUSY_PEERS} ORDER BY p.id {{lock skip of p}})"
    );
    let text = match conn.dialect() {
        Dialect::Postgres => format!(
            "WITH asked AS ({update} RETURNING channel) SELECT count(pg_notify(channel, '')) AS id FROM asked"
        ),
        Dialect::Sqlite => update,
    };
    Statement::new(text).bind(id).execute(conn)
}

/// Returns whether another worker has asked this process to release jobs, and forgets that.
pub(crate) fn take_release_request(conn: &mut Conn<'_>, id: i64) -> QueryResult<bool> {
    let text =
        "SELECT id FROM solid_queue_processes WHERE id = $1 AND release_requested_at IS NOT NULL";
    let requested: Vec<Id> = Statement::new(text).bind(id).load(conn)?;
    if requested.is_empty() {
        return Ok(false);
    }
    let text = "UPDATE solid_queue_processes SET release_requested_at = NULL WHERE id = $1";
    Statement::new(text).bind(id).execute(conn)?;
    Ok(true)
}
