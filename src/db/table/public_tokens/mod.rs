//! `windlass_public_tokens`: which job a public token belongs to.

use crate::db::conn::connection::Conn;
use crate::db::conn::statement::Statement;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool};

/// A token to store.
#[derive(Debug, Clone)]
pub(crate) struct NewPublicToken {
    /// The SHA-256 of its text, in hexadecimal.
    pub(crate) digest: String,
    /// True if it shows the value that the job returned.
    pub(crate) shows_result: bool,
}

/// The most tokens of one job that repeated enqueues leave; older ones are deleted.
const MOST: i64 = 100;

/// Stores a token of a job.
pub(crate) fn insert_public_token(
    conn: &mut Conn<'_>,
    job: i64,
    token: &NewPublicToken,
) -> QueryResult<()> {
    let text = "INSERT INTO windlass_public_tokens (digest, job_id, shows_result, created_at) VALUES ($1, $2, $3, {now})";
    Statement::new(text)
        .bind(&token.digest)
        .bind(job)
        .bind(token.shows_result)
        .uncached()
        .execute(conn)
}

/// Deletes the tokens of a job but the newest [`MOST`].
pub(crate) fn keep_newest(conn: &mut Conn<'_>, job: i64) -> QueryResult<()> {
    let text = "DELETE FROM windlass_public_tokens WHERE digest IN (SELECT digest FROM windlass_public_tokens \
         WHERE job_id = $1 ORDER BY created_at DESC, digest LIMIT 1000 OFFSET $2)";
    Statement::new(text)
        .bind(job)
        .bind(MOST)
        .uncached()
        .execute(conn)
}

/// The job of a token, and whether its result is shown.
#[derive(Debug, Clone, Copy, QueryableByName)]
pub(crate) struct PublicTokenRow {
    #[diesel(sql_type = BigInt)]
    pub(crate) job_id: i64,
    #[diesel(sql_type = Bool)]
    pub(crate) shows_result: bool,
}

/// Returns what the token with this digest leads to.
pub(crate) fn find(conn: &mut Conn<'_>, digest: &str) -> QueryResult<Option<PublicTokenRow>> {
    let text = "SELECT job_id, shows_result FROM windlass_public_tokens WHERE digest = $1";
    Statement::new(text)
        .bind(digest)
        .get_result(conn)
        .optional()
}
