//! SQL that differs between both databases.

use crate::db::Conn;
use crate::db::conn::typed::with_conn;
use diesel::connection::SimpleConnection as _;
use diesel::prelude::*;
use diesel::sql_types::BigInt;

/// Runs statements without parameters.
pub(crate) fn execute(conn: &mut Conn<'_>, text: &str) -> QueryResult<()> {
    match conn {
        Conn::Postgres(conn) => conn.batch_execute(text),
        Conn::Sqlite(conn) => conn.batch_execute(text),
    }
}

#[derive(QueryableByName)]
struct Count {
    #[diesel(sql_type = BigInt)]
    n: i64,
}

/// Returns the number that a statement selects as `n`.
pub(crate) fn count(conn: &mut Conn<'_>, text: &str) -> QueryResult<i64> {
    let count: Count = with_conn!(conn, |c| diesel::sql_query(text).get_result(c))?;
    Ok(count.n)
}

/// Returns a text for the database of a connection.
///
/// - `{numbers}` are the rows `n` with the column `i`, between these two numbers.
/// - `{ago x}` is the time that many seconds ago.
pub(crate) fn render(conn: &Conn<'_>, (first, last): (i64, i64), text: &str) -> String {
    let (numbers, before, after) = match conn {
        Conn::Postgres(_) => (
            format!("generate_series({first}::bigint, {last}::bigint) AS n (i)"),
            "(statement_timestamp() AT TIME ZONE 'UTC' - (",
            ") * interval '1 second')",
        ),
        Conn::Sqlite(_) => (
            format!(
                "(WITH RECURSIVE c (i) AS (SELECT {first} WHERE {first} <= {last} UNION ALL \
                 SELECT i + 1 FROM c WHERE i < {last}) SELECT i FROM c) AS n"
            ),
            "strftime('%Y-%m-%d %H:%M:%f000', 'now', -(",
            ") || ' seconds')",
        ),
    };
    let mut out = String::with_capacity(text.len() + 256);
    let mut rest = text.replace("{numbers}", &numbers);
    while let Some((head, tail)) = rest.split_once("{ago ") {
        let (seconds, tail) = tail.split_once('}').unwrap_or((tail, ""));
        out.extend([head, before, seconds, after]);
        rest = tail.to_owned();
    }
    out + &rest
}
