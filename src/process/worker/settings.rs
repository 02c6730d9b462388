//! What a worker is set to.

use crate::db::Database;
use crate::db::conn::wakeup;
use crate::db::model::claim::Finished;
use crate::event::hooks::Hooks;
use crate::event::subscriber::Subscriber;
use crate::job::registry::Registry;
use crate::process::base::registration::{Pulse, Who};
use crate::queue::QueueSelector;
use crate::recycle::Recycle;
use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

/// The settings of a [`Worker`](crate::Worker).
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) database: Database,
    pub(crate) registry: Registry,
    pub(crate) queues: Vec<QueueSelector>,
    pub(crate) threads: usize,
    pub(crate) polling_interval: Duration,
    pub(crate) pulse: Pulse,
    pub(crate) shutdown_timeout: Duration,
    pub(crate) finished: Finished,
    pub(crate) subscriber: Subscriber,
    pub(crate) recycle: Recycle,
    pub(crate) begins_quiet: bool,
    /// Whether the program is the worker's, and its to end.
    pub(crate) is_program: bool,
    pub(crate) hooks: Hooks,
}

impl Settings {
    /// A channel of its own, in the group of those that take the same jobs.
    fn channel(&self) -> Option<String> {
        let mut kind = DefaultHasher::new();
        let queues = self.queues.iter().map(ToString::to_string);
        queues.collect::<Vec<_>>().hash(&mut kind);
        self.registry
            .classes()
            .collect::<BTreeSet<_>>()
            .hash(&mut kind);
        let is_notified = self.database.listens_by_notification();
        is_notified.then(|| wakeup::channel(kind.finish()))
    }

    /// What its row says of it.
    pub(crate) fn who(&self) -> Who {
        let metadata = serde_json::json!({
            "queues": self.queues.iter().map(ToString::to_string).collect::<Vec<_>>().join(","),
            "thread_pool_size": self.threads,
            "polling_interval": self.polling_interval.as_secs_f64(),
            "classes": self.registry.classes().take(MOST_CLASSES).collect::<Vec<_>>(),
            "more_classes": self.registry.classes().count() > MOST_CLASSES,
            "windlass": env!("CARGO_PKG_VERSION"),
        });
        Who {
            kind: "Worker",
            metadata: metadata.to_string(),
            channel: self.channel(),
        }
    }
}

/// A worker names so many of its classes in its row, for those who ask why a
/// job is not running.
const MOST_CLASSES: usize = 500;
