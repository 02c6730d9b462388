//! All registered processes.

use crate::admin::now::member::Member;
use crate::db::Conn;
use crate::db::query::load::fleet::{self, MOST_PROCESSES};
use crate::error::{Doing as _, Result};

/// The registered processes, in the order of their registration.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fleet {
    pub(crate) members: Vec<Member>,
    /// Whether there are more than were read.
    pub(crate) is_more: bool,
}

impl Fleet {
    pub(crate) fn read(conn: &mut Conn<'_>) -> Result<Self> {
        let doing = "look at the processes";
        let mut rows = fleet::processes(conn).doing(doing)?;
        let held = fleet::held_by_process(conn).doing(doing)?;
        let most = usize::try_from(MOST_PROCESSES).unwrap_or(usize::MAX);
        let is_more = rows.len() > most;
        rows.truncate(most);
        let members = rows.into_iter().map(|row| {
            let (running, ahead) = held.get(&row.id).copied().unwrap_or_default();
            Member::new(row, running, ahead)
        });
        Ok(Fleet {
            members: members.collect(),
            is_more,
        })
    }

    pub(crate) fn workers(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(|member| member.is_worker())
    }

    /// Returns the workers that have had a heartbeat lately.
    pub(crate) fn alive_workers(&self) -> impl Iterator<Item = &Member> {
        self.workers().filter(|worker| !worker.is_dead())
    }

    pub(crate) fn dead(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(|member| member.is_dead())
    }

    /// Returns the workers that serve a queue, dead and quiet ones as well.
    pub(crate) fn serving<'f>(&'f self, queue: &'f str) -> impl Iterator<Item = &'f Member> {
        self.workers().filter(move |worker| worker.serves(queue))
    }

    /// Returns how many threads the workers have that are alive, and how many of them run a job.
    pub(crate) fn threads(&self) -> (u64, u64) {
        let sum = |of: fn(&Member) -> u64| self.alive_workers().map(of).sum();
        (sum(|worker| worker.threads), sum(Member::busy))
    }

    /// Whether any process is one of Rails. The history does not contain what these have run.
    pub(crate) fn has_rails(&self) -> bool {
        self.members.iter().any(Member::is_of_rails)
    }
}
