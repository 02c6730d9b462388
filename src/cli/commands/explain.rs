//! `windlass explain`.

use crate::admin::explain::words::Word;
use crate::admin::explain::{Explanation, explain};
use crate::admin::job_info::JobKey;
use crate::cli::select::connect;
use crate::db::Database;
use crate::error::{Error, Result};
use crate::job::id::JobId;
use crate::terminal::output::Report;
use crate::terminal::table::printable;
use chrono::{DateTime, Utc};

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
