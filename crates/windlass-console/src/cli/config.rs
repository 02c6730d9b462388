//! The options that name a configuration, and those that override it.

use crate::config::configuration::Config;
use crate::config::reader::Argument;
use clap::error::ErrorKind;
use std::path::PathBuf;
use windlass::{Error, Result};

/// The configuration to read.
#[derive(Debug, clap::Args)]
pub(crate) struct ConfigSource {
    /// The configuration file [default: `WINDLASS_CONFIG`, or windlass.toml if it exists]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl ConfigSource {
    /// Reads the configuration; options of the command line have priority.
    pub(crate) fn read(
        &self,
        database: Option<&str>,
        mut arguments: Vec<Argument>,
    ) -> Result<Config> {
        let database = database.map(str::trim).filter(|url| !url.is_empty());
        if let Some(url) = database {
            arguments.push(option("database", "url", "--database", url.to_owned()));
        }
        Config::load_with(self.config.as_deref(), arguments)
    }
}

/// Returns an option that overrides a setting.
pub(crate) fn option(
    table: &'static str,
    name: &'static str,
    option: &'static str,
    value: String,
) -> Argument {
    Argument {
        table,
        name,
        option,
        value,
    }
}

/// Returns whether this is a usage error, so that nothing was tried.
pub(crate) fn is_usage(error: &Error) -> bool {
    matches!(error, Error::Settings(_) | Error::Configuration(_))
}

// --- The errors of a command ---

/// Why a command failed.
pub(crate) enum CommandError {
    /// The arguments are invalid.
    Usage(ErrorKind, String),
    /// The command failed while running.
    Error(Error),
}

impl From<Error> for CommandError {
    fn from(error: Error) -> Self {
        match error {
            error if is_usage(&error) => {
                CommandError::Usage(ErrorKind::ValueValidation, error.to_string())
            }
            error => CommandError::Error(error),
        }
    }
}
