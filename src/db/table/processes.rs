//! `solid_queue_processes`: who is there, who is gone.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::Dialect;
use crate::db::conn::statement::Statement;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Nullable, Text};

/// A process that wants to be registered.
#[derive(Debug)]
pub(crate) struct NewProcess<'a> {
    /// Never used before: a restarted process is another one.
    pub(crate) name: &'a str,
    pub(crate) kind: &'a str,
    pub(crate) pid: i32,
    pub(crate) hostname: &'a str,
    pub(crate) supervisor_id: Option<i64>,
    pub(crate) metadata: &'a str,
    /// Where it is notified of new work. `None`: nowhere.
    pub(crate) channel: Option<&'a str>,
}

#[derive(QueryableByName)]
pub(crate) struct Id {
    #[diesel(sql_type = BigInt)]
    pub(crate) id: i64,
}

/// Registers a process, and returns its id.
pub(crate) fn register(conn: &mut Conn<'_>, new: &NewProcess<'_>) -> QueryResult<i64> {
    let text = "INSERT INTO solid_queue_processes (name, kind, pid, hostname, supervisor_id, metadata, \
         channel, heartbeat_seq, listening, last_heartbeat_at, created_at) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, 0, $7 IS NOT NULL, {now}, {now}) \
         RETURNING id";
    // All rows, though there is but one: a statement of SQLite that is not
    // read to its end does not say that its commit failed.
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

/// What a heartbeat brings back.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Beat {
    /// Claims of the process whose jobs somebody wants to end.
    pub(crate) cancelled: Vec<i64>,
}

#[derive(QueryableByName)]
struct Heard {
    #[diesel(sql_type = Nullable<Text>)]
    cancelled: Option<String>,
}

/// One heartbeat. `None`: the process was pruned.
///
/// The name is asked for too: after a failover to a replica that lagged, an
/// id may be given out a second time.
pub(crate) fn heartbeat(conn: &mut Conn<'_>, id: i64, name: &str) -> QueryResult<Option<Beat>> {
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
    let heard: Vec<Heard> = Statement::new(text).bind(id).bind(name).load(conn)?;
    Ok(heard.into_iter().next().map(|heard| Beat {
        cancelled: heard
            .cancelled
            .and_then(|list| serde_json::from_str(&list).ok())
            .unwrap_or_default(),
    }))
}

#[derive(QueryableByName)]
pub(crate) struct Locked {
    #[diesel(sql_type = Bool)]
    is_locked: bool,
}

/// Whether another transaction holds the row, so that no heartbeat gets
/// through. On SQLite, none holds a single row.
pub(crate) fn is_locked(conn: &mut Conn<'_>, id: i64) -> QueryResult<bool> {
    let free = match conn.dialect() {
        Dialect::Postgres => "FOR NO KEY UPDATE SKIP LOCKED",
        Dialect::Sqlite => "",
    };
    let text = format!(
        "SELECT EXISTS (SELECT 1 FROM solid_queue_processes WHERE id = $1) AND NOT EXISTS \
         (SELECT 1 FROM (SELECT id FROM solid_queue_processes WHERE id = $1 {free}) free) AS is_locked"
    );
    let row: Locked = Statement::new(text).bind(id).unkept().get_result(conn)?;
    Ok(row.is_locked)
}

/// Says that the process claims no more.
pub(crate) fn drain(conn: &mut Conn<'_>, id: i64) -> QueryResult<()> {
    let text = "UPDATE solid_queue_processes SET draining = true, listening = false WHERE id = $1";
    Statement::new(text).bind(id).execute(conn)
}

/// Has the row of a process say this of it.
pub(crate) fn describe(conn: &mut Conn<'_>, id: i64, metadata: &str) -> QueryResult<()> {
    let text = "UPDATE solid_queue_processes SET metadata = $1 WHERE id = $2";
    Statement::new(text).bind(metadata).bind(id).execute(conn)
}

/// Says whether the process wants to be notified of new work.
pub(crate) fn listen(conn: &mut Conn<'_>, id: i64, listening: bool) -> QueryResult<()> {
    let text = "UPDATE solid_queue_processes SET listening = $1 WHERE id = $2";
    Statement::new(text).bind(listening).bind(id).execute(conn)
}

/// A process as an observer sees it.
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
    /// It was stopping, so its end is no crash.
    #[diesel(sql_type = Bool)]
    pub(crate) draining: bool,
}

/// Every process of Windlass; those of Rails, which count no heartbeats, are
/// left to their own supervisor.
pub(crate) fn observe(conn: &mut Conn<'_>) -> QueryResult<Vec<Observed>> {
    let text = "SELECT id, name, kind, heartbeat_seq, draining FROM solid_queue_processes \
         WHERE heartbeat_seq IS NOT NULL ORDER BY id";
    let mut all: Vec<Observed> = Statement::new(text).load(conn)?;
    for process in &mut all {
        process.draining &= !process.name.starts_with(CRASHED);
    }
    Ok(all)
}

/// What the name of a dead process begins with while claims of it are left: its
/// row says that it drains, so that it claims nothing should it live after all,
/// but its end was a crash (or was none).
pub(crate) const CRASHED: &str = "crashed-";

pub(crate) const ENDED: &str = "ended-";
