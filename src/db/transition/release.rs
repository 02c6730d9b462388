//! Releases claims.

use crate::db::conn::connection::Conn;
use crate::db::model::claim::FinishedRow;
use crate::db::model::decision::JobDecision;
use crate::db::model::outcome::{self, EndedRun, Ending, RunStart};
use crate::db::table::claimed::{self, claim_ids};
use crate::db::table::history::deltas;
use crate::db::transition::settle;
use diesel::prelude::*;
use std::time::Duration;

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
                    (true, _) => Ending::Cancel(outcome::cancelled()),
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
