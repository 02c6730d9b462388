//! How a command fails.

use crate::cli::config;
use crate::error::Error;
use clap::error::ErrorKind;

/// Why a command came to nothing.
pub(crate) enum Failure {
    /// What was asked for makes no sense.
    Usage(ErrorKind, String),
    /// It was tried.
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
