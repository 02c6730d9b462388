//! Checks that ready jobs have a running worker that serves their queue and has their class.

use crate::read::doctor::scope::{Finding, Verdict, finding};
use crate::read::sql::doctor::FIRST;
use crate::read::sql::doctor::unserved::{OldReadyJob, old_ready};
use std::collections::BTreeMap;
use windlass::internal::admin::explain::obstacles::{
    DescribedProcess, WantedJob, described, is_beating, missing,
};
use windlass::internal::db::query::explain::{self, RubyProcesses};
use windlass::internal::error::ErrorContext;
use windlass::jobs::Obstacle;
use windlass::{Conn, Result};

/// The jobs that no worker takes, by what is missing: the oldest one of each name.
#[derive(Default)]
struct Unserved {
    queues: BTreeMap<String, OldReadyJob>,
    classes: BTreeMap<String, OldReadyJob>,
}

/// Finds the queues and classes whose jobs have been ready for `seconds` though no running worker takes them. Returns
/// nothing if no worker runs at all, which is a finding of its own.
pub(crate) fn check(conn: &mut Conn<'_>, seconds: f64) -> Result<Vec<Finding>> {
    let action = "look for jobs that no worker takes";
    let workers = explain::registered(conn, "Worker", RubyProcesses::Include).during(action)?;
    if !workers.iter().any(is_beating) {
        return Ok(Vec::new());
    }
    let old = old_ready(conn, seconds).during(action)?;
    if old.is_empty() {
        return Ok(Vec::new());
    }
    let with_ruby = alive(workers);
    let own = explain::registered(conn, "Worker", RubyProcesses::Exclude).during(action)?;
    let own = alive(own);
    let mut unserved = Unserved::default();
    for job in old {
        unserved.add(job, &own, &with_ruby);
    }
    Ok(unserved.findings())
}

fn alive(workers: Vec<explain::RegisteredProcess>) -> Vec<DescribedProcess> {
    described(workers.into_iter().filter(is_beating).collect())
}

impl Unserved {
    fn add(&mut self, job: OldReadyJob, own: &[DescribedProcess], all: &[DescribedProcess]) {
        let wanted = WantedJob {
            queue: &job.queue_name,
            class: &job.class_name,
            version: job.arguments_version(),
        };
        let missing = missing(if job.of_ruby { all } else { own }, wanted);
        let (names, name) = match missing {
            Some(Obstacle::NoWorkerForQueue) => (&mut self.queues, format!("`{}`", job.queue_name)),
            Some(Obstacle::NoWorkerForClass) => (
                &mut self.classes,
                format!("`{}` (queue `{}`)", job.class_name, job.queue_name),
            ),
            Some(Obstacle::NoWorkerForVersion { version }) => (
                &mut self.classes,
                format!(
                    "version {version} of `{}` (queue `{}`)",
                    job.class_name, job.queue_name
                ),
            ),
            _ => return,
        };
        names.entry(name).or_insert(job);
    }

    fn findings(self) -> Vec<Finding> {
        let queues = named("queues", self.queues, "no running worker serves the queue");
        let queues = queues.map(|found| advised(found, "start one, or correct the queue's name"));
        let classes = named("classes", self.classes, "no running worker takes");
        let classes = classes.map(|found| {
            advised(
                found,
                "register the class, start a newer program, or correct the name",
            )
        });
        queues.into_iter().chain(classes).collect()
    }
}

fn named(check: &'static str, jobs: BTreeMap<String, OldReadyJob>, what: &str) -> Option<Finding> {
    let oldest = jobs.values().map(|job| job.seconds).reduce(f64::max)?;
    let names: Vec<&str> = jobs.keys().map(String::as_str).take(FIRST).collect();
    let more = match jobs.len() - names.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let names = names.join(", ");
    let says = format!("{what} {names}{more}, and jobs have been ready for up to {oldest:.0} s");
    Some(Finding {
        jobs: jobs.values().map(|job| job.job_id).take(FIRST).collect(),
        ..finding(check, Verdict::Problem, says)
    })
}

fn advised(found: Finding, advice: &str) -> Finding {
    let says = format!("{}: {advice}", found.says);
    Finding { says, ..found }
}
