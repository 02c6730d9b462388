//! Limits of concurrency keys, set by operators while the programs run.

use crate::db::model::audit::{Actor, AuditAction};
use crate::db::table::run_time::limits::{self, RunTimeLimit};
use crate::db::transition::operators::{AuditEffect, AuditTrail};
use crate::db::transition::pause;
use crate::db::{AsConn, own};
use crate::error::{Doing, Error, Result};
use serde_json::json;

/// Sets how many jobs of a concurrency key may hold a slot at once, instead of the limit that its
/// jobs have.
///
/// `key` is a key with its group, `import/7`, or all keys of a group, `import/*`; a limit of the
/// key itself counts before that of its group. A group ends at the first `/`.
///
/// It takes effect with the next promotion of the key, without a restart of any program. If it is
/// higher, blocked jobs are promoted within a turn of a dispatcher. If it is lower, running jobs
/// end, and the next ones wait. With 0 slots, no job of the key starts: those that wait stay
/// blocked, and those that are [discarded](crate::LimitConflict::Discard) without a slot are
/// discarded. An [ordered](crate::Concurrency::ordered) key has one slot at most, whatever is set.
///
/// `by` and `reason` are shown with the limit and may be empty.
///
/// ```
/// # use diesel::prelude::*;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// windlass::set_limit(&mut conn, "import/*", 1, "ada", "the disk is slow")?;
/// let limit = &windlass::limits(&mut conn)?[0];
/// assert_eq!((&*limit.key, limit.slots), ("import/*", 1));
/// assert!(windlass::clear_limit(&mut conn, "import/*")?);
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// # Errors
/// If the key has no group, or more than 255 bytes, or if the database does not answer or has no
/// tables.
pub fn set_limit<C: AsConn + ?Sized>(
    conn: &mut C,
    key: &str,
    slots: u32,
    by: &str,
    reason: &str,
) -> Result<()> {
    Actor::named(by)
        .reason(reason)
        .limit(conn, key, slots, !by.is_empty())
}

/// Clears a limit that was set at run time, so that the limits of the jobs count again. Returns
/// `false` if none was set.
///
/// # Errors
/// If the database does not answer or has no tables.
pub fn clear_limit<C: AsConn + ?Sized>(conn: &mut C, key: &str) -> Result<bool> {
    Actor::default().clear_limit(conn, key)
}

impl Actor {
    /// Does what [`set_limit`] does.
    ///
    /// # Errors
    /// As for [`set_limit`].
    pub fn set_limit<C: AsConn + ?Sized>(&self, conn: &mut C, key: &str, slots: u32) -> Result<()> {
        self.limit(conn, key, slots, true)
    }

    fn limit<C: AsConn + ?Sized>(
        &self,
        conn: &mut C,
        key: &str,
        slots: u32,
        is_named: bool,
    ) -> Result<()> {
        check(key)?;
        let slots = i32::try_from(slots).unwrap_or(i32::MAX);
        let (by, reason) = (
            Some(self.name()).filter(|_| is_named),
            self.reason.as_deref(),
        );
        let mut conn = own(conn);
        let set = AuditTrail::new(self, AuditAction::SetLimit)
            .target(key)
            .parameters(json!({ "slots": slots }).to_string())
            .record(
                &mut conn,
                |conn| pause::set(conn, key, slots, by, reason),
                |()| AuditEffect::Done,
            );
        set.and_then(|()| pause::request_group(&mut conn, key))
            .doing("set the limit")
    }

    /// Does what [`clear_limit`] does.
    ///
    /// # Errors
    /// As for [`clear_limit`].
    pub fn clear_limit<C: AsConn + ?Sized>(&self, conn: &mut C, key: &str) -> Result<bool> {
        let mut conn = own(conn);
        let cleared = AuditTrail::new(self, AuditAction::ClearLimit)
            .target(key)
            .record(
                &mut conn,
                |conn| pause::clear(conn, key),
                |cleared| AuditEffect::done_if(*cleared),
            );
        let cleared = cleared.doing("clear the limit")?;
        if cleared {
            pause::request_group(&mut conn, key).doing("clear the limit")?;
        }
        Ok(cleared)
    }
}

/// Returns the limits that were set at run time, by key.
///
/// # Errors
/// If the database does not answer or has no tables.
pub fn limits<C: AsConn + ?Sized>(conn: &mut C) -> Result<Vec<RunTimeLimit>> {
    limits::all(&mut own(conn)).doing("read the limits")
}

fn check(key: &str) -> Result<()> {
    let parts = key.split_once('/');
    let is_whole = parts.is_some_and(|(group, rest)| !group.is_empty() && !rest.is_empty());
    if !is_whole || key.len() > 255 || key.contains('\0') {
        return Err(Error::Settings(format!(
            "cannot set the limit of `{}`: name a concurrency key with its group, as `import/7`, \
             or all keys of a group, as `import/*`; `windlass status` shows blocked jobs, and \
             `windlass explain` their keys",
            key.escape_debug()
        )));
    }
    Ok(())
}
