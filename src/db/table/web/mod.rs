//! `windlass_web_tokens` and `windlass_web_sessions`: who may use the web pages.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{Lossy, micros};
use crate::db::conn::statement::Statement;
use diesel::prelude::*;
use diesel::sql_types::{Double, Text};
use std::time::Duration;

pub mod sessions;
pub mod tokens;

// Only the command `windlass web tokens` makes, lists and revokes tokens.

// --- The upkeep of the web's tables ---

/// The time for which a session that has ended is kept.
const SESSIONS_FOR: Duration = Duration::from_secs(24 * 3600);

/// The time for which an unused session is kept: longer than any idle time.
const UNUSED_FOR: Duration = Duration::from_secs(31 * 24 * 3600);

/// The time for which a token that may not be used any more is listed.
const TOKENS_FOR: Duration = Duration::from_secs(90 * 24 * 3600);

/// Deletes ended sessions, and tokens that have long been revoked or expired, up to `chunk` of each. The newest token
/// stays: without any, those on the server's own host need not sign in.
pub(crate) fn clear(conn: &mut Conn<'_>, chunk: usize) -> QueryResult<usize> {
    let text = "WITH old AS MATERIALIZED (SELECT id FROM windlass_web_sessions \
           WHERE expires_at <= {later $1} OR seen_at <= {later $2} LIMIT $3) \
         DELETE FROM windlass_web_sessions WHERE id IN {in SELECT id FROM old}";
    let sessions = Statement::new(text)
        .bind(-micros(SESSIONS_FOR))
        .bind(-micros(UNUSED_FOR))
        .bind(chunk as i64)
        .uncached()
        .changes(conn)?;
    let text = "WITH old AS MATERIALIZED (SELECT id FROM windlass_web_tokens \
           WHERE (revoked_at <= {later $1} OR expires_at <= {later $1}) \
           AND id < (SELECT max(id) FROM windlass_web_tokens) LIMIT $2) \
         DELETE FROM windlass_web_tokens WHERE id IN {in SELECT id FROM old}";
    let tokens = Statement::new(text)
        .bind(-micros(TOKENS_FOR))
        .bind(chunk as i64)
        .uncached()
        .changes(conn)?;
    Ok(sessions + tokens)
}

/// A token that soon may not be used any more.
#[doc(hidden)]
#[derive(Debug, QueryableByName)]
pub struct ExpiringToken {
    #[diesel(sql_type = Text, deserialize_as = Lossy)]
    pub name: String,
    /// Seconds until then.
    #[diesel(sql_type = Double)]
    pub seconds: f64,
}

/// Returns the active tokens that expire within this time, the first first.
pub fn expiring(conn: &mut Conn<'_>, within: Duration) -> QueryResult<Vec<ExpiringToken>> {
    let left = conn.seconds("{now}", "expires_at");
    let text = format!(
        "SELECT name, coalesce({left}, 0) AS seconds FROM windlass_web_tokens \
         WHERE revoked_at IS NULL AND expires_at > {{now}} AND expires_at <= {{later $1}} \
         ORDER BY expires_at LIMIT 10"
    );
    Statement::new(text)
        .bind(micros(within))
        .uncached()
        .load(conn)
}
