//! Whether the jobs of a queue start in time, and if not, why.

use crate::admin::now::fleet::Fleet;
use crate::db::table::pauses::PauseOfQueue;
use std::time::Duration;

/// Whether the jobs of a queue start in time. Worse ones come first in lists.
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

/// What a verdict is made from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QueueFacts<'a> {
    pub(crate) name: &'a str,
    pub(crate) has_ready: bool,
    pub(crate) oldest_seconds: Option<f64>,
    pub(crate) pause: Option<&'a PauseOfQueue>,
    pub(crate) promise: Option<Duration>,
}

impl QueueVerdict {
    /// Judges a queue. Why its jobs do not start counts more than how late they are.
    pub(crate) fn of(queue: QueueFacts<'_>, fleet: &Fleet) -> Self {
        if queue.pause.is_some() {
            return QueueVerdict::Paused;
        }
        if !queue.has_ready {
            return QueueVerdict::Empty;
        }
        let mut serving = fleet.serving(queue.name).peekable();
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
        match (queue.promise, queue.oldest_seconds) {
            (Some(promise), Some(waited)) if waited > promise.as_secs_f64() => {
                QueueVerdict::Late { promise }
            }
            (Some(promise), _) => QueueVerdict::InTime { promise },
            (None, _) => QueueVerdict::Unjudged,
        }
    }

    /// Whether it is listed before the others: something differs from what it should be.
    pub(crate) fn is_bad(self) -> bool {
        self.rank() < 3
    }

    /// Returns its place in lists.
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
