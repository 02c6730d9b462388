//! `windlass jobs show`.

use crate::cli::select::connect;
use crate::terminal::{Report, printable};
use chrono::{DateTime, Utc};
use serde_json::Value;
use windlass::internal::admin::explain::words::Word;
use windlass::jobs::{Attempt, Explanation, JobDetails, JobKey, JobLog, explain};
use windlass::{Database, Error, JobId, Result, jobs};

/// Show everything stored about a job: arguments, attempts, steps, result, log
///
/// Fields that its type declares as secret are shown as `[hidden]`. If no worker has registered the
/// class, all arguments are hidden.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  windlass jobs show 4711
  windlass jobs show sync/customer/7 --json
  windlass jobs show 4711 --logs
  windlass jobs show 4711 --show-arguments")]
pub(crate) struct Show {
    /// The id of the job, or its unique id
    #[arg(value_name = "JOB")]
    job: String,

    /// Also show what the job logged
    #[arg(long)]
    logs: bool,

    /// Also show secret fields
    #[arg(long)]
    show_arguments: bool,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

impl Show {
    pub(crate) fn run(&self, database: &Database) -> Result<JobDetails> {
        let mut connection = connect(database)?;
        let mut details = by_key(&self.job, |key| match self.show_arguments {
            true => jobs::reveal(&mut connection, key),
            false => jobs::find(&mut connection, key),
        })?;
        if !self.logs {
            details.logs.clear();
        }
        Ok(details)
    }
}

impl Report for JobDetails {
    fn text(&self, width: Option<usize>) -> String {
        let mut text = self.explanation.text(width);
        let mut part = |title: &str, lines: String| {
            if !lines.is_empty() {
                text.push_str(&format!("\n{title}:\n{lines}"));
            }
        };
        if self.unknown_class && self.arguments.is_some() {
            part(
                "Arguments",
                "  [hidden]: no worker has registered which of them are secret; `--show-arguments` shows them\n".to_owned(),
            );
        } else if let Some(arguments) = &self.arguments {
            let version = self.arguments_version.filter(|version| *version > 1);
            let version = version.map_or(String::new(), |number| format!(" (version {number})"));
            part(&format!("Arguments{version}"), json(arguments));
        }
        let tags = &self.explanation.task.tags;
        let tags = tags.iter().map(|tag| format!("  {}\n", printable(tag)));
        part("Tags", tags.collect());
        let meta = self.meta.iter();
        let meta = meta.map(|(key, value)| {
            format!("  {}: {}\n", printable(key), printable(&value.to_string()))
        });
        part("Metadata", meta.collect());
        part("Attempts", self.attempts.iter().map(attempt).collect());
        let steps = self.steps.iter().map(|step| {
            let at = step
                .at
                .map_or(String::new(), |at| format!("{}  ", time(at)));
            let value = printable(&step.value.to_string());
            format!("  {at}{}: {value}\n", printable(&step.name))
        });
        part("Steps", steps.collect());
        if let Some(result) = &self.explanation.task.result {
            part("Result", json(result));
        }
        let moments = self.timeline.iter();
        let lines =
            moments.map(|moment| format!("  {}  {}\n", time(moment.at), printable(&moment.what)));
        part("Timeline", lines.collect());
        part("Log", self.logs.iter().map(log).collect());
        text
    }
}

/// Returns JSON on several lines, indented.
fn json(value: &Value) -> String {
    let text = serde_json::to_string_pretty(value).unwrap_or_default();
    text.lines()
        .map(|line| format!("  {}\n", printable(line)))
        .collect()
}

fn attempt(attempt: &Attempt) -> String {
    let place = attempt.place.as_ref();
    let place = place.map_or(String::new(), |place| format!(" at {}", printable(place)));
    let outcome = serde_json::to_value(attempt.outcome).unwrap_or_default();
    let mut lines = attempt.message.lines();
    let mut text = format!(
        "  {} {}{place}: {}: {}\n",
        attempt.attempt,
        outcome.as_str().unwrap_or_default(),
        printable(&attempt.kind),
        printable(lines.next().unwrap_or_default())
    );
    for line in lines {
        text.push_str(&format!("    {}\n", printable(line)));
    }
    text
}

fn log(log: &JobLog) -> String {
    let start = log
        .started_at
        .map_or(String::new(), |at| format!(", started {}", time(at)));
    let mut text = format!("  attempt {}, claim {}{start}\n", log.attempt, log.claim_id);
    if log.dropped > 0 {
        text.push_str(&format!("    ({} older lines were dropped)\n", log.dropped));
    }
    for line in &log.lines {
        let (after, level) = (line.after.as_secs_f64(), line.level.as_str().to_lowercase());
        text.push_str(&format!(
            "    +{after:.3}s {level:<5} {}\n",
            printable(&line.text)
        ));
    }
    text
}

// --- `windlass explain` ---

/// Explain why a job is not running, or what it is doing
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  windlass explain 4711
  windlass explain sync/customer/7 --json")]
pub(crate) struct Explain {
    /// The id of the job, or its unique id
    #[arg(value_name = "JOB")]
    job: String,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

impl Explain {
    pub(crate) fn run(&self, database: &Database) -> Result<Explanation> {
        let mut connection = connect(database)?;
        by_key(&self.job, |key| explain(&mut connection, key))
    }
}

/// Finds a job by its id, or otherwise by its unique id.
pub(crate) fn by_key<T>(job: &str, mut find: impl FnMut(JobKey) -> Result<Option<T>>) -> Result<T> {
    if let Ok(id) = job.parse()
        && let Some(found) = find(JobId(id).into())?
    {
        return Ok(found);
    }
    find(job.into())?.ok_or_else(|| Error::NoSuchJob {
        job: printable(job),
    })
}

impl Report for Explanation {
    fn text(&self, _width: Option<usize>) -> String {
        let task = &self.task;
        let mut text = format!("Job {} ({})", task.job_id, printable(&task.class_name));
        if let (Some(queue), Some(priority)) = (&self.queue_name, self.priority) {
            text.push_str(&format!(
                " on the queue {}, priority {priority}",
                printable(queue)
            ));
        }
        if let Some(name) = &task.unique_id {
            text.push_str(&format!(", unique id {}", printable(name)));
        }
        text.push('\n');
        for words in self.in_words() {
            text.extend(words.iter().map(plain));
            text.push('\n');
        }
        text
    }
}

fn plain(word: &Word) -> String {
    match word {
        Word::State(state) => (*state).to_owned(),
        Word::Text(text) => text.clone(),
        Word::Job(job) => job.to_string(),
        Word::Key(name) | Word::Name(name) | Word::Process(name) => printable(name),
        Word::Time(at) => time(*at),
        Word::Command(command) => format!("`{command}`"),
    }
}

pub(crate) fn time(at: DateTime<Utc>) -> String {
    at.format("%Y-%m-%d %H:%M:%S UTC").to_string()
}
