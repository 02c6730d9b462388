//! Enqueues a job in the transaction that inserts its user: both are kept, or neither.
//!
//! ```text
//! cargo run --example enqueue_in_transaction
//! ```
//!
//! The database is the SQLite file `jobs.db` in the current directory; each
//! run adds one job to it, which the example `worker` performs.

#![expect(clippy::print_stdout, reason = "it is a program")]

use diesel::connection::SimpleConnection as _;
use diesel::prelude::*;
use diesel::sql_types::Text;
use windlass::NewJob;

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

fn sign_up(conn: &mut SqliteConnection, email: &str, is_valid: bool) -> Result {
    conn.immediate_transaction(|conn| {
        diesel::sql_query("INSERT INTO users (email) VALUES (?)")
            .bind::<Text, _>(email)
            .execute(conn)?;
        NewJob::of_class("welcome", format!(r#"{{"email":"{email}"}}"#)).enqueue(conn)?;
        if is_valid {
            Ok(())
        } else {
            Err("rolled back".into())
        }
    })
}

fn main() -> Result {
    let conn = &mut SqliteConnection::establish("jobs.db")?;
    conn.batch_execute("PRAGMA busy_timeout = 5000")?; // waits while a worker writes
    windlass::migrate(conn)?;
    conn.batch_execute("CREATE TABLE IF NOT EXISTS users (email text NOT NULL)")?;

    sign_up(conn, "ada@example.com", true)?;
    println!("ready jobs: {}", windlass::queues::size(conn, "default")?);
    let refused = sign_up(conn, "eve@example.com", false);
    println!(
        "{refused:?}; ready jobs: {}",
        windlass::queues::size(conn, "default")?
    );
    Ok(())
}
