//! Migrations that wait for tables which other sessions have locked.

use crate::db::conn::connection::{AsConn as _, Conn};
use crate::db::internal_tests::db::{TestDb, execute};
use crate::db::schema::migrate_postgres::complete;
use std::time::Duration;

/// One that reads and never ends.
#[test]
fn the_session_that_holds_a_table_is_named() {
    let db = TestDb::postgres();
    let (mut holder, mut other) = (db.connect(), db.connect());
    let conn = &mut db.connect();
    execute(
        &mut conn.as_conn(),
        "ALTER TABLE solid_queue_pauses DROP COLUMN paused_by",
    );
    for statement in [
        "SET application_name = 'the one who reads'",
        "BEGIN",
        "SELECT count(*) FROM solid_queue_pauses",
    ] {
        execute(&mut holder.as_conn(), statement);
    }
    let mut tried = |patience| match other.as_conn() {
        Conn::Postgres(conn) => complete(conn, patience).map(drop),
        Conn::Sqlite(_) => unreachable!(),
    };
    let error = tried(Duration::from_millis(300)).unwrap_err().to_string();
    for part in [
        "solid_queue_pauses",
        "the one who reads",
        "idle in transaction",
        "pid ",
    ] {
        assert!(error.contains(part), "{part}: {error}");
    }
    execute(&mut holder.as_conn(), "COMMIT");
    // The server itself may have the table for a moment, to analyse it.
    tried(Duration::from_secs(60)).unwrap();
}
