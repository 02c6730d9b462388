//! Results of queries that change nothing: `status`, the pollers, the watchers.

use crate::db::conn::connection::Conn;
use crate::db::internal_tests::model::state::{Due, Model, Place};
use crate::db::internal_tests::model::step::QUEUES;
use crate::db::internal_tests::model::subject::{Ids, number};
use crate::db::query::status;
use crate::db::table::{processes, ready, scheduled, semaphores};
use diesel::QueryResult;
use std::collections::BTreeSet;

/// The results of queries that change nothing.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Seen {
    /// Queues named `alpha..` with ready jobs.
    pub names: BTreeSet<&'static str>,
    /// True if a scheduled job is due; `None` if no job is scheduled.
    pub next_is_due: Option<bool>,
    /// Ready, scheduled, claimed, failed, blocked, and whether it is paused.
    pub queues: Vec<(&'static str, [i64; 5], bool)>,
    /// Key, slots, whether they were set, held ones, and the jobs that wait for one.
    pub semaphores: Vec<(String, i64, bool, i64, i64)>,
    /// Process, heartbeats, draining, claims.
    pub processes: Vec<(usize, i64, bool, i64)>,
}

impl Model {
    pub fn look(&self) -> Seen {
        let in_queue = |queue: usize| {
            self.jobs
                .iter()
                .filter(move |job| usize::from(job.new.queue) == queue)
        };
        let mut seen = Seen::default();
        for (queue, name) in QUEUES.into_iter().enumerate() {
            let mut counts = [0; 5];
            for job in in_queue(queue) {
                match job.place {
                    Place::Ready => counts[0] += 1,
                    Place::Scheduled(_) => counts[1] += 1,
                    Place::Claimed(_) => counts[2] += 1,
                    Place::Failed(_) => counts[3] += 1,
                    Place::Blocked { .. } | Place::Waits | Place::Awaits { .. } => counts[4] += 1,
                    Place::Finished | Place::Gone => {}
                }
            }
            let paused = self.paused.contains(&(queue as u8));
            if paused || counts != [0; 5] {
                seen.queues.push((name, counts, paused));
            }
            if counts[0] > 0 && name.starts_with("alpha") {
                seen.names.insert(name);
            }
        }
        for job in &self.jobs {
            if let Place::Scheduled(due) = job.place {
                let is_due = matches!(due, Due::Already(_)) || seen.next_is_due == Some(true);
                seen.next_is_due = Some(is_due);
            }
        }
        for (number, process) in self
            .processes
            .iter()
            .enumerate()
            .filter(|(_, p)| p.registered)
        {
            let claims = self.held_by(number).len() as i64;
            seen.processes
                .push((number, process.heartbeat_seq, process.draining, claims));
        }
        seen.semaphores = self.semaphores();
        seen
    }
}

pub fn look(conn: &mut Conn<'_>, ids: &mut Ids) -> QueryResult<Seen> {
    let stat = status::queues(conn)?;
    let mut queues = Vec::new();
    for queue in &stat {
        let name = QUEUES.iter().find(|name| **name == queue.queue_name);
        let counts = [
            queue.ready,
            queue.scheduled,
            queue.claimed,
            queue.failed,
            queue.blocked,
        ];
        queues.push((*name.unwrap_or(&"?"), counts, queue.paused));
    }
    queues.sort_unstable();
    let claims: Vec<(i64, i64)> = status::processes(conn)?
        .into_iter()
        .map(|row| (row.id, row.claimed))
        .collect();
    let observed = processes::observe(conn)?;
    Ok(Seen {
        names: ready::queue_names(conn, "alpha")?
            .iter()
            .filter_map(|name| QUEUES.into_iter().find(|known| known == name))
            .collect(),
        semaphores: semaphores::list_semaphores(conn)?
            .into_iter()
            .map(|one| {
                let held = one.held();
                (one.key, one.limit, one.limit_is_set, held, one.blocked)
            })
            .collect(),
        next_is_due: scheduled::next_due(conn)?.map(|wait| wait.is_zero()),
        queues,
        processes: observed
            .iter()
            .map(|process| {
                let held = claims
                    .iter()
                    .find(|(id, _)| *id == process.id)
                    .map_or(-1, |(_, held)| *held);
                (
                    number(&mut ids.processes, process.id),
                    process.heartbeat_seq,
                    process.draining,
                    held,
                )
            })
            .collect(),
    })
}
