//! The commands within a program of somebody's own.

use super::{Cli, Command, Failure, output};
use crate::db::Database;
use crate::registry::Registry;
use clap::error::ErrorKind;
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

/// Which database.
#[derive(Debug, clap::Args)]
pub(super) struct Address {
    /// The database, as `postgres://USER@HOST/NAME` or `sqlite://PATH` [env: `DATABASE_URL`]
    ///
    /// A password is better given by the environment or the configuration: other
    /// users of this host can read a command line.
    #[arg(long, global = true, value_name = "URL")]
    database: Option<String>,
}

/// Where a command runs.
pub(super) struct At<'a> {
    address: &'a Address,
    database: Option<&'a Database>,
    /// What is known of classes: nothing, in the program `windlass`.
    pub(super) registry: Option<&'a Registry>,
}

impl<'a> At<'a> {
    /// In the program `windlass`.
    pub(super) fn own(address: &'a Address) -> Self {
        At {
            address,
            database: None,
            registry: None,
        }
    }

    fn mounted(address: &'a Address, registry: &'a Registry) -> Self {
        At {
            address,
            database: None,
            registry: Some(registry),
        }
    }

    /// Runs a command and says why it came to nothing.
    pub(super) fn finish(&self, command: &Command) -> ExitCode {
        self.end(command.run(self))
    }

    /// Says why something came to nothing.
    pub(super) fn end(&self, result: Result<ExitCode, Failure>) -> ExitCode {
        result.unwrap_or_else(|failure| match failure {
            Failure::Usage(kind, message) => output::told(&self.usage(kind, message)),
            Failure::Error(error) => output::failed(&error),
        })
    }

    fn usage(&self, kind: ErrorKind, message: String) -> clap::Error {
        use clap::CommandFactory as _;
        match self.registry {
            None => asked_for(Cli::command(), std::env::args()).error(kind, message),
            // How that program is called is not known here.
            Some(_) => clap::Error::raw(kind, message + "\n"),
        }
    }

    /// What `--database` says.
    pub(super) fn url(&self) -> Option<&'a str> {
        self.address.database.as_deref()
    }

    /// The program's own database, unless `--database` names another.
    pub(super) fn given(&self) -> Option<&'a Database> {
        self.database.filter(|_| self.url().is_none())
    }

    pub(super) fn database(&self) -> Result<Database, Failure> {
        match self.given() {
            Some(database) => Ok(database.clone()),
            None => Ok(Database::open(&self.any_url()?)?),
        }
    }

    /// The address that is given, on the command line or elsewhere.
    pub(super) fn any_url(&self) -> Result<String, Failure> {
        let url = match self.url() {
            Some(url) => Some(url.to_owned()),
            None => crate::config::find_url()?,
        };
        match url.as_deref().map(str::trim) {
            None | Some("") => Err(Failure::Usage(
                ErrorKind::MissingRequiredArgument,
                "no database is named: pass `--database URL` or set DATABASE_URL, \
                 to `sqlite://jobs.db` or `postgres://user@host/name`, for example"
                    .to_owned(),
            )),
            Some(url) => Ok(url.to_owned()),
        }
    }
}

/// The command that the words name, whose usage is to be shown.
fn asked_for(mut command: clap::Command, words: impl Iterator<Item = String>) -> clap::Command {
    command.build();
    for word in words.skip(1) {
        if let Some(named) = command.find_subcommand(word) {
            command = named.clone();
        }
    }
    command
}
