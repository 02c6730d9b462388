//! A registered process, as it is shown.

use crate::admin::finding::ALIVE;
use crate::db::query::load::fleet::FleetProcess;
use crate::queue::QueueSelector;

/// What a process does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MemberKind {
    Supervisor,
    Worker,
    Dispatcher,
    Scheduler,
    /// A kind of another version, or of Rails.
    Other,
}

/// A registered process.
#[derive(Debug, Clone)]
pub(crate) struct Member {
    pub(crate) row: FleetProcess,
    pub(crate) kind: MemberKind,
    /// The queues that a worker serves, as it was given them: `mail,import*`.
    pub(crate) queues: String,
    selectors: Vec<QueueSelector>,
    /// How many threads a worker has.
    pub(crate) threads: u64,
    /// How many jobs it runs.
    pub(crate) running: u64,
    /// How many jobs it holds that have not started.
    pub(crate) ahead: u64,
}

impl Member {
    pub(crate) fn new(row: FleetProcess, running: u64, ahead: u64) -> Self {
        let kind = match row.kind.as_str() {
            "Worker" => MemberKind::Worker,
            "Dispatcher" => MemberKind::Dispatcher,
            "Scheduler" => MemberKind::Scheduler,
            kind if kind.starts_with("Supervisor") => MemberKind::Supervisor,
            _ => MemberKind::Other,
        };
        let queues = row.metadata["queues"].as_str().unwrap_or_default();
        let queues = queues.to_owned();
        let selectors = queues.split(',').map(str::trim);
        Member {
            kind,
            selectors: selectors.filter_map(|one| one.parse().ok()).collect(),
            threads: match kind {
                MemberKind::Worker => row.metadata["thread_pool_size"].as_u64().unwrap_or(1),
                _ => 0,
            },
            queues,
            running,
            ahead,
            row,
        }
    }

    pub(crate) fn is_worker(&self) -> bool {
        self.kind == MemberKind::Worker
    }

    /// Whether it has had no heartbeat for so long that it is treated as dead.
    pub(crate) fn is_dead(&self) -> bool {
        self.row.heartbeat_seconds > ALIVE.as_secs_f64()
    }

    /// Whether it was asked to claim nothing more.
    pub(crate) fn is_quiet(&self) -> bool {
        self.row.is_quiet()
    }

    /// Whether it claims jobs.
    pub(crate) fn claims(&self) -> bool {
        self.is_worker() && !self.is_dead() && !self.is_quiet() && !self.row.draining
    }

    /// Whether it is a process of Rails.
    pub(crate) fn is_of_rails(&self) -> bool {
        self.row.metadata["windlass"].is_null()
    }

    /// Returns the version of Windlass.
    pub(crate) fn version(&self) -> &str {
        self.row.metadata["windlass"].as_str().unwrap_or_default()
    }

    pub(crate) fn serves(&self, queue: &str) -> bool {
        self.is_worker()
            && self
                .selectors
                .iter()
                .any(|selector| selector.matches(queue))
    }

    /// Returns how many of its threads run a job.
    pub(crate) fn busy(&self) -> u64 {
        self.running.min(self.threads)
    }

    /// Returns its host and its process id: `app-1:4242`.
    pub(crate) fn place(&self) -> String {
        match self.row.hostname.as_str() {
            "" => self.row.pid.to_string(),
            host => format!("{host}:{}", self.row.pid),
        }
    }
}
