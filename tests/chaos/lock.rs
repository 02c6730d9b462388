//! The fault `ForeignLock`: a transaction of another program that holds what
//! Windlass needs, and then ends.

use crate::place::Place;
use diesel::connection::SimpleConnection;
use std::time::Duration;
use windlass::{AsConn, Conn};

/// Every table that a transition writes.
const TABLES: [&str; 14] = [
    "solid_queue_jobs",
    "solid_queue_ready_executions",
    "solid_queue_claimed_executions",
    "solid_queue_scheduled_executions",
    "solid_queue_blocked_executions",
    "solid_queue_failed_executions",
    "solid_queue_processes",
    "solid_queue_recurring_tasks",
    "solid_queue_recurring_executions",
    "windlass_attempts",
    "windlass_results",
    "windlass_unique_jobs",
    "windlass_wanted_keys",
    "windlass_steps",
];

/// On a thread and a session of its own, so that other faults go on meanwhile.
pub fn hold(place: &Place) -> bool {
    let Ok(mut connection) = place.connect() else {
        return false;
    };
    let table = TABLES[fastrand::usize(..TABLES.len())];
    let how = match fastrand::u32(..4) {
        0 => format!("LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE"),
        1 => format!("LOCK TABLE {table} IN SHARE MODE"),
        _ => format!("SELECT 1 FROM {table} ORDER BY random() LIMIT 20 FOR UPDATE"),
    };
    // On SQLite it holds the whole file: many long ones in a row would leave no time to anything else.
    let longest = match place.is_postgres() || fastrand::u8(..8) == 0 {
        true => 4000,
        false => 600,
    };
    let time = Duration::from_millis(fastrand::u64(200..longest));
    std::thread::spawn(move || {
        let begin = match connection.as_conn() {
            #[cfg(feature = "sqlite")]
            Conn::Sqlite(conn) => conn.batch_execute("BEGIN IMMEDIATE"),
            #[cfg(feature = "postgres")]
            Conn::Postgres(conn) => conn.batch_execute(&format!("BEGIN; {how}")),
            _ => Ok(()),
        };
        if begin.is_ok() {
            std::thread::sleep(time);
        }
        let _ = match connection.as_conn() {
            #[cfg(feature = "sqlite")]
            Conn::Sqlite(conn) => conn.batch_execute("ROLLBACK"),
            #[cfg(feature = "postgres")]
            Conn::Postgres(conn) => conn.batch_execute("ROLLBACK"),
            _ => Ok(()),
        };
    });
    true
}
