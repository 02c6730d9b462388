//! Enqueues as programs in other languages do: by the view or the function of the database.

use crate::db::{AsConn as _, Conn, DbConnection};
use crate::laboratory::ceilings::arguments;
use crate::laboratory::plain::enqueue::CLASS;
use crate::laboratory::plain::statement::Prepared;
use diesel::prelude::*;
use diesel::sql_types::Text;

/// A statement that enqueues a job with the class `$1` and the arguments `$2`.
#[derive(Debug)]
pub(crate) struct EnqueueText {
    pub(crate) name: &'static str,
    text: &'static str,
    pub(crate) on_sqlite: bool,
}

pub(crate) const TEXTS: [EnqueueText; 2] = [
    EnqueueText {
        name: "by the view",
        text: "INSERT INTO windlass_enqueue (class, arguments) VALUES ($1, $2)",
        on_sqlite: true,
    },
    EnqueueText {
        name: "by the function",
        text: "SELECT windlass_enqueue($1, $2)",
        on_sqlite: false,
    },
];

/// Enqueues a job in a transaction of its own.
pub(crate) fn enqueue(
    connection: &mut DbConnection,
    text: &EnqueueText,
    number: u64,
) -> QueryResult<()> {
    let query = diesel::sql_query(text.text);
    let query = query
        .bind::<Text, _>(CLASS)
        .bind::<Text, _>(arguments(number));
    match connection.as_conn() {
        Conn::Postgres(conn) => Prepared(query).run(conn),
        Conn::Sqlite(conn) => Prepared(query).run(conn),
    }
}
