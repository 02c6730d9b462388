//! Reading from Postgres.

use crate::db::conn::connection::Conn;
use crate::db::conn::database::prefer_indexes;
use crate::db::conn::pooling::pooler::Pooler;
use crate::db::conn::postgres::{Guarded, local};
use crate::db::conn::reading::failure::{ReadFailure, begun, database_message, rolled_back};
use crate::deadline::{Armed, Hurry, no_answer};
use crate::error::{Error, Result, one_line};
use diesel::connection::SimpleConnection as _;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// The additional wait for an answer after the server's own limit.
const GRACE: Duration = Duration::from_millis(500);

/// The part of the message by which the server reports that a statement took too long.
const TIMEOUT: &str = "canceling statement due to";

pub(super) struct PostgresReader {
    guarded: Guarded,
    /// The deadline of the transaction that has begun.
    armed: Option<Armed>,
}

impl PostgresReader {
    /// Connects; a replica is accepted too if the address says so.
    pub(super) fn connect(url: &str, limit: Duration, pooler: &Pooler) -> Result<Self, String> {
        // It counts as hurried from the start, so that `limit` is the one for connecting.
        let hurry = Hurry {
            stopping: Arc::new(AtomicBool::new(true)),
            limit,
        };
        let mut guarded = Guarded::connect(url, Some(hurry), pooler)?;
        let armed = guarded.arm(limit);
        // A transaction that a defect starts by itself cannot write either, unless others would get the session.
        let set = match local(&mut guarded.conn) {
            Some(_) => Ok(()),
            None => guarded
                .conn
                .batch_execute("SET default_transaction_read_only = on"),
        };
        let set = set.and_then(|()| prefer_indexes(&mut Conn::Postgres(&mut guarded.conn)));
        drop(armed);
        if let Some(limit) = guarded.missed() {
            return Err(no_answer(limit));
        }
        set.map_err(|error| one_line(&error.to_string()))?;
        Ok(PostgresReader {
            guarded,
            armed: None,
        })
    }

    pub(super) fn begin(&mut self, limit: Duration) -> Result<(), ReadFailure> {
        let millis = limit.as_millis().max(1);
        let mut begin = format!(
            "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL statement_timeout = {millis}"
        );
        if let Some(local) = local(&mut self.guarded.conn) {
            begin.push_str("; ");
            begin.push_str(&local.after_begin());
        }
        // The server's own limit is for each statement, this one for all of them.
        self.armed = Some(self.guarded.arm_in_all(limit + GRACE));
        let result = begun(&mut self.guarded.conn, &begin);
        if result.is_ok() {
            return Ok(());
        }
        self.armed = None;
        match (result, self.guarded.missed()) {
            (_, Some(limit)) => Err(ReadFailure::Lost(no_answer(limit))),
            (result, None) => result.map_err(judge),
        }
    }

    pub(super) fn finish<T>(
        &mut self,
        work: impl FnOnce(&mut Conn<'_>) -> Result<T>,
    ) -> Result<T, ReadFailure> {
        let result = rolled_back(&mut self.guarded.conn, |conn| {
            work(&mut Conn::Postgres(conn))
        });
        self.armed = None;
        match (result, self.guarded.missed()) {
            (_, Some(_)) => Err(ReadFailure::Cut),
            (result, None) => result.map_err(judge),
        }
    }
}

fn judge(error: Error) -> ReadFailure {
    let is_broken = |error: &Error| {
        matches!(error, Error::Query { source, .. } if matches!(
            source,
            diesel::result::Error::BrokenTransactionManager
                | diesel::result::Error::DatabaseError(
                    diesel::result::DatabaseErrorKind::ClosedConnection
                        | diesel::result::DatabaseErrorKind::UnableToSendCommand,
                    _
                )
        ))
    };
    match database_message(&error) {
        Some(message) if message.contains(TIMEOUT) => ReadFailure::Late,
        Some(message) if is_broken(&error) || is_farewell(&message) => {
            ReadFailure::Lost(one_line(&message))
        }
        None if is_broken(&error) => ReadFailure::Lost("the connection broke".to_owned()),
        _ => ReadFailure::Failed(error),
    }
}

/// Returns whether the server, or libpq, reports that the connection has ended.
fn is_farewell(message: &str) -> bool {
    [
        "server closed the connection",
        "terminating connection",
        "the database system is",
        "no connection to the server",
        "connection to server",
        "SSL connection has been closed",
        "could not receive data",
        "could not send data",
    ]
    .iter()
    .any(|part| message.contains(part))
}
