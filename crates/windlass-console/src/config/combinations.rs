//! Settings that are valid alone and conflict with each other.

use crate::config::configuration::Config;
use crate::config::document::{Origin, Problems};
use crate::config::settings::WorkerSettings;
use crate::config::value::WORKER_VARIABLE;
use std::fmt;
use windlass::internal::clock;
use windlass::processes::{Recycle, Retention};

/// A setting and its source: `workers.threads (windlass.toml:7)`.
#[derive(Clone, Copy)]
struct Named<'c> {
    key: &'static str,
    origin: &'c Origin,
}

impl<'c> Named<'c> {
    fn of(config: &'c Config, key: &'static str, number: Option<usize>) -> Self {
        let origin = config.origin(key, number);
        Named { key, origin }
    }

    /// Returns the origin to report: the first one that was set explicitly.
    fn or(self, other: Named<'_>) -> Origin {
        match self.origin {
            Origin::Default => other.origin.clone(),
            set => set.clone(),
        }
    }
}

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.key, self.origin)
    }
}

pub(crate) fn check(config: &Config, problems: &mut Problems) {
    heartbeats(config, problems);
    pool(config, problems);
    ages(config, problems);
    listening(config, problems);
    if let Some(number) = config.entry
        && !(1..=config.workers.len()).contains(&number)
    {
        let message = format!(
            "there is no worker of this number: the configuration has {}",
            config.workers.len()
        );
        let origin = Origin::Environment(WORKER_VARIABLE.to_owned());
        problems.add(&origin, message);
    }
}

fn heartbeats(config: &Config, problems: &mut Problems) {
    let (threshold, interval) = (
        config.supervisor.alive_threshold,
        config.supervisor.heartbeat_interval,
    );
    if threshold < interval.saturating_mul(3) {
        let alive_threshold = Named::of(config, "supervisor.alive_threshold", None);
        let heartbeat_interval = Named::of(config, "supervisor.heartbeat_interval", None);
        let message = format!(
            "{alive_threshold} must be at least three heartbeat intervals: it is {}, and {heartbeat_interval} is {}",
            clock::in_units(threshold),
            clock::in_units(interval),
        );
        problems.add(&alive_threshold.or(heartbeat_interval), message);
    }
}

fn pool(config: &Config, problems: &mut Problems) {
    let Some(size) = config.database.pool else {
        return;
    };
    let pool = Named::of(config, "database.pool", None);
    for (worker, number) in config.workers.iter().zip(1..) {
        let needed = worker.threads.saturating_add(2);
        if size < needed {
            let threads = Named::of(config, "workers.threads", Some(number));
            let message = format!(
                "{pool} must be at least {threads} + 2: it is {size}, and needs to be {needed}"
            );
            problems.add(&pool.or(threads), message);
        }
    }
}

/// Ages that are too short.
fn ages(config: &Config, problems: &mut Problems) {
    for (worker, number) in config.workers.iter().zip(1..) {
        let age = worker.recycle.after;
        if age.is_some_and(|age| age < Recycle::SOONEST) {
            let message = "workers.recycle_after must be at least a second".to_owned();
            let origin = config.origin("workers.recycle_after", Some(number));
            problems.add(origin, message);
        }
    }
    let kept = config.retention.audit_for;
    if kept.is_some_and(|age| age < Retention::AUDIT_AT_LEAST) {
        let message = "retention.audit_for must be at least 30 days: the database refuses to delete \
                       younger rows of the audit";
        let origin = config.origin("retention.audit_for", None);
        problems.add(origin, message.to_owned());
    }
}

/// Each address can be taken once on a host, by one process.
fn listening(config: &Config, problems: &mut Problems) {
    let workers = || config.workers.iter().zip(1..);
    let supervisor = Named::of(config, "supervisor.listen", None);
    let mut addresses = vec![(supervisor, &config.supervisor.listen)];
    addresses.extend(workers().map(|(worker, number)| {
        let listen = Named::of(config, "workers.listen", Some(number));
        (listen, &worker.listen)
    }));
    addresses.retain(|(_, address)| !address.is_empty());
    for (index, (listen, address)) in addresses.iter().enumerate() {
        let mut before = addresses.iter().take(index);
        if let Some((other, _)) = before.find(|(_, other)| other == address) {
            let message = format!("{listen} is `{address}`, as {other} is");
            problems.add(listen.origin, message);
        }
    }
    for (worker, number) in workers() {
        if !worker.listen.is_empty() && worker.processes > 1 {
            let listen = Named::of(config, "workers.listen", Some(number));
            let processes = Named::of(config, "workers.processes", Some(number));
            let message = format!(
                "{listen} is for one process, but {processes} is {}: set it to 1, and repeat `[[workers]]` with other \
                 addresses",
                worker.processes
            );
            problems.add(&listen.or(processes), message);
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
        let processes = |worker: &WorkerSettings| worker.processes as usize;
        let workers = || self.workers.iter();
        let pools = workers().map(|worker| processes(worker) * self.pool_of(worker) as usize);
        let listening = workers().filter(|worker| !worker.listen.is_empty());
        let listening = listening.map(processes).sum::<usize>()
            + usize::from(!self.supervisor.listen.is_empty());
        ConnectionBudget {
            supervisor: OF_A_SUPERVISOR,
            dispatchers: self.dispatchers.len() * OF_A_DISPATCHER,
            schedulers: usize::from(self.scheduler.enabled) * OF_A_SCHEDULER,
            workers: workers().map(processes).sum::<usize>() * OF_A_WORKER,
            pools: pools.sum(),
            probes: listening * OF_PROBES,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A key that no setting has would not have a line.
    #[test]
    fn each_conflict_has_its_line() {
        let text = "
[database]
pool = 6
[supervisor]
heartbeat_interval = '2s'
alive_threshold = '5s'
listen = '127.0.0.1:4041'
[[workers]]
[[workers]]
threads = 6
processes = 2
recycle_after = '10ms'
listen = '127.0.0.1:4041'
[retention]
audit_for = '1 day'
";
        let Err(windlass::Error::Configuration(problems)) = Config::parse(text) else {
            panic!("it is accepted");
        };
        let lines: Vec<_> = problems.iter().filter_map(|problem| problem.line).collect();
        assert_eq!(lines, [3, 3, 6, 12, 13, 13, 15], "{problems:?}");
        let named = [
            "alive_threshold (line 6)",
            "heartbeat_interval (line 5)",
            "threads (line 10)",
        ];
        let named = [
            &named[..],
            &["supervisor.listen (line 7)", "processes (line 11)"],
        ]
        .concat();
        for setting in named {
            let is_named = |problem: &windlass::errors::Problem| problem.message.contains(setting);
            assert!(problems.iter().any(is_named), "{setting}: {problems:?}");
        }
    }
}
