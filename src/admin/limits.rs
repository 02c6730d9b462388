//! Limits of concurrency keys and rates, set by operators while the programs run.

use crate::clock;
use crate::db::model::audit::{Actor, AuditAction};
use crate::db::table::rates::{self, RateStatus};
use crate::db::table::run_time::limits::{self, LimitPart, NewRunTimeLimit, RunTimeLimit};
use crate::db::transition::audit::{AuditEffect, AuditTrail};
use crate::db::transition::pause::{self, WHOLE_GROUP};
use crate::db::{AsConn, Conn, own};
use crate::error::{Error, ErrorContext, Result};
use crate::job::rate::{Rate, check_key};
use diesel::QueryResult;
use serde_json::json;
use std::time::Duration;

/// Sets how many jobs of a concurrency key may hold a slot at once, instead of the limit that its
/// jobs have.
///
/// `key` is a key with its group, `import/7`, or all keys of a group, `import/*`; a limit of the
/// key itself counts before that of its group. A group ends at the first `/`.
///
/// It takes effect with the next promotion of the key, without a restart of any program. If it is
/// higher, blocked jobs are promoted within a turn of a dispatcher. If it is lower, running jobs
/// end, and the next ones wait. With 0 slots, no job of the key starts: those that wait stay
/// blocked, and those that are [discarded](crate::limits::LimitConflict::Discard) without a slot are
/// discarded. An [ordered](crate::Concurrency::ordered) key has one slot at most, whatever is set.
///
/// `by` and `reason` are shown with the limit and may be empty.
///
/// ```
/// # use diesel::prelude::*;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// windlass::limits::set(&mut conn, "import/*", 1, "ada", "the disk is slow")?;
/// let limit = &windlass::limits::list(&mut conn)?[0];
/// assert_eq!((&*limit.key, limit.slots), ("import/*", Some(1)));
/// assert!(windlass::limits::clear(&mut conn, "import/*")?);
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
    let actor = Actor::named(by).reason(reason);
    actor.change_limits(conn, key, (Some(slots), None), !by.is_empty())
}

/// Sets the rate of a key, instead of the rates that its jobs have.
///
/// `key` is the key of a rate, `api/acme`, or all keys of a group, `api/*`, each of which has the rate for itself. The rate
/// of the key itself counts before that of its group. The key and the cost of `rate` do not count. Without a
/// [burst](Rate::burst), jobs may start at once that are due in a tenth of a second, and each job whatever it costs.
///
/// It takes effect at once, without a restart of any program. A job that costs more than the burst waits until the rate is
/// cleared or changed: `windlass doctor` finds it.
///
/// ```
/// # use diesel::prelude::*;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// use windlass::limits::{self, Rate};
///
/// limits::set_rate(&mut conn, "api/*", &Rate::per_second(10).burst(20), "ada", "they asked for it")?;
/// let rate = limits::list(&mut conn)?[0].rate.expect("it was set");
/// assert_eq!(rate.to_string(), "10/s, 20 at once");
/// assert!(limits::clear_rate(&mut conn, "api/*")?);
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// # Errors
/// If the rate allows no start or more than 10 million, if the key is no key of a rate, or if the database does not answer or
/// has no tables.
pub fn set_rate<C: AsConn + ?Sized>(
    conn: &mut C,
    key: &str,
    rate: &Rate,
    by: &str,
    reason: &str,
) -> Result<()> {
    let actor = Actor::named(by).reason(reason);
    actor.change_limits(conn, key, (None, Some(rate)), !by.is_empty())
}

/// Clears all that was set at run time for a key, its limit and its rate, so that those of the jobs count again. Returns
/// `false` if nothing was set.
///
/// ```
/// # use diesel::prelude::*;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// use windlass::limits;
///
/// limits::set(&mut conn, "import/*", 1, "ada", "the disk is slow")?;
/// assert!(limits::clear(&mut conn, "import/*")?);
/// assert!(!limits::clear(&mut conn, "import/*")?, "none is set any more");
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// # Errors
/// If the database does not answer or has no tables.
pub fn clear_limit<C: AsConn + ?Sized>(conn: &mut C, key: &str) -> Result<bool> {
    Actor::default().clear_limit(conn, key)
}

/// Clears the rate that was set at run time for a key, and keeps its limit. Returns `false` if no rate was set.
///
/// ```
/// # use diesel::prelude::*;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// use windlass::limits::{self, Rate};
///
/// limits::set(&mut conn, "api/acme", 2, "", "")?;
/// limits::set_rate(&mut conn, "api/acme", &Rate::per_minute(6), "", "")?;
/// assert!(limits::clear_rate(&mut conn, "api/acme")?);
/// assert_eq!(limits::list(&mut conn)?[0].slots, Some(2));
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// # Errors
/// If the database does not answer or has no tables.
pub fn clear_rate<C: AsConn + ?Sized>(conn: &mut C, key: &str) -> Result<bool> {
    Actor::default().clear_limit_part(conn, key, LimitPart::Rate)
}

/// Opens the key of a rate that is closed, as a job was [refused](crate::JobError::rate_limited) by the other side. Returns
/// `false` if it is not closed.
///
/// ```
/// # use diesel::prelude::*;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// assert!(!windlass::limits::reopen(&mut conn, "api/acme")?);
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// # Errors
/// If the database does not answer or has no tables.
pub fn reopen<C: AsConn + ?Sized>(conn: &mut C, key: &str) -> Result<bool> {
    Actor::default().reopen_rate(conn, key)
}

impl Actor {
    /// Does what [`limits::set`](crate::limits::set) does.
    ///
    /// # Errors
    /// As for [`limits::set`](crate::limits::set).
    pub fn set_limit<C: AsConn + ?Sized>(&self, conn: &mut C, key: &str, slots: u32) -> Result<()> {
        self.change_limits(conn, key, (Some(slots), None), true)
    }

    /// Does what [`limits::set_rate`](crate::limits::set_rate) does, and sets the limit as well if it is given.
    ///
    /// # Errors
    /// As for [`limits::set_rate`](crate::limits::set_rate).
    pub fn set_rate<C: AsConn + ?Sized>(
        &self,
        conn: &mut C,
        key: &str,
        rate: &Rate,
        slots: Option<u32>,
    ) -> Result<()> {
        self.change_limits(conn, key, (slots, Some(rate)), true)
    }

    fn change_limits<C: AsConn + ?Sized>(
        &self,
        conn: &mut C,
        key: &str,
        (slots, rate): (Option<u32>, Option<&Rate>),
        is_named: bool,
    ) -> Result<()> {
        let new = checked(key, slots, rate)?;
        let (by, reason) = (
            Some(self.name()).filter(|_| is_named),
            self.reason.as_deref(),
        );
        let mut parameters = serde_json::Map::new();
        if let Some(slots) = new.slots {
            parameters.insert("slots".to_owned(), json!(slots));
        }
        if let Some(rate) = new.rate {
            let rate = rates::StartRate::from(rate).to_string();
            parameters.insert("rate".to_owned(), json!(rate));
        }
        let mut conn = own(conn);
        let set = AuditTrail::new(self, AuditAction::SetLimit)
            .target(key)
            .parameters(serde_json::Value::from(parameters).to_string())
            .record(
                &mut conn,
                |conn| pause::set(conn, key, new, by, reason),
                |()| AuditEffect::Done,
            );
        set.and_then(|()| look_again(&mut conn, key))
            .during("set the limit")
    }

    /// Does what [`limits::clear`](crate::limits::clear) does.
    ///
    /// # Errors
    /// As for [`limits::clear`](crate::limits::clear).
    pub fn clear_limit<C: AsConn + ?Sized>(&self, conn: &mut C, key: &str) -> Result<bool> {
        self.clear_limit_part(conn, key, LimitPart::All)
    }

    /// Clears a part of what was set for a key.
    #[doc(hidden)]
    pub fn clear_limit_part<C: AsConn + ?Sized>(
        &self,
        conn: &mut C,
        key: &str,
        part: LimitPart,
    ) -> Result<bool> {
        let trail = AuditTrail::new(self, AuditAction::ClearLimit).target(key);
        let trail = match part {
            LimitPart::All => trail,
            LimitPart::Slots => trail.parameters(json!({ "only": "slots" }).to_string()),
            LimitPart::Rate => trail.parameters(json!({ "only": "rate" }).to_string()),
        };
        let mut conn = own(conn);
        let cleared = trail.record_if(&mut conn, |conn| pause::clear(conn, key, part));
        let cleared = cleared.during("clear the limit")?;
        if cleared {
            look_again(&mut conn, key).during("clear the limit")?;
        }
        Ok(cleared)
    }

    /// Does what [`limits::reopen`](crate::limits::reopen) does.
    ///
    /// # Errors
    /// As for [`limits::reopen`](crate::limits::reopen).
    pub fn reopen_rate<C: AsConn + ?Sized>(&self, conn: &mut C, key: &str) -> Result<bool> {
        let mut conn = own(conn);
        let opened = AuditTrail::new(self, AuditAction::ReopenRate)
            .target(key)
            .record_if(&mut conn, |conn| pause::reopen(conn, key));
        let opened = opened.during("open the key")?;
        if opened {
            look_at_rates(&mut conn, key).during("open the key")?;
        }
        Ok(opened)
    }
}

/// Has jobs looked at that wait for a key or the keys of a group, after a change.
fn look_again(conn: &mut Conn<'_>, key: &str) -> QueryResult<()> {
    pause::request_group(conn, key)?;
    look_at_rates(conn, key)
}

/// The time between two attempts to have keys looked at that a promotion has locked, and the number of attempts. One that is
/// locked for longer, by a frozen process, is looked at when it is due.
const PAUSE: Duration = Duration::from_millis(20);
const ATTEMPTS: u32 = 50;

fn look_at_rates(conn: &mut Conn<'_>, key: &str) -> QueryResult<()> {
    let mut after = Some(String::new());
    while let Some(last) = after {
        let page = pause::rates_of(conn, key, &last)?;
        after = page.reached;
        let mut left = page.keys;
        for attempt in 0..ATTEMPTS {
            if attempt > 0 {
                clock::nap(PAUSE);
            }
            left = pause::look_at_rates(conn, left)?;
            if left.is_empty() {
                break;
            }
        }
    }
    Ok(())
}

/// Returns what was set at run time, by key: limits and rates.
///
/// ```
/// # use diesel::prelude::*;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// use windlass::limits;
///
/// limits::set(&mut conn, "import/*", 1, "ada", "the disk is slow")?;
/// for limit in limits::list(&mut conn)? {
///     println!("{}: {:?} slots", limit.key, limit.slots);
/// }
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// # Errors
/// If the database does not answer or has no tables.
pub fn limits<C: AsConn + ?Sized>(conn: &mut C) -> Result<Vec<RunTimeLimit>> {
    limits::list_limits(&mut own(conn)).during("read the limits")
}

/// The keys that are read at once.
pub(crate) const AT_ONCE: i64 = 100;

/// Returns up to 100 keys of rates that are in use, after the key `after`: their tokens, and the jobs that wait.
///
/// A key is in use until all its tokens are there again and nothing waits.
///
/// ```
/// # use diesel::prelude::*;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// use windlass::limits;
///
/// let mut last = String::new();
/// loop {
///     let keys = limits::rates(&mut conn, &last)?;
///     let Some(end) = keys.last() else { break };
///     last = end.key.clone();
///     for key in keys {
///         println!("{}: {} tokens, {} jobs wait", key.key, key.tokens, key.waiting);
///     }
/// }
/// # Ok::<(), windlass::Error>(())
/// ```
///
/// # Errors
/// If the database does not answer or has no tables.
pub fn rates<C: AsConn + ?Sized>(conn: &mut C, after: &str) -> Result<Vec<RateStatus>> {
    let after = after.replace('\0', "");
    rates::keys_in_use(&mut own(conn), &after, AT_ONCE).during("read the rates")
}

/// Checks what is to be set.
fn checked(key: &str, slots: Option<u32>, rate: Option<&Rate>) -> Result<NewRunTimeLimit> {
    let wrong = |why: &str| {
        Err(Error::Settings(format!(
            "cannot set the rate of `{}`: {why}",
            key.escape_debug()
        )))
    };
    if slots.is_some() {
        check(key)?;
    }
    let Some(rate) = rate else {
        let slots = slots.map(|slots| i32::try_from(slots).unwrap_or(i32::MAX));
        return Ok(NewRunTimeLimit { slots, rate: None });
    };
    let has_group = key.strip_suffix(WHOLE_GROUP);
    if let Err(why) = check_key(key) {
        return wrong(&why);
    }
    if key == "*" || has_group.is_some_and(|group| group.contains('/')) {
        return wrong(
            "name a key, as `api/acme`, or all keys of a group, as `api/*`; a group ends at the first `/`",
        );
    }
    match rate.to_set() {
        Ok(pace) => Ok(NewRunTimeLimit {
            slots: slots.map(|slots| i32::try_from(slots).unwrap_or(i32::MAX)),
            rate: Some(pace),
        }),
        Err(why) => wrong(&why),
    }
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
