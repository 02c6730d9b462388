//! A queue whose threads are shared, during a promotion: how many jobs may become ready.

use crate::db::conn::connection::Conn;
use crate::db::model::share::{self, MOST_PLACES, RecentUse, ShareUse, Turn};
use crate::db::table::rates::LineAtGate;
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
    /// The number of turns of each line that waits, as far as it has jobs enough.
    turns: BTreeMap<String, i64>,
    /// The most jobs of any other line.
    pub(super) most: i64,
    /// The first turn of those that wait and have none of these.
    pub(super) unread: Option<Turn>,
    /// True if more lines wait than were read.
    pub(super) has_more: bool,
    /// True if no further job passes.
    pub(super) is_over: bool,
    pub(super) moved_at: i64,
    recent: RecentUse,
    /// The use by tenants since the last look.
    new_uses: BTreeMap<String, i64>,
}

impl ShareGate {
    pub(super) fn of(
        row: FairQueueRow,
        unstarted: &BTreeMap<i64, bool>,
        demand: i64,
        now: i64,
    ) -> Self {
        let mut promised = row.promised();
        if row.is_ending {
            promised.clear();
        }
        let before = count(&promised);
        for jobs in &mut promised {
            jobs.retain(|job| unstarted.contains_key(job));
        }
        let started = before - count(&promised);
        if started > 0 {
            // The queue moves: those that no worker starts take no places of others.
            let is_coming = |job: &i64| unstarted.get(job) == Some(&true);
            promised.iter_mut().for_each(|jobs| jobs.retain(is_coming));
        }
        let is_held_back = is_held_back(&mut promised, unstarted);
        let (ready, elapsed) = (count(&promised), now.saturating_sub(row.looked_at));
        let places = share::places(row.places, started, elapsed);
        let most = most_ready(places, demand);
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
                false => (most - ready).max(0),
            },
            row: FairQueueRow { places, ..row },
            promised,
            passed: Vec::new(),
            turns: BTreeMap::new(),
            most: 1,
            unread: None,
            new_uses: BTreeMap::new(),
            has_more: false,
            is_over: false,
            moved_at,
        }
    }

    /// Finds out how many of the next turns each of these lines has, and returns those with any.
    pub(super) fn find_turns(&mut self, lines: &[(&LineAtGate, ShareUse)]) -> Vec<String> {
        let cost = |used: &ShareUse| used.cost(self.row.by_time, self.row.mean);
        let uses = lines
            .iter()
            .map(|(found, used)| (found.priority, used, cost(used)));
        let turns = share::next_turns(&uses.collect::<Vec<_>>(), self.room);
        for ((found, used), turns) in lines.iter().zip(turns) {
            if turns > 0 {
                self.turns.insert(found.line.clone(), turns);
                continue;
            }
            let turn = Turn {
                priority: found.priority,
                pass: used.pass,
            };
            self.has_more = true;
            self.unread = Some(self.unread.map_or(turn, |unread| unread.min(turn)));
        }
        self.turns.keys().cloned().collect()
    }

    /// Returns the most jobs of a line that pass.
    pub(super) fn most_of(&self, line: &str) -> i64 {
        self.turns.get(line).copied().unwrap_or(self.most)
    }

    /// Notes what a tenant has used.
    pub(super) fn note_use(&mut self, tenant: &str, cost: i64) {
        match self.new_uses.get_mut(tenant) {
            Some(used) => *used = used.saturating_add(cost),
            None => drop(self.new_uses.insert(tenant.to_owned(), cost)),
        }
    }

    /// Returns the column of what tenants have used lately.
    pub(super) fn recent(&self) -> Option<String> {
        let mut recent = self.recent.clone();
        recent.add(
            self.new_uses
                .iter()
                .map(|(tenant, cost)| (&**tenant, *cost))
                .collect(),
        );
        recent.into_column()
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

/// Returns how many jobs may be ready. Beside those that this process starts at once, one is for others, which then promote for
/// themselves.
fn most_ready(places: i64, demand: i64) -> i64 {
    match demand {
        0 => places,
        _ => places.max(demand.saturating_add(1).min(MOST_PLACES)),
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
