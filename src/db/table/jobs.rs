//! `solid_queue_jobs`: enqueueing, and looking a job up.

use crate::db::conn::connection::{Conn, on};
use crate::db::conn::sql::{Id, cached, id_list, sql};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Text};

#[derive(QueryableByName)]
struct LastClaim {
    #[diesel(sql_type = BigInt)]
    last_claim_id: i64,
}

/// Of the claims `(claim, job)`, those whose job is gone: where finished jobs
/// are deleted, an ending whose COMMIT got no answer leaves no other trace.
pub(crate) fn claims_without_job(
    conn: &mut Conn<'_>,
    claims: &[(i64, i64)],
) -> QueryResult<Vec<i64>> {
    let jobs: Vec<i64> = claims.iter().map(|(_, job)| *job).collect();
    let text = conn.write("SELECT id FROM solid_queue_jobs WHERE id IN {in $1}");
    let there: Vec<Id> = on!(conn, |c| cached(sql(text).bind::<Text, _>(id_list(&jobs)))
        .load(c))?;
    Ok(claims
        .iter()
        .filter(|(_, job)| there.iter().all(|row| row.id != *job))
        .map(|(claim, _)| *claim)
        .collect())
}

/// Whether its owner has ended this claim `(claim, job)`: by the job's word, or
/// because the row of a job that finished was not kept.
pub(crate) fn ended_by_owner(conn: &mut Conn<'_>, claim: (i64, i64)) -> QueryResult<bool> {
    Ok(
        !ended_claims(conn, &[claim])?.is_empty()
            || !claims_without_job(conn, &[claim])?.is_empty(),
    )
}

/// Of the claims `(claim, job)`, those that their owner has ended: what a
/// worker asks after an ending whose COMMIT got no answer.
pub(crate) fn ended_claims(conn: &mut Conn<'_>, claims: &[(i64, i64)]) -> QueryResult<Vec<i64>> {
    let jobs: Vec<i64> = claims.iter().map(|(_, job)| *job).collect();
    let text = conn.write(
        "SELECT last_claim_id FROM solid_queue_jobs WHERE id IN {in $1} AND last_claim_id IS NOT NULL",
    );
    let ended: Vec<LastClaim> = on!(conn, |c| cached(sql(text).bind::<Text, _>(id_list(&jobs)))
        .load(c))?;
    Ok(ended
        .into_iter()
        .map(|row| row.last_claim_id)
        .filter(|id| claims.iter().any(|(claim, _)| claim == id))
        .collect())
}
