//! Pauses and resumes queues and classes.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{Dialect, Id};
use crate::db::conn::statement::Statement;
use crate::db::table::run_time;
use crate::db::table::run_time::limits::{self, LimitPart, NewRunTimeLimit};
use crate::db::table::wanted_keys::{self, GATE, NewRequest, request_promotion};
use crate::db::table::{rates, semaphores};
use diesel::QueryResult;
use diesel::prelude::*;
use std::collections::BTreeSet;

/// Stops claims from a queue. Returns `false` if it was paused already, and keeps its user and
/// reason.
pub(crate) fn pause(
    conn: &mut Conn<'_>,
    queue: &str,
    by: Option<&str>,
    reason: Option<&str>,
) -> QueryResult<bool> {
    let text = "INSERT INTO solid_queue_pauses (queue_name, paused_by, pause_reason, created_at) \
         VALUES ($1, $2, $3, {now}) ON CONFLICT (queue_name) DO NOTHING RETURNING id";
    let row: Option<Id> = Statement::new(text)
        .bind(queue)
        .bind(by)
        .bind(reason)
        .get_result(conn)
        .optional()?;
    Ok(row.is_some())
}

/// Allows claims from a queue again, and wakes sleeping workers. Returns `false` if it was not
/// paused.
pub(crate) fn resume(conn: &mut Conn<'_>, queue: &str) -> QueryResult<bool> {
    conn.transaction(|conn| {
        let text = "DELETE FROM solid_queue_pauses WHERE queue_name = $1 RETURNING id";
        let rows: Vec<Id> = Statement::new(text).bind(queue).load(conn)?;
        if rows.is_empty() {
            return Ok(false);
        }
        crate::db::conn::listening::notify(conn, usize::MAX)?;
        Ok(true)
    })
}

/// Allows claims of a class again, and wakes sleeping workers. Returns `false` if it was not
/// paused.
pub(crate) fn resume_class(conn: &mut Conn<'_>, class: &str) -> QueryResult<bool> {
    conn.transaction(|conn| {
        let resumed = run_time::delete(conn, class)?;
        if resumed {
            crate::db::conn::listening::notify(conn, usize::MAX)?;
        }
        Ok(resumed)
    })
}

// --- Sets and clears the limits of concurrency keys at run time ---

/// The suffix of a limit's key that stands for a whole group.
pub(crate) const WHOLE_GROUP: &str = "/*";

/// The number of keys that one statement reads when a limit of a group changes.
const KEYS: usize = 500;

/// Sets the limit of a key or a group, and requests the promotion of the key's blocked jobs. For a
/// group, [`request_group`] does so afterwards.
pub(crate) fn set(
    conn: &mut Conn<'_>,
    key: &str,
    new: NewRunTimeLimit,
    by: Option<&str>,
    reason: Option<&str>,
) -> QueryResult<()> {
    conn.transaction(|conn| {
        limits::set(conn, key, new, by, reason)?;
        request(conn, key)
    })
}

/// Clears what was set for a key or a group, so that the limits and rates of its jobs count again, and
/// requests promotions as [`set`] does. Returns `false` if none was set.
pub(crate) fn clear(conn: &mut Conn<'_>, key: &str, part: LimitPart) -> QueryResult<bool> {
    conn.transaction(|conn| {
        let cleared = limits::clear(conn, key, part)?;
        if cleared {
            request(conn, key)?;
        }
        Ok(cleared)
    })
}

fn request(conn: &mut Conn<'_>, key: &str) -> QueryResult<()> {
    if key.ends_with(WHOLE_GROUP) {
        return Ok(());
    }
    request_promotion(conn, &BTreeSet::from([key.to_owned()]))
}

/// Returns the keys of rates, after one, that a change of a key or a group is about and for which jobs wait.
pub(crate) fn rates_of(conn: &mut Conn<'_>, key: &str, after: &str) -> QueryResult<RatesToLookAt> {
    if !key.ends_with(WHOLE_GROUP) {
        return Ok(RatesToLookAt {
            keys: BTreeSet::from([key.to_owned()]),
            reached: None,
        });
    }
    let keys = rates::waiting_of_group(conn, key, after, KEYS)?;
    Ok(RatesToLookAt {
        reached: keys.last().filter(|_| keys.len() >= KEYS).cloned(),
        keys: keys.into_iter().collect(),
    })
}

/// Some keys of rates.
#[derive(Debug)]
pub(crate) struct RatesToLookAt {
    pub(crate) keys: BTreeSet<String>,
    /// The last one, if there are more.
    pub(crate) reached: Option<String>,
}

/// Has a promotion look at keys of rates for which jobs wait, whenever they are due. Returns those that another promotion has
/// locked: it may not have seen a change that was committed meanwhile.
pub(crate) fn look_at_rates(
    conn: &mut Conn<'_>,
    mut keys: BTreeSet<String>,
) -> QueryResult<BTreeSet<String>> {
    conn.transaction(|conn| {
        let (used, others) = rates::read(conn, &keys)?;
        let used = used.into_iter().filter(|row| row.has_waiting);
        keys = used.map(|row| row.rate_key).chain(others).collect();
        let locked = wanted_keys::lock_gates(conn, &keys, &BTreeSet::new())?;
        let due = rates::make_due(conn, &keys)?;
        let is_done = |key: &String| locked.contains(&format!("{GATE} {key}"));
        for key in due.iter().filter(|key| is_done(key)) {
            keys.remove(key);
        }
        wanted_keys::request(conn, due.into_iter().map(NewRequest::Gate))?;
        Ok(keys)
    })
}

/// Opens a key of a rate that is closed. Returns `false` if it is open.
pub(crate) fn reopen(conn: &mut Conn<'_>, key: &str) -> QueryResult<bool> {
    rates::reopen(conn, key)
}

/// Requests the promotion of every key with a free slot, if the limit of a group has changed. If the
/// process dies before, the next sweep of a dispatcher does it.
pub(crate) fn request_group(conn: &mut Conn<'_>, key: &str) -> QueryResult<()> {
    if !key.ends_with(WHOLE_GROUP) {
        return Ok(());
    }
    let mut after = Some(String::new());
    while let Some(last) = after {
        after = semaphores::sweep(conn, &last, KEYS)?.reached;
    }
    // Those whose jobs have rates.
    let mut after = Some(String::new());
    while let Some(last) = after {
        let lines = rates::lines_at_limits(conn, Some(key), &last, KEYS)?;
        after = lines.last().filter(|_| lines.len() >= KEYS).cloned();
        wanted_keys::request(conn, lines.into_iter().map(NewRequest::Gate))?;
    }
    Ok(())
}

// --- Transactions that do not wait long for a lock ---

/// The longest wait of a transaction's statements for a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LockWait {
    /// As long as the connection does.
    Default,
    /// At most 100 ms.
    Short,
}

impl LockWait {
    pub(crate) fn short_if(is_short: bool) -> Self {
        if is_short {
            LockWait::Short
        } else {
            LockWait::Default
        }
    }
}

/// Runs `work`, with [`LockWait::Short`] in a transaction of its own.
///
/// A short wait is for work that has met other transactions' locks before: each further lock would
/// delay everything that comes after it.
pub(crate) fn with_lock_wait<T>(
    conn: &mut Conn<'_>,
    wait: LockWait,
    work: impl FnOnce(&mut Conn<'_>) -> diesel::QueryResult<T>,
) -> diesel::QueryResult<T> {
    if wait == LockWait::Default {
        return work(conn);
    }
    conn.transaction(|conn| {
        if conn.dialect() == Dialect::Postgres {
            Statement::new("SELECT set_config('lock_timeout', '100ms', true)").execute(conn)?;
        }
        work(conn)
    })
}
