//! Deliberate faults: transitions without what makes them safe, by which tests show that they would
//! find it. No program runs them but one that was built with its mutants, and asked for one.

use crate::db::conn::connection::Conn;
use crate::db::conn::statement::Statement;
use crate::db::model::claim::ClaimOf;
use crate::db::model::decision::Death;
use crate::db::transition::prune;
use crate::db::transition::recover::{self, Recovered};
use diesel::prelude::*;

/// Finishes the jobs of claims, whichever process holds them now.
pub(crate) fn finish_unfenced(conn: &mut Conn<'_>, claims: &[ClaimOf]) -> QueryResult<()> {
    let text = "DELETE FROM solid_queue_claimed_executions WHERE job_id = $1";
    let update =
        "UPDATE solid_queue_jobs SET finished_at = {now}, last_claim_id = $1 WHERE id = $2";
    for claim in claims {
        Statement::new(text).bind(claim.job_id).execute(conn)?;
        Statement::new(update)
            .bind(claim.claim_id)
            .bind(claim.job_id)
            .execute(conn)?;
    }
    Ok(())
}

/// Prunes a process as if nothing had changed since it was seen dead.
#[cfg(all(test, feature = "internal-tests"))]
pub(crate) fn prune_stale(conn: &mut Conn<'_>, id: i64, death: &Death) -> QueryResult<Recovered> {
    let recovered = recover_stale(conn, id, death)?;
    prune::delete(conn, id)?;
    Ok(recovered)
}

/// Recovers the claims of a process whether it is alive or not, and keeps its row.
pub(crate) fn recover_stale(conn: &mut Conn<'_>, id: i64, death: &Death) -> QueryResult<Recovered> {
    let mut recovered = conn.transaction(|conn| recover::recover(conn, id, death))?;
    prune::count(conn, death, &mut recovered)?;
    Ok(recovered)
}
