//! Settings of a connection.

use crate::db::conn::connection::Conn;
#[cfg(feature = "postgres")]
use crate::db::conn::pooling::local::PREFER_INDEXES;
#[cfg(feature = "postgres")]
use crate::db::conn::postgres::local;
use crate::db::conn::statement::Statement;

/// Checks that the database answers. Changes nothing.
pub(crate) fn ping(conn: &mut Conn<'_>) -> diesel::QueryResult<()> {
    Statement::new("SELECT 1").unkept().plain().execute(conn)
}

/// Keeps the planner from full scans and sorts on the connection of a loop.
///
/// A cached plan, made from statistics of a table that was empty a moment ago, would read a million
/// rows to find one. Every statement of the loops has its index, and these settings only raise the
/// cost of everything else. `jit` is off because the raised cost of a sort would make Postgres
/// compile it. A generic plan is as good then, and planning anew costs more than most statements.
pub(crate) fn prefer_indexes(conn: &mut Conn<'_>) -> diesel::QueryResult<()> {
    match conn {
        #[cfg(feature = "postgres")]
        Conn::Postgres(pg) => {
            if let Some(local) = local(pg) {
                local.prefers_indexes = true;
                return Ok(());
            }
            let settings = PREFER_INDEXES
                .map(|(name, value)| format!("set_config('{name}', '{value}', false)"));
            Statement::new(format!("SELECT {}", settings.join(", ")))
                .unkept()
                .execute(conn)
        }
        #[cfg(feature = "sqlite")]
        Conn::Sqlite(_) => Ok(()),
    }
}
