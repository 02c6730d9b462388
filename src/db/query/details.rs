//! One job with all that is stored of it, for display.

use crate::db::conn::connection::Conn;
use crate::db::conn::statement::Statement;
use crate::db::model::extras::BareArguments;
use chrono::NaiveDateTime;
use diesel::prelude::*;
use diesel::sql_types::{Nullable, Text, Timestamp};

/// Columns of a job's row that are shown only on request.
#[derive(Debug, QueryableByName)]
pub(crate) struct JobRow {
    /// As JSON, unless another program wrote other text.
    #[diesel(sql_type = Text, deserialize_as = BareArguments)]
    pub(crate) arguments: String,
    #[diesel(sql_type = Nullable<Text>)]
    pub(crate) policy: Option<String>,
    #[diesel(sql_type = Nullable<Timestamp>)]
    pub(crate) created_at: Option<NaiveDateTime>,
    #[diesel(sql_type = Nullable<Timestamp>)]
    pub(crate) scheduled_at: Option<NaiveDateTime>,
}

/// Reads the row of a job. `None` if it does not exist.
pub(crate) fn job(conn: &mut Conn<'_>, job: i64) -> QueryResult<Option<JobRow>> {
    let text = "SELECT coalesce(arguments, 'null') AS arguments, policy, {moment created_at} AS created_at, {moment scheduled_at} AS scheduled_at \
         FROM solid_queue_jobs WHERE id = $1";
    Statement::new(text).bind(job).get_result(conn).optional()
}

/// A completed step of a job.
#[derive(Debug, QueryableByName)]
pub(crate) struct CompletedStep {
    #[diesel(sql_type = Text)]
    pub(crate) name: String,
    #[diesel(sql_type = Text)]
    pub(crate) value: String,
    #[diesel(sql_type = Nullable<Timestamp>)]
    pub(crate) created_at: Option<NaiveDateTime>,
}

/// Returns the first steps of a job, at most `most`.
pub(crate) fn steps(conn: &mut Conn<'_>, job: i64, most: i64) -> QueryResult<Vec<CompletedStep>> {
    let text = "SELECT name, value, {moment created_at} AS created_at FROM windlass_steps WHERE job_id = $1 \
         ORDER BY created_at, name LIMIT $2";
    Statement::new(text).bind(job).bind(most).load(conn)
}
