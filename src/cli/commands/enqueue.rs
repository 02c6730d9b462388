//! `windlass enqueue`.

use crate::cli::commands::policy_options::PolicyOptions;
use crate::cli::failure::CommandError;
use crate::cli::select::connect;
use crate::cli::values;
use crate::db::Database;
use crate::db::model::new_row::EnqueueOutcome;
use crate::error::{Error, Result};
use crate::job::new_job::NewJob;
use crate::job::registry::Registry;
use crate::terminal::output::Report;
use chrono::{DateTime, Utc};
use clap::error::ErrorKind;
use serde::Serialize;
use std::io::Read as _;
use std::time::Duration;

/// Enqueue a job
///
/// In a program that mounts this command, the class must be registered, and the arguments must
/// match its type. Options that are not given come from the type. The program `windlass` has no
/// classes and checks neither.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  windlass enqueue sweep
  windlass enqueue import '{\"file\": \"users.csv\"}' --queue slow --priority 5
  windlass enqueue report '{\"month\": 11}' --in '2h 30m' --key report/2026-11
  windlass enqueue reindex 7 --unique-id reindex/7 --on-conflict replace --in 1min
  windlass enqueue charge '{\"order\": 7}' --attempts 5 --backoff 10s..1h --timeout 30s
  jq -c . args.json | windlass enqueue import -")]
pub(crate) struct Enqueue {
    /// The job type's name
    class: String,

    /// Its arguments, or `-` to read them from standard input
    #[arg(value_name = "JSON", default_value = "null")]
    arguments: String,

    /// The queue [default: the type's, or `default`]
    #[arg(long, value_name = "NAME")]
    queue: Option<String>,

    /// The priority; a smaller number is more important [default: the type's, or 0]
    #[arg(long, value_name = "NUMBER", allow_hyphen_values = true)]
    priority: Option<i32>,

    /// Use the enqueue time as the priority, minus this time
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration,
        conflicts_with = "priority")]
    ahead_by: Option<Duration>,

    /// Use the enqueue time as the priority, plus this time
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration,
        conflicts_with_all = ["priority", "ahead_by"])]
    behind_by: Option<Duration>,

    /// Run no earlier than after this time
    #[arg(long = "in", value_name = "TIME", value_parser = humantime::parse_duration,
        conflicts_with = "at")]
    delay: Option<Duration>,

    /// Run no earlier than at this time, as 2026-12-24T18:00:00Z
    #[arg(long, value_name = "TIME", value_parser = values::time)]
    at: Option<DateTime<Utc>>,

    /// An idempotency key: enqueue the job only once, however often this is run
    #[arg(long, value_name = "TEXT")]
    key: Option<String>,

    /// A unique id, which only one job may hold at a time [default: the type's, or none]
    #[arg(long, value_name = "TEXT")]
    unique_id: Option<String>,

    #[command(flatten)]
    policy: PolicyOptions,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// The enqueued job.
#[derive(Debug, Serialize)]
pub(crate) struct EnqueueResult {
    job_id: i64,
    is_new: bool,
    outcome: EnqueueOutcome,
    /// What another job already has, if that was possible.
    #[serde(skip)]
    shared: &'static str,
}

impl Enqueue {
    pub(crate) fn run(
        &self,
        database: &Database,
        registry: Option<&Registry>,
    ) -> Result<EnqueueResult, CommandError> {
        let job = self.job(registry)?;
        let done = job.enqueue(&mut connect(database)?)?;
        let may_be_unique = self.unique_id.is_some() || registry.is_some();
        Ok(EnqueueResult {
            job_id: done.id.0,
            is_new: done.is_new,
            outcome: done.outcome,
            shared: match (&self.key, may_be_unique) {
                (None, _) => "unique id",
                (Some(_), false) => "idempotency key",
                (Some(_), true) => "idempotency key or unique id",
            },
        })
    }

    fn job(&self, registry: Option<&Registry>) -> Result<NewJob, CommandError> {
        let arguments = self.arguments()?;
        let mut job = match registry {
            Some(registry) => registry.new_job(&self.class, &arguments)?,
            None => NewJob::of_class(&self.class, arguments),
        };
        if let Some(queue) = &self.queue {
            job = job.queue(queue);
        }
        if let Some(priority) = self.priority {
            job = job.priority(priority);
        }
        if let Some(ahead) = self.ahead_by {
            job = job.ahead_by(ahead);
        }
        if let Some(behind) = self.behind_by {
            job = job.behind_by(behind);
        }
        if let Some(time) = self.at {
            job = job.at(time);
        }
        if let Some(delay) = self.delay {
            job = job.after(delay);
        }
        if let Some(key) = &self.key {
            job = job.idempotency_key(key);
        }
        if let Some(id) = &self.unique_id {
            job = job.unique_id(id);
        }
        Ok(job.policy(self.policy.policy()))
    }

    fn arguments(&self) -> Result<String, CommandError> {
        let mut text = self.arguments.clone();
        if text == "-" {
            text.clear();
            std::io::stdin()
                .read_to_string(&mut text)
                .map_err(|source| Error::Io {
                    action: "read",
                    path: "standard input".into(),
                    source,
                })?;
        }
        // Its text is not part of the message, because it may be a secret.
        match serde_json::from_str::<serde::de::IgnoredAny>(&text) {
            Ok(_) => Ok(text.trim().to_owned()),
            Err(error) => Err(CommandError::Usage(
                ErrorKind::ValueValidation,
                format!("the arguments are not JSON: {error}; quote them for the shell"),
            )),
        }
    }
}

impl Report for EnqueueResult {
    fn text(&self, _width: Option<usize>) -> String {
        let (id, shared) = (self.job_id, self.shared);
        match self.outcome {
            EnqueueOutcome::New => format!("Enqueued job {id}.\n"),
            EnqueueOutcome::Again => {
                format!("Enqueued job {id}, which starts when the running one has ended.\n")
            }
            EnqueueOutcome::Shed => format!("Job {id} exceeds its quota and was discarded.\n"),
            EnqueueOutcome::Replaced => format!("Replaced job {id}.\n"),
            EnqueueOutcome::Existing | EnqueueOutcome::Refused => {
                format!("Job {id} already has this {shared}; nothing was enqueued.\n")
            }
        }
    }
}
