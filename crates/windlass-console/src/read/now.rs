//! The present, as pages and the terminal show it: the processes, and the queues with their verdicts.

use crate::read::doctor::scope::ALIVE;
use crate::read::sql::fleet::{self, FleetProcess, MOST_PROCESSES};
use std::collections::BTreeMap;
use std::time::Duration;
use windlass::internal::db::query::ready::{self, CappedCount, MOST_QUEUES, ReadyJobs};
use windlass::internal::db::table::pauses::{self, PauseOfQueue};
use windlass::internal::error::ErrorContext as _;
use windlass::queues::QueueSelector;
use windlass::{Conn, Result};

// --- All registered processes ---

/// The registered processes, in the order of their registration.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fleet {
    pub(crate) members: Vec<Member>,
    /// True if there are more than were read.
    pub(crate) is_more: bool,
}

impl Fleet {
    pub(crate) fn read(conn: &mut Conn<'_>) -> Result<Self> {
        let action = "look at the processes";
        let mut rows = fleet::processes(conn).during(action)?;
        let held = fleet::held_by_process(conn).during(action)?;
        let most = usize::try_from(MOST_PROCESSES).unwrap_or(usize::MAX);
        let is_more = rows.len() > most;
        rows.truncate(most);
        let members = rows.into_iter().map(|row| {
            let (running, ahead) = held.get(&row.id).copied().unwrap_or_default();
            Member::new(row, running, ahead)
        });
        Ok(Fleet {
            members: members.collect(),
            is_more,
        })
    }

    pub(crate) fn workers(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(|member| member.is_worker())
    }

    /// Returns the workers that have had a heartbeat lately.
    pub(crate) fn alive_workers(&self) -> impl Iterator<Item = &Member> {
        self.workers().filter(|worker| !worker.is_dead())
    }

    pub(crate) fn dead(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(|member| member.is_dead())
    }

    /// Returns the workers that serve a queue, dead and quiet ones as well.
    pub(crate) fn serving<'f>(&'f self, queue: &'f str) -> impl Iterator<Item = &'f Member> {
        self.workers().filter(move |worker| worker.serves(queue))
    }

    /// Returns how many threads the workers have that are alive, and how many of them run a job.
    pub(crate) fn threads(&self) -> (u64, u64) {
        let sum = |of: fn(&Member) -> u64| self.alive_workers().map(of).sum();
        (sum(|worker| worker.threads), sum(Member::busy))
    }

    /// Returns whether any process is one of Rails. The history does not contain the jobs that
    /// these have run.
    pub(crate) fn has_rails(&self) -> bool {
        self.members.iter().any(Member::is_of_rails)
    }
}

// --- A registered process, as it is shown ---

/// The kind of a process.
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
    /// The number of threads of a worker.
    pub(crate) threads: u64,
    /// The number of jobs that it runs.
    pub(crate) running: u64,
    /// The number of jobs that it holds and that have not started.
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

    /// Returns whether it has had no heartbeat for so long that it is treated as dead.
    pub(crate) fn is_dead(&self) -> bool {
        self.row.heartbeat_seconds > ALIVE.as_secs_f64()
    }

    /// Returns whether it was asked to claim nothing more.
    pub(crate) fn is_quiet(&self) -> bool {
        self.row.is_quiet()
    }

    /// Returns whether it claims jobs: it is a worker, and not dead, quiet or draining.
    pub(crate) fn claims(&self) -> bool {
        self.is_worker() && !self.is_dead() && !self.is_quiet() && !self.row.draining
    }

    /// Returns whether it is a process of Rails.
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
    pub(crate) fn location(&self) -> String {
        match self.row.hostname.as_str() {
            "" => self.row.pid.to_string(),
            host => format!("{host}:{}", self.row.pid),
        }
    }
}

// --- The verdict on a queue: whether its jobs start in time, and the reason if not ---

/// A verdict on whether the jobs of a queue start in time. Worse ones come first in lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum QueueVerdict {
    /// Its oldest ready job has waited for longer than promised.
    Late {
        promise: Duration,
    },
    /// Jobs are ready, and no worker serves it.
    Unserved,
    /// Jobs are ready, and all workers that serve it have had no heartbeat for 60 s.
    Silent,
    /// Jobs are ready, and all workers that serve it are quiet or stopping.
    Quiet,
    Paused,
    /// Its oldest ready job has waited for less than promised.
    InTime {
        promise: Duration,
    },
    /// Nothing is promised.
    Unjudged,
    /// No job is ready.
    Empty,
}

impl QueueVerdict {
    /// Returns whether it is listed before the others: something differs from what it should be.
    pub(crate) fn is_bad(self) -> bool {
        self.rank() < 3
    }

    /// Returns its position in lists.
    pub(crate) fn rank(self) -> u8 {
        match self {
            QueueVerdict::Late { .. } => 0,
            QueueVerdict::Unserved | QueueVerdict::Silent | QueueVerdict::Quiet => 1,
            QueueVerdict::Paused => 2,
            QueueVerdict::InTime { .. } | QueueVerdict::Unjudged => 3,
            QueueVerdict::Empty => 4,
        }
    }
}

// --- The queues and how long their jobs wait ---

/// The longest time that a job may be ready before its queue is late, by queue.
pub(crate) type Promises = BTreeMap<String, Duration>;

/// A queue at one moment.
#[derive(Debug, Clone)]
pub(crate) struct QueueView {
    pub(crate) name: String,
    pub(crate) ready: CappedCount,
    /// For how long its oldest ready job has been ready.
    pub(crate) oldest_seconds: Option<f64>,
    pub(crate) pause: Option<PauseOfQueue>,
    pub(crate) verdict: QueueVerdict,
}

impl QueueView {
    pub(crate) fn new(
        ready: ReadyJobs,
        pause: Option<PauseOfQueue>,
        fleet: &Fleet,
        promises: &Promises,
    ) -> Self {
        let mut queue = QueueView {
            name: ready.queue_name,
            ready: ready.ready,
            oldest_seconds: ready.oldest_seconds,
            pause,
            verdict: QueueVerdict::Unjudged,
        };
        let promise = promises.get(&queue.name).copied();
        queue.verdict = queue.judge(promise, fleet);
        queue
    }

    /// Judges the queue. The reason why its jobs do not start counts more than their delay.
    fn judge(&self, promise: Option<Duration>, fleet: &Fleet) -> QueueVerdict {
        if self.pause.is_some() {
            return QueueVerdict::Paused;
        }
        if self.ready.is_zero() {
            return QueueVerdict::Empty;
        }
        let mut serving = fleet.serving(&self.name).peekable();
        if serving.peek().is_none() && !fleet.is_more {
            return QueueVerdict::Unserved;
        }
        let serving: Vec<_> = serving.collect();
        if !fleet.is_more && serving.iter().all(|worker| worker.is_dead()) {
            return QueueVerdict::Silent;
        }
        if !fleet.is_more && !serving.iter().any(|worker| worker.claims()) {
            return QueueVerdict::Quiet;
        }
        match (promise, self.oldest_seconds) {
            (Some(promise), Some(waited)) if waited > promise.as_secs_f64() => {
                QueueVerdict::Late { promise }
            }
            (Some(promise), _) => QueueVerdict::InTime { promise },
            (None, _) => QueueVerdict::Unjudged,
        }
    }

    /// Returns whether its oldest ready job has waited for longer than promised.
    pub(crate) fn is_late(&self) -> bool {
        matches!(self.verdict, QueueVerdict::Late { .. })
    }
}

/// The processes, and the queues that have ready jobs, are paused, or have promised something.
#[derive(Debug, Clone, Default)]
pub(crate) struct LoadNow {
    pub(crate) fleet: Fleet,
    /// By name.
    pub(crate) queues: BTreeMap<String, QueueView>,
    /// True if there are more than were read.
    pub(crate) is_more: bool,
}

impl LoadNow {
    pub(crate) fn read(conn: &mut Conn<'_>, promises: &Promises) -> Result<Self> {
        let action = "look at the queues";
        let fleet = Fleet::read(conn)?;
        let mut ready = ready::ready(conn).during(action)?;
        let most = usize::try_from(MOST_QUEUES).unwrap_or(usize::MAX);
        let is_more = ready.len() > most;
        ready.truncate(most);
        let paused = pauses::list_pauses(conn, MOST_QUEUES).during(action)?;
        let mut paused: BTreeMap<String, PauseOfQueue> = paused
            .into_iter()
            .map(|pause| (pause.queue_name.clone(), pause))
            .collect();
        let mut load = LoadNow {
            fleet,
            queues: BTreeMap::new(),
            is_more,
        };
        for one in ready {
            let pause = paused.remove(&one.queue_name);
            load.add(one, pause, promises);
        }
        for (name, pause) in paused {
            load.add(empty(&name), Some(pause), promises);
        }
        for name in promises.keys() {
            load.add_empty(name, promises);
        }
        Ok(load)
    }

    fn add(&mut self, ready: ReadyJobs, pause: Option<PauseOfQueue>, promises: &Promises) {
        let queue = QueueView::new(ready, pause, &self.fleet, promises);
        self.queues.insert(queue.name.clone(), queue);
    }

    /// Adds a queue without ready jobs, if it is not there.
    pub(crate) fn add_empty(&mut self, name: &str, promises: &Promises) {
        if !self.queues.contains_key(name) {
            self.add(empty(name), None, promises);
        }
    }

    /// Returns the queues, the worst first.
    pub(crate) fn worst_first(&self) -> Vec<&QueueView> {
        let mut queues: Vec<&QueueView> = self.queues.values().collect();
        queues.sort_by(|one, other| {
            let age = |queue: &QueueView| queue.oldest_seconds.unwrap_or(-1.0);
            let by_rank = one.verdict.rank().cmp(&other.verdict.rank());
            by_rank.then_with(|| age(other).total_cmp(&age(one)))
        });
        queues
    }
}

fn empty(name: &str) -> ReadyJobs {
    ReadyJobs {
        queue_name: name.to_owned(),
        ready: CappedCount::default(),
        oldest_seconds: None,
    }
}
