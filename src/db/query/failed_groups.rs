//! Failed jobs, grouped by their fingerprints.

use crate::db::conn::connection::Conn;
use crate::db::conn::statement::Statement;
use crate::db::table::failed::FailureRow;
use chrono::NaiveDateTime;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Text, Timestamp};

/// The first and the last failure with a fingerprint.
#[derive(Debug, Clone, QueryableByName)]
pub(crate) struct KnownFingerprint {
    #[diesel(sql_type = Text)]
    pub(crate) fingerprint: String,
    #[diesel(sql_type = BigInt)]
    pub(crate) first_id: i64,
    #[diesel(sql_type = BigInt)]
    pub(crate) last_id: i64,
}

/// Returns the first fingerprints of all, at most `limit`, in no useful order. Each is found by some looks
/// at the index, however many failures it has.
pub(crate) fn fingerprints(
    conn: &mut Conn<'_>,
    limit: usize,
) -> QueryResult<Vec<KnownFingerprint>> {
    let text = "WITH RECURSIVE known AS (SELECT min(fingerprint) AS fingerprint FROM solid_queue_failed_executions \
           UNION ALL SELECT (SELECT min(f.fingerprint) FROM solid_queue_failed_executions f \
             WHERE f.fingerprint > known.fingerprint) FROM known WHERE known.fingerprint IS NOT NULL) \
         SELECT k.fingerprint, \
           (SELECT min(a.id) FROM solid_queue_failed_executions a WHERE a.fingerprint = k.fingerprint) AS first_id, \
           (SELECT max(z.id) FROM solid_queue_failed_executions z WHERE z.fingerprint = k.fingerprint) AS last_id \
         FROM known k WHERE k.fingerprint IS NOT NULL LIMIT $1";
    Statement::new(text).bind(limit as i64).unkept().load(conn)
}

/// A group of failures.
#[derive(Debug, QueryableByName)]
pub(crate) struct GroupRow {
    #[diesel(sql_type = Text)]
    pub(crate) fingerprint: String,
    /// Counted up to one more than the bound.
    #[diesel(sql_type = BigInt)]
    pub(crate) count: i64,
    #[diesel(sql_type = Timestamp)]
    pub(crate) first_at: NaiveDateTime,
    #[diesel(sql_type = Timestamp)]
    pub(crate) last_at: NaiveDateTime,
    /// The newest of them.
    #[diesel(embed)]
    pub(crate) newest: FailureRow,
}

/// Returns the groups of fingerprints, each counted up to `most`.
pub(crate) fn groups(
    conn: &mut Conn<'_>,
    known: &[KnownFingerprint],
    most: u64,
) -> QueryResult<Vec<GroupRow>> {
    let wanted = known
        .iter()
        .map(|one| (&*one.fingerprint, one.first_id, one.last_id));
    let wanted = serde_json::to_string(&wanted.collect::<Vec<_>>()).unwrap_or_default();
    let text = "SELECT g.fingerprint, (SELECT count(*) FROM (SELECT 1 AS one FROM solid_queue_failed_executions c \
             WHERE c.fingerprint = g.fingerprint ORDER BY c.id LIMIT $2) AS counted) AS count, \
           coalesce({moment a.created_at}, {now}) AS first_at, coalesce({moment z.created_at}, {now}) AS last_at, \
           z.id, z.job_id, j.class_name, z.error, coalesce({moment z.created_at}, {now}) AS at \
         FROM (SELECT value ->> 0 AS fingerprint, CAST(value ->> 1 AS bigint) AS first_id, \
             CAST(value ->> 2 AS bigint) AS last_id FROM {rows $1}) AS g \
         JOIN solid_queue_failed_executions a ON a.id = g.first_id \
         JOIN solid_queue_failed_executions z ON z.id = g.last_id \
         JOIN solid_queue_jobs j ON j.id = z.job_id";
    Statement::new(text)
        .bind(wanted)
        .bind(i64::try_from(most).unwrap_or(i64::MAX).saturating_add(1))
        .unkept()
        .load(conn)
}
