//! One connection that a test and its jobs lend each other.

use super::{DbConnection, Kind};
use crate::db::conn::Conn;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Where it lies while nobody has it.
#[derive(Default)]
pub(crate) struct Shelf {
    connection: Mutex<Option<DbConnection>>,
    returned: Condvar,
}

impl fmt::Debug for Shelf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shelf")
    }
}

impl Shelf {
    pub(crate) fn put(&self, connection: DbConnection) {
        let mut place = self
            .connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *place = Some(connection);
        self.returned.notify_one();
    }

    /// Waits up to `patience` for whoever has it.
    pub(crate) fn take(&self, patience: Duration) -> Option<DbConnection> {
        let place = self
            .connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let wait = self
            .returned
            .wait_timeout_while(place, patience, |place| place.is_none());
        let (mut place, _) = wait.unwrap_or_else(PoisonError::into_inner);
        place.take()
    }
}

/// The connection, until this is dropped.
pub(super) struct Lent {
    connection: Option<DbConnection>,
    home: Arc<Shelf>,
}

impl Lent {
    pub(super) fn from(home: &Arc<Shelf>, patience: Duration) -> Option<DbConnection> {
        let connection = home.take(patience)?;
        let lent = Lent {
            connection: Some(connection),
            home: Arc::clone(home),
        };
        Some(DbConnection {
            kind: Kind::Lent(Box::new(lent)),
            turn: None,
            limit: super::STATEMENT,
        })
    }

    pub(super) fn shared(&self) -> Option<&DbConnection> {
        self.connection.as_ref()
    }

    pub(super) fn lend(&mut self) -> Conn<'_> {
        match &mut self.connection {
            Some(connection) => connection.lend(),
            None => unreachable!("it is returned by `drop` only"),
        }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            self.home.put(connection);
        }
    }
}
