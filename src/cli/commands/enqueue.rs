//! `windlass enqueue`.

use crate::admin::explain::Reason;
use crate::admin::explain::obstacles::{Obstacle, is_beating};
use crate::admin::explain::words::Word;
use crate::cli::config::CommandError;
use crate::cli::select::{self, connect};
use crate::db::model::new_row::{EnqueueOutcome, OnConflict, UniqueScope};
use crate::db::query::explain::{self, RubyProcesses};
use crate::db::query::job_view::TextLimits;
use crate::db::{Database, DbConnection, own};
use crate::error::{ErrorContext as _, Result};
use crate::job::JobId;
use crate::job::new_job::NewJob;
use crate::job::policy::backoff::Backoff;
use crate::job::policy::{Delivery, Policy};
use crate::job::registry::Registry;
use crate::terminal::{self, Report};
use chrono::{DateTime, Utc};
use clap::ValueEnum;
use clap::error::ErrorKind;
use serde::Serialize;
use serde_json::Value;
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
    options: JobOptions,

    /// Run no earlier than after this time
    #[arg(long = "in", value_name = "TIME", value_parser = humantime::parse_duration,
        conflicts_with = "at")]
    delay: Option<Duration>,

    /// Run no earlier than at this time, as 2026-12-24T18:00:00Z
    #[arg(long, value_name = "TIME", value_parser = select::time)]
    at: Option<DateTime<Utc>>,

    /// Discard the job if it has not started by this time, as 2026-12-24T18:00:00Z
    #[arg(long, value_name = "TIME", value_parser = select::time,
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

    #[command(flatten)]
    unique: UniqueOptions,

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
        let may_be_unique = self.unique.unique_id.is_some() || registry.is_some();
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
        let mut job = match (registry, self.arguments_version) {
            (Some(registry), None) => registry.new_job(class, &arguments)?,
            (Some(registry), Some(version)) => {
                registry.new_job_of_version(class, &arguments, version)?
            }
            (None, version) => {
                NewJob::of_class(class, arguments).arguments_version(version.unwrap_or(1))
            }
        };
        if let Some(time) = self.at {
            job = job.at(time);
        }
        if let Some(delay) = self.delay {
            job = job.after(delay);
        }
        if let Some(key) = &self.key {
            job = job.idempotency_key(key);
        }
        if let Some(time) = self.not_after {
            job = job.not_after(time);
        }
        for (key, value) in &self.meta {
            job = job.meta(key, value.clone());
        }
        if let Some(header) = &self.traceparent {
            job = job.traceparent(header);
        }
        if self.public_token {
            job = job.public_token();
        }
        let job = job.tags(&self.tags);
        self.unique.apply(self.options.apply(job))
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
    let found = crate::admin::explain::find(&mut conn, job.into(), TextLimits::NONE)?;
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

// --- The options of unique jobs, as `windlass enqueue` takes them ---

/// The options that make a job unique.
#[derive(Debug, clap::Args)]
pub(crate) struct UniqueOptions {
    /// A unique id, which only one job may hold at a time [default: the type's, or none]
    #[arg(long, value_name = "TEXT")]
    pub(crate) unique_id: Option<String>,

    /// The policy if another job holds the unique id [default: the type's, or existing]
    #[arg(long, value_name = "WHAT")]
    on_conflict: Option<OnConflictName>,

    /// The time for which the job holds its unique id [default: the type's, or until-finished]
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

// --- The options of jobs that `windlass enqueue` and `windlass recurring` share ---

/// The options that override the queue, priority and policy of the type.
#[derive(Debug, clap::Args)]
pub(crate) struct JobOptions {
    /// The queue [default: the type's, or `default`]
    #[arg(long, value_name = "NAME")]
    pub(crate) queue: Option<String>,

    /// The priority; a smaller number is more important [default: the type's, or 0]
    #[arg(long, value_name = "NUMBER", allow_hyphen_values = true)]
    pub(crate) priority: Option<i32>,

    /// Use the time from which the job waits as the priority, minus this time
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration,
        conflicts_with = "priority")]
    ahead_by: Option<Duration>,

    /// Use the time from which the job waits as the priority, plus this time
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration,
        conflicts_with_all = ["priority", "ahead_by"])]
    behind_by: Option<Duration>,

    /// The largest number of attempts [default: the type's, or the worker's]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    attempts: Option<u32>,

    /// The delay before the next attempt, as `30s`, or doubling as `10s..1h`
    #[arg(long, value_name = "TIME", value_parser = backoff)]
    backoff: Option<Backoff>,

    /// No further attempt so long after the job is due
    #[arg(long, value_name = "TIME", value_parser = select::above_zero,
        conflicts_with = "retry_until")]
    retry_for: Option<Duration>,

    /// No further attempt after this time, as 2026-12-24T18:00:00Z
    #[arg(long, value_name = "TIME", value_parser = select::time)]
    retry_until: Option<DateTime<Utc>>,

    /// Discard the job if it has not started so long after it is due
    #[arg(long, value_name = "TIME", value_parser = select::above_zero)]
    expires_in: Option<Duration>,

    /// The time limit of an attempt
    #[arg(long, value_name = "TIME", value_parser = select::above_zero)]
    timeout: Option<Duration>,

    /// The time for which the result is kept
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    keep_result: Option<Duration>,

    /// The delivery guarantee: how often the job may start [default: the type's, or at-least-once]
    #[arg(long, value_name = "HOW")]
    delivery: Option<DeliveryName>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum DeliveryName {
    /// A run that was cut short is repeated
    AtLeastOnce,
    /// A run that was cut short makes the job fail, and so does an error
    AtMostOnce,
    /// A run that was cut short makes the job fail; errors may be retried
    AfterKnownOutcome,
}

impl JobOptions {
    /// Returns the job with the options that were given.
    pub(crate) fn apply(&self, mut job: NewJob) -> NewJob {
        if let Some(queue) = &self.queue {
            job = job.queue(queue);
        }
        if let Some(priority) = self.priority {
            job = job.priority(priority);
        }
        job.policy(self.policy())
    }

    /// Returns the policy with the options that were given.
    pub(crate) fn policy(&self) -> Policy {
        let mut policy = Policy::new();
        if let Some(ahead) = self.ahead_by {
            policy = policy.ahead_by(ahead);
        }
        if let Some(behind) = self.behind_by {
            policy = policy.behind_by(behind);
        }
        if let Some(attempts) = self.attempts {
            policy = policy.max_attempts(attempts);
        }
        if let Some(backoff) = self.backoff {
            policy = policy.backoff(backoff);
        }
        if let Some(time) = self.retry_for {
            policy = policy.retry_for(time);
        }
        if let Some(time) = self.retry_until {
            policy = policy.retry_until(time);
        }
        if let Some(time) = self.expires_in {
            policy = policy.expires_in(time);
        }
        if let Some(timeout) = self.timeout {
            policy = policy.timeout(timeout);
        }
        if let Some(time) = self.keep_result {
            policy = policy.keep_result(time);
        }
        if let Some(delivery) = self.delivery {
            policy = policy.delivery(match delivery {
                DeliveryName::AtLeastOnce => Delivery::AtLeastOnce,
                DeliveryName::AtMostOnce => Delivery::AtMostOnce,
                DeliveryName::AfterKnownOutcome => Delivery::AfterKnownOutcome,
            });
        }
        policy
    }
}

/// Parses a delay, or the first and the longest of delays that double.
fn backoff(text: &str) -> Result<Backoff, String> {
    let time = |text: &str| {
        humantime::parse_duration(text.trim()).map_err(|error| {
            format!("{error}; a delay is written as `30s`, or `10s..1h` if it doubles")
        })
    };
    let Some((first, cap)) = text.split_once("..") else {
        return time(text).map(Backoff::Fixed);
    };
    let (first, cap) = (time(first)?, time(cap)?);
    if cap < first {
        return Err(
            "the first delay is longer than the longest; write the shorter one first, as `10s..1h`"
                .to_owned(),
        );
    }
    Ok(Backoff::Exponential { first, cap })
}
