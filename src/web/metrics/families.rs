//! All metrics: their names, types, labels and meanings. `docs/metrics.md` has the same table.

use crate::web::metrics::text::{Metric, MetricType};

const fn counter(
    name: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
) -> Metric {
    let of_type = MetricType::Counter;
    Metric {
        name,
        of_type,
        labels,
        help,
    }
}

const fn gauge(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Metric {
    let of_type = MetricType::Gauge;
    Metric {
        name,
        of_type,
        labels,
        help,
    }
}

const fn histogram(
    name: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
) -> Metric {
    let of_type = MetricType::Histogram;
    Metric {
        name,
        of_type,
        labels,
        help,
    }
}

// What the process reports about itself, without the database.

pub(crate) static BUILD: Metric = gauge(
    "windlass_build_info",
    &["version"],
    "1, with the version of Windlass as a label.",
);
pub(crate) static LIVE: Metric = gauge(
    "windlass_process_live",
    &["kind"],
    "Whether the loops of the processes behind this address move, by kind: 1 or 0.",
);
pub(crate) static READY: Metric = gauge(
    "windlass_process_ready",
    &["kind"],
    "Whether the processes behind this address reach the database and may claim, by kind: 1 or 0.",
);
pub(crate) static UP: Metric = gauge(
    "windlass_up",
    &[],
    "Whether the database answered, and has its tables: 1 or 0. At 0, every metric that is read from it is missing.",
);

// How the figures of the database were read.

pub(crate) static SCRAPE: Metric = gauge(
    "windlass_scrape_seconds",
    &[],
    "How long it took to read the figures from the database.",
);
pub(crate) static MISSING: Metric = gauge(
    "windlass_scrape_part_missing",
    &["part"],
    "Whether a part of the figures was not read within its time limit, and is missing: 1 or 0.",
);

// The history of the whole fleet.

pub(crate) static JOBS: Metric = counter(
    "windlass_jobs_total",
    &["queue", "class", "outcome"],
    "Runs and jobs that ended, by outcome: finished, failed, retried, discarded, cancelled, crashed.",
);
pub(crate) static RUN: Metric = histogram(
    "windlass_job_run_seconds",
    &["queue", "class"],
    "How long runs took.",
);
pub(crate) static WAIT: Metric = histogram(
    "windlass_job_wait_seconds",
    &["queue"],
    "How long jobs had been ready when their runs started.",
);
pub(crate) static LAG: Metric = gauge(
    "windlass_statistics_lag_seconds",
    &[],
    "How long the oldest contribution to the history has waited to be folded; 0 if none does.",
);
pub(crate) static DIED: Metric = counter(
    "windlass_processes_died_total",
    &[],
    "Processes that crashed or were killed, without those that had to end. Each may have left up to one heartbeat of runs uncounted.",
);

// What is there now.

pub(crate) static QUEUE_READY: Metric = gauge(
    "windlass_queue_ready",
    &["queue"],
    "Jobs of a queue that a worker may claim, counted up to a limit of 10,000; one more than the limit means more.",
);
pub(crate) static QUEUE_AGE: Metric = gauge(
    "windlass_queue_oldest_ready_age_seconds",
    &["queue"],
    "How long the oldest ready job of a queue has been ready; 0 if none is.",
);
pub(crate) static QUEUE_PAUSED: Metric = gauge(
    "windlass_queue_paused",
    &["queue"],
    "Whether a queue is paused: 1 or 0.",
);
pub(crate) static EXECUTIONS: Metric = gauge(
    "windlass_executions",
    &["state"],
    "Jobs by state (ready, scheduled, claimed, blocked, failed), counted up to 10,000; 10001 means more.",
);
pub(crate) static SCHEDULED_LATE: Metric = gauge(
    "windlass_scheduled_late",
    &[],
    "Scheduled jobs that have been due for 10 s and are not ready, counted up to 10,000; 10001 means more.",
);
pub(crate) static PROCESSES: Metric = gauge(
    "windlass_processes",
    &["kind", "state"],
    "Registered processes by kind and state: running, quiet, draining, or dead, without a heartbeat for 60 s.",
);
pub(crate) static RECURRING: Metric = gauge(
    "windlass_recurring_tasks",
    &[],
    "Recurring tasks that are not paused.",
);
pub(crate) static RECURRING_LATE: Metric = gauge(
    "windlass_recurring_overdue",
    &[],
    "Recurring tasks that have been due for 60 s and were not enqueued, counted up to 1,000.",
);
pub(crate) static CRASH_LOOPING: Metric = gauge(
    "windlass_crash_looping_jobs",
    &[],
    "Jobs whose process died during at least two of their runs within an hour, among the newest 5,000 attempts that failed.",
);
pub(crate) static TRANSACTION: Metric = gauge(
    "windlass_oldest_transaction_seconds",
    &[],
    "How long the oldest open transaction of the database has been open; 0 if none is. Postgres only.",
);
pub(crate) static LOG: Metric = gauge(
    "windlass_sqlite_wal_bytes",
    &[],
    "The size of the write-ahead log, which grows while a connection reads for long. SQLite only.",
);
pub(crate) static PROBLEMS: Metric = gauge(
    "windlass_doctor_problems",
    &["check"],
    "Problems that a check of `windlass doctor` has found, at most a minute ago. Of rows, only the newest 1,000 of each table are checked.",
);
pub(crate) static WARNINGS: Metric = gauge(
    "windlass_doctor_warnings",
    &["check"],
    "Warnings of a check of `windlass doctor`, at most a minute ago.",
);
