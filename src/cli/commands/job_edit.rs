//! `windlass jobs edit`.

use crate::cli::failure::CommandError;
use crate::cli::said_by::SaidBy;
use crate::cli::select::connect;
use crate::cli::values;
use crate::db::Database;
use crate::job::id::JobId;
use crate::job::registry::Registry;
use crate::terminal::output::Report;
use serde::Serialize;

/// Replace the arguments of a job that waits or has failed
///
/// In a program that mounts this command, they must match the job's type, if it is registered, and
/// get its version. Otherwise the version stays as it is, as `jobs show` prints it. The unique id and
/// the concurrency key stay too. Write secret fields anew: they are shown as `[hidden]`, which is
/// refused.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  windlass jobs edit 4711 --arguments '{\"file\": \"users.csv\"}'
  jq -c . args.json | windlass jobs edit 4711 --arguments -")]
pub(crate) struct Edit {
    /// The id of the job
    #[arg(value_name = "JOB", value_parser = values::job_id)]
    id: i64,

    /// The new arguments, or `-` to read them from standard input
    #[arg(long, value_name = "JSON")]
    arguments: String,

    #[command(flatten)]
    said_by: SaidBy,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// The edited job.
#[derive(Debug, Serialize)]
pub(crate) struct EditedJob {
    job_id: i64,
}

impl Edit {
    pub(crate) fn run(
        &self,
        database: &Database,
        registry: Option<&Registry>,
    ) -> Result<EditedJob, CommandError> {
        let arguments = values::arguments(&self.arguments)?;
        self.said_by.actor().edit_arguments(
            &mut connect(database)?,
            JobId(self.id),
            &arguments,
            registry,
        )?;
        Ok(EditedJob { job_id: self.id })
    }
}

impl Report for EditedJob {
    fn text(&self, _width: Option<usize>) -> String {
        format!("Job {} has new arguments.\n", self.job_id)
    }
}
