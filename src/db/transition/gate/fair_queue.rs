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
        if row.is_ending {
            promised.clear();
        }
        let before = count(&promised);
        for jobs in &mut promised {
            jobs.retain(|job| unstarted.contains_key(job));
        }
        let is_held_back = is_held_back(&mut promised, unstarted);
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
                false if is_held_back => 0,
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

/// Returns whether no promotion may let further jobs through, as one after the oldest whose jobs are still to start has done so:
/// jobs that are ready start by their age, and those of a tenant with many old jobs would come before a young one of another
/// for ever. Forgets promotions that are over.
fn is_held_back(promised: &mut Vec<Vec<i64>>, unstarted: &BTreeMap<i64, bool>) -> bool {
    let is_coming = |jobs: &Vec<i64>| jobs.iter().any(|job| unstarted.get(job) == Some(&true));
    let oldest = promised.iter().position(is_coming);
    let mut place = 0..;
    // One after it counts, although all of its jobs may have started.
    promised.retain(|jobs| {
        let is_after = oldest.is_some_and(|oldest| place.next() > Some(oldest));
        is_after || !jobs.is_empty()
    });
    let oldest = promised.iter().position(is_coming);
    oldest.is_some_and(|oldest| promised.len() > oldest + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn further_jobs_wait_for_the_oldest_that_will_start() {
        let held = |promised: &[&[i64]]| {
            // Those from 100 on are of a class without a worker.
            let all = promised.iter().flat_map(|jobs| jobs.iter());
            let unstarted = all.map(|job| (*job, *job < 100)).collect();
            let mut promised: Vec<Vec<i64>> = promised.iter().map(|jobs| jobs.to_vec()).collect();
            let is_held = is_held_back(&mut promised, &unstarted);
            (is_held, promised)
        };
        let lists = |lists: &[&[i64]]| lists.iter().map(|jobs| jobs.to_vec()).collect::<Vec<_>>();
        assert_eq!(held(&[]), (false, lists(&[])));
        assert_eq!(held(&[&[1, 2]]), (false, lists(&[&[1, 2]])));
        assert_eq!(held(&[&[9], &[1]]), (true, lists(&[&[9], &[1]])));
        // All of the second have started, and the first is next.
        assert_eq!(held(&[&[9], &[]]), (true, lists(&[&[9], &[]])));
        assert_eq!(held(&[&[], &[]]), (false, lists(&[])));
        assert_eq!(held(&[&[], &[3]]), (false, lists(&[&[3]])));
        assert_eq!(held(&[&[100], &[], &[3]]), (false, lists(&[&[100], &[3]])));
        assert_eq!(held(&[&[100], &[101]]), (false, lists(&[&[100], &[101]])));
        assert_eq!(
            held(&[&[100], &[3], &[]]),
            (true, lists(&[&[100], &[3], &[]]))
        );
    }
}
