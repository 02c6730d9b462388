//! How many executions each queue has that are not ready.

use crate::db::Conn;
use crate::db::query::load::queues::{self, CountsByClass, CountsByQueue};
use crate::db::query::load::totals::CappedCount;
use crate::error::{Doing as _, Result};

/// The executions that are not ready, by queue.
#[derive(Debug, Clone, Default)]
pub(crate) struct PlaceCounts {
    pub(crate) scheduled: CountsByQueue,
    pub(crate) claimed: CountsByQueue,
    pub(crate) blocked: CountsByQueue,
    pub(crate) failed: CountsByQueue,
    /// The failed ones once more, by their class as well.
    failed_classes: CountsByClass,
}

/// The executions of a queue, by class.
#[derive(Debug, Clone)]
pub(crate) struct ClassesOfQueue {
    pub(crate) counts: Vec<(String, CappedCount)>,
    /// Whether only the newest of all queues were counted.
    pub(crate) is_more: bool,
}

impl PlaceCounts {
    pub(crate) fn read(conn: &mut Conn<'_>) -> Result<Self> {
        let doing = "count the jobs of each queue";
        let failed_classes = queues::failed(conn).doing(doing)?;
        Ok(PlaceCounts {
            scheduled: queues::scheduled(conn).doing(doing)?,
            claimed: queues::claimed(conn).doing(doing)?,
            blocked: queues::blocked(conn).doing(doing)?,
            failed: failed_classes.by_queue(),
            failed_classes,
        })
    }

    /// Returns the failed jobs of a queue by class.
    pub(crate) fn failed_classes(&self, queue: &str) -> ClassesOfQueue {
        let counts = self.failed_classes.of(queue);
        ClassesOfQueue {
            counts: counts
                .map(|(class, jobs)| (class.to_owned(), jobs))
                .collect(),
            is_more: self.failed.is_more(),
        }
    }

    fn all(&self) -> [&CountsByQueue; 4] {
        [&self.scheduled, &self.claimed, &self.blocked, &self.failed]
    }

    /// Returns the names of the queues, some more than once.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let names = self.all().into_iter().flat_map(CountsByQueue::names);
        names.filter(|name| !name.is_empty())
    }

    /// Whether there is more than was counted.
    pub(crate) fn is_more(&self) -> bool {
        self.all().into_iter().any(CountsByQueue::is_more)
    }
}
