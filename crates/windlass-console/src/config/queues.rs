//! `[queues.NAME]`: what is promised about a queue, and how its threads are shared.

use crate::config::amounts::INTERVAL;
use crate::config::document::{DocumentEntry, DocumentTable, Origin};
use crate::config::reader::Reader;
use crate::config::recurring::name_of;
use crate::config::value::{QUEUES, ValueKind, expected};
use std::collections::BTreeMap;
use std::time::Duration;
use toml::Value;
use windlass::Result as WindlassResult;
use windlass::audit::Actor;
use windlass::internal::admin::tenants;
use windlass::internal::queue::check_name;
use windlass::tenants::ShareBy;
use windlass::{DbConnection, Error};

/// A value that the file has, and its place.
type FromFile<T> = Option<(T, Origin)>;

/// A table `[queues.NAME]`.
#[derive(Debug, Clone)]
pub(crate) struct QueueSettings {
    pub(crate) queue: String,
    /// The time for which a job may be ready before the queue counts as late.
    pub(crate) max_wait: FromFile<Duration>,
    /// The measure by which its threads are shared, if they are.
    pub(crate) fair: FromFile<Option<ShareBy>>,
    /// The weights of tenants.
    pub(crate) weights: FromFile<BTreeMap<String, u32>>,
}

const MAX_WAIT: &str = "max_wait";
const FAIR: &str = "fair";
const WEIGHTS: &str = "weights";

/// The measure by which the threads of a queue are shared, if they are.
const MEASURE: ValueKind<Option<ShareBy>> = ValueKind {
    name: "true, false or \"time\"",
    read: |entry| match &entry.value {
        Value::Boolean(is_fair) => Ok(is_fair.then_some(ShareBy::Jobs)),
        Value::String(text) if text == "jobs" => Ok(Some(ShareBy::Jobs)),
        Value::String(text) if text == "time" => Ok(Some(ShareBy::Time)),
        value => expected("`true`, `false` or \"time\"", value),
    },
    show: |by| match by {
        Some(ShareBy::Jobs) => "true".to_owned(),
        Some(ShareBy::Time) => "\"time\"".to_owned(),
        None => "false".to_owned(),
    },
};

/// The weights of tenants.
const WEIGHT_OF_EACH: ValueKind<BTreeMap<String, u32>> = ValueKind {
    name: "weights by tenant",
    read: |entry| match &entry.value {
        Value::Table(weights) => weights.iter().map(weight).collect(),
        value => expected("a table such as `{ acme = 3 }`", value),
    },
    show: |weights| {
        let weights = weights.iter();
        let weights = weights.map(|(tenant, weight)| format!("{} = {weight}", name_of(tenant)));
        match weights.collect::<Vec<_>>().join(", ") {
            weights if weights.is_empty() => "{}".to_owned(),
            weights => format!("{{ {weights} }}"),
        }
    },
};

fn weight((tenant, value): (&String, &Value)) -> Result<(String, u32), String> {
    let number = value.as_integer().map(u32::try_from);
    let Some(Ok(weight)) = number else {
        let what = format!("a weight of `{tenant}`, a whole number from 1 to 1000");
        return expected(&what, value);
    };
    match tenants::check_weight(tenant, weight) {
        Ok(_) => Ok((tenant.clone(), weight)),
        Err(Error::Settings(reason)) => Err(reason),
        Err(error) => Err(error.to_string()),
    }
}

/// All tables of queues in the file, by queue.
pub(crate) fn read_all(r: &mut Reader) -> Vec<QueueSettings> {
    let tables = r.within(QUEUES);
    tables
        .into_iter()
        .filter_map(|(queue, table)| read(r, queue, table))
        .collect()
}

fn read(r: &mut Reader, queue: String, mut table: DocumentTable) -> Option<QueueSettings> {
    if let Err(error) = check_name(&queue, "queue name") {
        r.problem(&table.origin, error.to_string());
        return None;
    }
    let name = format!("{QUEUES}.{}", name_of(&queue));
    let settings = QueueSettings {
        queue,
        max_wait: value(r, &name, MAX_WAIT, &INTERVAL, &mut table.entries),
        fair: value(r, &name, FAIR, &MEASURE, &mut table.entries),
        weights: value(r, &name, WEIGHTS, &WEIGHT_OF_EACH, &mut table.entries),
    };
    r.unknown(&name, table.entries, &[MAX_WAIT, FAIR, WEIGHTS]);
    Some(settings)
}

fn value<T>(
    r: &mut Reader,
    table: &str,
    name: &str,
    kind: &ValueKind<T>,
    entries: &mut BTreeMap<String, DocumentEntry>,
) -> FromFile<T> {
    let entry = entries.remove(name)?;
    match (kind.read)(&entry) {
        Ok(value) => Some((value, entry.origin)),
        Err(message) => {
            r.problem(&entry.origin, format!("{table}.{name}: {message}"));
            None
        }
    }
}

impl QueueSettings {
    /// Returns what is set as it is written in the file, with its place.
    pub(crate) fn lines(&self) -> Vec<(&'static str, String, &Origin)> {
        let max_wait = self.max_wait.as_ref();
        let max_wait = max_wait.map(|(wait, at)| (MAX_WAIT, (INTERVAL.show)(wait), at));
        let fair = self.fair.as_ref();
        let fair = fair.map(|(by, at)| (FAIR, (MEASURE.show)(by), at));
        let weights = self.weights.as_ref();
        let weights = weights.map(|(all, at)| (WEIGHTS, (WEIGHT_OF_EACH.show)(all), at));
        max_wait.into_iter().chain(fair).chain(weights).collect()
    }

    /// Returns whether it says how the threads of the queue are shared.
    pub(crate) fn is_about_shares(&self) -> bool {
        self.fair.is_some() || self.weights.is_some()
    }

    /// Shares the threads of the queue as it says. The rest stays as it is.
    pub(crate) fn apply(&self, conn: &mut DbConnection) -> WindlassResult<()> {
        let actor = |at: &Origin| Actor::default().reason(format!("configured: {at}"));
        match &self.fair {
            Some((Some(by), at)) => actor(at).share_queue(conn, &self.queue, *by)?,
            Some((None, at)) => drop(actor(at).unshare_queue(conn, &self.queue)?),
            None => {}
        }
        if let Some((weights, at)) = &self.weights {
            for (tenant, weight) in weights {
                actor(at).set_weight(conn, &self.queue, tenant, *weight)?;
            }
        }
        Ok(())
    }
}
