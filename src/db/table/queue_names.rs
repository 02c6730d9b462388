//! The names of the queues with ready executions, found by a loose index scan: one probe per name,
//! whatever the number of executions.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{Dialect, Lossy};
use crate::db::conn::statement::Statement;
use diesel::prelude::*;
use diesel::sql_types::{Bool, Text};

#[derive(QueryableByName)]
struct QueueName {
    #[diesel(sql_type = Text, deserialize_as = Lossy)]
    queue_name: String,
}

pub(crate) const WALK: &str = "WITH RECURSIVE walk(queue_name) AS ( \
       SELECT min(queue_name) FROM solid_queue_ready_executions \
       UNION ALL \
       SELECT (SELECT min(r.queue_name) FROM solid_queue_ready_executions r WHERE r.queue_name > walk.queue_name) \
       FROM walk WHERE walk.queue_name IS NOT NULL)";

/// Returns the names of the queues with ready executions that start with `prefix`, in order: one
/// index probe per name, whatever the number of executions.
///
/// It reads all names: in most collations of Postgres, those with one prefix are not adjacent.
pub(crate) fn queue_names(conn: &mut Conn<'_>, prefix: &str) -> QueryResult<Vec<String>> {
    let text = format!("{WALK} SELECT queue_name FROM walk WHERE queue_name IS NOT NULL");
    let names: Vec<QueueName> = Statement::new(text).load(conn)?;
    Ok(names
        .into_iter()
        .map(|row| row.queue_name)
        .filter(|name| name.starts_with(prefix))
        .collect())
}

#[derive(QueryableByName)]
struct PausesAreCrowded {
    #[diesel(sql_type = Bool)]
    crowded: bool,
}

/// Returns whether so many executions wait in paused queues that a scan for the most important one
/// of all queues must not read them one by one.
pub(crate) fn are_pauses_crowded(conn: &mut Conn<'_>) -> QueryResult<bool> {
    // Pause by pause: a join that starts with the ready executions reads all of them, even if
    // nothing is paused.
    let waiting = match conn.dialect() {
        Dialect::Postgres => {
            "SELECT 1 FROM solid_queue_pauses p CROSS JOIN LATERAL ( \
               SELECT 1 FROM solid_queue_ready_executions r WHERE r.queue_name = p.queue_name LIMIT 1000) AS r"
        }
        // SQLite keeps the order of a CROSS JOIN.
        Dialect::Sqlite => {
            "SELECT 1 FROM solid_queue_pauses p \
             CROSS JOIN solid_queue_ready_executions r WHERE r.queue_name = p.queue_name"
        }
    };
    let text = format!("SELECT count(*) >= 1000 AS crowded FROM ({waiting} LIMIT 1000) AS waiting");
    Statement::new(text)
        .get_result::<PausesAreCrowded>(conn)
        .map(|row| row.crowded)
}

/// Returns the queues that are not paused, ordered by the priority, then the age, of their first
/// execution.
pub(crate) fn foremost(conn: &mut Conn<'_>) -> QueryResult<Vec<String>> {
    let first = |column: &str| {
        format!(
            "(SELECT r.{column} FROM solid_queue_ready_executions r WHERE r.queue_name = walk.queue_name \
             ORDER BY r.priority, r.job_id LIMIT 1)"
        )
    };
    let text = format!(
        "{WALK}, heads AS (SELECT queue_name, {} AS priority, {} AS job_id FROM walk \
           WHERE queue_name IS NOT NULL AND queue_name NOT IN (SELECT queue_name FROM solid_queue_pauses)) \
         SELECT queue_name FROM heads WHERE job_id IS NOT NULL ORDER BY priority, job_id",
        first("priority"),
        first("job_id"),
    );
    let names: Vec<QueueName> = Statement::new(text).load(conn)?;
    Ok(names.into_iter().map(|row| row.queue_name).collect())
}
