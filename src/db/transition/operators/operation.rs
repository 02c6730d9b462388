//! Starts, carries on and stops changes of many jobs.
//!
//! A batch is one transaction: it locks the row of the operation, changes jobs, stores how far the
//! operation is, and writes its row of the audit. So no batch is applied twice, whichever process dies
//! when, and no lease is needed. The row of the operation is locked before those of the jobs, but without
//! a wait.

use crate::db::conn::connection::Conn;
use crate::db::model::audit::{Actor, AuditAction};
use crate::db::table::operators::audit::{self, NewAudit};
use crate::db::table::operators::operations::{
    self, NewOperationRow, OperationAdvance, OperationRow,
};
use crate::db::transition::operators::audit::{AuditEffect, AuditTrail};
use diesel::QueryResult;

/// Stores an operation, with the row of the audit about its start. Returns the one that its request has
/// started before, if there is one.
pub(crate) fn start(conn: &mut Conn<'_>, new: &NewOperationRow<'_>) -> QueryResult<i64> {
    conn.transaction(|conn| {
        let Some(id) = operations::insert(conn, new)? else {
            let request_id = new.request_id.unwrap_or_default();
            let started = operations::of_request(conn, request_id)?;
            return started.ok_or(diesel::result::Error::NotFound);
        };
        let audit = audit::insert(
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

/// What a batch did.
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
