//! Transactions that wait for no lock longer than a moment.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::Dialect;
use crate::db::conn::statement::Statement;

/// Does `work`, if it `is_brief` in a transaction in which no lock is waited for
/// longer than a moment: once others' locks were met, each would hold up all that
/// comes after it.
pub(crate) fn briefly<T>(
    conn: &mut Conn<'_>,
    is_brief: bool,
    work: impl FnOnce(&mut Conn<'_>) -> diesel::QueryResult<T>,
) -> diesel::QueryResult<T> {
    if !is_brief {
        return work(conn);
    }
    conn.transaction(|conn| {
        if conn.dialect() == Dialect::Postgres {
            Statement::new("SELECT set_config('lock_timeout', '100ms', true)").execute(conn)?;
        }
        work(conn)
    })
}
