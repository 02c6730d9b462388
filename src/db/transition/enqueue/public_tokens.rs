//! Enqueues jobs with public tokens.

use crate::db::conn::connection::Conn;
use crate::db::model::new_row::{EnqueueOutcome, Inserted, NewRow};
use crate::db::table::jobs;
use crate::db::table::public_tokens::{self, NewPublicToken};
use crate::db::transition::enqueue;
use crate::db::transition::enqueue::admit::{self, NotEnqueued};
use diesel::prelude::*;

/// Inserts jobs with their public tokens, all or none. Returns the result of each, and whether its
/// token was stored.
///
/// A job that existed already gets another token only if it has the idempotency key of the enqueue:
/// then the caller has enqueued this job before. A unique id may be that of another caller.
pub(crate) fn insert_all(
    conn: &mut Conn<'_>,
    rows: &[NewRow],
    tokens: &[Option<NewPublicToken>],
) -> Result<Vec<(Inserted, bool)>, NotEnqueued> {
    admit::with_slots(conn, rows.len(), |conn| {
        let inserted = if rows.iter().any(|row| row.quota.is_some()) {
            admit::insert_once(conn, rows)?
        } else {
            enqueue::insert_all(conn, rows)?
        };
        let mut done = Vec::with_capacity(inserted.len());
        for ((job, row), token) in inserted.into_iter().zip(rows).zip(tokens) {
            let stored = match token {
                Some(token) => attach_public_token(conn, job, row, token)?,
                None => false,
            };
            done.push((job, stored));
        }
        Ok(done)
    })
}

fn attach_public_token(
    conn: &mut Conn<'_>,
    job: Inserted,
    row: &NewRow,
    token: &NewPublicToken,
) -> QueryResult<bool> {
    if job.is_new || job.outcome == EnqueueOutcome::Replaced {
        public_tokens::insert_public_token(conn, job.id, token)?;
        return Ok(true);
    }
    let is_repeated = match &row.idempotency_key {
        Some(key) => jobs::has_key(conn, job.id, key)?,
        None => false,
    };
    if is_repeated {
        public_tokens::insert_public_token(conn, job.id, token)?;
        public_tokens::keep_newest(conn, job.id)?;
    }
    Ok(is_repeated)
}
