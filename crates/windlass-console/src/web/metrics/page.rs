//! Writes figures as a page of metrics.

use crate::read::sql::fleet::FleetProcess;
use crate::web::metrics::text::{Distribution, Metric, MetricType, Page, Samples, TextFormat};
use crate::web::read::{
    DatabaseFigures, DoctorFigures, ExecutionFigures, PARTS, RateFigures, ScrapedFigures,
    ScrapedQueues, exposed,
};
use std::collections::BTreeSet;
use std::time::Duration;
use windlass::history::{Histogram, Totals};
use windlass::processes::{Health, HealthCheck};

/// The upper limits of the buckets of a page, in milliseconds: some of those that the history has.
const BOUNDS: [u64; 19] = [
    1, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000,
    500_000, 1_000_000, 10_000_000,
];

/// A process without a heartbeat for longer is dead.
const DEAD: f64 = crate::read::doctor::scope::ALIVE.as_secs() as f64;

/// The kinds of processes that Windlass has.
const KINDS: [&str; 4] = ["supervisor", "worker", "dispatcher", "scheduler"];

const STATES: [&str; 4] = ["running", "quiet", "draining", "dead"];

/// Returns the whole page. Without figures the database is away.
pub(crate) fn page(
    format: TextFormat,
    processes: &[Health],
    figures: Option<&ScrapedFigures>,
) -> String {
    let mut page = Page::new(format);
    write_own(&mut page, processes);
    page.write(&one(&UP, u64::from(figures.is_some())));
    if let Some(figures) = figures {
        write_figures(&mut page, figures);
    }
    page.end()
}

/// Returns what the processes report about themselves, without the database.
pub(crate) fn own_page(format: TextFormat, processes: &[Health]) -> String {
    let mut page = Page::new(format);
    write_own(&mut page, processes);
    page.end()
}

fn write_own(page: &mut Page, processes: &[Health]) {
    let mut build = Samples::of(&BUILD);
    build.add(&[env!("CARGO_PKG_VERSION")], 1_u64);
    page.write(&build);
    for (metric, check) in [(&LIVE, HealthCheck::Live), (&READY, HealthCheck::Ready)] {
        let mut samples: Samples<u64> = Samples::of(metric);
        let kinds: BTreeSet<&str> = processes.iter().map(Health::kind).collect();
        for kind in kinds {
            let mut of_kind = processes.iter().filter(|process| process.kind() == kind);
            let passes = of_kind.all(|process| process.problems(check).is_empty());
            samples.add(&[kind], u64::from(passes));
        }
        page.write(&samples);
    }
}

fn one<T: crate::web::metrics::text::AddUp>(metric: &'static Metric, value: T) -> Samples<T> {
    optional(metric, Some(value))
}

fn optional<T: crate::web::metrics::text::AddUp>(
    metric: &'static Metric,
    value: Option<T>,
) -> Samples<T> {
    let mut samples = Samples::of(metric);
    value.into_iter().for_each(|value| samples.add(&[], value));
    samples
}

/// Writes all metrics of the database. One of a missing part is there without a sample.
fn write_figures(page: &mut Page, figures: &ScrapedFigures) {
    page.write(&one(&SCRAPE, figures.took.as_secs_f64()));
    let mut missing = Samples::of(&MISSING);
    for (part, is_missing) in PARTS.into_iter().zip(figures.missing()) {
        missing.add(&[part], u64::from(is_missing));
    }
    page.write(&missing);
    let history = figures.history.as_ref();
    write_totals(page, history.map(|history| &history.totals));
    let lag = history.map(|history| history.lag.oldest.unwrap_or(Duration::ZERO));
    page.write(&optional(&LAG, lag.map(|lag| lag.as_secs_f64())));
    let totals = history.map(|history| &history.totals);
    write_queues(page, figures.queues.as_ref(), totals);
    write_executions(page, figures.executions.as_ref());
    write_rates(page, figures.rates.as_ref());
    write_processes(page, figures.processes.as_deref());
    let recurring = figures.recurring.as_ref();
    page.write(&optional(&RECURRING, recurring.map(|tasks| tasks.known)));
    page.write(&optional(
        &RECURRING_LATE,
        recurring.map(|tasks| tasks.overdue),
    ));
    write_database(page, figures.database.as_ref());
    write_doctor(page, figures.doctor.as_ref());
}

fn write_totals(page: &mut Page, totals: Option<&Totals>) {
    let mut jobs = Samples::of(&JOBS);
    let (mut run, mut wait) = (Samples::of(&RUN), Samples::of(&WAIT));
    for series in totals.into_iter().flat_map(|totals| &totals.series) {
        let (queue, class, tally) = (&*series.queue, &*series.class, &series.tally);
        for (outcome, count) in [
            ("finished", tally.finished),
            ("failed", tally.failed),
            ("retried", tally.retried),
            ("discarded", tally.discarded),
            ("cancelled", tally.cancelled),
            ("crashed", tally.crashed),
        ] {
            jobs.add(&[queue, class, outcome], count);
        }
        run.add(&[queue, class], distribution(&tally.run));
        wait.add(&[queue], distribution(&tally.wait));
    }
    page.write(&jobs);
    let bounds = BOUNDS.map(|millis| millis as f64 / 1_000.0);
    page.write_histogram(&run, &bounds);
    page.write_histogram(&wait, &bounds);
    page.write(&optional(&DIED, totals.map(|totals| totals.processes_died)));
}

/// Returns a histogram with the bounds of a page. Each of them is one of the history's, so no count is
/// estimated.
fn distribution(histogram: &Histogram) -> Distribution {
    let mut counts = vec![0_u64; BOUNDS.len() + 1];
    let limits = Histogram::limits().map(|limit| limit.as_micros());
    let positions =
        limits.map(|limit| BOUNDS.partition_point(|bound| u128::from(*bound) * 1_000 < limit));
    let positions = positions.chain([BOUNDS.len()]);
    for (position, count) in positions.zip(histogram.counts()) {
        if let Some(sum) = counts.get_mut(position) {
            *sum = sum.saturating_add(*count);
        }
    }
    Distribution {
        counts,
        sum: histogram.sum().as_secs_f64(),
    }
}

/// Writes the queues: also those without a ready job, if something ended in them, so that their series
/// go to 0 instead of ending.
fn write_queues(page: &mut Page, queues: Option<&ScrapedQueues>, totals: Option<&Totals>) {
    let mut ready: Samples<u64> = Samples::of(&QUEUE_READY);
    let mut age: Samples<f64> = Samples::of(&QUEUE_AGE);
    let mut paused: Samples<u64> = Samples::of(&QUEUE_PAUSED);
    if let Some(queues) = queues {
        let known = totals.into_iter().flat_map(|totals| &totals.series);
        let mut names: BTreeSet<&str> = known.map(|series| &*series.queue).collect();
        names.extend(queues.ready.iter().map(|queue| &*queue.queue_name));
        names.extend(queues.paused.iter().map(|name| &**name));
        for name in names {
            let waiting = queues.ready.iter().find(|queue| queue.queue_name == name);
            ready.add(&[name], waiting.map_or(0, |queue| exposed(queue.ready)));
            let oldest = waiting.and_then(|queue| queue.oldest_seconds);
            age.add(&[name], oldest.unwrap_or(0.0));
            let is_paused = queues.paused.iter().any(|paused| paused == name);
            paused.add(&[name], u64::from(is_paused));
        }
    }
    page.write(&ready);
    page.write(&age);
    page.write(&paused);
}

fn write_executions(page: &mut Page, executions: Option<&ExecutionFigures>) {
    let mut samples = Samples::of(&EXECUTIONS);
    if let Some(ExecutionFigures { totals, .. }) = executions {
        for (state, count) in [
            ("ready", totals.ready),
            ("scheduled", totals.scheduled),
            ("claimed", totals.claimed),
            ("blocked", totals.blocked),
            ("failed", totals.failed),
        ] {
            samples.add(&[state], exposed(count));
        }
    }
    page.write(&samples);
    let late = executions.map(|executions| u64::try_from(executions.late).unwrap_or(0));
    page.write(&optional(&SCHEDULED_LATE, late));
}

/// The most groups of rates that are named. The rest is `other`.
const MOST_GROUPS: usize = 1_000;

fn write_rates(page: &mut Page, rates: Option<&RateFigures>) {
    let (mut waiting, mut closed) = (Samples::of(&RATE_WAITING), Samples::of(&RATE_CLOSED));
    let groups = rates.into_iter().flat_map(|rates| &rates.groups);
    for (place, (group, figures)) in groups.enumerate() {
        let group = if place < MOST_GROUPS {
            group.as_str()
        } else {
            "other"
        };
        waiting.add(&[group], figures.waiting);
        closed.add(&[group], figures.closed);
    }
    page.write(&waiting);
    page.write(&closed);
    let mut waiting = Samples::of(&SHARE_WAITING);
    for (queue, jobs) in rates.into_iter().flat_map(|rates| &rates.shares) {
        waiting.add(&[queue], *jobs);
    }
    page.write(&waiting);
}

fn write_processes(page: &mut Page, processes: Option<&[FleetProcess]>) {
    let mut samples: Samples<u64> = Samples::of(&PROCESSES);
    if let Some(processes) = processes {
        for kind in KINDS {
            for state in STATES {
                samples.add(&[kind, state], 0);
            }
        }
        for process in processes {
            samples.add(&[kind(process), state(process)], 1);
        }
    }
    page.write(&samples);
}

/// Returns the kind of a process: `worker`, or `rails_worker` for one of Solid Queue.
fn kind(process: &FleetProcess) -> &'static str {
    const RAILS: [&str; 4] = [
        "rails_supervisor",
        "rails_worker",
        "rails_dispatcher",
        "rails_scheduler",
    ];
    // Solid Queue's supervisor is called `Supervisor(fork)`.
    let name = process.kind.split('(').next().unwrap_or_default();
    let place = KINDS
        .iter()
        .position(|kind| kind.eq_ignore_ascii_case(name));
    match (place, process.metadata.get("windlass")) {
        (Some(place), Some(_)) => KINDS[place],
        (Some(place), None) => RAILS[place],
        (None, _) => "other",
    }
}

fn state(process: &FleetProcess) -> &'static str {
    if process.heartbeat_seconds > DEAD {
        "dead"
    } else if process.draining {
        "draining"
    } else if process.metadata["quiet"] == true {
        "quiet"
    } else {
        "running"
    }
}

fn write_database(page: &mut Page, database: Option<&DatabaseFigures>) {
    let crash_looping = database.map(|figures| u64::try_from(figures.crash_looping).unwrap_or(0));
    page.write(&optional(&CRASH_LOOPING, crash_looping));
    let transaction = database.and_then(|figures| figures.oldest_transaction);
    page.write(&optional(&TRANSACTION, transaction));
    let log = database.and_then(|figures| figures.wal_bytes);
    page.write(&optional(&LOG, log));
}

fn write_doctor(page: &mut Page, doctor: Option<&DoctorFigures>) {
    let (mut problems, mut warnings) = (Samples::of(&PROBLEMS), Samples::of(&WARNINGS));
    for (check, found) in doctor.into_iter().flat_map(|doctor| &doctor.0) {
        problems.add(&[check], found.problems);
        warnings.add(&[check], found.warnings);
    }
    page.write(&problems);
    page.write(&warnings);
}

// --- All metrics: their names, types, labels and meanings ---

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

// The metrics of the process itself, without the database.

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

// The metrics about reading figures from the database.

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

// The metrics of the present: jobs, processes, recurring tasks and the database.

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
pub(crate) static RATE_WAITING: Metric = gauge(
    "windlass_rate_waiting",
    &["group"],
    "Jobs that wait for a token of a rate, by the group of its key. Of all groups, 10,000 jobs are counted; 10001 means more.",
);
pub(crate) static RATE_CLOSED: Metric = gauge(
    "windlass_rate_keys_closed",
    &["group"],
    "Keys of rates that are closed, as the other side asked to wait, by their group. Of all groups, 10,000 keys are counted.",
);
pub(crate) static SHARE_WAITING: Metric = gauge(
    "windlass_share_waiting",
    &["queue"],
    "Jobs of tenants that wait for their share of a queue, counted up to 10,000; 10001 means more. There are up to 100 queues.",
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
    "Problems that a check of `windlass doctor` has found, at most a minute ago. Of rows, only the newest 500 of each table are checked.",
);
pub(crate) static WARNINGS: Metric = gauge(
    "windlass_doctor_warnings",
    &["check"],
    "Warnings of a check of `windlass doctor`, at most a minute ago.",
);
