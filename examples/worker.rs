//! A worker: its job runs a query, fails at its first attempt, and is tried again after a second.
//!
//! ```text
//! cargo run --example worker
//! ```
//!
//! The database is the SQLite file `jobs.db` in the current directory. Ctrl-C
//! ends the worker when its running jobs have finished.

#![expect(clippy::print_stdout, reason = "it is a program")]

use diesel::prelude::*;
use serde::{Deserialize, Serialize};
use std::process::ExitCode;
use std::time::Duration;
use windlass::{Backoff, Context, Database, Job, JobResult, Policy, Registry, Worker};

#[derive(Serialize, Deserialize)]
struct Welcome {
    email: String,
}

impl Job for Welcome {
    const NAME: &'static str = "welcome";
    type State = ();
    type Output = ();

    fn policy() -> Policy {
        let second = Duration::from_secs(1);
        Policy::new()
            .max_attempts(3)
            .backoff(Backoff::Fixed(second))
    }

    fn perform(self, cx: &Context<'_, ()>) -> JobResult {
        println!("attempt {} for {}", cx.attempt(), self.email);
        if cx.attempt() == 1 {
            return Err("the mail server is busy".into());
        }
        let conn = &mut *cx.sqlite()?; // from the worker's pool
        diesel::sql_query("INSERT INTO welcomed (email) VALUES (?)")
            .bind::<diesel::sql_types::Text, _>(&self.email)
            .execute(conn)?;
        Ok(())
    }
}

fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let database = Database::open("sqlite://jobs.db")?;
    database.migrate()?;
    let mut conn = database.connect()?;
    diesel::sql_query("CREATE TABLE IF NOT EXISTS welcomed (email text NOT NULL)")
        .execute(conn.sqlite()?)?;
    let email = "ada@example.com".to_owned();
    Welcome { email }.enqueue(&mut conn)?;

    let registry = Registry::new().register::<Welcome>(());
    let worker = Worker::new(&database, registry).threads(2);
    let stopped = worker.dispatcher(true).run()?; // makes retries ready when they are due, too
    Ok(stopped.exit_code())
}
