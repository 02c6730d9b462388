//! The options that name a configuration, and what overrules it.

use crate::config::configuration::Config;
use crate::config::reader::Argument;
use crate::error::{Error, Result};
use std::path::PathBuf;

/// Which configuration.
#[derive(Debug, clap::Args)]
pub(crate) struct Source {
    /// The configuration [default: `WINDLASS_CONFIG`, or else windlass.toml if it is there]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl Source {
    /// Reads it; the options of the command line weigh the most.
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

/// An option that overrules a setting.
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

/// Whether it was asked for wrongly, and not tried.
pub(crate) fn is_usage(error: &Error) -> bool {
    matches!(error, Error::Settings(_) | Error::Configuration(_))
}
