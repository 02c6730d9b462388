//! What one transaction does with a group of outcomes, also when an earlier attempt got no answer.

use crate::db::Conn;
use crate::db::model::claim::{ClaimOf, FinishedRow};
use crate::db::model::outcome::{ClaimEnd, Ending};
use crate::db::model::state::KeySlots;
use crate::db::table::claimed::EndedClaims;
use crate::db::table::jobs;
use crate::db::transition::{end, finish};
use crate::mutant;
use crate::process::worker::completion::{CompletionKind, PendingCompletion};
use diesel::QueryResult;
use std::collections::HashMap;

/// What became of an outcome that is not a success.
pub(crate) enum WrittenCompletion {
    Ended(Ending),
    /// The job has ended its claim itself, in its own transaction.
    Finished,
    /// The claim belongs to the process no longer.
    Fenced,
    /// Another transaction has locked the claim.
    Busy,
}

impl WrittenCompletion {
    /// Whether this can be how an interrupted run ends.
    pub(crate) fn is_cut_short(&self) -> bool {
        matches!(
            self,
            WrittenCompletion::Ended(Ending::Release(..) | Ending::Fail(_))
        )
    }
}

/// Returns whether an earlier attempt may have ended some of the claims, or the jobs themselves.
pub(crate) fn is_repeated(group: &[PendingCompletion]) -> bool {
    group
        .iter()
        .any(|pending| pending.tries > 0 || pending.run.live.ends_itself())
}

/// Writes successes of one kind.
pub(crate) fn write_finished(
    conn: &mut Conn<'_>,
    group: &[PendingCompletion],
    kind: CompletionKind,
    slots: KeySlots<'_>,
) -> QueryResult<EndedClaims> {
    let process_id = kind.process_id;
    let claims: Vec<i64> = group.iter().map(PendingCompletion::claim).collect();
    let pairs: Vec<ClaimOf> = group.iter().map(PendingCompletion::pair).collect();
    if mutant::is("finish_without_fence") {
        finish::finish_unfenced(conn, &pairs)?;
        return Ok(EndedClaims {
            accepted: claims,
            ..EndedClaims::default()
        });
    }
    let ended = ended_by_jobs(conn, group, kind)?;
    let mut written = if ended.len() == group.len() {
        EndedClaims::default()
    } else if kind.leaves_traces {
        let open = group.iter().filter(|one| !ended.contains(&one.claim()));
        let traces = open.filter_map(|pending| pending.run.traces());
        finish::finish_and_keep_free(conn, process_id, traces.collect(), kind.finished, slots)?
    } else {
        let mut open = claims;
        open.retain(|claim| !ended.contains(claim));
        finish::finish_free(conn, process_id, &open, kind.finished, slots)?
    };
    written.accepted.extend(&ended);
    if is_repeated(group) && written.accepted.len() < group.len() {
        let accepted = &mut written.accepted;
        accepted.extend(already_ended(conn, &pairs, accepted)?);
        if kind.finished == FinishedRow::Delete {
            accepted.extend(jobs::claims_without_job(conn, &pairs)?);
        }
    }
    Ok(written)
}

/// Returns the claims that jobs have ended themselves, whose row names them: nearly always all of those
/// that jobs tried to end. A deleted row names nothing, so those are ended like others first.
fn ended_by_jobs(
    conn: &mut Conn<'_>,
    group: &[PendingCompletion],
    kind: CompletionKind,
) -> QueryResult<Vec<i64>> {
    let own = group
        .iter()
        .filter(|pending| pending.run.live.ends_itself());
    let own: Vec<ClaimOf> = own.map(PendingCompletion::pair).collect();
    if own.is_empty() || kind.finished == FinishedRow::Delete {
        return Ok(Vec::new());
    }
    jobs::ended_claims(conn, &own)
}

/// Writes outcomes of one kind that are not successes. Returns what became of
/// each, and the claims that another transaction has locked.
pub(crate) fn write_ended(
    conn: &mut Conn<'_>,
    group: &[PendingCompletion],
    kind: CompletionKind,
) -> QueryResult<(Vec<WrittenCompletion>, Vec<i64>)> {
    let ends: Vec<ClaimEnd<'_>> = group.iter().filter_map(PendingCompletion::end).collect();
    let done = end::end_free(conn, kind.process_id, &ends, kind.finished)?;
    let busy = done.busy;
    let done = done.ended.into_iter();
    let mut done: HashMap<i64, Ending> = done.map(|end| (end.claim_id, end.ending)).collect();
    let written = |pending: &PendingCompletion| {
        Ok(match (done.remove(&pending.claim()), pending.end()) {
            (Some(ending), _) => WrittenCompletion::Ended(ending),
            _ if busy.contains(&pending.claim()) => WrittenCompletion::Busy,
            _ if finished_itself(conn, pending)? => WrittenCompletion::Finished,
            (_, Some(end)) if was_accepted(conn, pending)? => {
                WrittenCompletion::Ended(end.ending.clone())
            }
            _ => WrittenCompletion::Fenced,
        })
    };
    let written = group.iter().map(written).collect::<QueryResult<Vec<_>>>()?;
    Ok((written, busy))
}

/// Whether the database accepted an earlier attempt whose answer was lost.
pub(crate) fn was_accepted(conn: &mut Conn<'_>, pending: &PendingCompletion) -> QueryResult<bool> {
    if pending.tries == 0 {
        return Ok(false);
    }
    match pending.run.finished {
        FinishedRow::Keep => Ok(!already_ended(conn, &[pending.pair()], &[])?.is_empty()),
        FinishedRow::Delete => jobs::ended_by_owner(conn, pending.pair()),
    }
}

/// Whether the job has ended its claim itself, in a transaction that was
/// committed. In that case the value that the job returned does not count.
fn finished_itself(conn: &mut Conn<'_>, pending: &PendingCompletion) -> QueryResult<bool> {
    Ok(pending.run.live.ends_itself() && jobs::ended_by_owner(conn, pending.pair())?)
}

/// Returns those of the claims that were not accepted which this process has ended
/// before, in a transaction whose COMMIT got no answer.
fn already_ended(
    conn: &mut Conn<'_>,
    pairs: &[ClaimOf],
    accepted: &[i64],
) -> QueryResult<Vec<i64>> {
    let open: Vec<ClaimOf> = pairs
        .iter()
        .filter(|claim| !accepted.contains(&claim.claim_id))
        .copied()
        .collect();
    if open.is_empty() {
        return Ok(Vec::new());
    }
    jobs::ended_claims(conn, &open)
}
