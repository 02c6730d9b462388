//! The program `windlass`.
//!
//! A file a command, each in three parts: what was asked for (a struct of
//! `clap`), doing it (`run`, which prints nothing), and showing what came of
//! it (a [`Report`](output::Report), as text or as JSON).

mod bench;
mod explain;
mod failed;
mod jobs;
mod migrate;
mod migrations;
mod output;
mod select;
mod status;
mod supervise;
mod table;

use crate::db::Database;
use crate::error::Error;
use clap::Parser as _;
use clap::error::ErrorKind;
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  windlass migrate --database sqlite://jobs.db   create or update the tables
  windlass status                                look at queues and processes
  windlass jobs list --state scheduled           look at jobs
  windlass explain 4711                          tell why a job is not running
  windlass failed retry --error 'timed out'      run failed jobs again
  windlass supervise --processes 2 -- ./app worker
                                                 run two workers, and what they need

Exit codes: 0 done, 1 failed, 2 wrong usage, 70 broken (the log says why),
75 stopped before all work was done.
RUST_LOG sets what is logged on standard error, for example RUST_LOG=debug.";

/// Background jobs in a SQLite or Postgres database.
#[derive(Debug, clap::Parser)]
#[command(name = "windlass", version, after_help = EXAMPLES)]
struct Cli {
    /// The database, as `postgres://USER@HOST/NAME` or `sqlite://PATH`
    ///
    /// A password is better given by `DATABASE_URL`: other users of this host
    /// can read a command line.
    #[arg(
        long,
        global = true,
        env = "DATABASE_URL",
        hide_env_values = true,
        value_name = "URL"
    )]
    database: Option<String>,

    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Migrate(migrate::Migrate),
    #[command(subcommand)]
    Migrations(migrations::Migrations),
    Supervise(supervise::Supervise),
    Status(status::Status),
    Explain(explain::Explain),
    #[command(subcommand)]
    Jobs(jobs::Command),
    #[command(subcommand)]
    Failed(failed::Command),
    Bench(bench::Bench),
    BenchWorker(bench::BenchWorker),
}

/// Runs the program `windlass` on the arguments of this process.
///
/// Returns 0 when what was asked for is done, 1 when it failed, 2 when it was
/// asked for wrongly, 70 when a thread or the database broke, and 75 when a
/// stop cut work short.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(told) => return output::told(&told),
    };
    output::log_to_stderr(match cli.command {
        Command::Supervise(_) => log::LevelFilter::Info,
        _ => log::LevelFilter::Warn,
    });
    cli.run().unwrap_or_else(|failure| match failure {
        Failure::Usage(told) => output::told(&told),
        Failure::Error(error) => output::failed(&error),
    })
}

/// Why a command came to nothing.
enum Failure {
    /// What was asked for makes no sense.
    Usage(clap::Error),
    /// It was tried.
    Error(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::Settings(reason) => usage(ErrorKind::ValueValidation, reason),
            error => Failure::Error(error),
        }
    }
}

fn usage(kind: ErrorKind, message: impl std::fmt::Display) -> Failure {
    use clap::CommandFactory as _;
    Failure::Usage(Cli::command().error(kind, message))
}

impl Cli {
    fn run(&self) -> Result<ExitCode, Failure> {
        use migrations::Migrations;
        match &self.command {
            Command::Migrate(migrate) => {
                Ok(output::show(&migrate.run(&self.database()?)?, migrate.json))
            }
            Command::Migrations(Migrations::Copy(copy)) => {
                let dialect = match copy.dialect {
                    Some(dialect) => dialect,
                    None => migrations::dialect_of(&self.database()?),
                };
                Ok(output::show(&copy.run(dialect)?, copy.json))
            }
            Command::Supervise(supervise) => Ok(supervise.run(&self.database()?)?),
            Command::Status(status) => {
                Ok(output::show(&status.run(&self.database()?)?, status.json))
            }
            Command::Explain(explain) => {
                Ok(output::show(&explain.run(&self.database()?)?, explain.json))
            }
            Command::Jobs(command) => self.jobs(command),
            Command::Failed(command) => self.failed(command),
            Command::Bench(bench) => Ok(output::show(&bench.run(self.url()?)?, bench.json)),
            Command::BenchWorker(worker) => Ok(worker.run(&self.database()?)?),
        }
    }

    fn jobs(&self, command: &jobs::Command) -> Result<ExitCode, Failure> {
        use jobs::Command::{Cancel, Discard, List, Priority, Reschedule};
        let db = &self.database()?;
        Ok(match command {
            List(list) => output::show(&list.run(db)?, list.json),
            Cancel(cancel) => output::show(&cancel.run(db)?, cancel.how.json),
            Discard(discard) => output::show(&discard.run(db)?, discard.how.json),
            Reschedule(reschedule) => output::show(&reschedule.run(db)?, reschedule.how.json),
            Priority(priority) => output::show(&priority.run(db)?, priority.how.json),
        })
    }

    fn failed(&self, command: &failed::Command) -> Result<ExitCode, Failure> {
        use failed::Command::{Discard, List, Retry};
        let db = &self.database()?;
        Ok(match command {
            List(list) => output::show(&list.run(db)?, list.json),
            Retry(retry) => output::show(&retry.run(db)?, retry.how.json),
            Discard(discard) => output::show(&discard.run(db)?, discard.how.json),
        })
    }

    fn database(&self) -> Result<Database, Failure> {
        Ok(Database::open(self.url()?)?)
    }

    fn url(&self) -> Result<&str, Failure> {
        match self.database.as_deref().map(str::trim) {
            None | Some("") => Err(usage(
                ErrorKind::MissingRequiredArgument,
                "no database is named: pass `--database URL` or set DATABASE_URL, \
                 to `sqlite://jobs.db` or `postgres://user@host/name`, for example",
            )),
            Some(url) => Ok(url),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn the_arguments_do_not_contradict_each_other() {
        super::Cli::command().debug_assert();
    }
}
