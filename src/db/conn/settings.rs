//! Settings of a connection, or of one transaction on it.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::Dialect;
use crate::db::conn::statement::Statement;

/// Asks for an answer, and changes nothing.
pub(crate) fn ping(conn: &mut Conn<'_>) -> diesel::QueryResult<()> {
    Statement::new("SELECT 1").unkept().execute(conn)
}

/// What the planner must not do on the connection of a loop: by statistics of
/// a table that was empty a moment ago, in a plan that is kept, it would read
/// a million rows to find one. Every statement of the loops has its index;
/// these settings only make all else look dear, so dear that Postgres would
/// compile what must be sorted all the same.
pub(crate) fn prefer_indexes(conn: &mut Conn<'_>) -> diesel::QueryResult<()> {
    match conn.dialect() {
        Dialect::Postgres => Statement::new(
            "SELECT set_config('enable_seqscan', 'off', false), set_config('enable_sort', 'off', false), \
             set_config('enable_bitmapscan', 'off', false), set_config('enable_hashjoin', 'off', false), \
             set_config('enable_mergejoin', 'off', false), set_config('jit', 'off', false)",
        )
        .unkept()
        .execute(conn),
        Dialect::Sqlite => Ok(()),
    }
}
