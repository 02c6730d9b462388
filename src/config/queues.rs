//! `[queues.NAME]`: what is promised about each queue.

use crate::config::amounts::Interval;
use crate::config::document::{DocumentTable, Origin};
use crate::config::names::QUEUES;
use crate::config::reader::Reader;
use crate::config::recurring_values::name_of;
use crate::config::suggestion::suggestion;
use crate::config::value::ValueKind as _;
use crate::queue::check_name;
use std::time::Duration;

/// How long a job may be ready before its queue counts as late.
#[derive(Debug, Clone)]
pub(crate) struct QueuePromise {
    pub(crate) queue: String,
    #[cfg_attr(not(feature = "web"), allow(dead_code))]
    pub(crate) max_wait: Duration,
    pub(crate) origin: Origin,
}

impl QueuePromise {
    /// Returns the value as a configuration shows it.
    pub(crate) fn shown(&self) -> String {
        Interval(self.max_wait).show()
    }
}

/// The only setting.
const MAX_WAIT: &str = "max_wait";

/// All promises of the file, by queue.
pub(crate) fn read_all(r: &mut Reader) -> Vec<QueuePromise> {
    let tables = r.within(QUEUES);
    tables
        .into_iter()
        .filter_map(|(queue, table)| read(r, queue, table))
        .collect()
}

fn read(r: &mut Reader, queue: String, table: DocumentTable) -> Option<QueuePromise> {
    if let Err(error) = check_name(&queue, "queue name") {
        r.problem(&table.origin, error.to_string());
        return None;
    }
    let name = format!("{QUEUES}.{}", name_of(&queue));
    let mut promise = None;
    for (setting, entry) in table.entries {
        if setting != MAX_WAIT {
            let known = suggestion(&setting, [MAX_WAIT].into_iter());
            let message = format!("{name} has no setting `{setting}`{known}");
            r.problem(&entry.origin, message);
            continue;
        }
        match Interval::read(&entry.value) {
            Ok(Interval(max_wait)) => {
                promise = Some(QueuePromise {
                    queue: queue.clone(),
                    max_wait,
                    origin: entry.origin,
                });
            }
            Err(message) => r.problem(&entry.origin, format!("{name}.{MAX_WAIT}: {message}")),
        }
    }
    promise
}
