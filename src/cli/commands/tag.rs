//! `windlass jobs tag` and `windlass jobs untag`.

use crate::admin::jobs::Jobs;
use crate::cli::done::{Deed, Done};
use crate::cli::select::{How, Which, with_progress};
use crate::db::Database;
use crate::db::model::extras::TagChange;
use crate::error::Result;

/// A tag, and the jobs whose tags change.
#[derive(Debug, clap::Args)]
pub(crate) struct Retag {
    /// The tag
    #[arg(value_name = "TAG")]
    name: String,

    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    pub(crate) how: How,
}

impl Retag {
    pub(crate) fn add(&self, database: &Database) -> Result<Done> {
        self.run(database, TagChange::Add(&self.name), "tagged")
    }

    pub(crate) fn remove(&self, database: &Database) -> Result<Done> {
        self.run(database, TagChange::Remove(&self.name), "untagged")
    }

    fn run(&self, database: &Database, change: TagChange<'_>, done: &'static str) -> Result<Done> {
        let deed = Deed {
            done,
            but: "has ended",
        };
        let jobs = self.which.select(Jobs::unfinished())?;
        self.how
            .run_by(database, &jobs, false, deed, |connection, jobs| {
                with_progress(connection, jobs, deed, |connection, reached| {
                    jobs.retag(connection, change, reached)
                })
            })
    }
}
