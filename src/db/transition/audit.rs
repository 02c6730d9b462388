//! Audited actions: the rows of the audit, and the operations on many jobs that write them chunk by chunk.

use crate::db::conn::connection::Conn;
use crate::db::model::audit::{Actor, AuditAction};
use crate::db::table::audit::{self, NewAudit};
use crate::db::table::operations::{self, NewOperationRow, OperationAdvance, OperationRow};
use diesel::QueryResult;

// --- Writes the rows of the audit in the transactions of the changes ---

/// The effect of a change, for the audit.
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

    /// Returns what a change of jobs did.
    pub(crate) fn of_jobs(jobs: u64) -> Self {
        match jobs {
            0 => AuditEffect::Nothing,
            jobs => AuditEffect::Jobs(jobs),
        }
    }
}

/// The rows of one action in the audit. The first has everything that is known about it, the others
/// name that one: so each transaction of an action in chunks has a row with the number of its jobs.
#[derive(Debug)]
pub(crate) struct AuditTrail<'a> {
    /// The next row, apart from its numbers of jobs.
    next: NewAudit<'a>,
    /// True if every row has the filter, not only the first.
    each_has_filter: bool,
    /// The number of jobs that its rows have so far.
    total: i64,
}

impl<'a> AuditTrail<'a> {
    pub(crate) fn new(actor: &'a Actor, action: AuditAction) -> Self {
        Self::named(actor, action.column())
    }

    /// Returns the trail of an action by its stored name.
    fn named(actor: &'a Actor, action: &'a str) -> Self {
        AuditTrail {
            next: NewAudit::new(actor, action),
            each_has_filter: false,
            total: 0,
        }
    }

    pub(crate) fn is_of(&self, action: AuditAction) -> bool {
        self.next.action == action.column()
    }

    /// Names what was changed: a queue, a class, a key or a job.
    pub(crate) fn target(mut self, target: impl Into<String>) -> Self {
        self.next.target = Some(target.into());
        self
    }

    /// Names the selection of the jobs, as JSON.
    pub(crate) fn filter(mut self, filter: String) -> Self {
        self.next.filter = Some(filter);
        self
    }

    /// Names the jobs of the next row.
    pub(crate) fn filter_of_each(&mut self, filter: String) {
        self.next.filter = Some(filter);
        self.each_has_filter = true;
    }

    /// Names what was set, as JSON.
    pub(crate) fn parameters(mut self, parameters: String) -> Self {
        self.next.parameters = Some(parameters);
        self
    }

    /// Runs a change that returns whether it did anything, and writes its row, in one transaction.
    pub(crate) fn record_if<E: From<diesel::result::Error>>(
        mut self,
        conn: &mut Conn<'_>,
        change: impl FnOnce(&mut Conn<'_>) -> Result<bool, E>,
    ) -> Result<bool, E> {
        self.record(conn, change, |done| AuditEffect::done_if(*done))
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
        let (done, written) = conn.transaction(|conn| {
            let done = change(conn)?;
            let (effect, parameters) = describe(&done);
            self.next.parameters = parameters.or(self.next.parameters.take());
            Ok::<_, E>((done, self.write(conn, effect)?))
        })?;
        if let Some((id, total)) = written {
            self.next.part_of.get_or_insert(id);
            self.next.parameters = None;
            self.next.filter.take_if(|_| !self.each_has_filter);
            self.total = total;
        }
        Ok(done)
    }

    /// Writes the row of a change of this transaction. Returns its id and the total; `None` if the change did nothing.
    fn write(&self, conn: &mut Conn<'_>, effect: AuditEffect) -> QueryResult<Option<(i64, i64)>> {
        let jobs = match effect {
            AuditEffect::Nothing => return Ok(None),
            AuditEffect::Done => None,
            AuditEffect::Jobs(jobs) => Some(i64::try_from(jobs).unwrap_or(i64::MAX)),
        };
        let total = self.total.saturating_add(jobs.unwrap_or(0));
        let id = audit::record_audit(conn, &self.next, jobs, jobs.map(|_| total))?;
        Ok(Some((id, total)))
    }
}

// --- Starts, carries on and stops changes of many jobs ---

/// Stores an operation, with the row of the audit about its start. Returns the one that its request has
/// started before, if there is one.
pub(crate) fn start(conn: &mut Conn<'_>, new: &NewOperationRow<'_>) -> QueryResult<i64> {
    conn.transaction(|conn| {
        let Some(id) = operations::insert_operation(conn, new)? else {
            let request_id = new.request_id.unwrap_or_default();
            let started = operations::of_request(conn, request_id)?;
            return started.ok_or(diesel::result::Error::NotFound);
        };
        let row = NewAudit {
            filter: Some(new.filter.to_owned()),
            parameters: Some(new.parameters.to_owned()),
            operation_id: Some(id),
            ..NewAudit::new(new.actor, new.action)
        };
        let audit = audit::record_audit(conn, &row, Some(0), Some(0))?;
        operations::set_audit(conn, id, audit)?;
        Ok(id)
    })
}

/// Runs one chunk of an operation. Returns `None` if it has ended, another process runs a chunk of it,
/// or `work` returns `None`: this program does not know how to run it.
pub(crate) fn advance(
    conn: &mut Conn<'_>,
    id: i64,
    work: impl FnOnce(&mut Conn<'_>, &OperationRow) -> QueryResult<Option<OperationAdvance>>,
) -> QueryResult<Option<OperationAdvance>> {
    conn.transaction(|conn| {
        let Some(row) = operations::lock_open(conn, id)? else {
            return Ok(None);
        };
        let Some(advance) = work(conn, &row)? else {
            return Ok(None);
        };
        operations::advance(conn, id, &advance)?;
        let actor = row.by();
        let mut trail = AuditTrail::named(&actor, &row.action);
        (trail.next.operation_id, trail.next.part_of) = (Some(id), row.audit_id);
        trail.total = row.changed;
        trail.write(conn, AuditEffect::of_jobs(advance.changed))?;
        Ok(Some(advance))
    })
}

/// Stops an operation after the chunk that is under way. Returns `false` if it had ended.
pub(crate) fn stop(conn: &mut Conn<'_>, actor: &Actor, id: i64) -> QueryResult<bool> {
    AuditTrail::new(actor, AuditAction::StopOperation)
        .target(id.to_string())
        .record_if(conn, |conn| operations::end(conn, id, "stopped", None))
}
