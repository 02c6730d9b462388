//! Deletes batches that are over.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{Id, id_list, micros};
use crate::db::conn::statement::Statement;
use crate::db::table::flows::batches::{self, IS_OURS};
use crate::db::transition::clear::{ClearedPage, count_one_by_one};
use diesel::prelude::*;
use std::time::Duration;

/// Deletes up to `batch` batches of Windlass after the id `after` that were over so long ago and have no jobs any more,
/// with their edges.
pub(crate) fn over(
    conn: &mut Conn<'_>,
    age: Duration,
    after: i64,
    batch: usize,
) -> QueryResult<ClearedPage> {
    let is_unused = "NOT EXISTS (SELECT 1 FROM solid_queue_jobs j WHERE j.batch_id = b.id) \
         AND NOT EXISTS (SELECT 1 FROM windlass_edges w JOIN solid_queue_jobs j ON j.id = w.child_job_id \
           WHERE w.parent_batch_id = b.id AND j.finished_at IS NULL)";
    let text = format!(
        "SELECT b.id FROM solid_queue_batches b WHERE b.id > $1 AND b.finished_at <= {{later $2}} AND {IS_OURS} \
         AND {is_unused} ORDER BY b.id LIMIT $3"
    );
    let due: Vec<Id> = Statement::new(text)
        .unkept()
        .bind(after)
        .bind(-micros(age))
        .bind(batch as i64)
        .load(conn)?;
    let due: Vec<i64> = due.into_iter().map(|row| row.id).collect();
    let (cleared, left) = count_one_by_one(conn, &due, |conn, due| {
        // Looked at once more under the lock: another transaction may have let a job wait for one.
        let locked = batches::lock_free(conn, due)?;
        let text =
            format!("DELETE FROM solid_queue_batches AS b WHERE b.id IN {{in $1}} AND {is_unused}");
        Statement::new(text)
            .unkept()
            .bind(id_list(&locked))
            .changes(conn)
    })?;
    Ok(ClearedPage {
        reached: due.last().copied().filter(|_| due.len() == batch),
        cleared,
        left,
    })
}
