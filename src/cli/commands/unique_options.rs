//! The options of unique jobs, as `windlass enqueue` takes them.

use crate::cli::failure::CommandError;
use crate::db::model::new_row::{OnConflict, UniqueScope};
use crate::job::new_job::NewJob;
use crate::job::policy::Policy;
use clap::ValueEnum;
use clap::error::ErrorKind;

/// What makes a job unique.
#[derive(Debug, clap::Args)]
pub(crate) struct UniqueOptions {
    /// A unique id, which only one job may hold at a time [default: the type's, or none]
    #[arg(long, value_name = "TEXT")]
    pub(crate) unique_id: Option<String>,

    /// What happens if another job holds the unique id [default: the type's, or existing]
    #[arg(long, value_name = "WHAT")]
    on_conflict: Option<OnConflictName>,

    /// How long the job holds its unique id [default: the type's, or until-finished]
    #[arg(long, value_name = "HOW")]
    unique_scope: Option<UniqueScopeName>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum OnConflictName {
    /// The existing job stays as it is
    Existing,
    /// It is an error
    Refuse,
    /// A waiting job is replaced
    Replace,
    /// A running job is followed by this one
    RunAgain,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum UniqueScopeName {
    /// Until a worker has claimed it
    WhileWaiting,
    /// Until it has finished or failed
    UntilFinished,
    /// Until its result expires
    UntilResultExpires,
}

impl UniqueOptions {
    /// Returns the job with the options that were given.
    ///
    /// # Errors
    /// If one of them has no effect, because the job has no unique id.
    pub(crate) fn apply(&self, mut job: NewJob) -> Result<NewJob, CommandError> {
        if let Some(id) = &self.unique_id {
            job = job.unique_id(id);
        }
        let is_given = self.on_conflict.is_some() || self.unique_scope.is_some();
        if is_given && job.row.unique_id.is_none() {
            return Err(CommandError::Usage(
                ErrorKind::MissingRequiredArgument,
                "`--on-conflict` and `--unique-scope` need a job with a unique id: pass `--unique-id`"
                    .to_owned(),
            ));
        }
        let mut policy = Policy::new();
        if let Some(what) = self.on_conflict {
            policy = policy.on_conflict(match what {
                OnConflictName::Existing => OnConflict::Existing,
                OnConflictName::Refuse => OnConflict::Refuse,
                OnConflictName::Replace => OnConflict::Replace,
                OnConflictName::RunAgain => OnConflict::RunAgain,
            });
        }
        if let Some(scope) = self.unique_scope {
            policy = policy.unique_scope(match scope {
                UniqueScopeName::WhileWaiting => UniqueScope::WhileWaiting,
                UniqueScopeName::UntilFinished => UniqueScope::UntilFinished,
                UniqueScopeName::UntilResultExpires => UniqueScope::UntilResultExpires,
            });
        }
        Ok(job.policy(policy))
    }
}
