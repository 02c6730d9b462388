//! Plain recurring tasks, and the clearing of finished jobs.

use crate::db::Conn;
use crate::laboratory::plain::enqueue;
use crate::laboratory::plain::statement::{PlainChange, PlainId, Prepared, ids, render};
use diesel::prelude::*;
use diesel::sql_types::BigInt;

/// Creates as many tasks, all due.
pub(crate) fn schedule(conn: &mut Conn<'_>, tasks: &[i64]) -> QueryResult<()> {
    let text = "INSERT INTO plain_tasks (id, class_name, next_run_at) \
         SELECT value, 'windlass_bench_nothing', {now} FROM {list}";
    PlainChange::new(conn, &[text]).apply(conn, tasks)
}

/// Enqueues the jobs of these tasks, and moves the tasks to their next ticks, in one commit.
pub(crate) fn fire(conn: &mut Conn<'_>, tasks: &[i64]) -> QueryResult<()> {
    let moved = PlainChange::new(
        conn,
        &[
            "INSERT INTO plain_ticks (task_id, run_at, created_at) SELECT value, {now}, {now} FROM {list}",
            "UPDATE plain_tasks SET next_run_at = {now} WHERE id {in}",
        ],
    );
    let arguments: Vec<String> = tasks.iter().map(|_| "{}".to_owned()).collect();
    conn.transaction(|conn| {
        enqueue::all(conn, &arguments, enqueue::READY)?;
        moved.apply(conn, tasks)
    })
}

/// Marks all jobs as finished.
pub(crate) fn finish_all(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<()> {
    let text = "UPDATE plain_jobs SET finished_at = {now} WHERE id {in}";
    PlainChange::new(conn, &[text]).apply(conn, jobs)
}

/// Deletes up to `batch` finished jobs after the id `after` and the unique ids that they hold, in
/// one commit. Returns the last one.
pub(crate) fn clear(conn: &mut Conn<'_>, after: i64, batch: usize) -> QueryResult<Option<i64>> {
    let text =
        "SELECT id FROM plain_jobs WHERE id > $1 AND finished_at <= {now} ORDER BY id LIMIT $2";
    let text = render(conn, text);
    let query = diesel::sql_query(text).bind::<BigInt, _>(after);
    let query = Prepared(query.bind::<BigInt, _>(batch as i64));
    let found: Vec<PlainId> = match conn {
        Conn::Postgres(conn) => query.load(*conn)?,
        Conn::Sqlite(conn) => query.load(*conn)?,
    };
    let deletion = PlainChange::new(
        conn,
        &[
            "DELETE FROM plain_unique WHERE job_id {in}",
            "DELETE FROM plain_jobs WHERE id {in}",
        ],
    );
    let found = ids(&found);
    if !found.is_empty() {
        deletion.apply(conn, &found)?;
    }
    Ok(found.last().copied())
}
