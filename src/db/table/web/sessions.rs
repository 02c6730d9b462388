//! `windlass_web_sessions`: browsers that have signed in with a token.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{Id, id_list, micros};
use crate::db::conn::statement::Statement;
use crate::db::table::web::tokens::ACTIVE;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Text};
use std::time::Duration;

/// The largest lag of the stored time of the last request.
const COARSE: Duration = Duration::from_secs(60);

/// A session to store.
#[doc(hidden)]
#[derive(Debug)]
pub struct NewWebSession<'a> {
    pub token: i64,
    /// The first digits of the digest.
    pub lookup: &'a str,
    /// The SHA-256 of the cookie's secret, in hexadecimal.
    pub digest: &'a str,
    /// The origin of the sign-in.
    pub origin: &'a str,
    /// The lifetime, however much it is used.
    pub lifetime: Duration,
}

/// A session that was found by its digest's first digits, with its token.
#[doc(hidden)]
#[derive(Debug, QueryableByName)]
pub struct SessionCandidate {
    #[diesel(sql_type = BigInt)]
    pub id: i64,
    #[diesel(sql_type = BigInt)]
    pub token_id: i64,
    #[diesel(sql_type = Text)]
    pub name: String,
    #[diesel(sql_type = Text)]
    pub role: String,
    #[diesel(sql_type = Text)]
    pub digest: String,
    /// True if its last request is to be written.
    #[diesel(sql_type = Bool)]
    pub is_stale: bool,
}

/// Stores a session.
pub(crate) fn insert_web_session(
    conn: &mut Conn<'_>,
    session: &NewWebSession<'_>,
) -> QueryResult<()> {
    let text = "INSERT INTO windlass_web_sessions (token_id, lookup, digest, origin, created_at, seen_at, expires_at) \
         VALUES ($1, $2, $3, $4, {now}, {now}, {later $5})";
    Statement::new(text)
        .bind(session.token)
        .bind(session.lookup)
        .bind(session.digest)
        .bind(session.origin)
        .bind(micros(session.lifetime))
        .uncached()
        .execute(conn)
}

/// A condition on a session `s` of a token `t`: it is signed in. `$2` is minus the idle time.
fn is_signed_in() -> String {
    format!("s.expires_at > {{now}} AND s.seen_at > {{later $2}} AND {ACTIVE}")
}

/// Returns the session with these first digits, if it has not ended.
pub fn find(
    conn: &mut Conn<'_>,
    lookup: &str,
    idle: Duration,
) -> QueryResult<Option<SessionCandidate>> {
    let text = format!(
        "SELECT s.id, s.token_id, t.name, t.role, s.digest, s.seen_at < {{later $3}} AS is_stale \
         FROM windlass_web_sessions s JOIN windlass_web_tokens t ON t.id = s.token_id \
         WHERE s.lookup = $1 AND {}",
        is_signed_in()
    );
    Statement::new(text)
        .bind(lookup)
        .bind(-micros(idle))
        .bind(-micros(COARSE))
        .get_result(conn)
        .optional()
}

/// Returns those of these sessions that have not ended.
pub fn active(conn: &mut Conn<'_>, ids: &[i64], idle: Duration) -> QueryResult<Vec<i64>> {
    let text = format!(
        "SELECT s.id FROM windlass_web_sessions s JOIN windlass_web_tokens t ON t.id = s.token_id \
         WHERE s.id IN {{in $1}} AND {}",
        is_signed_in()
    );
    let rows: Vec<Id> = Statement::new(text)
        .bind(id_list(ids))
        .bind(-micros(idle))
        .load(conn)?;
    Ok(rows.into_iter().map(|row| row.id).collect())
}

/// Writes that sessions were used.
pub fn touch(conn: &mut Conn<'_>, ids: &[i64]) -> QueryResult<()> {
    let text = "UPDATE windlass_web_sessions SET seen_at = {now} WHERE id IN {in $1}";
    Statement::new(text).bind(id_list(ids)).execute(conn)
}

/// Ends a session.
pub fn delete(conn: &mut Conn<'_>, id: i64) -> QueryResult<()> {
    let text = "DELETE FROM windlass_web_sessions WHERE id = $1";
    Statement::new(text).bind(id).uncached().execute(conn)
}

/// Ends all sessions of a token.
pub(crate) fn delete_of_token(conn: &mut Conn<'_>, token: i64) -> QueryResult<usize> {
    let text = "DELETE FROM windlass_web_sessions WHERE token_id = $1";
    Statement::new(text).bind(token).uncached().changes(conn)
}
