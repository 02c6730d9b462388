//! Reads the command line, and runs the command that it names.

use crate::bench::command::Bench;
use crate::cli::command::{self, Command, EXAMPLES};
use crate::cli::config::CommandError;
use crate::cli::mount::{At, DatabaseOption};
use crate::terminal;
use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser as _};
use std::process::ExitCode;
use std::sync::LazyLock;
use windlass::internal::recurring::time_zone::RulesVersion;
use windlass::{Database, Registry};

/// The commands of `windlass`, to be mounted in your own program.
///
/// There the classes are registered. So `enqueue` can reject jobs that no worker could perform, and
/// it uses the queue, priority and policy of the type.
///
/// To create manual pages and completions for the whole program, use `clap_mangen` and
/// `clap_complete` with its own command.
///
/// ```
/// use clap::Parser;
/// use windlass::Registry;
/// use windlass_console::cli::Commands;
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
///     Registry::new() // with all job types of the workers
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
    address: DatabaseOption,

    #[command(subcommand)]
    command: Command,
}

impl Commands {
    /// Runs the command on the database that `--database` or `DATABASE_URL` names, and returns the
    /// exit code; see [`main`](super::main).
    ///
    /// Only the command's output is printed: log messages go to the program's own logger.
    pub fn run(&self, registry: &Registry) -> ExitCode {
        At::mounted(&self.address, registry).finish(&self.command)
    }

    /// Runs the command on this database, unless `--database` names another. `DATABASE_URL` is
    /// ignored.
    pub fn run_on(&self, database: &Database, registry: &Registry) -> ExitCode {
        let mut at = At::mounted(&self.address, registry);
        at.database = Some(database);
        at.finish(&self.command)
    }
}

impl At<'_> {
    /// Runs a command and reports why it failed.
    fn finish(&self, command: &Command) -> ExitCode {
        self.end(command.run(self))
    }

    /// Reports why a command failed.
    fn end(&self, result: Result<ExitCode, CommandError>) -> ExitCode {
        result.unwrap_or_else(|failure| match failure {
            CommandError::Usage(kind, message) => terminal::told(&self.usage(kind, message)),
            CommandError::Error(error) => terminal::failed(&error),
        })
    }

    fn usage(&self, kind: ErrorKind, message: String) -> clap::Error {
        match self.registry {
            None => asked_for(Cli::command(), std::env::args()).error(kind, message),
            // The name of that program is not available here.
            Some(_) => clap::Error::raw(kind, message + "\n"),
        }
    }
}

/// Returns the command with this path, to show its usage.
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

/// The text that `--version` prints; `-V` prints its first line.
static VERSIONS: LazyLock<String> = LazyLock::new(|| {
    format!(
        "{}\ntime zones {}",
        env!("CARGO_PKG_VERSION"),
        RulesVersion::current()
    )
});

/// Background jobs in a SQLite or Postgres database.
#[derive(Debug, clap::Parser)]
#[command(name = "windlass", version, long_version = &**VERSIONS, after_help = EXAMPLES)]
pub(crate) struct Cli {
    #[command(flatten)]
    address: DatabaseOption,

    #[command(subcommand)]
    command: Top,
}

/// The commands of the program that are not mounted in others.
#[derive(Debug, clap::Subcommand)]
#[allow(clippy::large_enum_variant, reason = "there is one, for the whole run")]
enum Top {
    #[command(flatten)]
    Command(Command),
    Bench(Bench),
    Completions(command::Completions),
    Man(command::Man),
}

fn benchmark(bench: &Bench, at: &At<'_>) -> Result<ExitCode, CommandError> {
    Ok(terminal::show(&bench.run(&at.any_url()?)?, bench.json))
}

/// Runs the program `windlass` with the arguments of this process.
///
/// Returns the exit code: 0 for success, 1 for a failure, 2 for a usage error and 3 for a problem
/// found by `doctor`. It is 70 if a thread or the database failed, and 75 if a stop cut work short.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(told) => return terminal::told(&told),
    };
    let at = At::own(&cli.address);
    let command = match &cli.command {
        Top::Command(command) => command,
        Top::Bench(bench) => return at.end(benchmark(bench, &at)),
        Top::Completions(completions) => return completions.run(&mut Cli::command()),
        Top::Man(man) => return man.run(Cli::command()),
    };
    terminal::log_to_stderr(if command.is_service() {
        log::LevelFilter::Info
    } else {
        log::LevelFilter::Warn
    });
    at.finish(command)
}
