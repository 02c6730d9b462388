//! `windlass queues ...`.

use crate::cli::commands::run_time::{Pausable, Turned, paused_line, unknown_queue};
use crate::cli::commands::status::{age, queues};
use crate::cli::config::CommandError;
use crate::cli::done::Deed;
use crate::cli::listed::ChangedBy;
use crate::cli::select::{How, Scope, Selection, connect, with_progress};
use crate::read::sql::named::named;
use crate::terminal::{self, Column, Report, Table, printable};
use serde::Serialize;
use std::process::ExitCode;
use windlass::internal::db::own;
use windlass::internal::error::ErrorContext as _;
use windlass::jobs::{JobState, Jobs};
use windlass::queues::QueueStatus;
use windlass::quotas::QuotaStatus;
use windlass::{Database, DbConnection, Result, quotas};

/// List, pause, resume and clear queues
#[derive(Debug, clap::Subcommand)]
pub(crate) enum QueuesCommand {
    List(ListQueues),
    Show(ShowQueue),
    Pause(Pause),
    Resume(Resume),
    Clear(Clear),
}

impl QueuesCommand {
    pub(crate) fn show(&self, db: &Database) -> Result<ExitCode, CommandError> {
        Ok(match self {
            QueuesCommand::List(list) => {
                terminal::show(&list.run(&db.clone().read_only())?, list.json)
            }
            QueuesCommand::Show(show) => {
                terminal::show(&show.run(&db.clone().read_only())?, show.json)
            }
            QueuesCommand::Pause(pause) => terminal::show(&pause.run(db)?, pause.json),
            QueuesCommand::Resume(resume) => terminal::show(&resume.run(db)?, resume.json),
            QueuesCommand::Clear(clear) => {
                let deed = Deed {
                    done: "discarded",
                    but: "is not ready",
                };
                let jobs = Selection {
                    jobs: Jobs::in_state(JobState::Ready).queue(&clear.queue),
                    scope: Scope::Some,
                };
                let clear_it = |connection: &mut DbConnection, jobs: &Jobs| {
                    with_progress(connection, jobs, deed, |connection, reached| {
                        jobs.clear(connection, &clear.queue, reached)
                    })
                };
                let done = clear.how.run_by(db, &jobs, true, deed, clear_it)?;
                terminal::show_and_end(&done, clear.how.json, done.code())
            }
        })
    }
}

/// List the queues that have jobs or are paused
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  windlass queues list
  windlass queues list --json | jq '.queues[] | select(.oldest_ready_seconds > 300)'")]
pub(crate) struct ListQueues {
    /// Print JSON; ages are in seconds
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct ListedQueues {
    queues: Vec<QueueStatus>,
}

impl ListQueues {
    fn run(&self, database: &Database) -> Result<ListedQueues> {
        let queues = windlass::queues::list(&mut connect(database)?)?;
        Ok(ListedQueues { queues })
    }
}

impl Report for ListedQueues {
    fn text(&self, width: Option<usize>) -> String {
        if self.queues.is_empty() {
            return "No queue has a job, and none is paused.\n".to_owned();
        }
        let mut text = queues(&self.queues).text(width);
        let paused = self.queues.iter().filter(|queue| queue.paused);
        for (index, queue) in paused.enumerate() {
            if index == 0 {
                text.push('\n');
            }
            text.push_str(&pause(queue));
        }
        text
    }
}

fn pause(queue: &QueueStatus) -> String {
    let (by, reason) = (queue.paused_by.as_deref(), queue.pause_reason.as_deref());
    paused_line(&queue.queue_name, queue.paused_seconds, by, reason)
}

/// Show the number of ready jobs of a queue, and the age of the oldest
///
/// The fastest way to check one queue, for a probe or an autoscaler.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  windlass queues show mail
  windlass queues show mail --json | jq .latency_seconds")]
pub(crate) struct ShowQueue {
    /// The queue's name
    #[arg(value_name = "QUEUE")]
    queue: String,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct QueueFigures {
    queue_name: String,
    size: u64,
    latency_seconds: Option<f64>,
    /// True if a job, a class or a pause has the name.
    #[serde(skip_serializing_if = "std::clone::Clone::clone")]
    known: bool,
}

/// Returns whether a job, a class or a pause has the name of this queue.
fn is_known(connection: &mut DbConnection, queue: &str) -> Result<bool> {
    let found = named(&mut own(connection), queue).during("look for the queue")?;
    Ok(found.is_queue)
}

impl ShowQueue {
    fn run(&self, database: &Database) -> Result<QueueFigures> {
        let mut connection = connect(database)?;
        let latency = windlass::queues::latency(&mut connection, &self.queue)?;
        Ok(QueueFigures {
            queue_name: self.queue.clone(),
            size: windlass::queues::size(&mut connection, &self.queue)?,
            known: is_known(&mut connection, &self.queue)?,
            latency_seconds: latency.map(|latency| latency.as_secs_f64()),
        })
    }
}

impl Report for QueueFigures {
    fn text(&self, _width: Option<usize>) -> String {
        let queue = printable(&self.queue_name);
        match self.latency_seconds {
            None if !self.known => {
                format!("No job of {queue} is ready.\n{}", unknown_queue(&queue))
            }
            None => format!("No job of {queue} is ready.\n"),
            Some(latency) if self.size == 1 => {
                format!("1 job of {queue} is ready, for {}.\n", age(latency))
            }
            Some(latency) => format!(
                "{} jobs of {queue} are ready, the oldest for {}.\n",
                self.size,
                age(latency)
            ),
        }
    }
}

/// Pause a queue: workers take no more of its jobs, and running jobs continue
///
/// Each worker applies this from its next poll on. `windlass queues list` and `windlass status`
/// show by whom, when and why the queue was paused.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  windlass queues pause mail
  windlass queues pause mail --reason 'the provider is down'")]
pub(crate) struct Pause {
    /// The queue's name; it need not have any jobs yet
    #[arg(value_name = "QUEUE")]
    queue: String,

    #[command(flatten)]
    changed_by: ChangedBy,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Resume a queue: workers take its jobs again
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  windlass queues resume mail")]
pub(crate) struct Resume {
    /// The queue's name
    #[arg(value_name = "QUEUE")]
    queue: String,

    #[command(flatten)]
    changed_by: ChangedBy,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Delete the ready jobs of a queue
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  windlass queues clear imports --dry-run
  windlass queues clear imports")]
pub(crate) struct Clear {
    /// The queue's name
    #[arg(value_name = "QUEUE")]
    queue: String,

    #[command(flatten)]
    how: How,
}

impl Pause {
    fn run(&self, database: &Database) -> Result<Turned> {
        let mut connection = connect(database)?;
        let known = is_known(&mut connection, &self.queue)?;
        let actor = self.changed_by.actor();
        let changed = actor.pause_queue(&mut connection, &self.queue)?;
        Ok(Turned {
            what: Pausable::QueueName(self.queue.clone()),
            paused: true,
            changed,
            known,
        })
    }
}

impl Resume {
    fn run(&self, database: &Database) -> Result<Turned> {
        let actor = self.changed_by.actor();
        Ok(Turned {
            what: Pausable::QueueName(self.queue.clone()),
            paused: false,
            changed: actor.resume_queue(&mut connect(database)?, &self.queue)?,
            known: true,
        })
    }
}

// --- `windlass quotas` ---

/// Show the quotas of enqueues, and how much of each is used
///
/// A quota is shown for seven days after its last enqueue, with the limits that a recent one had.
/// Seconds, minutes and days are those of UTC. What a quota does not limit is not counted.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  windlass quotas
  windlass quotas --json | jq '.quotas[] | select(.most_per_day and .this_day >= .most_per_day)'")]
pub(crate) struct Quotas {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// The quotas at one moment.
#[derive(Debug, Serialize)]
pub(crate) struct QuotaList {
    quotas: Vec<QuotaStatus>,
}

impl Quotas {
    pub(crate) fn run(&self, database: &Database) -> Result<QuotaList> {
        Ok(QuotaList {
            quotas: quotas::list(&mut connect(database)?)?,
        })
    }
}

impl Report for QuotaList {
    fn text(&self, width: Option<usize>) -> String {
        if self.quotas.is_empty() {
            return "No quota was used in the last seven days.\n".to_owned();
        }
        let mut table = Table::new(&[
            Column::text("QUOTA"),
            Column::number("WAITING"),
            Column::number("SECOND"),
            Column::number("MINUTE"),
            Column::number("DAY"),
            Column::text("EXCEEDED"),
        ]);
        let of = |used: i64, limit: Option<i64>| match limit {
            Some(limit) => format!("{used}/{limit}"),
            None => "-".to_owned(),
        };
        for quota in &self.quotas {
            table.add(vec![
                printable(&quota.name),
                of(quota.waiting, quota.most_waiting),
                of(quota.this_second, quota.most_per_second),
                of(quota.this_minute, quota.most_per_minute),
                of(quota.this_day, quota.most_per_day),
                if quota.sheds { "shed" } else { "strict" }.to_owned(),
            ]);
        }
        table.text(width)
    }
}
