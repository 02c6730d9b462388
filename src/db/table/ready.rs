//! `solid_queue_ready_executions`: claiming.

use crate::db::conn::connection::Conn;
use crate::db::conn::sql::id_list;
use crate::db::conn::statement::Statement;
use crate::db::table::wanted_keys::{self, Key, keys};
use diesel::prelude::*;

/// No id is 0: it stands for the absent row of an outer join.
pub(crate) const NOTHING: i64 = 0;

/// Makes jobs ready, and wakes who sleeps; those with a limit must hold a slot
/// already, or have just got one: see [`super::blocked`] for all others. One
/// that is ready already, by somebody's hand, must not hold up the others.
pub(crate) fn insert(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<()> {
    let text = "INSERT INTO solid_queue_ready_executions (job_id, queue_name, priority, class_name, cautious, created_at, concurrency_key) \
         SELECT id, queue_name, priority, class_name, {cautious}, {now}, \
           CASE WHEN concurrency_limit IS NOT NULL THEN concurrency_key END \
         FROM solid_queue_jobs WHERE id IN {in $1} ORDER BY id ON CONFLICT (job_id) DO NOTHING";
    Statement::new(text).bind(id_list(jobs)).execute(conn)?;
    crate::db::conn::wakeup::notify(conn, jobs.len())
}

/// Takes the ready executions of jobs away, and with them their slots.
pub(crate) fn delete(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<()> {
    let text = "DELETE FROM solid_queue_ready_executions WHERE job_id IN {in $1} RETURNING concurrency_key";
    let rows: Vec<Key> = Statement::new(text).bind(id_list(jobs)).load(conn)?;
    wanted_keys::want(conn, &keys(rows))
}
