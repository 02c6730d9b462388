//! Actions of operators: the rows of the audit, operations on many jobs, and the fingerprints of failures.

use crate::db::conn::connection::Conn;
use crate::db::model::audit::{Actor, AuditAction};
use crate::db::model::outcome;
use crate::db::table::failed;
use crate::db::table::operators::audit::{self, NewAudit};
use crate::db::table::operators::operations::{
    self, NewOperationRow, OperationAdvance, OperationRow,
};
use crate::db::transition::clear::{ClearedPage, one_by_one};
use diesel::QueryResult;
use std::collections::BTreeMap;

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
    /// True if every row has the filter, not only the first.
    each_has_filter: bool,
    parameters: Option<String>,
    operation: Option<i64>,
    /// The id of its first row, once there is one.
    first: Option<i64>,
    /// The number of jobs that its rows have so far.
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
        let id = audit::record_audit(
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
        let audit = audit::record_audit(
            conn,
            &NewAudit {
                actor: new.actor,
                action: new.action,
                target: None,
                filter: Some(new.filter),
                parameters: Some(new.parameters),
                jobs: Some(0),
                total: Some(0),
                operation_id: Some(id),
                part_of: None,
            },
        )?;
        operations::set_audit(conn, id, audit)?;
        Ok(id)
    })
}

/// The result of a batch of an operation.
#[derive(Debug)]
pub(crate) struct AppliedBatch {
    pub(crate) advance: OperationAdvance,
    pub(crate) effect: AuditEffect,
}

/// Runs one batch of an operation. Returns `None` if it has ended, another process runs a batch of it,
/// or `work` returns `None`: this program does not know how to run it.
pub(crate) fn advance(
    conn: &mut Conn<'_>,
    id: i64,
    work: impl FnOnce(&mut Conn<'_>, &OperationRow) -> QueryResult<Option<AppliedBatch>>,
) -> QueryResult<Option<OperationAdvance>> {
    conn.transaction(|conn| {
        let Some(row) = operations::lock_open(conn, id)? else {
            return Ok(None);
        };
        let Some(batch) = work(conn, &row)? else {
            return Ok(None);
        };
        operations::advance(conn, id, &batch.advance)?;
        let actor = row.by();
        AuditTrail::named(&actor, &row.action)
            .of_operation(id, row.audit_id, row.changed)
            .record(conn, |_| QueryResult::Ok(()), |()| batch.effect)?;
        Ok(Some(batch.advance))
    })
}

/// Stops an operation after the batch that is under way. Returns `false` if it had ended.
pub(crate) fn stop(conn: &mut Conn<'_>, actor: &Actor, id: i64) -> QueryResult<bool> {
    AuditTrail::new(actor, AuditAction::StopOperation)
        .target(id.to_string())
        .record(
            conn,
            |conn| operations::end(conn, id, "stopped", None),
            |stopped| AuditEffect::done_if(*stopped),
        )
}

// --- Stores the fingerprints of failures that another program has stored without one ---

/// Stores the fingerprints of up to `batch` failures, the newest first. Those that are locked, or that the
/// database refuses to change, are left.
pub(crate) fn fill(conn: &mut Conn<'_>, batch: usize) -> QueryResult<ClearedPage> {
    let found = failed::without_fingerprint(conn, batch)?;
    let fingerprints: BTreeMap<i64, String> = found
        .iter()
        .map(|row| {
            let error = row.error.as_deref().unwrap_or_default();
            (row.id, outcome::fingerprint_of(&row.class_name, error))
        })
        .collect();
    let ids: Vec<i64> = fingerprints.keys().copied().collect();
    let (counts, left) = one_by_one(conn, &ids, |conn, part| {
        let part: Vec<(i64, &str)> = part.iter().map(|id| (*id, &*fingerprints[id])).collect();
        failed::set_fingerprints(conn, &part)
    })?;
    let filled: usize = counts.into_iter().sum();
    Ok(ClearedPage {
        reached: (found.len() == batch && filled > 0).then_some(0),
        cleared: filled,
        left,
    })
}
