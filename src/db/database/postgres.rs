//! Connections to Postgres, and their deadlines.

use crate::error::one_line;
use diesel::prelude::*;

/// What libpq should do with a server that does not answer: without
/// these, a half-open connection hangs for hours.
const PARAMETERS: [(&str, &str); 7] = [
    ("connect_timeout", "5"),
    ("keepalives_idle", "10"),
    ("keepalives_interval", "5"),
    ("keepalives_count", "3"),
    ("tcp_user_timeout", "20000"),
    ("target_session_attrs", "read-write"),
    ("application_name", "windlass"),
];

pub(super) fn with_defaults(url: &str) -> String {
    let mut url = url.to_owned();
    for (name, value) in PARAMETERS {
        if !url.contains(&format!("{name}=")) {
            url.push(if url.contains('?') { '&' } else { '?' });
            url.push_str(&format!("{name}={value}"));
        }
    }
    url
}

/// Deadlines in the server, so that a frozen client cannot hold a row.
pub(super) fn set_up(conn: &mut PgConnection) -> QueryResult<()> {
    diesel::sql_query(
        "SELECT set_config('statement_timeout', '30s', false), \
         set_config('lock_timeout', '5s', false), \
         set_config('idle_in_transaction_session_timeout', '15s', false), \
         set_config('default_transaction_isolation', 'read committed', false)",
    )
    .execute(conn)
    .map(drop)
}

pub(super) fn connect(url: &str) -> Result<PgConnection, String> {
    let mut conn = PgConnection::establish(url).map_err(|error| explain(&error.to_string()))?;
    set_up(&mut conn).map_err(|error| explain(&error.to_string()))?;
    Ok(conn)
}

/// libpq's message in one line, and what to do where it does not say so.
fn explain(message: &str) -> String {
    let mut text = one_line(message);
    if message.contains("database \"") && message.contains("does not exist") {
        text.push_str("; create it first, with `createdb` for example");
    } else if message.contains("role \"") || message.contains("password") {
        text.push_str("; check user and password in the address");
    }
    text
}
