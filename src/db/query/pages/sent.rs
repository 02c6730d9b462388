//! What jobs were enqueued as, and which of them have not ended.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{Id, id_list};
use crate::db::conn::statement::Statement;
use crate::db::model::extras::MaybeBareArguments;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Nullable, Text};

/// What a job was enqueued as.
#[derive(Debug, Clone, QueryableByName)]
pub(crate) struct SentJob {
    #[diesel(sql_type = BigInt)]
    pub(crate) id: i64,
    #[diesel(sql_type = Text)]
    pub(crate) class_name: String,
    #[diesel(sql_type = Nullable<Text>, deserialize_as = MaybeBareArguments)]
    pub(crate) arguments: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    pub(crate) idempotency_key: Option<String>,
}

/// Returns what these jobs were enqueued as.
pub(crate) fn sent(conn: &mut Conn<'_>, ids: &[i64]) -> QueryResult<Vec<SentJob>> {
    let text = "SELECT id, class_name, arguments, idempotency_key FROM solid_queue_jobs WHERE id IN {in $1}";
    Statement::new(text).bind(id_list(ids)).unkept().load(conn)
}

/// Returns those of these jobs that have neither finished nor failed.
pub(crate) fn not_ended(conn: &mut Conn<'_>, ids: &[i64]) -> QueryResult<Vec<i64>> {
    let text = "SELECT j.id FROM solid_queue_jobs j WHERE j.id IN {in $1} AND j.finished_at IS NULL \
         AND NOT EXISTS (SELECT 1 FROM solid_queue_failed_executions f WHERE f.job_id = j.id)";
    let rows: Vec<Id> = Statement::new(text).bind(id_list(ids)).load(conn)?;
    Ok(rows.into_iter().map(|row| row.id).collect())
}
