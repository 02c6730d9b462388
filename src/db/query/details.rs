//! One job with all that is kept of it, for people.

use crate::db::conn::connection::Conn;
use crate::db::conn::lossy::Lossy;
use crate::db::conn::statement::Statement;
use chrono::NaiveDateTime;
use diesel::prelude::*;
use diesel::sql_types::{Nullable, Text, Timestamp};

/// What the row of a job says, beyond what everybody may see of it.
#[derive(Debug, QueryableByName)]
pub(crate) struct Row {
    /// As JSON, if others have not written something else.
    #[diesel(sql_type = Text, deserialize_as = Lossy)]
    pub(crate) arguments: String,
    #[diesel(sql_type = Nullable<Timestamp>)]
    pub(crate) created_at: Option<NaiveDateTime>,
    #[diesel(sql_type = Nullable<Timestamp>)]
    pub(crate) scheduled_at: Option<NaiveDateTime>,
}

/// Reads the row of a job. `None`: it is gone.
pub(crate) fn job(conn: &mut Conn<'_>, job: i64) -> QueryResult<Option<Row>> {
    let text = "SELECT coalesce(arguments, 'null') AS arguments, {moment created_at} AS created_at, {moment scheduled_at} AS scheduled_at \
         FROM solid_queue_jobs WHERE id = $1";
    Statement::new(text).bind(job).get_result(conn).optional()
}

/// A step that a job has behind it.
#[derive(Debug, QueryableByName)]
pub(crate) struct Step {
    #[diesel(sql_type = Text)]
    pub(crate) name: String,
    #[diesel(sql_type = Text)]
    pub(crate) value: String,
    #[diesel(sql_type = Nullable<Timestamp>)]
    pub(crate) created_at: Option<NaiveDateTime>,
}

/// The first steps of a job, at most so many.
pub(crate) fn steps(conn: &mut Conn<'_>, job: i64, most: i64) -> QueryResult<Vec<Step>> {
    let text = "SELECT name, value, {moment created_at} AS created_at FROM windlass_steps WHERE job_id = $1 \
         ORDER BY created_at, name LIMIT $2";
    Statement::new(text).bind(job).bind(most).load(conn)
}
