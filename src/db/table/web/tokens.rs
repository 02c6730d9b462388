//! `windlass_web_tokens`: tokens, of which only a digest is stored.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{Id, id_list, micros};
use crate::db::conn::statement::Statement;
use chrono::NaiveDateTime;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Nullable, Text, Timestamp};
use std::time::Duration;

/// A condition on a token `t`: it may be used.
pub(crate) const ACTIVE: &str =
    "(t.revoked_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > {now}))";

/// The largest lag of the stored time of the last use.
pub(crate) const COARSE: Duration = Duration::from_secs(300);

/// A token to store.
#[doc(hidden)]
#[derive(Debug)]
pub struct NewWebToken<'a> {
    pub name: &'a str,
    pub role: &'a str,
    /// The first digits of the digest.
    pub lookup: &'a str,
    /// The SHA-256 of its text, in hexadecimal.
    pub digest: &'a str,
    /// JSON.
    pub limits: Option<&'a str>,
    pub by: &'a str,
    pub expires_after: Option<Duration>,
}

/// A token as it is listed.
#[doc(hidden)]
#[derive(Debug, Clone, QueryableByName)]
pub struct WebTokenRow {
    #[diesel(sql_type = BigInt)]
    pub id: i64,
    #[diesel(sql_type = Text)]
    pub name: String,
    #[diesel(sql_type = Text)]
    pub role: String,
    #[diesel(sql_type = Nullable<Text>)]
    pub limits: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    pub created_by: Option<String>,
    #[diesel(sql_type = Timestamp)]
    pub created_at: NaiveDateTime,
    #[diesel(sql_type = Nullable<Timestamp>)]
    pub last_used_at: Option<NaiveDateTime>,
    #[diesel(sql_type = Nullable<Timestamp>)]
    pub expires_at: Option<NaiveDateTime>,
    #[diesel(sql_type = Nullable<Timestamp>)]
    pub revoked_at: Option<NaiveDateTime>,
    #[diesel(sql_type = Bool)]
    pub is_active: bool,
}

/// A token that was found by its digest's first digits.
#[doc(hidden)]
#[derive(Debug, QueryableByName)]
pub struct TokenCandidate {
    #[diesel(sql_type = BigInt)]
    pub id: i64,
    #[diesel(sql_type = Text)]
    pub name: String,
    #[diesel(sql_type = Text)]
    pub role: String,
    #[diesel(sql_type = Text)]
    pub digest: String,
    #[diesel(sql_type = Nullable<Text>)]
    pub limits: Option<String>,
    /// True if its last use is to be written.
    #[diesel(sql_type = Bool)]
    pub is_stale: bool,
}

#[derive(QueryableByName)]
struct Exists {
    #[diesel(sql_type = Bool)]
    is_there: bool,
}

/// Stores a token and returns its id.
pub(crate) fn insert_web_token(conn: &mut Conn<'_>, token: &NewWebToken<'_>) -> QueryResult<i64> {
    let expires = if token.expires_after.is_some() {
        "{later $7}"
    } else {
        "NULL"
    };
    let text = format!(
        "INSERT INTO windlass_web_tokens (name, role, lookup, digest, limits, created_by, created_at, expires_at) \
         VALUES ($1, $2, $3, $4, $5, $6, {{now}}, {expires}) RETURNING id"
    );
    let statement = Statement::new(text)
        .bind(token.name)
        .bind(token.role)
        .bind(token.lookup)
        .bind(token.digest)
        .bind(token.limits)
        .bind(token.by);
    let statement = match token.expires_after {
        Some(after) => statement.bind(micros(after)),
        None => statement,
    };
    let row: Id = statement.uncached().get_result(conn)?;
    Ok(row.id)
}

/// Returns all tokens, the newest first.
pub fn list_web_tokens(conn: &mut Conn<'_>) -> QueryResult<Vec<WebTokenRow>> {
    let text = format!(
        "SELECT t.id, t.name, t.role, t.limits, t.created_by, t.created_at, t.last_used_at, t.expires_at, t.revoked_at, \
         {ACTIVE} AS is_active FROM windlass_web_tokens t ORDER BY t.id DESC LIMIT 1000"
    );
    Statement::new(text).uncached().load(conn)
}

/// Returns the active token with these first digits.
pub fn find(conn: &mut Conn<'_>, lookup: &str) -> QueryResult<Option<TokenCandidate>> {
    let text = format!(
        "SELECT t.id, t.name, t.role, t.digest, t.limits, \
         coalesce(t.last_used_at < {{later $2}}, true) AS is_stale \
         FROM windlass_web_tokens t WHERE t.lookup = $1 AND {ACTIVE}"
    );
    Statement::new(text)
        .bind(lookup)
        .bind(-micros(COARSE))
        .get_result(conn)
        .optional()
}

/// Writes that a token was used.
pub fn touch(conn: &mut Conn<'_>, id: i64) -> QueryResult<()> {
    let text = "UPDATE windlass_web_tokens SET last_used_at = {now} WHERE id = $1";
    Statement::new(text).bind(id).execute(conn)
}

/// Returns whether there is any token, also one that may not be used any more.
pub fn exist(conn: &mut Conn<'_>) -> QueryResult<bool> {
    let text = "SELECT EXISTS (SELECT 1 FROM windlass_web_tokens) AS is_there";
    let row: Exists = Statement::new(text).get_result(conn)?;
    Ok(row.is_there)
}

/// Returns whether there is a token with which a person or a program can sign in.
pub fn exist_active(conn: &mut Conn<'_>) -> QueryResult<bool> {
    let text =
        format!("SELECT EXISTS (SELECT 1 FROM windlass_web_tokens t WHERE {ACTIVE}) AS is_there");
    let row: Exists = Statement::new(text).uncached().get_result(conn)?;
    Ok(row.is_there)
}

/// Returns those of these tokens that may still be used.
pub fn active(conn: &mut Conn<'_>, ids: &[i64]) -> QueryResult<Vec<i64>> {
    let text =
        format!("SELECT t.id FROM windlass_web_tokens t WHERE t.id IN {{in $1}} AND {ACTIVE}");
    let rows: Vec<Id> = Statement::new(text).bind(id_list(ids)).load(conn)?;
    Ok(rows.into_iter().map(|row| row.id).collect())
}

/// Revokes a token. Returns `false` if it was revoked before, or does not exist.
pub(crate) fn revoke(conn: &mut Conn<'_>, id: i64) -> QueryResult<bool> {
    let text =
        "UPDATE windlass_web_tokens SET revoked_at = {now} WHERE id = $1 AND revoked_at IS NULL";
    let changed = Statement::new(text).bind(id).uncached().changes(conn)?;
    Ok(changed > 0)
}
