//! Reads the command line, and runs the command that it names.

use crate::bench::{program, run};
use crate::cli::command::{Command, EXAMPLES};
use crate::cli::failure::Failure;
use crate::cli::mount::{Address, At};
use crate::cli::pages;
use crate::db::Database;
use crate::job::registry::Registry;
use crate::terminal::output;
use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser as _};
use std::process::ExitCode;

/// The commands of `windlass`, to be mounted in a program of yours.
///
/// There the classes are known, so that `enqueue` can refuse what no worker could
/// perform and takes the queue, the priority and the policy of the type.
///
/// Manual pages and completions are those of the whole program: `clap_mangen` and
/// `clap_complete` make them of its own command.
///
/// ```
/// use clap::Parser;
/// use windlass::{Registry, cli::Commands};
///
/// /// The application.
/// #[derive(Parser)]
/// enum App {
///     /// Serve requests
///     Serve,
///     /// Look after the background jobs
///     Queue(Commands),
/// }
///
/// fn registry() -> Registry {
///     Registry::new() // with all that workers perform
/// }
///
/// fn run(app: App) -> std::process::ExitCode {
///     match app {
///         App::Serve => std::process::ExitCode::SUCCESS,
///         // app queue status, app queue jobs list, ...
///         App::Queue(commands) => commands.run(&registry()),
///     }
/// }
/// # let queue = App::parse_from(["app", "queue", "migrate", "--database", "no/such/directory/a.db"]);
/// # assert_eq!(run(queue), std::process::ExitCode::FAILURE);
/// ```
#[derive(Debug, clap::Args)]
#[must_use = "commands do nothing until they are run"]
pub struct Commands {
    #[command(flatten)]
    address: Address,

    #[command(subcommand)]
    command: Command,
}

impl Commands {
    /// Runs the command on the database that `--database` or `DATABASE_URL`
    /// names, and says what the program should exit with; see
    /// [`main`](super::main). Nothing but its output is printed: what the
    /// library logs goes where the program's log goes.
    pub fn run(&self, registry: &Registry) -> ExitCode {
        At::mounted(&self.address, registry).finish(&self.command)
    }

    /// The same on this database, unless `--database` names another.
    /// `DATABASE_URL` is not asked.
    pub fn run_on(&self, database: &Database, registry: &Registry) -> ExitCode {
        let mut at = At::mounted(&self.address, registry);
        at.database = Some(database);
        at.finish(&self.command)
    }
}

impl At<'_> {
    /// Runs a command and says why it came to nothing.
    fn finish(&self, command: &Command) -> ExitCode {
        self.end(command.run(self))
    }

    /// Says why something came to nothing.
    fn end(&self, result: Result<ExitCode, Failure>) -> ExitCode {
        result.unwrap_or_else(|failure| match failure {
            Failure::Usage(kind, message) => output::told(&self.usage(kind, message)),
            Failure::Error(error) => output::failed(&error),
        })
    }

    fn usage(&self, kind: ErrorKind, message: String) -> clap::Error {
        match self.registry {
            None => asked_for(Cli::command(), std::env::args()).error(kind, message),
            // How that program is called is not known here.
            Some(_) => clap::Error::raw(kind, message + "\n"),
        }
    }
}

/// The command that the words name, whose usage is to be shown.
pub(crate) fn asked_for(
    mut command: clap::Command,
    words: impl Iterator<Item = String>,
) -> clap::Command {
    command.build();
    for word in words.skip(1) {
        if let Some(named) = command.find_subcommand(word) {
            command = named.clone();
        }
    }
    command
}

/// Background jobs in a SQLite or Postgres database.
#[derive(Debug, clap::Parser)]
#[command(name = "windlass", version, after_help = EXAMPLES)]
pub(crate) struct Cli {
    #[command(flatten)]
    address: Address,

    #[command(subcommand)]
    command: Top,
}

/// What the program does, beyond what is mounted in others.
#[derive(Debug, clap::Subcommand)]
enum Top {
    #[command(flatten)]
    Command(Command),
    Bench(run::Bench),
    BenchWorker(program::BenchWorker),
    Completions(pages::Completions),
    Man(pages::Man),
}

fn benchmark(bench: &run::Bench, at: &At<'_>) -> Result<ExitCode, Failure> {
    Ok(output::show(&bench.run(&at.any_url()?)?, bench.json))
}

fn worked(worker: &program::BenchWorker, at: &At<'_>) -> Result<ExitCode, Failure> {
    Ok(worker.run(&at.database()?)?)
}

/// Runs the program `windlass` on the arguments of this process.
///
/// Returns 0 when what was asked for is done, 1 when it failed, 2 when it was
/// asked for wrongly, 3 when `doctor` found something wrong, 70 when a thread
/// or the database broke, and 75 when a stop cut work short.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(told) => return output::told(&told),
    };
    let at = At::own(&cli.address);
    let command = match &cli.command {
        Top::Command(command) => command,
        Top::Bench(bench) => return at.end(benchmark(bench, &at)),
        Top::BenchWorker(worker) => return at.end(worked(worker, &at)),
        Top::Completions(completions) => return completions.run(&mut Cli::command()),
        Top::Man(man) => return man.run(Cli::command()),
    };
    output::log_to_stderr(match command {
        Command::Supervise(_) => log::LevelFilter::Info,
        _ => log::LevelFilter::Warn,
    });
    at.finish(command)
}
