//! Requests for promotions that are not handled.

use crate::db::conn::connection::{Conn, age};
use crate::db::conn::dialect::Lossy;
use crate::db::conn::statement::Statement;
use diesel::prelude::*;
use diesel::sql_types::{Double, Integer, Text};

/// How many requests are read, the oldest first.
pub(crate) const READ: u32 = 10_000;

/// From this number on, a promotion that was refused is reported.
pub(crate) const OFTEN: i32 = 10;

/// For how long a request has waited that is reported, in microseconds.
const LONG: i64 = 60_000_000;

/// A request that has waited for long, or whose promotion the database has refused often.
#[derive(Debug, QueryableByName)]
pub(crate) struct StuckRequest {
    #[diesel(sql_type = Text, deserialize_as = Lossy)]
    pub(crate) key: String,
    #[diesel(sql_type = Integer)]
    pub(crate) failures: i32,
    #[diesel(sql_type = Double)]
    pub(crate) seconds: f64,
}

/// Returns those requests.
pub(crate) fn stuck(conn: &mut Conn<'_>) -> QueryResult<Vec<StuckRequest>> {
    let text = format!(
        "SELECT w.key, coalesce(w.failures, 0) AS failures, coalesce({}, 0) AS seconds \
         FROM (SELECT id, key, failures, waiting_since FROM windlass_wanted_keys WHERE id > 0 ORDER BY id LIMIT {READ}) AS w \
         WHERE w.failures >= {OFTEN} OR w.waiting_since < {{later $1}}",
        age(conn, "w.waiting_since"),
    );
    Statement::new(text).unkept().bind(-LONG).load(conn)
}
