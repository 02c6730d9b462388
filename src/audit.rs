//! The audit of changes by operators: as `windlass audit` lists it, and the [`Actor`] that a change names.
//!
//! ```
//! # use diesel::prelude::*;
//! # let mut conn = SqliteConnection::establish(":memory:").unwrap();
//! # windlass::migrate(&mut conn).unwrap();
//! use windlass::audit::{Actor, AuditLog};
//!
//! let ada = Actor::named("ada").reason("the provider is down");
//! ada.pause_queue(&mut conn, "mail")?;
//! let entry = &AuditLog::new().actor("ada").list(&mut conn)?[0];
//! assert_eq!((&*entry.action, entry.target.as_deref()), ("queues.pause", Some("mail")));
//! # Ok::<(), windlass::Error>(())
//! ```

pub use crate::db::model::audit::{Actor, Via};
use crate::db::table::audit::{self, AuditFilter, AuditRow};
use crate::db::{AsConn, own};
use crate::error::{ErrorContext, Result};
use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::Value;
use std::sync::OnceLock;

// --- The actor of a program that names none ---

impl Default for Actor {
    /// Returns the user of this process, at this host: `ada@web-1`. If neither `USER` nor `LOGNAME` is
    /// set, the id of the user: `uid 1000@web-1`.
    fn default() -> Self {
        static OF_PROCESS: OnceLock<Actor> = OnceLock::new();
        OF_PROCESS.get_or_init(of_process).clone()
    }
}

impl Actor {
    /// Returns the actor of this name, of at most 255 bytes; the rest is cut off. An empty name
    /// stands for the [default](Self::default).
    pub fn named(name: impl Into<String>) -> Self {
        let (actor, name) = (Actor::default(), name.into());
        if name.is_empty() {
            return actor;
        }
        actor.with_name(name)
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the name of the user is not a setting, so `config` does not read it"
)]
fn of_process() -> Actor {
    let host = gethostname::gethostname().to_string_lossy().into_owned();
    let name = ["USER", "LOGNAME"]
        .into_iter()
        .find_map(|name| std::env::var(name).ok().filter(|name| !name.is_empty()));
    let name = name.unwrap_or_else(|| format!("uid {}", rustix::process::getuid().as_raw()));
    Actor::new(format!("{name}@{host}"), Via::Library, Some(host))
}

// --- Reading the audit ---

/// A row of the audit: one change by an operator, or a part of one.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct AuditEntry {
    /// Its id; later changes have higher ones.
    pub id: i64,
    /// The time of the change, by the database's clock.
    pub at: DateTime<Utc>,
    /// The name of the actor.
    pub actor: String,
    /// The way by which it came: `page`, `cli`, `library` or `http`.
    pub via: String,
    /// The host or the address it came from.
    pub origin: Option<String>,
    /// The action, in the words of the command: `jobs.retry`, `queues.pause`.
    pub action: String,
    /// The queue, class, key, task, operation or job that was changed. `None` for a selection of
    /// jobs.
    pub target: Option<String>,
    /// The selection of the jobs.
    pub filter: Option<Value>,
    /// The values that the action set.
    pub parameters: Option<Value>,
    /// The number of jobs that this part of the action changed. `None` if it did not change jobs.
    pub jobs: Option<i64>,
    /// The number of jobs that all parts of the action changed up to now.
    pub total: Option<i64>,
    /// The reason, if one was given.
    pub reason: Option<String>,
    /// The [operation](crate::operations::Operation) that it belongs to.
    pub operation_id: Option<i64>,
    /// The first row of the same action, if this is a further one.
    pub part_of: Option<i64>,
}

impl From<AuditRow> for AuditEntry {
    fn from(row: AuditRow) -> Self {
        // Another program may have stored what is no JSON.
        let value = |text: Option<String>| {
            text.map(|text| serde_json::from_str(&text).unwrap_or(Value::String(text)))
        };
        AuditEntry {
            id: row.id,
            at: row.at.and_utc(),
            actor: row.actor,
            via: row.via,
            origin: row.origin,
            action: row.action,
            target: row.target,
            filter: value(row.filter),
            parameters: value(row.parameters),
            jobs: row.jobs,
            total: row.total,
            reason: row.reason,
            operation_id: row.operation_id,
            part_of: row.part_of,
        }
    }
}

/// Selects rows of the audit to read.
///
/// An action in chunks has a row for each of its transactions. [`list`](Self::list) returns the first
/// one, with the total of all, [`parts_of`](Self::parts_of) selects the others.
///
/// ```
/// # use diesel::prelude::*;
/// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
/// # windlass::migrate(&mut conn).unwrap();
/// use windlass::audit::AuditLog;
///
/// for entry in AuditLog::new().actor("ada").limit(20).list(&mut conn)? {
///     println!("{} {} {:?}", entry.at, entry.action, entry.target);
/// }
/// # Ok::<(), windlass::Error>(())
/// ```
#[derive(Debug, Clone)]
#[must_use = "a selection does nothing until it is listed"]
pub struct AuditLog {
    filter: AuditFilter,
    limit: u32,
}

impl Default for AuditLog {
    fn default() -> Self {
        Self::new()
    }
}

impl AuditLog {
    /// Selects the newest 100 actions.
    pub fn new() -> Self {
        Self::of(AuditFilter::default())
    }

    /// Selects the newest 100 actions that meet the conditions.
    #[doc(hidden)]
    pub fn of(filter: AuditFilter) -> Self {
        AuditLog { filter, limit: 100 }
    }

    /// Restricts the selection to an actor, by the whole name.
    pub fn actor(mut self, name: impl Into<String>) -> Self {
        self.filter.actor = Some(name.into());
        self
    }

    /// Restricts the selection to an action, such as `jobs.retry`.
    pub fn action(mut self, action: impl Into<String>) -> Self {
        self.filter.action = Some(action.into());
        self
    }

    /// Restricts the selection to what changed this queue, class, key, task, operation or job.
    pub fn target(mut self, target: impl Into<String>) -> Self {
        self.filter.target = Some(target.into());
        self
    }

    /// Restricts the selection to an operation.
    pub fn operation(mut self, operation: i64) -> Self {
        self.filter.operation = Some(operation);
        self
    }

    /// Restricts the selection to this time and later, by the database's clock.
    pub fn since(mut self, time: DateTime<Utc>) -> Self {
        self.filter.since = Some(time.naive_utc());
        self
    }

    /// Restricts the selection to before this time, by the database's clock.
    pub fn until(mut self, time: DateTime<Utc>) -> Self {
        self.filter.until = Some(time.naive_utc());
        self
    }

    /// Restricts the selection to rows before this id: the next page after a list that ended with it.
    pub fn before(mut self, id: i64) -> Self {
        self.filter.before = Some(id);
        self
    }

    /// Restricts the selection to rows after this id.
    pub fn after(mut self, id: i64) -> Self {
        self.filter.after = Some(id);
        self
    }

    /// Selects the further rows of an action, by the id of its first row.
    pub fn parts_of(mut self, id: i64) -> Self {
        self.filter.parts_of = Some(id);
        self
    }

    /// Sets how many rows are returned at most. Default: 100.
    pub fn limit(mut self, rows: u32) -> Self {
        self.limit = rows;
        self
    }

    /// Returns the rows, newest first.
    ///
    /// # Errors
    /// If the database does not answer or has no tables.
    pub fn list<C: AsConn + ?Sized>(&self, conn: &mut C) -> Result<Vec<AuditEntry>> {
        let limit = usize::try_from(self.limit).unwrap_or(usize::MAX);
        let rows =
            audit::list_audit_rows(&mut own(conn), &self.filter, limit).during("read the audit")?;
        Ok(rows.into_iter().map(AuditEntry::from).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_has_a_name() {
        let actor = Actor::default();
        let host = actor.origin.clone().unwrap();
        assert!(actor.name.ends_with(&format!("@{host}")), "{actor:?}");
        assert_eq!(Actor::named(""), actor);
        let ada = Actor::named("ada").via(Via::Page).origin("10.0.0.7");
        assert_eq!(
            (ada.name(), ada.origin.as_deref()),
            ("ada", Some("10.0.0.7"))
        );
    }
}
