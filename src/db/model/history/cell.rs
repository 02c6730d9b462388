//! What is recorded of one series in one bucket of time.

use crate::db::model::history::tally::Tally;
use serde::Serialize;
use std::time::Duration;

/// The ready jobs of a queue, as sampled once a minute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[non_exhaustive]
pub struct QueueGauge {
    /// How many jobs were ready; at most 10,000 are counted. Of several samples, the largest.
    pub ready: u32,
    /// How long the oldest of them had been ready, in JSON as milliseconds. Of several samples, the
    /// longest. Of more than 10,000 ready jobs, those are looked at that are claimed first.
    #[serde(rename = "oldest_ready_ms", serialize_with = "as_millis")]
    pub oldest_ready: Duration,
}

fn as_millis<S: serde::Serializer>(age: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(u64::try_from(age.as_millis()).unwrap_or(u64::MAX))
}

impl QueueGauge {
    /// The most ready jobs that are counted.
    pub(crate) const MOST: u32 = 10_000;

    pub(crate) fn merge(&mut self, other: QueueGauge) {
        self.ready = self.ready.max(other.ready);
        self.oldest_ready = self.oldest_ready.max(other.oldest_ready);
    }
}

/// The workers of Windlass, as sampled once a minute: sums over the samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FleetGauge {
    pub(crate) samples: u64,
    pub(crate) workers: u64,
    pub(crate) threads: u64,
    pub(crate) busy: u64,
}

impl FleetGauge {
    fn mean(&self, sum: u64) -> f64 {
        sum as f64 / self.samples.max(1) as f64
    }

    /// Returns how many workers were registered, on average over the samples.
    pub fn workers(&self) -> f64 {
        self.mean(self.workers)
    }

    /// Returns how many threads they had together, on average over the samples.
    pub fn threads(&self) -> f64 {
        self.mean(self.threads)
    }

    /// Returns how many jobs they held, on average over the samples. It may exceed the threads,
    /// because workers claim ahead.
    pub fn busy(&self) -> f64 {
        self.mean(self.busy)
    }

    pub(crate) fn merge(&mut self, other: FleetGauge) {
        let add = u64::saturating_add;
        self.samples = add(self.samples, other.samples);
        self.workers = add(self.workers, other.workers);
        self.threads = add(self.threads, other.threads);
        self.busy = add(self.busy, other.busy);
    }
}

impl Serialize for FleetGauge {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct;
        let mut object = serializer.serialize_struct("FleetGauge", 3)?;
        object.serialize_field("workers", &self.workers())?;
        object.serialize_field("threads", &self.threads())?;
        object.serialize_field("busy", &self.busy())?;
        object.end()
    }
}

/// What is stored of one series in one bucket.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Cell {
    pub(crate) tally: Tally,
    /// Processes that were pruned. Only the series of everything has them.
    pub(crate) died: u64,
    /// Only of the series of a queue.
    pub(crate) queue: Option<QueueGauge>,
    /// Only of the series of everything.
    pub(crate) fleet: Option<FleetGauge>,
}

impl Cell {
    pub(crate) fn of(tally: Tally) -> Self {
        Cell {
            tally,
            ..Cell::default()
        }
    }

    pub(crate) fn merge(&mut self, other: &Cell) {
        self.tally.merge(&other.tally);
        self.died = self.died.saturating_add(other.died);
        if let Some(gauge) = other.queue {
            self.queue.get_or_insert_default().merge(gauge);
        }
        if let Some(gauge) = other.fleet {
            self.fleet.get_or_insert_default().merge(gauge);
        }
    }
}

/// A sample of the queues and workers.
#[derive(Debug, Clone, Default)]
pub(crate) struct GaugeSample {
    /// The queues with ready jobs, by name.
    pub(crate) queues: Vec<(String, QueueGauge)>,
    pub(crate) fleet: FleetGauge,
}
