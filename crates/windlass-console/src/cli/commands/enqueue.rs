//! `windlass enqueue`.

use crate::cli::config::CommandError;
use crate::cli::job_flags::{self, JobFlags, word};
use crate::cli::select::{self, connect};
use crate::terminal::{self, Report};
use chrono::{DateTime, Utc};
use clap::error::ErrorKind;
use serde::Serialize;
use serde_json::Value;
use std::time::Duration;
use windlass::internal::admin::explain::obstacles::is_beating;
use windlass::internal::admin::explain::words::Word;
use windlass::internal::db::own;
use windlass::internal::db::query::explain::{self, RubyProcesses};
use windlass::internal::db::query::job_view::TextLimits;
use windlass::internal::error::ErrorContext as _;
use windlass::internal::job::options::JobOptions;
use windlass::jobs::{EnqueueOutcome, Obstacle, Reason};
use windlass::policies::UniqueScope;
use windlass::{Database, DbConnection, JobId, NewJob, OnConflict, Registry, Result};

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
  windlass enqueue code '{\"to\": \"+49..\"}' --expires-in 5min --attempts 9 --retry-for 1h
  windlass enqueue export --tag night --meta 'request=\"4711\"' --public-token
  jq -c . args.json | windlass enqueue import -")]
pub(crate) struct Enqueue {
    /// The job type's name
    class: String,

    /// Its arguments, or `-` to read them from standard input
    #[arg(value_name = "JSON", default_value = "null")]
    arguments: String,

    #[command(flatten)]
    flags: JobFlags,

    /// Run no earlier than after this time
    #[arg(long = "in", value_name = "TIME", value_parser = humantime::parse_duration,
        conflicts_with = "at")]
    delay: Option<Duration>,

    /// Run no earlier than at this time, as 2026-12-24T18:00:00Z
    #[arg(long, value_name = "TIME", value_parser = job_flags::time)]
    at: Option<DateTime<Utc>>,

    /// Discard the job if it has not started by this time, as 2026-12-24T18:00:00Z
    #[arg(long, value_name = "TIME", value_parser = job_flags::time,
        conflicts_with = "expires_in")]
    not_after: Option<DateTime<Utc>>,

    /// An idempotency key: enqueue the job only once, however often this is run
    #[arg(long, value_name = "TEXT")]
    key: Option<String>,

    /// A tag of the job; may be repeated
    #[arg(long = "tag", value_name = "TEXT")]
    tags: Vec<String>,

    /// A value of its metadata, as `key=JSON`; may be repeated
    #[arg(long, value_name = "KEY=JSON", value_parser = select::metadata)]
    meta: Vec<(String, Value)>,

    /// The trace context of the enqueue, as the header `traceparent` of W3C Trace Context
    #[arg(long, value_name = "HEADER")]
    traceparent: Option<String>,

    /// The version of the arguments; those of an old one are converted, if the type is known
    /// [default: the type's, or 1]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    arguments_version: Option<u32>,

    /// Create a public token, by which others can see the job, and print it
    #[arg(long)]
    public_token: bool,

    /// A unique id, which only one job may hold at a time [default: the type's, or none]
    #[arg(long, value_name = "TEXT")]
    unique_id: Option<String>,

    /// The policy if another job holds the unique id [default: the type's, or existing]
    #[arg(long, value_name = "WHAT", value_parser = word::<OnConflict, 4>([
        ("existing", "The existing job stays as it is"),
        ("refuse", "It is an error"),
        ("replace", "A waiting job is replaced"),
        ("run-again", "A running job is followed by this one"),
    ]))]
    on_conflict: Option<OnConflict>,

    /// The time for which the job holds its unique id [default: the type's, or until-finished]
    #[arg(long, value_name = "HOW", value_parser = word::<UniqueScope, 3>([
        ("while-waiting", "Until a worker has claimed it"),
        ("until-finished", "Until it has finished or failed"),
        ("until-result-expires", "Until its result expires"),
    ]))]
    unique_scope: Option<UniqueScope>,

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
    #[serde(skip_serializing_if = "Option::is_none")]
    public_token: Option<String>,
    /// The reason why no running worker takes it, which is printed to standard error as well.
    #[serde(skip_serializing_if = "Option::is_none")]
    warning: Option<String>,
    /// The name of the id that another job may already have.
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
        let mut conn = connect(database)?;
        let done = job.enqueue(&mut conn)?;
        let warning = match done.outcome {
            EnqueueOutcome::New => unserved(&mut conn, done.id)?,
            _ => None,
        };
        if let Some(warning) = &warning {
            terminal::warn(&format!("job {}: {warning}", done.id));
        }
        let may_be_unique = self.unique_id.is_some() || registry.is_some();
        Ok(EnqueueResult {
            job_id: done.id.0,
            is_new: done.is_new,
            outcome: done.outcome,
            warning,
            public_token: done.public_token.map(|token| token.to_string()),
            shared: match (&self.key, may_be_unique) {
                (None, _) => "unique id",
                (Some(_), false) => "idempotency key",
                (Some(_), true) => "idempotency key or unique id",
            },
        })
    }

    fn job(&self, registry: Option<&Registry>) -> Result<NewJob, CommandError> {
        let arguments = select::arguments(&self.arguments)?;
        let class = &self.class;
        let job = match (registry, self.arguments_version) {
            (Some(registry), None) => registry.new_job(class, &arguments)?,
            (Some(registry), Some(version)) => {
                registry.new_job_of_version(class, &arguments, version)?
            }
            (None, version) => {
                NewJob::of_class(class, arguments).arguments_version(version.unwrap_or(1))
            }
        };
        let usage = |kind, reason: String| Err(CommandError::Usage(kind, reason));
        let job = match self.options().apply(job) {
            Ok(job) => job,
            Err(reason) => return usage(ErrorKind::ValueValidation, reason),
        };
        let is_given = self.on_conflict.is_some() || self.unique_scope.is_some();
        if is_given && job.row.unique_id.is_none() {
            let reason = "`--on-conflict` and `--unique-scope` need a job with a unique id: pass `--unique-id`";
            return usage(ErrorKind::MissingRequiredArgument, reason.to_owned());
        }
        Ok(if self.public_token {
            job.public_token()
        } else {
            job
        })
    }

    /// Returns the options that were given.
    fn options(&self) -> JobOptions {
        JobOptions {
            run_at: self.at,
            delay_seconds: self.delay.map(|delay| delay.as_secs_f64()),
            not_after: self.not_after,
            idempotency_key: self.key.clone(),
            tags: Some(self.tags.clone()),
            meta: Some(self.meta.iter().cloned().collect()),
            traceparent: self.traceparent.clone(),
            unique_id: self.unique_id.clone(),
            on_conflict: self.on_conflict,
            unique_scope: self.unique_scope,
            ..self.flags.options()
        }
    }
}

/// Returns the reason why no running worker takes a job, as its queue or class may be mistyped. Returns `None` if none runs.
fn unserved(conn: &mut DbConnection, job: JobId) -> Result<Option<String>> {
    let mut conn = own(conn);
    let workers = explain::registered(&mut conn, "Worker", RubyProcesses::Include);
    let workers = workers.during("look at the workers")?;
    if !workers.iter().any(is_beating) {
        return Ok(None);
    }
    let found = windlass::internal::admin::explain::find(&mut conn, job.into(), TextLimits::NONE)?;
    let (Reason::Ready { obstacles, .. } | Reason::Scheduled { obstacles, .. }) =
        found.map_or(Reason::Ended, |(found, _)| found.reason)
    else {
        return Ok(None);
    };
    let is_mistaken =
        |one: &&Obstacle| matches!(one, Obstacle::NoWorkerForQueue | Obstacle::NoWorkerForClass);
    let words = obstacles
        .iter()
        .filter(is_mistaken)
        .flat_map(Obstacle::in_words);
    let mut sentences = words.filter_map(|word| match word {
        Word::Text(sentence) => Some(sentence),
        _ => None,
    });
    Ok(sentences.next())
}

impl Report for EnqueueResult {
    fn text(&self, _width: Option<usize>) -> String {
        let (id, shared) = (self.job_id, self.shared);
        let done = match self.outcome {
            EnqueueOutcome::New => format!("Enqueued job {id}.\n"),
            EnqueueOutcome::Again => {
                format!("Enqueued job {id}, which starts when the running one has ended.\n")
            }
            EnqueueOutcome::Shed => format!("Job {id} exceeds its quota and was discarded.\n"),
            EnqueueOutcome::Replaced => format!("Replaced job {id}.\n"),
            EnqueueOutcome::Existing | EnqueueOutcome::Refused => {
                format!("Job {id} already has this {shared}; nothing was enqueued.\n")
            }
        };
        match &self.public_token {
            Some(token) => format!("{done}Public token: {token}\n"),
            None => done,
        }
    }
}
