//! The commands within an application's own program.

use crate::cli::config::CommandError;
use clap::error::ErrorKind;
use windlass::{Database, Registry};

/// The database to use.
#[derive(Debug, clap::Args)]
pub(crate) struct DatabaseOption {
    /// The database, as `postgres://USER@HOST/NAME` or `sqlite://PATH` [env: `DATABASE_URL`]
    ///
    /// Pass a password through the environment or the configuration instead: other users of this host
    /// can read a command line.
    #[arg(long, global = true, value_name = "URL")]
    database: Option<String>,
}

/// The context in which a command runs.
pub(crate) struct At<'a> {
    address: &'a DatabaseOption,
    pub(crate) database: Option<&'a Database>,
    /// The registered classes; `None` in the program `windlass`.
    pub(crate) registry: Option<&'a Registry>,
}

impl<'a> At<'a> {
    /// Returns the context in the program `windlass`.
    pub(crate) fn own(address: &'a DatabaseOption) -> Self {
        At {
            address,
            database: None,
            registry: None,
        }
    }

    pub(crate) fn mounted(address: &'a DatabaseOption, registry: &'a Registry) -> Self {
        At {
            address,
            database: None,
            registry: Some(registry),
        }
    }

    /// Returns the value of `--database`.
    pub(crate) fn url(&self) -> Option<&'a str> {
        self.address.database.as_deref()
    }

    /// Returns the program's own database, unless `--database` names another.
    pub(crate) fn given(&self) -> Option<&'a Database> {
        self.database.filter(|_| self.url().is_none())
    }

    pub(crate) fn database(&self) -> Result<Database, CommandError> {
        match self.given() {
            Some(database) => Ok(database.clone()),
            None => {
                let database = Database::open(&self.any_url()?)?;
                match self.url() {
                    Some(_) => Ok(database),
                    None => Ok(crate::config::load::pooled(database)?),
                }
            }
        }
    }

    /// Returns the address from the command line or any other source.
    pub(crate) fn any_url(&self) -> Result<String, CommandError> {
        let url = match self.url() {
            Some(url) => Some(url.to_owned()),
            None => crate::config::load::find_url()?,
        };
        match url.as_deref().map(str::trim) {
            None | Some("") => Err(CommandError::Usage(
                ErrorKind::MissingRequiredArgument,
                "no database is named: pass `--database URL` or set DATABASE_URL, \
                 to `sqlite://jobs.db` or `postgres://user@host/name`, for example"
                    .to_owned(),
            )),
            Some(url) => Ok(url.to_owned()),
        }
    }
}
