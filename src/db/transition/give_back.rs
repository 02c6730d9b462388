//! Limits how often a job runs again because the database did not answer.

use crate::db::conn::connection::Conn;
use crate::db::model::claim::EndedClaim;
use crate::db::model::outcome::{ClaimEnd, Ending};
use crate::db::table::attempts;
use diesel::QueryResult;
use std::collections::BTreeMap;
use std::time::Duration;

/// The most such runs of a job within [`WITHIN`]: a job that is itself the cause, as it keeps a lock,
/// would otherwise run for ever.
const MOST: u32 = 10;

const WITHIN: Duration = Duration::from_secs(3600);

/// Returns the endings of claims whose jobs are given back, each with its delay, or the other ending
/// if that has happened too often. Other endings cost no statement.
pub(crate) fn decided(
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
