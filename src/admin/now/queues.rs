//! The queues and how long their jobs wait.

use crate::admin::now::fleet::Fleet;
use crate::admin::now::verdict::{QueueFacts, QueueVerdict};
use crate::db::Conn;
use crate::db::query::load::queues::{self, MOST_QUEUES, ReadyJobs};
use crate::db::query::load::totals::CappedCount;
use crate::db::table::pauses::{self, PauseOfQueue};
use crate::error::{Doing as _, Result};
use std::collections::BTreeMap;
use std::time::Duration;

/// How long a job may be ready before its queue is late, by queue.
pub(crate) type Promises = BTreeMap<String, Duration>;

/// A queue at one moment.
#[derive(Debug, Clone)]
pub(crate) struct QueueNow {
    pub(crate) name: String,
    pub(crate) ready: CappedCount,
    /// For how long its oldest ready job has been ready.
    pub(crate) oldest_seconds: Option<f64>,
    pub(crate) pause: Option<PauseOfQueue>,
    pub(crate) verdict: QueueVerdict,
}

impl QueueNow {
    pub(crate) fn new(
        ready: ReadyJobs,
        pause: Option<PauseOfQueue>,
        fleet: &Fleet,
        promises: &Promises,
    ) -> Self {
        let facts = QueueFacts {
            name: &ready.queue_name,
            has_ready: !ready.ready.is_zero(),
            oldest_seconds: ready.oldest_seconds,
            pause: pause.as_ref(),
            promise: promises.get(&ready.queue_name).copied(),
        };
        QueueNow {
            verdict: QueueVerdict::of(facts, fleet),
            name: ready.queue_name,
            ready: ready.ready,
            oldest_seconds: ready.oldest_seconds,
            pause,
        }
    }
}

/// The processes, and the queues that have ready jobs, are paused, or have promised something.
#[derive(Debug, Clone, Default)]
pub(crate) struct LoadNow {
    pub(crate) fleet: Fleet,
    /// By name.
    pub(crate) queues: BTreeMap<String, QueueNow>,
    /// Whether there are more than were read.
    pub(crate) is_more: bool,
}

impl LoadNow {
    pub(crate) fn read(conn: &mut Conn<'_>, promises: &Promises) -> Result<Self> {
        let doing = "look at the queues";
        let fleet = Fleet::read(conn)?;
        let mut ready = queues::ready(conn).doing(doing)?;
        let most = usize::try_from(MOST_QUEUES).unwrap_or(usize::MAX);
        let is_more = ready.len() > most;
        ready.truncate(most);
        let paused = pauses::all(conn, MOST_QUEUES).doing(doing)?;
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
        let queue = QueueNow::new(ready, pause, &self.fleet, promises);
        self.queues.insert(queue.name.clone(), queue);
    }

    /// Adds a queue without ready jobs, if it is not there.
    pub(crate) fn add_empty(&mut self, name: &str, promises: &Promises) {
        if !self.queues.contains_key(name) {
            self.add(empty(name), None, promises);
        }
    }

    /// Returns the queues, the worst first.
    pub(crate) fn worst_first(&self) -> Vec<&QueueNow> {
        let mut queues: Vec<&QueueNow> = self.queues.values().collect();
        queues.sort_by(|one, other| {
            let age = |queue: &QueueNow| queue.oldest_seconds.unwrap_or(-1.0);
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
