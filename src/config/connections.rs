//! How many connections to the database the whole will open.

use crate::config::configuration::Config;
use std::fmt;

/// What a worker process holds apart from its pool: one each for claiming,
/// finishing, beating and listening, one once a job has overrun its time, and
/// one while it stops.
pub(crate) const OF_A_WORKER: usize = 6;

/// What a dispatcher holds: for its work, and for beating.
pub(crate) const OF_A_DISPATCHER: usize = 2;

/// What a scheduler holds: for its work, and for beating.
pub(crate) const OF_A_SCHEDULER: usize = 2;

/// What a supervisor holds: for its work, for clearing, and for beating.
pub(crate) const OF_A_SUPERVISOR: usize = 3;

/// The most connections to the database that a supervisor and all it runs
/// hold at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectionBudget {
    /// Of the supervisor itself.
    pub supervisor: usize,
    /// Of its dispatchers together.
    pub dispatchers: usize,
    /// Of its scheduler.
    pub schedulers: usize,
    /// Of all worker processes, without their pools.
    pub workers: usize,
    /// Of the pools of all worker processes, if jobs borrow all they can.
    pub pools: usize,
}

impl ConnectionBudget {
    /// All of them.
    pub fn total(&self) -> usize {
        self.supervisor + self.dispatchers + self.schedulers + self.workers + self.pools
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
        )
    }
}

impl Config {
    /// How many connections a supervisor with this configuration, and all that
    /// it runs, hold at most.
    pub fn connections(&self) -> ConnectionBudget {
        let processes =
            |worker: &crate::config::settings::WorkerSettings| worker.processes.value.0 as usize;
        let pools = self
            .workers
            .iter()
            .map(|worker| processes(worker) * self.pool_of(worker) as usize);
        ConnectionBudget {
            supervisor: OF_A_SUPERVISOR,
            dispatchers: self.dispatchers.len() * OF_A_DISPATCHER,
            schedulers: usize::from(self.scheduler.enabled.value) * OF_A_SCHEDULER,
            workers: self.workers.iter().map(processes).sum::<usize>() * OF_A_WORKER,
            pools: pools.sum(),
        }
    }
}
