//! `windlass jobs tag` and `windlass jobs untag`.

use crate::admin::jobs::Jobs;
use crate::cli::done::{Deed, Done};
use crate::cli::select::{How, Which};
use crate::db::Database;
use crate::db::model::extras::TagChange;
use crate::error::Result;

/// Add a tag to jobs that have not ended
///
/// A job that has the tag already is not changed. A running job sees the tag at its next attempt.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  windlass jobs tag night 4711 4712
  windlass jobs tag customer/7 --class import --dry-run")]
pub(crate) struct AddTag {
    /// The tag
    #[arg(value_name = "TAG")]
    name: String,

    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    pub(crate) how: How,
}

impl AddTag {
    pub(crate) fn run(&self, database: &Database) -> Result<Done> {
        let deed = Deed {
            done: "tagged",
            but: "has ended",
        };
        let jobs = self.which.select(Jobs::unfinished())?;
        let change = TagChange::Add(&self.name);
        self.how.retag(database, &jobs, change, deed)
    }
}

/// Remove a tag from jobs that have not ended
///
/// A job without the tag is not changed.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  windlass jobs untag night 4711
  windlass jobs untag night --all")]
pub(crate) struct RemoveTag {
    /// The tag
    #[arg(value_name = "TAG")]
    name: String,

    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    pub(crate) how: How,
}

impl RemoveTag {
    pub(crate) fn run(&self, database: &Database) -> Result<Done> {
        let deed = Deed {
            done: "untagged",
            but: "has ended",
        };
        let jobs = self.which.select(Jobs::unfinished())?;
        let change = TagChange::Remove(&self.name);
        self.how.retag(database, &jobs, change, deed)
    }
}
