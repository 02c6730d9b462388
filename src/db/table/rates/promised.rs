//! The jobs whose tokens are promised.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{Execution, id_list, job_ids};
use crate::db::conn::statement::Statement;
use diesel::prelude::*;
use std::collections::BTreeSet;

/// Returns those of these jobs that are ready, or claimed and not started.
///
/// It is one snapshot, so that no job is missed on its way from ready to claimed.
pub(crate) fn unstarted(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<BTreeSet<i64>> {
    if jobs.is_empty() {
        return Ok(BTreeSet::new());
    }
    let text = "SELECT job_id FROM solid_queue_ready_executions WHERE job_id IN {in $1} UNION ALL \
         SELECT job_id FROM solid_queue_claimed_executions WHERE job_id IN {in $1} AND started_at IS NULL";
    let rows: Vec<Execution> = Statement::new(text).bind(id_list(jobs)).load(conn)?;
    Ok(job_ids(rows).into_iter().collect())
}
