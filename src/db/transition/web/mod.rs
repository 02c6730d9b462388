//! Signing in and revoking: changes of tokens together with their sessions.

use crate::db::conn::connection::Conn;
use crate::db::table::web::sessions::{self, NewWebSession};
use crate::db::table::web::tokens;
use diesel::QueryResult;

/// Revokes a token, and ends its sessions. Returns how many sessions there were; `None` if the
/// token was revoked before, or does not exist.
pub(crate) fn revoke(conn: &mut Conn<'_>, token: i64) -> QueryResult<Option<usize>> {
    conn.transaction(|conn| {
        let is_revoked = tokens::revoke(conn, token)?;
        let ended = sessions::delete_of_token(conn, token)?;
        Ok(is_revoked.then_some(ended))
    })
}

/// Starts a session, and writes that its token was used.
pub(crate) fn sign_in(conn: &mut Conn<'_>, session: &NewWebSession<'_>) -> QueryResult<()> {
    conn.transaction(|conn| {
        tokens::touch(conn, session.token)?;
        sessions::insert(conn, session)
    })
}
