//! Lets jobs wait whose claims have ended at a step.

use crate::db::conn::connection::Conn;
use crate::db::model::decision::{Destination, JobDecision};
use crate::db::model::outcome::{StepWait, WaitUntil};
use crate::db::table::flows::edges;
use crate::db::table::flows::waits::{self, NewWait};
use crate::db::table::steps;
use crate::db::table::wanted_keys::{self, NewRequest};
use diesel::prelude::*;

/// Lets those of the jobs wait, in ascending order, that are to: the caller has scheduled the executions of pauses.
///
/// The promotion of each wait for an event is requested, whether there is one or not: a transaction that emits it may not
/// see the wait, as this one may not see the event. The later commit of both has a promotion after it. The same holds for
/// a job that waits for others.
pub(crate) fn park(conn: &mut Conn<'_>, decisions: &[&JobDecision]) -> QueryResult<()> {
    let (mut pauses, mut events, mut joins) = (Vec::new(), Vec::new(), Vec::new());
    for decision in decisions {
        let Destination::Park(StepWait { step, until }) = &decision.destination else {
            continue;
        };
        let (job_id, claim_id) = (decision.run.job_id, decision.run.claim_id);
        match until {
            WaitUntil::Pause(time) => pauses.push((job_id, step.as_str(), *time)),
            WaitUntil::Event { name, timeout } => events.push(NewWait {
                job_id,
                claim_id,
                step,
                event: name,
                timeout: *timeout,
            }),
            WaitUntil::Joined(value) => joins.push((job_id, step.as_str(), value.as_str())),
        }
    }
    steps::record_pauses(conn, &pauses)?;
    let mut requests = Vec::new();
    if !events.is_empty() {
        waits::insert(conn, &events)?;
        requests.extend(events.iter().map(|wait| NewRequest::Wait(wait.job_id)));
    }
    if !joins.is_empty() {
        steps::record_joins(conn, &joins)?;
        edges::block(
            conn,
            &joins.iter().map(|(job, ..)| *job).collect::<Vec<_>>(),
        )?;
        requests.extend(joins.iter().map(|(job, ..)| NewRequest::Child(*job)));
    }
    wanted_keys::request(conn, requests)
}
