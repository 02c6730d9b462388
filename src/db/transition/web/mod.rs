//! Signing in, and changes of tokens together with their sessions and their rows of the audit.

use crate::db::conn::connection::Conn;
use crate::db::model::audit::{Actor, AuditAction};
use crate::db::table::web::sessions::{self, NewWebSession};
use crate::db::table::web::tokens;
use crate::db::table::web::tokens::NewWebToken;
use crate::db::transition::audit::{AuditEffect, AuditTrail};
use diesel::QueryResult;

/// Stores a token and returns its id.
pub fn add_token(conn: &mut Conn<'_>, actor: &Actor, token: &NewWebToken<'_>) -> QueryResult<i64> {
    let role = serde_json::json!({ "role": token.role });
    AuditTrail::new(actor, AuditAction::AddToken)
        .target(token.name)
        .parameters(role.to_string())
        .record(
            conn,
            |conn| tokens::insert_web_token(conn, token),
            |_| AuditEffect::Done,
        )
}

/// Revokes a token, and ends its sessions. Returns how many sessions there were; `None` if the
/// token was revoked before, or does not exist.
pub fn revoke_token(
    conn: &mut Conn<'_>,
    actor: &Actor,
    (id, name): (i64, &str),
) -> QueryResult<Option<usize>> {
    let parameters = serde_json::json!({ "id": id });
    AuditTrail::new(actor, AuditAction::RevokeToken)
        .target(name)
        .parameters(parameters.to_string())
        .record(
            conn,
            |conn| {
                let is_revoked = tokens::revoke(conn, id)?;
                let ended = sessions::delete_of_token(conn, id)?;
                QueryResult::Ok(is_revoked.then_some(ended))
            },
            |ended| AuditEffect::done_if(ended.is_some()),
        )
}

/// Starts a session, and writes that its token was used.
pub fn sign_in(conn: &mut Conn<'_>, session: &NewWebSession<'_>) -> QueryResult<()> {
    conn.transaction(|conn| {
        tokens::touch(conn, session.token)?;
        sessions::insert_web_session(conn, session)
    })
}
