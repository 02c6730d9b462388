//! Transactions that do not wait long for a lock.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::Dialect;
use crate::db::conn::statement::Statement;

/// How long the statements of a transaction wait for a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LockWait {
    /// As long as the connection does.
    Default,
    /// At most 100 ms.
    Short,
}

impl LockWait {
    pub(crate) fn short_if(is_short: bool) -> Self {
        if is_short {
            LockWait::Short
        } else {
            LockWait::Default
        }
    }
}

/// Runs `work`, with [`LockWait::Short`] in a transaction of its own.
///
/// A short wait is for work that has met other transactions' locks before: each further lock would
/// delay everything that comes after it.
pub(crate) fn with_lock_wait<T>(
    conn: &mut Conn<'_>,
    wait: LockWait,
    work: impl FnOnce(&mut Conn<'_>) -> diesel::QueryResult<T>,
) -> diesel::QueryResult<T> {
    if wait == LockWait::Default {
        return work(conn);
    }
    conn.transaction(|conn| {
        if conn.dialect() == Dialect::Postgres {
            Statement::new("SELECT set_config('lock_timeout', '100ms', true)").execute(conn)?;
        }
        work(conn)
    })
}
