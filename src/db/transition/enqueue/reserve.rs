//! Assigns the ids of jobs before they are inserted.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{Dialect, Id};
use crate::db::conn::statement::Statement;
use diesel::prelude::*;

/// Assigns the ids of this many jobs, ascending. Not all of them need to be used.
pub(crate) fn reserve(conn: &mut Conn<'_>, count: usize) -> QueryResult<Vec<i64>> {
    let wanted = count as i64;
    match conn.dialect() {
        Dialect::Postgres => {
            let text = "WITH once AS MATERIALIZED (SELECT pg_get_serial_sequence('solid_queue_jobs', 'id')::regclass AS ids) \
                 SELECT nextval(once.ids) AS id FROM once CROSS JOIN generate_series(1, $1) AS number";
            let ids: Vec<Id> = Statement::new(text).bind(wanted).load(conn)?;
            Ok(ids.into_iter().map(|row| row.id).collect())
        }
        Dialect::Sqlite => {
            let last = match advance(conn, wanted).optional()? {
                Some(last) => last,
                None => {
                    // There is no row before the first job, and no constraint on it.
                    let text =
                        "INSERT INTO sqlite_sequence (name, seq) VALUES ('solid_queue_jobs', 0)";
                    Statement::new(text).execute(conn)?;
                    advance(conn, wanted)?
                }
            };
            Ok((last.id - wanted + 1..=last.id).collect())
        }
    }
}

fn advance(conn: &mut Conn<'_>, by: i64) -> QueryResult<Id> {
    let text = "UPDATE sqlite_sequence SET seq = seq + $1 WHERE name = 'solid_queue_jobs' \
         RETURNING seq AS id";
    Statement::new(text).bind(by).get_result(conn)
}
