//! `windlass_rate_tokens`: the tokens of jobs that were made ready, until their start is counted.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{Dialect, id_list};
use crate::db::conn::statement::Statement;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Nullable, Text};

/// A token of a job that was made ready.
#[derive(Debug, QueryableByName)]
pub(crate) struct TokenRow {
    #[diesel(sql_type = BigInt)]
    pub(crate) id: i64,
    #[diesel(sql_type = Text)]
    pub(crate) rate_key: String,
    #[diesel(sql_type = BigInt)]
    pub(crate) cost: i64,
    /// True if its job has not started since.
    #[diesel(sql_type = Bool)]
    pub(crate) is_promised: bool,
    /// The start of the run that goes on, or the end of the job, by the database's clock.
    #[diesel(sql_type = Nullable<BigInt>)]
    pub(crate) started_at: Option<i64>,
    /// By the database's clock.
    #[diesel(sql_type = BigInt)]
    pub(crate) created_at: i64,
    /// The place of its key among those that were asked for.
    #[diesel(sql_type = BigInt)]
    pub(crate) place: i64,
}

impl TokenRow {
    fn from_zero(self) -> Self {
        TokenRow {
            place: self.place - 1,
            ..self
        }
    }
}

/// The most tokens of one key that are counted at once.
const OF_KEY: i64 = 2_000;

/// Returns up to `most` tokens of these keys, by key: which of them are promised, and which were taken by a start.
///
/// It is one snapshot, so that no job is missed on its way from ready to claimed.
pub(crate) fn tokens(
    conn: &mut Conn<'_>,
    keys: &[String],
    most: usize,
) -> QueryResult<Vec<TokenRow>> {
    const COLUMNS: &str = "t.id, t.rate_key, t.cost, {micros t.created_at} AS created_at, \
         ((SELECT r.id FROM solid_queue_ready_executions r WHERE r.job_id = t.job_id LIMIT 1) IS NOT NULL \
         OR (SELECT c.id FROM solid_queue_claimed_executions c WHERE c.job_id = t.job_id AND c.started_at IS NULL LIMIT 1) \
           IS NOT NULL) AS is_promised, \
         coalesce((SELECT {micros c.started_at} FROM solid_queue_claimed_executions c WHERE c.job_id = t.job_id LIMIT 1), \
           (SELECT {micros j.finished_at} FROM solid_queue_jobs j WHERE j.id = t.job_id)) AS started_at";
    match conn.dialect() {
        Dialect::Postgres => {
            let text = format!(
                "SELECT {COLUMNS}, k.place FROM unnest($1) WITH ORDINALITY AS k (rate_key, place) CROSS JOIN LATERAL ( \
                   SELECT id, rate_key, cost, job_id, created_at FROM windlass_rate_tokens WHERE rate_key = k.rate_key \
                   ORDER BY rate_key, id LIMIT {OF_KEY}) AS t ORDER BY k.place LIMIT $2"
            );
            let rows: Vec<TokenRow> = Statement::new(text)
                .bind(keys)
                .bind(most as i64)
                .load(conn)?;
            Ok(rows.into_iter().map(TokenRow::from_zero).collect())
        }
        Dialect::Sqlite => {
            let text = format!(
                "SELECT {COLUMNS}, CAST($2 AS bigint) AS place FROM windlass_rate_tokens t WHERE t.rate_key = $1 \
                 ORDER BY t.rate_key, t.id LIMIT $3"
            );
            let mut tokens: Vec<TokenRow> = Vec::new();
            for (place, key) in keys.iter().enumerate() {
                let left = most.saturating_sub(tokens.len()) as i64;
                let statement = Statement::new(&text).bind(key).bind(place as i64);
                let found: Vec<TokenRow> = statement.bind(left.min(OF_KEY)).load(conn)?;
                tokens.extend(found);
            }
            Ok(tokens)
        }
    }
}

/// Gives tokens to jobs: a key, a job and a cost each.
pub(crate) fn promise(conn: &mut Conn<'_>, tokens: &[(&str, i64, i64)]) -> QueryResult<()> {
    if tokens.is_empty() {
        return Ok(());
    }
    let text = "INSERT INTO windlass_rate_tokens (rate_key, job_id, cost, created_at) \
         SELECT value ->> 0, CAST(value ->> 1 AS bigint), CAST(value ->> 2 AS bigint), {now} FROM {rows $1}";
    let rows = serde_json::to_string(tokens).unwrap_or_default();
    Statement::new(text).bind(rows).execute(conn)
}

/// Deletes tokens whose start was counted.
pub(crate) fn delete_tokens(conn: &mut Conn<'_>, tokens: &[i64]) -> QueryResult<()> {
    if tokens.is_empty() {
        return Ok(());
    }
    let text = "DELETE FROM windlass_rate_tokens WHERE id IN {in $1}";
    Statement::new(text).bind(id_list(tokens)).execute(conn)
}
