//! A supervisor with two worker processes, each of them this program again.
//!
//! ```text
//! cargo run --example supervisor
//! ```
//!
//! The database is the SQLite file `jobs.db` in the current directory. Kill a
//! worker while it sleeps: the other one runs its job again. Ctrl-C ends all.

#![expect(clippy::print_stdout, reason = "it is a program")]

use serde::{Deserialize, Serialize};
use std::process::{ExitCode, id};
use std::time::Duration;
use windlass::{
    Child, Context, Database, Dispatcher, Job, JobResult, Registry, Supervisor, Worker,
};

#[derive(Serialize, Deserialize)]
struct Nap {
    seconds: u64,
}

impl Job for Nap {
    const NAME: &'static str = "nap";
    type State = ();
    type Output = ();

    fn perform(self, cx: &Context<'_, ()>) -> JobResult {
        println!("job {} sleeps in process {}", cx.job_id(), id());
        cx.sleep(Duration::from_secs(self.seconds))?;
        println!("job {} has slept", cx.job_id());
        Ok(())
    }
}

fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let database = Database::open("sqlite://jobs.db")?;
    if std::env::args().nth(1).as_deref() == Some("worker") {
        let registry = Registry::new().register::<Nap>(());
        let stopped = Worker::new(&database, registry).threads(1).run()?;
        return Ok(stopped.exit_code());
    }
    database.migrate()?;
    for seconds in [5, 10, 15] {
        Nap { seconds }.enqueue(&mut database.connect()?)?;
    }
    let stopped = Supervisor::new(&database)
        .child(Child::this_program(["worker"])?.processes(2))
        .dispatcher(Dispatcher::new(&database))
        .run()?;
    Ok(stopped.exit_code())
}
