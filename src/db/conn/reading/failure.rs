//! The transaction and the failures of a read, on either database.

use crate::error::{Error, Result};
use diesel::connection::{AnsiTransactionManager, Connection, TransactionManager};

/// Why a read returned nothing.
#[derive(Debug)]
pub enum ReadFailure {
    /// It took longer than its limit. The connection is in order.
    Late,
    /// It began, and was given up long after its limit. Open another connection: whether the database
    /// is away is not known.
    #[cfg_attr(
        not(feature = "postgres"),
        allow(dead_code, reason = "only a connection over the network is given up")
    )]
    Cut,
    /// The database gave no answer to the first statement, or the connection broke. Open another one.
    Lost(String),
    /// It was answered with an error, or the work failed. Open another connection.
    Failed(Error),
}

/// Starts a transaction by a statement.
pub(crate) fn begun<C>(conn: &mut C, begin: &str) -> Result<()>
where
    C: Connection<TransactionManager = AnsiTransactionManager>,
    AnsiTransactionManager: TransactionManager<C>,
{
    AnsiTransactionManager::begin_transaction_sql(conn, begin).map_err(|source| Error::Query {
        action: "start to read",
        source,
    })
}

/// Runs `work` before a rollback.
pub(crate) fn rolled_back<C, T>(conn: &mut C, work: impl FnOnce(&mut C) -> Result<T>) -> Result<T>
where
    C: Connection<TransactionManager = AnsiTransactionManager>,
    AnsiTransactionManager: TransactionManager<C>,
{
    let result = work(conn);
    let rolled_back = AnsiTransactionManager::rollback_transaction(conn);
    let value = result?;
    rolled_back.map_err(|source| Error::Query {
        action: "end a read",
        source,
    })?;
    Ok(value)
}

/// Returns the message of the database in an error, if it is one of a statement.
pub(crate) fn database_message(error: &Error) -> Option<String> {
    match error {
        Error::Query {
            source: diesel::result::Error::DatabaseError(_, information),
            ..
        } => Some(information.message().to_owned()),
        _ => None,
    }
}
