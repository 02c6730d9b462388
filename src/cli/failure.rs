//! How a command fails.

use crate::cli::config;
use crate::error::Error;
use clap::error::ErrorKind;

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
            error if config::is_usage(&error) => {
                CommandError::Usage(ErrorKind::ValueValidation, error.to_string())
            }
            error => CommandError::Error(error),
        }
    }
}
