//! Ends retries that would come too late, and limits how often a job runs again because the database
//! did not answer.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{Id, micros, timestamp};
use crate::db::conn::statement::Statement;
use crate::db::model::claim::EndedClaim;
use crate::db::model::outcome::{ClaimEnd, Ending};
use crate::db::table::attempts;
use chrono::NaiveDateTime;
use diesel::prelude::*;
use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

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
    let late: Vec<Id> = Statement::new(text).unkept().bind(&rows).load(conn)?;
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
pub(crate) fn limited(
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
