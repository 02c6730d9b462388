//! One row that is locked, refused or gone holds up no other.

mod children;
mod claims;
mod clearing;
mod dead;
mod ends;
#[cfg(feature = "postgres")]
mod kept;
#[cfg(feature = "postgres")]
mod locked;
mod tools;

#[cfg(feature = "postgres")]
use crate::support::TestDb;
#[cfg(feature = "postgres")]
use crate::support::db::execute;

/// Rows that a transaction of another program locks, until this is dropped.
#[cfg(feature = "postgres")]
struct Locked(#[allow(dead_code, reason = "holds the lock")] windlass::DbConnection);

#[cfg(feature = "postgres")]
impl Locked {
    /// Locks what a query selects.
    fn rows(db: &TestDb, query: &str) -> Self {
        let mut connection = db.connect();
        execute(
            &mut connection,
            "SET idle_in_transaction_session_timeout = 0",
        );
        execute(&mut connection, "BEGIN");
        let count = execute(&mut connection, &format!("{query} FOR UPDATE"));
        assert!(count > 0, "nothing to lock: {query}");
        Locked(connection)
    }
}
