//! Settings that are valid alone and conflict with each other.

use crate::clock;
use crate::config::configuration::Config;
use crate::config::document::Origin;
use crate::config::reader::{Reader, Sourced};
use crate::config::value::HostPort;
use crate::process::worker::settings::Recycle;
use crate::retention::Retention;
use std::fmt;
use std::time::Duration;

/// Returns the origin to report: the first one that was set explicitly.
fn origin_to_report<'o>(origins: impl IntoIterator<Item = &'o Origin>) -> Origin {
    let mut origins = origins.into_iter();
    let set = origins.find(|origin| **origin != Origin::Default);
    set.cloned().unwrap_or(Origin::Default)
}

/// `alive_threshold (windlass.toml:7)`
fn named<T>(name: &str, setting: &Sourced<T>) -> String {
    format!("{name} ({})", setting.origin)
}

pub(crate) fn check(config: &Config, reader: &mut Reader) {
    heartbeats(config, reader);
    pool(config, reader);
    recycling(config, reader);
    audit(config, reader);
    listening(config, reader);
    if let Some(number) = config.entry
        && !(1..=config.workers.len()).contains(&number)
    {
        let message = format!(
            "there is no worker of this number: the configuration has {}",
            config.workers.len()
        );
        let origin = Origin::Environment(crate::config::value::WORKER_VARIABLE.to_owned());
        reader.problem(&origin, message);
    }
}

fn heartbeats(config: &Config, reader: &mut Reader) {
    let (threshold, interval) = (
        &config.supervisor.alive_threshold,
        &config.supervisor.heartbeat_interval,
    );
    if threshold.value.0 < interval.value.0.saturating_mul(3) {
        let message = format!(
            "{} must be at least three heartbeat intervals: it is {}, and {} is {}",
            named("supervisor.alive_threshold", threshold),
            clock::in_units(threshold.value.0),
            named("supervisor.heartbeat_interval", interval),
            clock::in_units(interval.value.0),
        );
        reader.problem(
            &origin_to_report([&threshold.origin, &interval.origin]),
            message,
        );
    }
}

fn recycling(config: &Config, reader: &mut Reader) {
    for worker in &config.workers {
        let age = &worker.recycle_after;
        if age.value.0.is_some_and(|age| age.0 < Recycle::SOONEST) {
            let message = "workers.recycle_after must be at least a second".to_owned();
            reader.problem(&age.origin, message);
        }
    }
}

fn audit(config: &Config, reader: &mut Reader) {
    let kept = &config.retention.audit_for;
    let is_short = |age: Duration| age < Retention::AUDIT_AT_LEAST;
    if kept.value.0.is_some_and(is_short) {
        let message =
            "retention.audit_for must be at least 30 days: the database refuses to delete \
                       younger rows of the audit"
                .to_owned();
        reader.problem(&kept.origin, message);
    }
}

/// Each address can be taken once on a host.
fn listening(config: &Config, reader: &mut Reader) {
    let mut taken: Vec<(String, &Sourced<HostPort>)> = Vec::new();
    let of_workers = config.workers.iter();
    let of_workers = of_workers.map(|worker| ("workers.listen", &worker.listen));
    let all = std::iter::once(("supervisor.listen", &config.supervisor.listen)).chain(of_workers);
    for (name, listen) in all.filter(|(_, listen)| !listen.value.0.is_empty()) {
        let other = taken.iter().find(|(_, other)| other.value == listen.value);
        if let Some((other, _)) = other {
            let address = &listen.value.0;
            let message = format!("{} is `{address}`, as {other} is", named(name, listen));
            reader.problem(&listen.origin, message);
        }
        taken.push((named(name, listen), listen));
    }
    for worker in &config.workers {
        let (listen, processes) = (&worker.listen, &worker.processes);
        if !listen.value.0.is_empty() && processes.value.0 > 1 {
            let message = format!(
                "{} is for one process, but {} is {}: set it to 1, and repeat `[[workers]]` with other \
                 addresses",
                named("workers.listen", listen),
                named("workers.processes", processes),
                processes.value.0
            );
            reader.problem(
                &origin_to_report([&listen.origin, &processes.origin]),
                message,
            );
        }
    }
}

fn pool(config: &Config, reader: &mut Reader) {
    let pool = &config.database.pool;
    let Some(size) = pool.value.0 else { return };
    for worker in &config.workers {
        let needed = worker.threads.value.0.saturating_add(2);
        if size.0 < needed {
            let message = format!(
                "{} must be at least {} + 2: it is {}, and needs to be {needed}",
                named("database.pool", pool),
                named("workers.threads", &worker.threads),
                size.0,
            );
            reader.problem(
                &origin_to_report([&pool.origin, &worker.threads.origin]),
                message,
            );
        }
    }
}

// --- The number of database connections that all processes may open ---

/// The connections of a worker process besides its pool: one each for claiming, finishing,
/// heartbeats and listening, one once a job exceeds its timeout, and one during a stop.
pub(crate) const OF_A_WORKER: usize = 6;

/// The connections of a dispatcher: for its work, and for heartbeats.
pub(crate) const OF_A_DISPATCHER: usize = 2;

/// The connections of a scheduler: for its work, and for heartbeats.
pub(crate) const OF_A_SCHEDULER: usize = 2;

/// The connections of a supervisor: for its work, for deleting old jobs, and for heartbeats.
pub(crate) const OF_A_SUPERVISOR: usize = 3;

/// The connections of a process that answers probes: to read, to look up tokens, and to read anew what
/// `/metrics` shows.
pub(crate) const OF_PROBES: usize = 3;

/// The maximum number of database connections that a supervisor and everything it runs hold at
/// once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectionBudget {
    /// The connections of the supervisor itself.
    pub supervisor: usize,
    /// The connections of its dispatchers together.
    pub dispatchers: usize,
    /// The connections of its scheduler.
    pub schedulers: usize,
    /// The connections of all worker processes, without their pools.
    pub workers: usize,
    /// The connections in the pools of all worker processes, if jobs borrow the maximum.
    pub pools: usize,
    /// The connections of all processes that answer probes and `/metrics`, for these.
    pub probes: usize,
}

impl ConnectionBudget {
    /// Returns the sum.
    pub fn total(&self) -> usize {
        self.supervisor
            + self.dispatchers
            + self.schedulers
            + self.workers
            + self.pools
            + self.probes
    }
}

impl fmt::Display for ConnectionBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "at most {} connections: {} of the supervisor, {} of dispatchers, {} of schedulers, {} of workers, {} of their pools",
            self.total(),
            self.supervisor,
            self.dispatchers,
            self.schedulers,
            self.workers,
            self.pools
        )?;
        match self.probes {
            0 => Ok(()),
            probes => write!(f, ", {probes} for probes"),
        }
    }
}

impl Config {
    /// Returns the maximum number of connections of a supervisor with this configuration and
    /// everything it runs.
    pub fn connections(&self) -> ConnectionBudget {
        let processes =
            |worker: &crate::config::settings::WorkerSettings| worker.processes.value.0 as usize;
        let pools = self
            .workers
            .iter()
            .map(|worker| processes(worker) * self.pool_of(worker) as usize);
        let listening = self
            .workers
            .iter()
            .filter(|worker| !worker.listen.value.0.is_empty());
        let listening = listening.map(processes).sum::<usize>()
            + usize::from(!self.supervisor.listen.value.0.is_empty());
        ConnectionBudget {
            supervisor: OF_A_SUPERVISOR,
            dispatchers: self.dispatchers.len() * OF_A_DISPATCHER,
            schedulers: usize::from(self.scheduler.enabled.value) * OF_A_SCHEDULER,
            workers: self.workers.iter().map(processes).sum::<usize>() * OF_A_WORKER,
            pools: pools.sum(),
            probes: listening * OF_PROBES,
        }
    }
}
