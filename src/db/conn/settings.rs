//! Settings of a connection.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::Dialect;
use crate::db::conn::statement::Statement;

/// Checks that the database answers. Changes nothing.
pub(crate) fn ping(conn: &mut Conn<'_>) -> diesel::QueryResult<()> {
    Statement::new("SELECT 1").unkept().execute(conn)
}

/// Keeps the planner from full scans and sorts on the connection of a loop.
///
/// A cached plan, made from statistics of a table that was empty a moment ago, would read a million
/// rows to find one. Every statement of the loops has its index, and these settings only raise the
/// cost of everything else. `jit` is off because the raised cost of a sort would make Postgres
/// compile it. A generic plan is as good then, and planning anew costs more than most statements.
pub(crate) fn prefer_indexes(conn: &mut Conn<'_>) -> diesel::QueryResult<()> {
    match conn.dialect() {
        Dialect::Postgres => Statement::new(
            "SELECT set_config('enable_seqscan', 'off', false), set_config('enable_sort', 'off', false), \
             set_config('enable_bitmapscan', 'off', false), set_config('enable_hashjoin', 'off', false), \
             set_config('enable_mergejoin', 'off', false), set_config('jit', 'off', false), \
             set_config('plan_cache_mode', 'force_generic_plan', false)",
        )
        .unkept()
        .execute(conn),
        Dialect::Sqlite => Ok(()),
    }
}
