//! Settings that are valid alone and conflict with each other.

use crate::clock;
use crate::config::configuration::Config;
use crate::config::document::Origin;
use crate::config::reader::{Reader, Sourced};
use crate::config::value::HostPort;
use crate::recycle::Recycle;
use crate::retention::Retention;
use std::time::Duration;

/// Returns the place to report: the first one that was set explicitly.
fn place<'o>(origins: impl IntoIterator<Item = &'o Origin>) -> Origin {
    let mut origins = origins.into_iter();
    let set = origins.find(|origin| **origin != Origin::Default);
    set.cloned().unwrap_or(Origin::Default)
}

/// `alive_threshold (windlass.toml:7)`
fn named<T>(name: &str, setting: &Sourced<T>) -> String {
    format!("{name} ({})", setting.origin)
}

pub(crate) fn check(config: &Config, reader: &mut Reader) {
    heartbeats(config, reader);
    pool(config, reader);
    recycling(config, reader);
    audit(config, reader);
    listening(config, reader);
    if let Some(number) = config.entry
        && !(1..=config.workers.len()).contains(&number)
    {
        let message = format!(
            "there is no worker of this number: the configuration has {}",
            config.workers.len()
        );
        let origin = Origin::Environment(crate::config::names::WORKER_VARIABLE.to_owned());
        reader.problem(&origin, message);
    }
}

fn heartbeats(config: &Config, reader: &mut Reader) {
    let (threshold, interval) = (
        &config.supervisor.alive_threshold,
        &config.supervisor.heartbeat_interval,
    );
    if threshold.value.0 < interval.value.0.saturating_mul(3) {
        let message = format!(
            "{} must be at least three heartbeat intervals: it is {}, and {} is {}",
            named("supervisor.alive_threshold", threshold),
            clock::in_units(threshold.value.0),
            named("supervisor.heartbeat_interval", interval),
            clock::in_units(interval.value.0),
        );
        reader.problem(&place([&threshold.origin, &interval.origin]), message);
    }
}

fn recycling(config: &Config, reader: &mut Reader) {
    for worker in &config.workers {
        let age = &worker.recycle_after;
        if age.value.0.is_some_and(|age| age.0 < Recycle::SOONEST) {
            let message = "workers.recycle_after must be at least a second".to_owned();
            reader.problem(&age.origin, message);
        }
    }
}

fn audit(config: &Config, reader: &mut Reader) {
    let kept = &config.retention.audit_for;
    let is_short = |age: Duration| age < Retention::AUDIT_AT_LEAST;
    if kept.value.0.is_some_and(is_short) {
        let message =
            "retention.audit_for must be at least 30 days: the database refuses to delete \
                       younger rows of the audit"
                .to_owned();
        reader.problem(&kept.origin, message);
    }
}

/// Each address can be taken once on a host.
fn listening(config: &Config, reader: &mut Reader) {
    let mut taken: Vec<(String, &Sourced<HostPort>)> = Vec::new();
    let of_workers = config.workers.iter();
    let of_workers = of_workers.map(|worker| ("workers.listen", &worker.listen));
    let all = std::iter::once(("supervisor.listen", &config.supervisor.listen)).chain(of_workers);
    for (name, listen) in all.filter(|(_, listen)| !listen.value.0.is_empty()) {
        let other = taken.iter().find(|(_, other)| other.value == listen.value);
        if let Some((other, _)) = other {
            let address = &listen.value.0;
            let message = format!("{} is `{address}`, as {other} is", named(name, listen));
            reader.problem(&listen.origin, message);
        }
        taken.push((named(name, listen), listen));
    }
    for worker in &config.workers {
        let (listen, processes) = (&worker.listen, &worker.processes);
        if !listen.value.0.is_empty() && processes.value.0 > 1 {
            let message = format!(
                "{} is for one process, but {} is {}: set it to 1, and repeat `[[workers]]` with other \
                 addresses",
                named("workers.listen", listen),
                named("workers.processes", processes),
                processes.value.0
            );
            reader.problem(&place([&listen.origin, &processes.origin]), message);
        }
    }
}

fn pool(config: &Config, reader: &mut Reader) {
    let pool = &config.database.pool;
    let Some(size) = pool.value.0 else { return };
    for worker in &config.workers {
        let needed = worker.threads.value.0.saturating_add(2);
        if size.0 < needed {
            let message = format!(
                "{} must be at least {} + 2: it is {}, and needs to be {needed}",
                named("database.pool", pool),
                named("workers.threads", &worker.threads),
                size.0,
            );
            reader.problem(&place([&pool.origin, &worker.threads.origin]), message);
        }
    }
}
