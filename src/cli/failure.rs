//! How a command fails.

use crate::cli::config;
use crate::error::Error;
use clap::error::ErrorKind;

/// Why a command failed.
pub(crate) enum Failure {
    /// The arguments are invalid.
    Usage(ErrorKind, String),
    /// The command failed while running.
    Error(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            error if config::is_usage(&error) => {
                Failure::Usage(ErrorKind::ValueValidation, error.to_string())
            }
            error => Failure::Error(error),
        }
    }
}
