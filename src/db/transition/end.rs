//! Ends claims whose runs did not finish.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{Id, micros, timestamp};
use crate::db::conn::statement::Statement;
use crate::db::model::claim::{EndedClaim, Fence, FinishedRow};
use crate::db::model::decision::JobDecision;
use crate::db::model::outcome::{AppliedEnding, ClaimEnd, EndedRun, Ending, RunStart, cancelled};
use crate::db::table::attempts;
use crate::db::table::claimed::{self, claim_ids};
use crate::db::table::history::deltas;
use crate::db::transition::settle::{self, settle};
use chrono::NaiveDateTime;
use diesel::prelude::*;
use std::collections::{BTreeMap, HashSet};
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
    let given_back = given_back(conn, ends, &held)?;
    let ends = ends.iter().map(|end| ClaimEnd {
        ending: given_back.get(&end.claim_id).unwrap_or(end.ending),
        ..*end
    });
    let ends: Vec<ClaimEnd<'_>> = ends.collect();
    let late = too_late(conn, &ends)?;
    let (mut done, mut decisions) = (Vec::new(), Vec::new());
    for end in &ends {
        let Some(ended) = held.get(&end.claim_id) else {
            continue;
        };
        let ending = match ended.cancelled {
            true => Ending::Cancel(cancelled()),
            false if late.contains(&end.claim_id) => final_ending(end.ending),
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

// --- The limits of retries: their time, and the runs without an answer of the database ---

/// Returns the claims whose next attempt would be due after the last time for one, by the database's
/// clock. Only retries with a limit cost a statement.
pub(crate) fn too_late(conn: &mut Conn<'_>, ends: &[ClaimEnd<'_>]) -> QueryResult<HashSet<i64>> {
    let limited: Vec<(i64, i64, String)> = ends
        .iter()
        .filter_map(|end| match (end.ending, end.last_retry) {
            (Ending::Retry(_, delay), Some(last)) => {
                Some((end.claim_id, micros(*delay), timestamp(last)))
            }
            _ => None,
        })
        .collect();
    if limited.is_empty() {
        return Ok(HashSet::new());
    }
    let rows = serde_json::to_string(&limited)
        .map_err(|error| diesel::result::Error::SerializationError(Box::new(error)))?;
    let text = "SELECT CAST(value ->> 0 AS bigint) AS id FROM {rows $1} \
         WHERE {later CAST(value ->> 1 AS bigint)} > {time (value ->> 2)}";
    let late: Vec<Id> = Statement::new(text).uncached().bind(&rows).load(conn)?;
    Ok(late.into_iter().map(|row| row.id).collect())
}

/// Returns the ending of a job that may not be retried any more.
pub(crate) fn final_ending(ending: &Ending) -> Ending {
    match ending {
        Ending::Retry(failure, _) => Ending::Fail(failure.clone()),
        other => other.clone(),
    }
}

/// Returns an ending, or the failure of a retry that would come too late.
pub(crate) fn final_if_too_late(
    conn: &mut Conn<'_>,
    ending: &Ending,
    last_retry: Option<NaiveDateTime>,
) -> QueryResult<Ending> {
    let end = ClaimEnd {
        claim_id: 0,
        ending,
        ran: Duration::ZERO,
        last_retry,
    };
    Ok(if too_late(conn, &[end])?.is_empty() {
        ending.clone()
    } else {
        final_ending(ending)
    })
}

/// The most runs within [`WITHIN`] after which a job is given back because the database did not answer: a job that is itself the cause, as it keeps a lock,
/// would otherwise run for ever.
const MOST: u32 = 10;

const WITHIN: Duration = Duration::from_secs(3600);

/// Returns the endings of claims whose jobs are given back, each with its delay, or the other ending
/// if that has happened too often. Other endings cost no statement.
pub(crate) fn given_back(
    conn: &mut Conn<'_>,
    ends: &[ClaimEnd<'_>],
    held: &BTreeMap<i64, EndedClaim>,
) -> QueryResult<BTreeMap<i64, Ending>> {
    let given: Vec<(i64, i64, &Ending)> = ends
        .iter()
        .filter(|end| matches!(end.ending, Ending::GiveBack { .. }))
        .filter_map(|end| Some((end.claim_id, held.get(&end.claim_id)?.job_id, end.ending)))
        .collect();
    if given.is_empty() {
        return Ok(BTreeMap::new());
    }
    let jobs: Vec<i64> = given.iter().map(|(_, job, _)| *job).collect();
    let before = attempts::interruptions(conn, &jobs, WITHIN)?;
    let decide = |(claim, job, ending): (i64, i64, &Ending)| {
        let times = before.get(&job).copied().unwrap_or(0);
        (claim, after(times, ending.clone()))
    };
    Ok(given.into_iter().map(decide).collect())
}

/// Returns the ending of a run after as many interruptions before it.
fn after(times: u32, ending: Ending) -> Ending {
    match ending {
        Ending::GiveBack { otherwise, .. } if times >= MOST => *otherwise,
        Ending::GiveBack {
            failure, otherwise, ..
        } => Ending::GiveBack {
            failure,
            delay: delay(times),
            otherwise,
        },
        other => other,
    }
}

/// None before the second run: the outcome is stored once the database answers again. Then 1 s, and
/// twice as long each time, up to 256 s.
fn delay(times: u32) -> Duration {
    match times.checked_sub(1) {
        None => Duration::ZERO,
        Some(doublings) => Duration::from_secs(1 << doublings.min(8)),
    }
}

// --- Releases claims ---

/// Releases claims that no thread has started, so that they can be claimed again at once or after `delay`, and returns those
/// that were still held. No attempt is counted.
pub(crate) fn release(
    conn: &mut Conn<'_>,
    process_id: i64,
    claims: &[i64],
    delay: Option<Duration>,
) -> QueryResult<Vec<i64>> {
    conn.transaction(|conn| {
        let ended = claimed::end(conn, process_id, claims)?;
        let decisions: Vec<JobDecision> = ended
            .iter()
            .map(|row| {
                let run = EndedRun {
                    process_id,
                    claim_id: row.claim_id,
                    job_id: row.job_id,
                    began: RunStart::At(None),
                    by_owner: true,
                    finished: FinishedRow::Keep,
                };
                let ending = match (row.cancelled, delay) {
                    (true, _) => Ending::Cancel(cancelled()),
                    (false, Some(delay)) => Ending::Snooze(delay),
                    (false, None) => Ending::Release(String::new(), None),
                };
                JobDecision::of_ending(run, ending)
            })
            .collect();
        // Some may have been cancelled.
        let counted = settle::settle_and_count(conn, &decisions)?;
        deltas::insert_with(conn, &counted)?;
        Ok(claim_ids(ended))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::model::outcome::JobFailure;

    #[test]
    fn a_job_is_given_back_ten_times_an_hour() {
        let failure = JobFailure::new("kind", "message");
        let ending = Ending::GiveBack {
            failure: failure.clone(),
            delay: Duration::ZERO,
            otherwise: Box::new(Ending::Fail(failure)),
        };
        let delays = (0..12).map(|times| match after(times, ending.clone()) {
            Ending::GiveBack { delay, .. } => Some(delay.as_secs()),
            _ => None,
        });
        let given = [0, 1, 2, 4, 8, 16, 32, 64, 128, 256].map(Some);
        assert!(delays.eq(given.into_iter().chain([None, None])));
    }
}
