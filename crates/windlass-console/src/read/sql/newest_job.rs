//! The id of the newest job, without a search for it.

use diesel::QueryResult;
use windlass::Conn;
use windlass::database::Dialect;
use windlass::internal::db::conn::dialect::MaybeId;
use windlass::internal::db::conn::statement::Statement;

/// Returns an expression for an id that no job exceeds; NULL if there is no job.
///
/// On Postgres, `max(id)` passes each job that was deleted lately, at 2 µs each. The sequence knows the
/// last id that was given, unless another program chose its ids itself, or this user may not read it.
pub(crate) fn newest_id(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Sqlite => "(SELECT max(id) FROM solid_queue_jobs)",
        Dialect::Postgres => {
            "(SELECT coalesce((SELECT id FROM solid_queue_jobs WHERE id > given.id ORDER BY id DESC LIMIT 1), \
               given.id, (SELECT max(id) FROM solid_queue_jobs)) \
             FROM (SELECT CASE WHEN has_sequence_privilege(of_jobs.name, 'USAGE, SELECT') \
                 THEN pg_sequence_last_value(CAST(of_jobs.name AS regclass)) END AS id \
               FROM (SELECT pg_get_serial_sequence('solid_queue_jobs', 'id') AS name) AS of_jobs) AS given)"
        }
    }
}

/// Returns an id that no job exceeds; `None` if there is no job.
pub(crate) fn newest_job(conn: &mut Conn<'_>) -> QueryResult<Option<i64>> {
    let text = format!("SELECT {} AS id", newest_id(conn.dialect()));
    let newest: MaybeId = Statement::new(text).uncached().get_result(conn)?;
    Ok(newest.id)
}
