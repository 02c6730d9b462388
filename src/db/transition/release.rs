//! Gives claims back.

use crate::db::conn::connection::Conn;
use crate::db::model::claim::Finished;
use crate::db::model::outcome::{self, Began, EndedRun, Ending};
use crate::db::table::claimed::{claim_ids, end, note_claim};
use crate::db::transition::place::make_waiting;
use crate::db::transition::settle;
use diesel::prelude::*;
use std::time::Duration;

/// Gives claims back, to be claimed anew at once or after `delay`, and
/// returns those that were still held. No attempt is counted.
pub(crate) fn release(
    conn: &mut Conn<'_>,
    process_id: i64,
    claims: &[i64],
    delay: Option<Duration>,
) -> QueryResult<Vec<i64>> {
    conn.transaction(|conn| {
        let ended = end(conn, process_id, claims)?;
        let (cancelled, waiting): (Vec<_>, Vec<_>) = ended.iter().partition(|row| row.cancelled);
        let jobs: Vec<i64> = waiting.iter().map(|row| row.job_id).collect();
        make_waiting(conn, &jobs, delay)?;
        for row in waiting {
            note_claim(conn, row.claim_id, row.job_id)?;
        }
        for row in cancelled {
            let run = EndedRun {
                process_id,
                claim_id: row.claim_id,
                job_id: row.job_id,
                began: Began::At(None),
                by_owner: true,
                finished: Finished::Keep,
            };
            settle::follow(conn, &run, &Ending::Cancel(outcome::cancelled()))?;
        }
        Ok(claim_ids(ended))
    })
}
