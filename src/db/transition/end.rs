//! Ends claims whose runs did not finish.

use crate::db::conn::connection::Conn;
use crate::db::model::claim::{EndedClaim, Fence, FinishedRow};
use crate::db::model::decision::JobDecision;
use crate::db::model::outcome::{AppliedEnding, ClaimEnd, EndedRun, Ending, RunStart, cancelled};
use crate::db::table::claimed::{self};
use crate::db::transition::retry_limit;
use crate::db::transition::settle::settle;
use diesel::prelude::*;
use std::collections::BTreeMap;
use std::time::Duration;

/// Ends a claim with its ending, or as cancelled if a cancel was requested meanwhile, and returns
/// which it was. Returns `None` if the claim was fenced off.
pub(crate) fn end(
    conn: &mut Conn<'_>,
    fence: Fence,
    ending: &Ending,
    ran: Duration,
    finished: FinishedRow,
) -> QueryResult<Option<Ending>> {
    let ends = [ClaimEnd {
        claim_id: fence.claim_id,
        ending,
        ran,
        last_retry: None,
    }];
    let mut ended = end_all(conn, fence.process_id, &ends, finished)?;
    Ok(ended.pop().map(|ended| ended.ending))
}

/// Ends claims of a process like [`end`], all in one transaction. Claims that are missing in the
/// result were fenced off.
pub(crate) fn end_all(
    conn: &mut Conn<'_>,
    process_id: i64,
    ends: &[ClaimEnd<'_>],
    finished: FinishedRow,
) -> QueryResult<Vec<AppliedEnding>> {
    conn.transaction(|conn| {
        let held = claimed::end(conn, process_id, &claims(ends))?;
        settle_ended(conn, process_id, ends, held, finished)
    })
}

/// The result of ending claims of which some may be locked.
#[derive(Debug)]
pub(crate) struct AppliedEndings {
    pub(crate) ended: Vec<AppliedEnding>,
    /// Claims that are held, and locked by another transaction: unchanged.
    pub(crate) busy: Vec<i64>,
}

/// Like [`end_all`], but skips claims that another transaction has locked, and returns those of
/// them that are still held.
pub(crate) fn end_free(
    conn: &mut Conn<'_>,
    process_id: i64,
    ends: &[ClaimEnd<'_>],
    finished: FinishedRow,
) -> QueryResult<AppliedEndings> {
    conn.transaction(|conn| {
        let (held, written) = claimed::end_free(conn, process_id, &claims(ends))?;
        let ended = settle_ended(conn, process_id, ends, held, finished)?;
        Ok(AppliedEndings {
            ended,
            busy: written.busy,
        })
    })
}

pub(crate) fn claims(ends: &[ClaimEnd<'_>]) -> Vec<i64> {
    ends.iter().map(|end| end.claim_id).collect()
}

/// Decides about the jobs of claims that have ended, and applies the decisions.
pub(crate) fn settle_ended(
    conn: &mut Conn<'_>,
    process_id: i64,
    ends: &[ClaimEnd<'_>],
    held: Vec<EndedClaim>,
    finished: FinishedRow,
) -> QueryResult<Vec<AppliedEnding>> {
    let held: BTreeMap<i64, EndedClaim> = held.into_iter().map(|row| (row.claim_id, row)).collect();
    let given_back = retry_limit::given_back(conn, ends, &held)?;
    let ends = ends.iter().map(|end| ClaimEnd {
        ending: given_back.get(&end.claim_id).unwrap_or(end.ending),
        ..*end
    });
    let ends: Vec<ClaimEnd<'_>> = ends.collect();
    let late = retry_limit::too_late(conn, &ends)?;
    let (mut done, mut decisions) = (Vec::new(), Vec::new());
    for end in &ends {
        let Some(ended) = held.get(&end.claim_id) else {
            continue;
        };
        let ending = match ended.cancelled {
            true => Ending::Cancel(cancelled()),
            false if late.contains(&end.claim_id) => retry_limit::final_ending(end.ending),
            false => end.ending.clone(),
        };
        let run = EndedRun {
            process_id,
            claim_id: end.claim_id,
            job_id: ended.job_id,
            began: match end.ending {
                Ending::Expire(_) => RunStart::At(None),
                _ => RunStart::Ago(end.ran),
            },
            by_owner: true,
            finished,
        };
        decisions.push(JobDecision::of_ending(run, ending.clone()));
        done.push(AppliedEnding {
            claim_id: end.claim_id,
            ending,
        });
    }
    settle(conn, &decisions)?;
    Ok(done)
}
