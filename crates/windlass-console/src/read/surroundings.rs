//! The pauses and workers that decide whether the ready jobs of a list can be claimed: read once
//! for all of them.

use diesel::QueryResult;
use windlass::Conn;
use windlass::internal::admin::explain::obstacles::{
    DescribedProcess, WantedJob, described, missing,
};
use windlass::internal::db::query::explain::{self, RubyProcesses};
use windlass::internal::db::table::{pauses, run_time};
use windlass::jobs::Obstacle;

/// The pauses and the workers.
#[derive(Debug)]
pub(crate) struct Surroundings {
    paused_queues: Vec<String>,
    paused_classes: Vec<String>,
    /// The workers of Windlass.
    workers: Vec<DescribedProcess>,
    /// The workers of Windlass and of Ruby.
    with_ruby: Vec<DescribedProcess>,
}

impl Surroundings {
    pub(crate) fn read(conn: &mut Conn<'_>) -> QueryResult<Self> {
        let mut workers = |ruby| explain::registered(conn, "Worker", ruby).map(described);
        let (own, all) = (
            workers(RubyProcesses::Exclude)?,
            workers(RubyProcesses::Include)?,
        );
        Ok(Surroundings {
            paused_queues: pauses::names(conn)?,
            paused_classes: run_time::paused(conn)?,
            workers: own,
            with_ruby: all,
        })
    }

    /// Returns the first thing that keeps a job from being claimed, after "but".
    pub(crate) fn why(&self, job: WantedJob<'_>, of_ruby: bool) -> Option<String> {
        let is = |names: &[String], name: &str| names.iter().any(|one| one == name);
        if is(&self.paused_queues, job.queue) {
            return Some("its queue is paused".to_owned());
        }
        if is(&self.paused_classes, job.class) {
            return Some("its class is paused".to_owned());
        }
        let workers = if of_ruby {
            &self.with_ruby
        } else {
            &self.workers
        };
        Some(match missing(workers, job)? {
            Obstacle::NoWorkerForClass => "no worker of its queue has its class".to_owned(),
            Obstacle::NoWorkerForVersion { version } => {
                format!("no worker knows version {version} of its arguments")
            }
            Obstacle::WorkersSilent => "its workers have had no heartbeat for 60 s".to_owned(),
            Obstacle::WorkersDraining => "its workers are stopping".to_owned(),
            Obstacle::WorkersQuiet => "its workers are quiet".to_owned(),
            Obstacle::ThreadsBusy { .. } => return None,
            _ => "no running worker serves its queue".to_owned(),
        })
    }
}
