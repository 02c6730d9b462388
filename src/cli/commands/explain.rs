//! `windlass explain`.

use crate::admin::explain::obstacles::Obstacle;
use crate::admin::explain::{Explanation, Reason, explain};
use crate::admin::job_info::{JobKey, TaskStatus};
use crate::cli::commands::status::age;
use crate::cli::select::connect;
use crate::db::Database;
use crate::error::{Error, Result};
use crate::job::id::JobId;
use crate::job::policy::delivery::Delivery;
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
        text.push_str(&self.sentence());
        if let Reason::Ready { obstacles, .. } | Reason::Scheduled { obstacles, .. } = &self.reason
        {
            for obstacle in obstacles {
                text.push_str(&format!("But {}.\n", words(obstacle)));
            }
        }
        text.push_str(&self.limits());
        if let Some(error) = &task.error {
            let what = match task.status {
                TaskStatus::Queued | TaskStatus::Running => "Its last attempt ended with",
                _ => "It ended with",
            };
            text.push_str(&format!("{what} {}\n", printable(error)));
        }
        text
    }
}

fn in_line(key: &str, behind: Option<JobId>, until: Option<DateTime<Utc>>) -> String {
    let job = behind.map_or_else(String::new, |job| format!(" behind job {job}"));
    let next = until.map_or_else(String::new, |at| {
        format!(", whose next run is due at {}", time(at))
    });
    let key = printable(key);
    format!("It waits for its turn in the ordered concurrency key {key}{job}{next}.\n")
}

impl Explanation {
    fn sentence(&self) -> String {
        match &self.reason {
            Reason::Ready { ahead: 0, .. } => "It is ready, and next on its queue.\n".to_owned(),
            Reason::Ready { ahead, .. } => {
                format!("It is ready, behind {ahead} jobs in its queue.\n")
            }
            Reason::Scheduled {
                at,
                overdue_seconds,
                ..
            } => self.scheduled(*at, *overdue_seconds),
            Reason::Blocked { by: Some(by), key } => format!(
                "It starts when job {by} has ended, which runs with the unique id {}.\n",
                printable(key)
            ),
            Reason::Blocked { by: None, key } => {
                format!(
                    "It waits for another job with the key {}.\n",
                    printable(key)
                )
            }
            Reason::Limited { key, by, set_limit } => {
                let holder = by.map_or_else(String::new, |job| format!(", which job {job} holds"));
                let set = set_limit.map_or_else(String::new, |slots| {
                    format!("; its limit was set to {slots}: `windlass limits list`")
                });
                let key = printable(key);
                format!("It waits for a slot of the concurrency key {key}{holder}{set}.\n")
            }
            Reason::InLine { key, behind, until } => in_line(key, *behind, *until),
            Reason::Claimed { .. } => self.claimed(),
            Reason::Ended => self.ended(),
            Reason::Adrift => "It has no execution: the row was deleted by hand. \
                 `windlass jobs` cannot move it; enqueue it anew.\n"
                .to_owned(),
        }
    }

    /// Says until when it may start or be tried again, and what its delivery is if that is not at
    /// least once.
    fn limits(&self) -> String {
        let mut text = String::new();
        if self.reason != Reason::Ended {
            text.push_str(match self.delivery {
                Some(Delivery::AtMostOnce) => "It runs at most once.\n",
                Some(Delivery::AfterKnownOutcome) => {
                    "It runs again only after a run whose outcome is known.\n"
                }
                Some(Delivery::AtLeastOnce) | None => "",
            });
        }
        if let Some(at) = self.expires_at {
            text.push_str(&format!(
                "It is discarded if it has not started by {}.\n",
                time(at)
            ));
        }
        if let Some(at) = self.retry_until {
            text.push_str(&format!("No attempt follows after {}.\n", time(at)));
        }
        text
    }

    fn scheduled(&self, at: DateTime<Utc>, overdue_seconds: f64) -> String {
        let when = if overdue_seconds < 0.0 {
            format!("in {}", age(-overdue_seconds))
        } else {
            format!("and has been due for {}", age(overdue_seconds))
        };
        let which = match self.task.attempt {
            0 => String::new(),
            done => format!(", for its attempt {}", done + 1),
        };
        format!("It is scheduled for {}, {when}{which}.\n", time(at))
    }

    fn ended(&self) -> String {
        let how = match self.task.status {
            TaskStatus::Succeeded => "finished",
            TaskStatus::Failed => "failed",
            TaskStatus::Cancelled => "was cancelled",
            TaskStatus::Discarded => "was discarded",
            TaskStatus::Queued | TaskStatus::Running => "ended",
        };
        let Some(at) = self.task.finished_at else {
            return format!("It {how}.\n");
        };
        let attempt = match self.task.attempt {
            0 => ", and never ran".to_owned(),
            attempt => format!(", with attempt {attempt}"),
        };
        format!("It {how} at {}{attempt}.\n", time(at))
    }

    fn claimed(&self) -> String {
        let Reason::Claimed {
            process_name,
            hostname,
            pid,
            thread,
            seconds,
            heartbeat_seconds,
            cancel_requested_at,
            progress,
            ..
        } = &self.reason
        else {
            return String::new();
        };
        let mut text = match process_name {
            None => "A dead process holds it: no supervisor has recovered it yet".to_owned(),
            Some(name) => {
                let host = hostname.as_deref().unwrap_or("an unknown host");
                let pid = pid.map_or(String::new(), |pid| format!(", pid {pid}"));
                let thread = thread.as_ref().map_or(String::new(), |name| {
                    format!(", thread {}", printable(name))
                });
                format!(
                    "{} ({}{pid}{thread}) has held it for {}",
                    printable(name),
                    printable(host),
                    age(*seconds)
                )
            }
        };
        if let Some(beat) = heartbeat_seconds {
            text.push_str(&format!(", and had its last heartbeat {} ago", age(*beat)));
        }
        text.push_str(".\n");
        if let Some(progress) = progress {
            text.push_str(&format!(
                "It is at {:.0} %: {}\n",
                progress.percent,
                printable(&progress.message)
            ));
        }
        if let Some(at) = cancel_requested_at {
            text.push_str(&format!(
                "Its cancellation was requested at {}.\n",
                time(*at)
            ));
        }
        text
    }
}

fn words(obstacle: &Obstacle) -> String {
    match obstacle {
        Obstacle::QueuePaused { since } => {
            format!("its queue has been paused since {}", time(*since))
        }
        Obstacle::ClassPaused { since } => {
            format!("its class has been paused since {}", time(*since))
        }
        Obstacle::NoWorkerForQueue => "no running worker serves its queue".to_owned(),
        Obstacle::NoWorkerForClass => {
            "none of the workers that serve its queue has its class registered".to_owned()
        }
        Obstacle::NoWorkerForVersion { version } => format!(
            "its arguments have version {version}, and the workers that have its class registered know \
             only older ones: it waits for a newer program"
        ),
        Obstacle::WorkersSilent => {
            "the workers that could take it have had no heartbeat for 60 s".to_owned()
        }
        Obstacle::WorkersDraining => "the workers that could take it are stopping".to_owned(),
        Obstacle::WorkersQuiet => {
            "the workers that could take it are quiet: they claim nothing until SIGCONT".to_owned()
        }
        Obstacle::ThreadsBusy { threads } => {
            format!("all {threads} threads of the workers that could take it are busy")
        }
        Obstacle::NoDispatcher => "no running dispatcher would make it ready".to_owned(),
    }
}

pub(crate) fn time(at: DateTime<Utc>) -> String {
    at.format("%Y-%m-%d %H:%M:%S UTC").to_string()
}
