//! The obstacles that keep a ready job from being claimed.

use crate::db::Conn;
use crate::db::model::extras::FIRST_VERSION;
use crate::db::query::explain::{self, RegisteredProcess, RubyProcesses};
use crate::db::query::job_view::JobView;
use crate::db::table::run_time;
use crate::queue::QueueSelector;
use chrono::{DateTime, Utc};
use diesel::QueryResult;
use serde_json::Value;

/// A reason why a job cannot be claimed.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
#[serde(rename_all = "snake_case", tag = "is")]
#[non_exhaustive]
pub enum Obstacle {
    /// Its queue is paused.
    QueuePaused {
        /// The time of the pause, by the database's clock.
        since: DateTime<Utc>,
    },
    /// Its class is paused.
    ClassPaused {
        /// The time of the pause, by the database's clock.
        since: DateTime<Utc>,
    },
    /// No running worker serves its queue.
    NoWorkerForQueue,
    /// Workers that serve its queue are running, but none has its class registered.
    NoWorkerForClass,
    /// Workers that serve its queue have its class registered, but only with an older
    /// [version](crate::Job::VERSION) of the arguments: the job waits for a newer program.
    NoWorkerForVersion {
        /// The version of the job's arguments.
        version: u32,
    },
    /// The workers that could take it have had no heartbeat for 60 s.
    WorkersSilent,
    /// The workers that could take it are stopping.
    WorkersDraining,
    /// The workers that could take it are quiet (SIGTSTP) and claim nothing.
    WorkersQuiet,
    /// All threads of the workers that could take it are busy.
    ThreadsBusy {
        /// The number of threads of these workers.
        threads: u64,
    },
    /// No running dispatcher would make it ready.
    NoDispatcher,
}
/// Returns what would prevent a claim of the job.
pub(crate) fn obstacles(conn: &mut Conn<'_>, job: &JobView) -> QueryResult<Vec<Obstacle>> {
    let mut all = Vec::new();
    if let Some(since) = explain::paused_since(conn, &job.queue_name)? {
        all.push(Obstacle::QueuePaused {
            since: since.and_utc(),
        });
    }
    if let Some(since) = run_time::since(conn, &job.class_name)? {
        all.push(Obstacle::ClassPaused {
            since: since.and_utc(),
        });
    }
    let ruby = match job.is_of_ruby() {
        true => RubyProcesses::Include,
        false => RubyProcesses::Exclude,
    };
    let workers = described(explain::registered(conn, "Worker", ruby)?);
    let wanted = WantedJob {
        queue: &job.queue_name,
        class: &job.class_name,
        version: job.extras().arguments_version(),
    };
    all.extend(missing(&workers, wanted));
    Ok(all)
}

/// The properties of a job that decide which workers can take it.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct WantedJob<'a> {
    pub queue: &'a str,
    pub class: &'a str,
    /// The version of its arguments.
    pub version: u32,
}

/// A process with its own description.
pub type DescribedProcess = (RegisteredProcess, Value);

/// Reads what processes say of themselves.
pub fn described(processes: Vec<RegisteredProcess>) -> Vec<DescribedProcess> {
    let read = |process: RegisteredProcess| {
        let text = process.metadata.as_deref().unwrap_or_default();
        let says = serde_json::from_str(text).unwrap_or_default();
        (process, says)
    };
    processes.into_iter().map(read).collect()
}

/// Returns what is missing for a worker to take the job.
pub fn missing(workers: &[DescribedProcess], job: WantedJob<'_>) -> Option<Obstacle> {
    let workers = workers.iter();
    let mut serving: Vec<&DescribedProcess> = workers
        .filter(|(_, says)| serves(says, job.queue))
        .collect();
    if serving.is_empty() {
        return Some(Obstacle::NoWorkerForQueue);
    }
    serving.retain(|(_, says)| knows(says, job.class));
    if serving.is_empty() {
        return Some(Obstacle::NoWorkerForClass);
    }
    serving.retain(|(_, says)| reads(says, job));
    if serving.is_empty() {
        let version = job.version;
        return Some(Obstacle::NoWorkerForVersion { version });
    }
    serving.retain(|(worker, _)| !worker.draining);
    if serving.is_empty() {
        return Some(Obstacle::WorkersDraining);
    }
    serving.retain(|(worker, _)| is_beating(worker));
    if serving.is_empty() {
        return Some(Obstacle::WorkersSilent);
    }
    serving.retain(|(_, says)| says["quiet"] != true);
    if serving.is_empty() {
        return Some(Obstacle::WorkersQuiet);
    }
    let threads = |says: &Value| says["thread_pool_size"].as_u64().unwrap_or(1);
    let is_busy = |(worker, says): &&DescribedProcess| {
        u64::try_from(worker.claimed).is_ok_and(|claimed| claimed >= threads(says))
    };
    serving.iter().all(is_busy).then(|| Obstacle::ThreadsBusy {
        threads: serving.iter().map(|(_, says)| threads(says)).sum(),
    })
}

/// Returns whether a worker serves a queue, according to its metadata.
fn serves(says: &Value, queue: &str) -> bool {
    let queues = says["queues"].as_str().unwrap_or_default();
    queues
        .split(',')
        .filter_map(|selector| selector.parse::<QueueSelector>().ok())
        .any(|selector| selector.matches(queue))
}

/// Returns whether a worker may have a class registered. A worker that lists too many classes, or
/// none, may have it.
fn knows(says: &Value, class: &str) -> bool {
    let known = says["classes"].as_array();
    says["more_classes"].as_bool() == Some(true)
        || known.is_none_or(|known| known.iter().any(|known| known == class))
}

/// Returns whether a worker may know this version of the arguments. One that does not list the
/// class may.
fn reads(says: &Value, job: WantedJob<'_>) -> bool {
    let listed = says["classes"].as_array();
    let is_listed = listed.is_some_and(|known| known.iter().any(|known| known == job.class));
    let known = says["versions"][job.class].as_u64();
    !is_listed || u64::from(job.version) <= known.unwrap_or(FIRST_VERSION.into())
}

/// In seconds. A worker without a heartbeat for this long is treated as dead, unless configured
/// otherwise.
const SILENT: f64 = 60.0;

#[doc(hidden)]
pub fn is_beating(process: &RegisteredProcess) -> bool {
    process.heartbeat_seconds < SILENT && !process.draining
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worker(metadata: &str, claimed: i64) -> DescribedProcess {
        let worker = RegisteredProcess {
            metadata: Some(metadata.to_owned()),
            heartbeat_seconds: 1.0,
            claimed,
            draining: false,
        };
        described(vec![worker]).remove(0)
    }

    #[test]
    fn what_a_worker_says_of_itself_is_read() {
        let says = r#"{"queues":"mail,import*","thread_pool_size":2,"classes":["a"]}"#;
        let missing = |workers: &[DescribedProcess], queue: &str, class: &str| {
            let job = WantedJob {
                queue,
                class,
                version: 1,
            };
            missing(workers, job)
        };
        let one = [worker(says, 1)];
        assert_eq!(missing(&one, "imports", "a"), None);
        assert_eq!(missing(&one, "sms", "a"), Some(Obstacle::NoWorkerForQueue));
        assert_eq!(missing(&one, "mail", "b"), Some(Obstacle::NoWorkerForClass));
        let busy = [worker(says, 2), worker(says, 2)];
        assert_eq!(
            missing(&busy, "mail", "a"),
            Some(Obstacle::ThreadsBusy { threads: 4 })
        );
        let many = [worker(
            r#"{"queues":"*","classes":["a"],"more_classes":true}"#,
            0,
        )];
        assert_eq!(missing(&many, "mail", "z"), None);
        let mut silent = worker(says, 0);
        silent.0.heartbeat_seconds = 61.0;
        assert_eq!(
            missing(&[silent], "mail", "a"),
            Some(Obstacle::WorkersSilent)
        );
        let quiet = worker(r#"{"queues":"*","quiet":true}"#, 0);
        assert_eq!(missing(&[quiet], "mail", "a"), Some(Obstacle::WorkersQuiet));
        let mut draining = worker(says, 0);
        draining.0.draining = true;
        assert_eq!(
            missing(&[draining], "mail", "a"),
            Some(Obstacle::WorkersDraining)
        );
        assert_eq!(
            missing(&[worker("nonsense", 0)], "mail", "a"),
            Some(Obstacle::NoWorkerForQueue)
        );
    }

    #[test]
    fn newer_arguments_need_a_newer_worker() {
        let missing = |says: &str, class: &str, version: u32| {
            let queue = "mail";
            let job = WantedJob {
                queue,
                class,
                version,
            };
            missing(&[worker(says, 0)], job)
        };
        let says = r#"{"queues":"*","classes":["a","b"],"more_classes":true,"versions":{"a":2}}"#;
        assert_eq!(missing(says, "a", 2), None);
        let newer = |version| Some(Obstacle::NoWorkerForVersion { version });
        assert_eq!(missing(says, "a", 3), newer(3));
        assert_eq!(missing(says, "b", 2), newer(2));
        assert_eq!(missing(says, "b", 1), None);
        // It may be one of those that are not listed.
        assert_eq!(missing(says, "c", 2), None);
    }
}
