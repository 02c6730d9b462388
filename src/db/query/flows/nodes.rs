//! Reads many jobs of a flow at once.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{Lossy, id_list};
use crate::db::conn::statement::Statement;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Nullable, Text};

/// What a flow shows of a job that has a row.
#[derive(Debug, QueryableByName)]
pub(crate) struct FlowJobRow {
    #[diesel(sql_type = BigInt)]
    pub(crate) job_id: i64,
    #[diesel(sql_type = Text, deserialize_as = Lossy)]
    pub(crate) class_name: String,
    #[diesel(sql_type = Bool)]
    pub(crate) has_finished: bool,
    #[diesel(sql_type = Bool)]
    pub(crate) has_failed: bool,
    #[diesel(sql_type = Bool)]
    pub(crate) is_claimed: bool,
    /// How the last unsuccessful attempt ended.
    #[diesel(sql_type = Nullable<Text>)]
    pub(crate) last_outcome: Option<String>,
}

/// Reads the jobs that have a row.
pub(crate) fn jobs(conn: &mut Conn<'_>, ids: &[i64]) -> QueryResult<Vec<FlowJobRow>> {
    let text = "SELECT j.id AS job_id, j.class_name, j.finished_at IS NOT NULL AS has_finished, \
           EXISTS (SELECT 1 FROM solid_queue_failed_executions f WHERE f.job_id = j.id) AS has_failed, \
           EXISTS (SELECT 1 FROM solid_queue_claimed_executions c WHERE c.job_id = j.id) AS is_claimed, \
           (SELECT a.outcome FROM windlass_attempts a WHERE a.job_id = j.id ORDER BY a.id DESC LIMIT 1) AS last_outcome \
         FROM solid_queue_jobs j WHERE j.id IN {in $1}";
    Statement::new(text).unkept().bind(id_list(ids)).load(conn)
}

/// What a flow shows of a job of which only the result is left.
#[derive(Debug, QueryableByName)]
pub(crate) struct FlowResultRow {
    #[diesel(sql_type = BigInt)]
    pub(crate) job_id: i64,
    #[diesel(sql_type = Text, deserialize_as = Lossy)]
    pub(crate) class_name: String,
    #[diesel(sql_type = Text)]
    pub(crate) outcome: String,
}

/// Reads the results of jobs that have not expired.
pub(crate) fn results(conn: &mut Conn<'_>, ids: &[i64]) -> QueryResult<Vec<FlowResultRow>> {
    let text = "SELECT job_id, class_name, outcome FROM windlass_results WHERE job_id IN {in $1} AND expires_at > {now}";
    Statement::new(text).unkept().bind(id_list(ids)).load(conn)
}
