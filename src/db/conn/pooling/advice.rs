//! What to do about the error by which transaction mode shows where the setting is missing.

/// How the names of Diesel's prepared statements begin in an error of the server.
const OF_DIESEL: &str = "prepared statement \"__diesel_stmt_";

/// What to set.
const ADVICE: &str = "it was prepared in another session of the server: a pooler such as PgBouncer in \
     transaction mode stands before it; set `pooling = \"transaction\"` in `[database]`, or add \
     `?pooling=transaction` to the address";

/// Returns the error with advice, if a statement was prepared in another session than the one that it met.
pub(crate) fn advised(error: diesel::result::Error) -> diesel::result::Error {
    use diesel::result::Error::DatabaseError;
    match error {
        DatabaseError(kind, information) if information.message().contains(OF_DIESEL) => {
            DatabaseError(
                kind,
                Box::new(format!("{}: {ADVICE}", information.message())),
            )
        }
        other => other,
    }
}

/// Returns whether the message says so. Then any statement may be another one in the session that it meets, so that no
/// further one may be sent.
pub(crate) fn is_advised(message: &str) -> bool {
    message.contains(ADVICE)
}
