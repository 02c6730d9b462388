//! The number of database connections that all processes may open.

use crate::config::configuration::Config;
use std::fmt;

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
