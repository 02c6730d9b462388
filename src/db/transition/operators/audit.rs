//! Writes the rows of the audit in the transactions of the changes.

use crate::db::conn::connection::Conn;
use crate::db::model::audit::{Actor, AuditAction};
use crate::db::table::operators::audit::{self, NewAudit};
use diesel::QueryResult;

/// What a change did, for the audit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AuditEffect {
    /// Nothing, so there is nothing to record.
    Nothing,
    /// Something else than jobs has changed.
    Done,
    /// So many jobs have changed.
    Jobs(u64),
}

impl AuditEffect {
    /// Returns what a change did that says whether it did anything.
    pub(crate) fn done_if(changed: bool) -> Self {
        if changed {
            AuditEffect::Done
        } else {
            AuditEffect::Nothing
        }
    }

    /// Returns how many jobs have changed.
    pub(crate) fn jobs(self) -> u64 {
        match self {
            AuditEffect::Nothing | AuditEffect::Done => 0,
            AuditEffect::Jobs(jobs) => jobs,
        }
    }

    /// Returns what a change of jobs did.
    pub(crate) fn of_jobs(jobs: u64) -> Self {
        match jobs {
            0 => AuditEffect::Nothing,
            jobs => AuditEffect::Jobs(jobs),
        }
    }
}

/// The rows of one action in the audit. The first has everything that is known about it, the others
/// name that one: so each transaction of an action in batches has a row with the number of its jobs.
#[derive(Debug)]
pub(crate) struct AuditTrail<'a> {
    actor: &'a Actor,
    action: &'a str,
    target: Option<String>,
    filter: Option<String>,
    /// Whether every row has the filter, not only the first.
    each_has_filter: bool,
    parameters: Option<String>,
    operation: Option<i64>,
    /// The id of its first row, once there is one.
    first: Option<i64>,
    /// How many jobs its rows have so far.
    total: i64,
}

impl<'a> AuditTrail<'a> {
    pub(crate) fn new(actor: &'a Actor, action: AuditAction) -> Self {
        Self::named(actor, action.column())
    }

    /// Returns the trail of an action by its stored name.
    pub(crate) fn named(actor: &'a Actor, action: &'a str) -> Self {
        AuditTrail {
            actor,
            action,
            target: None,
            filter: None,
            each_has_filter: false,
            parameters: None,
            operation: None,
            first: None,
            total: 0,
        }
    }

    /// Names what was changed: a queue, a class, a key or a job.
    pub(crate) fn target(mut self, target: impl Into<String>) -> Self {
        self.target = Some(target.into());
        self
    }

    /// Names the selection of the jobs, as JSON.
    pub(crate) fn filter(mut self, filter: String) -> Self {
        self.filter = Some(filter);
        self
    }

    /// Names the jobs of the next row.
    pub(crate) fn filter_of_each(&mut self, filter: String) {
        self.filter = Some(filter);
        self.each_has_filter = true;
    }

    /// Names what was set, as JSON.
    pub(crate) fn parameters(mut self, parameters: String) -> Self {
        self.parameters = Some(parameters);
        self
    }

    /// Makes them rows of an operation. `first` is the row of its start, and `total` has the jobs of
    /// the rows after it.
    pub(crate) fn of_operation(mut self, operation: i64, first: Option<i64>, total: i64) -> Self {
        (self.operation, self.first, self.total) = (Some(operation), first, total);
        self
    }

    /// Runs a change and writes its row, in one transaction. A change that did nothing has no row.
    pub(crate) fn record<T, E: From<diesel::result::Error>>(
        &mut self,
        conn: &mut Conn<'_>,
        change: impl FnOnce(&mut Conn<'_>) -> Result<T, E>,
        effect: impl FnOnce(&T) -> AuditEffect,
    ) -> Result<T, E> {
        self.record_as(conn, change, |done| (effect(done), None))
    }

    /// Does the same for a change whose own result has what was set, as JSON.
    pub(crate) fn record_as<T, E: From<diesel::result::Error>>(
        &mut self,
        conn: &mut Conn<'_>,
        change: impl FnOnce(&mut Conn<'_>) -> Result<T, E>,
        describe: impl FnOnce(&T) -> (AuditEffect, Option<String>),
    ) -> Result<T, E> {
        let (done, first, total) = conn.transaction(|conn| {
            let done = change(conn)?;
            let (effect, parameters) = describe(&done);
            self.parameters = parameters.or(self.parameters.take());
            let (first, total) = self.write(conn, effect)?;
            Ok::<_, E>((done, first, total))
        })?;
        (self.first, self.total) = (first, total);
        Ok(done)
    }

    /// Writes the row of a change of this transaction. Returns the id of the first row and the total.
    fn write(&self, conn: &mut Conn<'_>, effect: AuditEffect) -> QueryResult<(Option<i64>, i64)> {
        let jobs = match effect {
            AuditEffect::Nothing => return Ok((self.first, self.total)),
            AuditEffect::Done => None,
            AuditEffect::Jobs(jobs) => Some(i64::try_from(jobs).unwrap_or(i64::MAX)),
        };
        let total = self.total.saturating_add(jobs.unwrap_or(0));
        let is_first = self.first.is_none();
        let filter = self.filter.as_deref();
        let parameters = self.parameters.as_deref();
        let id = audit::insert(
            conn,
            &NewAudit {
                actor: self.actor,
                action: self.action,
                target: self.target.as_deref(),
                filter: filter.filter(|_| is_first || self.each_has_filter),
                parameters: parameters.filter(|_| is_first),
                jobs,
                total: jobs.map(|_| total),
                operation_id: self.operation,
                part_of: self.first,
            },
        )?;
        Ok((self.first.or(Some(id)), total))
    }
}
