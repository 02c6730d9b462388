//! A queue whose threads are shared, during a promotion: how many jobs may become ready.

use crate::db::conn::connection::Conn;
use crate::db::model::share::{self, MOST_PLACES, RecentUse};
use crate::db::table::shares::{self, FairQueueRow};
use diesel::QueryResult;
use std::collections::BTreeMap;

/// The time until the next look at a queue for which jobs wait, if none of it starts.
pub(super) const LATER: i64 = 1_000_000;

/// The time after which jobs are not waited for that nothing starts, though others run.
const MUCH_LATER: i64 = 60_000_000;

/// A queue during a promotion.
#[derive(Debug)]
pub(super) struct ShareGate {
    pub(super) row: FairQueueRow,
    /// The jobs that are ready by a share: those of each promotion, the oldest first.
    pub(super) promised: Vec<Vec<i64>>,
    /// Those of this promotion.
    pub(super) passed: Vec<i64>,
    /// The number of jobs that may become ready beside them.
    pub(super) room: i64,
    /// The most jobs of one line.
    pub(super) most: i64,
    /// True if more lines wait than were read.
    pub(super) has_more: bool,
    /// True if it is the turn of a tenant of whose jobs no more were read.
    pub(super) is_exhausted: bool,
    pub(super) moved_at: i64,
    pub(super) recent: RecentUse,
}

impl ShareGate {
    pub(super) fn of(row: FairQueueRow, unstarted: &BTreeMap<i64, bool>, now: i64) -> Self {
        let mut promised = row.promised();
        let before = count(&promised);
        for jobs in &mut promised {
            jobs.retain(|job| unstarted.contains_key(job));
        }
        promised.retain(|jobs| !jobs.is_empty());
        let (ready, elapsed) = (count(&promised), now.saturating_sub(row.looked_at));
        let started = before - ready;
        let places = share::places(row.places, ready, started, elapsed);
        let moved_at = match started > 0 || ready == 0 || row.moved_at > now {
            true => now,
            false => row.moved_at,
        };
        let mut recent = RecentUse::of_column(row.recent.as_deref());
        recent.age(elapsed);
        ShareGate {
            recent,
            room: match row.is_ending {
                true => MOST_PLACES,
                false if is_held_back(&promised, unstarted) => 0,
                false => (places - ready).max(0),
            },
            row: FairQueueRow { places, ..row },
            promised,
            passed: Vec::new(),
            most: 1,
            has_more: false,
            is_exhausted: false,
            moved_at,
        }
    }

    /// Gives up to wait for jobs that are ready and that nothing starts: no worker may have their class. All threads may have
    /// long jobs as well, so it takes longer while jobs run.
    pub(super) fn give_up(&mut self, conn: &mut Conn<'_>, now: i64) -> QueryResult<()> {
        let stood = now.saturating_sub(self.moved_at);
        if self.room > 0 || stood < LATER {
            return Ok(());
        }
        let state = shares::state(conn, &self.row.queue_name)?;
        let is_long = stood >= MUCH_LATER || !state.has_running;
        if state.is_paused || !is_long {
            return Ok(());
        }
        self.promised.clear();
        if !state.has_running {
            self.row.places = (self.row.places * 2).min(MOST_PLACES);
        }
        self.room = self.row.places;
        self.moved_at = now;
        Ok(())
    }
}

fn count(promised: &[Vec<i64>]) -> i64 {
    promised.iter().map(|jobs| jobs.len() as i64).sum()
}

/// Returns whether jobs of two promotions before will start. Jobs that are ready start by their age: if there were always
/// further ones, those of a tenant with many old jobs would come before a young one of another for ever.
fn is_held_back(promised: &[Vec<i64>], unstarted: &BTreeMap<i64, bool>) -> bool {
    let is_coming = |jobs: &&Vec<i64>| jobs.iter().any(|job| unstarted.get(job) == Some(&true));
    promised.iter().filter(is_coming).count() >= 2
}
