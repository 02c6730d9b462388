//! The tokens of a key during a promotion.

use crate::db::model::rate::{PromisedJobs, RateBucket, RatePace};
use crate::db::table::rates::{RateRow, StoredRate};
use crate::mutant;
use std::collections::BTreeSet;

/// The shortest time between two looks at the tokens of a key, in microseconds.
const TICK: i64 = 20_000;

/// The time after which promised tokens are looked at that nothing waits for.
const LATER: i64 = 1_000_000;

/// The longest time between two looks while jobs wait for the start of those that are ready.
const LONGEST: i64 = 1_000_000;

/// The time between two looks at a job that costs more than its rate allows at once.
const NEVER: i64 = 60_000_000;

/// The most tokens of one key whose jobs may be ready and not started.
const MOST_PROMISED: i64 = 1_000;

/// A part of the future in which a time may be noted: two statements may begin in another order than they end.
const AHEAD: i64 = 1_000_000;

/// The lines of a rate that are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineView {
    /// All that wait for it.
    Whole,
    /// The first of those that wait for it.
    Partial,
    /// Some: others may wait for it.
    Few,
}

/// The tokens of a key during a promotion.
#[derive(Debug)]
pub(super) struct RateGate {
    pub(super) bucket: RateBucket,
    lines: LineView,
    /// The jobs that have not started, the oldest first, and their tokens.
    jobs: Vec<PromisedJobs>,
    promised: i64,
    closed_until: Option<i64>,
    /// The time of the last look.
    looked_at: i64,
    /// True if that is less than a tick ago, or if jobs wait for a time that has not come.
    pub(super) is_early: bool,
    due_at: Option<i64>,
    has_waiting: bool,
    /// True if its row is to be stored.
    pub(super) is_changed: bool,
    /// The tokens that the next job wants, if one waits: no other passes before it.
    wanted: Option<i64>,
    /// True if its starts could not be counted: nothing may pass.
    pub(super) is_uncounted: bool,
    /// True if more jobs may pass at once.
    has_rest: bool,
    /// The shortest time until the next look.
    tick: i64,
}

impl RateGate {
    pub(super) fn of(used: Option<RateRow>, pace: RatePace, lines: LineView, now: i64) -> Self {
        let bucket = match &used {
            Some(row) => counted(row, now),
            None => RateBucket::full(pace, now),
        };
        let is_early = |row: &RateRow| match (row.has_waiting, row.due_at) {
            // The clock has been set back.
            _ if is_ahead(row, now) => false,
            (true, Some(due)) => due > now,
            (_, due) => due.is_some() && row.counted_at.saturating_add(TICK) > now,
        };
        let used = used.as_ref();
        let jobs = used.map_or_else(Vec::new, RateRow::promised);
        RateGate {
            looked_at: bucket.counted_at,
            is_early: used.is_some_and(is_early),
            bucket,
            lines,
            promised: PromisedJobs::all(&jobs),
            jobs,
            closed_until: used.and_then(|row| row.closed_until),
            due_at: used.and_then(|row| row.due_at),
            has_waiting: used.is_some_and(|row| row.has_waiting),
            is_changed: false,
            wanted: None,
            is_uncounted: false,
            has_rest: false,
            tick: TICK,
        }
    }

    /// Looks at it now, and as often as it is asked to.
    pub(super) fn look_at_once(&mut self) {
        self.is_early = false;
        self.tick = 0;
    }

    /// Returns the jobs that have not started, as far as was seen.
    pub(super) fn promised_jobs(&self) -> impl Iterator<Item = i64> + '_ {
        self.jobs.iter().flat_map(|jobs| jobs.2.iter().copied())
    }

    /// Fills the bucket without a count of its starts, if there are so many tokens that these may be taken later. Returns
    /// whether it has.
    pub(super) fn has_plenty(&mut self, now: i64, wanted: i64) -> bool {
        let mut bucket = self.bucket.clone();
        bucket.fill(now);
        let has_place = self.promised.saturating_add(wanted) <= MOST_PROMISED;
        // Some jobs may cost more than that, so it is not put off for long.
        let is_new = self
            .jobs
            .first()
            .is_none_or(|jobs| now.saturating_sub(jobs.0) < LATER);
        let is_open = has_place && bucket.room(self.promised) >= wanted;
        let has_plenty = self.tick > 0 && self.has_waiting && is_new && is_open;
        if has_plenty {
            self.bucket = bucket;
        }
        has_plenty
    }

    /// Takes the tokens of the jobs that have started: all that are not among `unstarted`.
    pub(super) fn count(&mut self, unstarted: &BTreeSet<i64>, now: i64) {
        let before = self.promised;
        for jobs in &mut self.jobs {
            jobs.2.retain(|job| unstarted.contains(job));
        }
        self.jobs.retain(|jobs| !jobs.2.is_empty());
        self.promised = PromisedJobs::all(&self.jobs);
        let taken = before.saturating_sub(self.promised);
        self.is_changed |= taken > 0;
        self.bucket.take(now, taken);
    }

    /// Promises tokens to a job.
    pub(super) fn promise(&mut self, job: i64, cost: i64, now: i64) {
        self.promised = self.promised.saturating_add(cost);
        self.is_changed = true;
        match self.jobs.last_mut() {
            Some(PromisedJobs(since, each, jobs)) if *since == now && *each == cost => {
                jobs.push(job)
            }
            _ => self.jobs.push(PromisedJobs(now, cost, vec![job])),
        }
    }

    /// Has the next promotion look at it at once, as one moves only so many jobs.
    pub(super) fn note_rest(&mut self) {
        self.has_rest = true;
        self.is_changed = true;
    }

    /// Leaves the jobs of a line that has come since the last look to the next one. Its first job may cost less than the one for
    /// which the look waits: that may be gone, or come behind this one.
    pub(super) fn wait_for_look(&mut self, now: i64) {
        let mut bucket = self.bucket.clone();
        bucket.fill(now);
        let wait = match self.has_waiting {
            true => bucket.wait(self.promised.saturating_add(1)),
            false => Some(0),
        };
        let until = wait.map(|wait| now.saturating_add(wait).max(self.looked_at + TICK));
        let until = until.max(self.closed_until.filter(|_| self.has_waiting));
        let is_later = |due: i64| until.is_some_and(|until| until < due);
        if !self.has_waiting || self.due_at.is_none_or(is_later) {
            self.has_waiting = true;
            self.due_at = until.or(self.due_at);
            self.is_changed = true;
        }
    }

    /// Returns the tokens that may be promised.
    pub(super) fn room(&self, now: i64) -> i64 {
        if self.is_uncounted || self.closed_until.is_some_and(|until| until > now) {
            return 0;
        }
        let room = self.bucket.room(self.promised);
        match mutant::is("rate_ignored") {
            true => i64::MAX,
            // A job that costs more than may be promised goes alone.
            false if self.promised == 0 => room,
            false => room.min((MOST_PROMISED - self.promised).max(0)),
        }
    }

    /// Returns whether a job of this cost must wait, and notes that.
    pub(super) fn is_closed_for(&mut self, cost: i64, now: i64) -> bool {
        if self.wanted.is_none() && self.room(now) >= cost {
            return false;
        }
        self.wanted.get_or_insert(cost);
        self.is_changed = true;
        true
    }

    /// Returns whether nothing has to be known of it: it is full, and nothing waits for it.
    pub(super) fn is_idle(&self, now: i64) -> bool {
        let is_full = self.bucket.wait(self.bucket.pace.burst) == Some(0);
        let is_open = self.closed_until.is_none_or(|until| until <= now);
        let waits = match self.lines {
            LineView::Whole => self.wanted.is_some(),
            LineView::Few => self.wanted.is_some() || self.has_waiting,
            LineView::Partial => true,
        };
        let is_free = self.promised == 0 && !waits && !self.has_rest;
        !self.is_early && !self.is_uncounted && is_full && is_open && is_free
    }

    /// Returns its row, if that is to be stored.
    pub(super) fn row<'r>(&self, key: &'r str, now: i64) -> Option<StoredRate<'r>> {
        let is_due = self.due_at.is_some_and(|due| due <= now);
        if !self.is_changed && (!is_due || self.is_early) {
            return None;
        }
        let (due_at, has_waiting) = match self.is_early {
            true => (self.due_at, self.has_waiting),
            false => self.next_look(now),
        };
        Some(StoredRate {
            key,
            bucket: self.bucket.clone(),
            due_at,
            has_waiting,
            promised: self.promised_text(),
        })
    }

    fn promised_text(&self) -> Option<String> {
        match self.jobs.is_empty() {
            true => None,
            false => serde_json::to_string(&self.jobs).ok(),
        }
    }

    /// Returns the time of the next look, and whether jobs wait for it.
    fn next_look(&self, now: i64) -> (Option<i64>, bool) {
        let own = self.own_look(now);
        if self.has_rest {
            return (Some(now), true);
        }
        match self.lines {
            // A closed one is closed for the others, too.
            LineView::Partial if self.wanted.is_none() => (Some(now + self.tick), true),
            // The lines that were not looked at go on waiting for the time that they had.
            LineView::Few if self.has_waiting => {
                let due = self.due_at.unwrap_or(now);
                (Some(own.0.map_or(due, |own| own.min(due))), true)
            }
            LineView::Few | LineView::Partial | LineView::Whole => own,
        }
    }

    fn own_look(&self, now: i64) -> (Option<i64>, bool) {
        let oldest = self.jobs.first().map_or(now, |jobs| jobs.0);
        let age = now.saturating_sub(oldest).max(0);
        let Some(wanted) = self.wanted else {
            let later = match self.promised > 0 {
                true => age / 4,
                // Full again, it is forgotten.
                false => self.bucket.wait(self.bucket.pace.burst).unwrap_or(0),
            };
            return (Some(now.saturating_add(later.max(LATER))), false);
        };
        if let Some(until) = self.closed_until.filter(|until| *until > now) {
            return (Some(until), true);
        }
        let all = self.promised.saturating_add(wanted);
        let has_place = self.promised == 0 || all <= MOST_PROMISED;
        let wait = match self.bucket.wait(all).filter(|_| has_place) {
            Some(wait) if !self.is_uncounted => wait,
            // The others come first then.
            _ if self.is_uncounted => self.tick,
            // It depends on the start of jobs that are ready.
            _ if self.promised > 0 => (age / 4).min(LONGEST),
            // It can never pass, unless the rate is changed.
            _ => NEVER,
        };
        (Some(now.saturating_add(wait.max(self.tick))), true)
    }
}

/// Returns the bucket of a row. One that was counted in the future is empty: the clock has made a step that was not seen.
fn counted(row: &RateRow, now: i64) -> RateBucket {
    let pace = row.pace();
    let is_ahead = is_ahead(row, now);
    RateBucket {
        pace,
        level: match is_ahead {
            true => row.level.min(0),
            false => row.level,
        },
        counted_at: match is_ahead {
            true => now,
            false => row.counted_at,
        },
    }
}

fn is_ahead(row: &RateRow, now: i64) -> bool {
    row.counted_at > now.saturating_add(AHEAD)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BURST: i64 = 1_000;

    fn row(promised: &str) -> RateRow {
        let pace = RatePace {
            number: 1_000,
            period: 60_000_000,
            burst: BURST,
        };
        RateRow {
            rate_key: "api".to_owned(),
            number: pace.number,
            period: pace.period,
            burst: pace.burst,
            level: RateBucket::full(pace, 0).level,
            counted_at: 0,
            closed_until: None,
            due_at: Some(0),
            has_waiting: true,
            promised: Some(promised.to_owned()),
        }
    }

    fn gate(row: RateRow, now: i64) -> RateGate {
        let pace = row.pace();
        RateGate::of(Some(row), pace, LineView::Whole, now)
    }

    /// A job may cost more tokens than are plenty.
    #[test]
    fn starts_are_counted_although_there_are_plenty() {
        let mut gate = gate(row("[[0,1,[7]]]"), 0);
        assert!(gate.has_plenty(LATER - 1, 500));
        assert!(!gate.has_plenty(LATER, 500));
        assert!(gate.is_closed_for(BURST, LATER));
        gate.wanted = None;
        gate.count(&BTreeSet::new(), LATER);
        gate.bucket.fill(LATER + 60_000);
        assert!(!gate.is_closed_for(BURST, LATER + 60_000));
    }

    #[test]
    fn a_key_whose_starts_were_not_counted_comes_next() {
        let mut gate = gate(row("[[0,1,[7]]]"), 100 * LATER);
        gate.is_uncounted = true;
        assert_eq!(gate.room(100 * LATER), 0);
        assert!(gate.is_closed_for(1, 100 * LATER));
        assert_eq!(gate.own_look(0), (Some(TICK), true));
    }

    /// The clock was years ahead, and all processes had stopped when it was set back.
    #[test]
    fn a_clock_that_was_set_back_makes_no_key_wait() {
        let ahead = RateRow {
            counted_at: 1 << 60,
            due_at: Some(1 << 60),
            ..row("[]")
        };
        let gate = gate(ahead, LATER);
        assert!(!gate.is_early);
        assert_eq!(gate.bucket.counted_at, LATER);
    }

    /// Another program may have written the column.
    #[test]
    fn no_stored_text_gives_tokens() {
        let most = i64::MAX;
        for (text, room) in [
            ("[[0,-1000000,[1]]]".to_owned(), BURST),
            (format!("[[0,{most},[1]],[0,{most},[2]]]"), 0),
            (format!("[[{most},1,[1]],[-{most},1,[2]]]"), BURST - 2),
            ("[[0,1".to_owned(), BURST),
            ("{}".to_owned(), BURST),
        ] {
            let mut gate = gate(row(&text), 0);
            assert!(gate.room(0) <= room, "{text}: {}", gate.room(0));
            gate.has_plenty(most, 500);
            gate.own_look(most);
            gate.count(&BTreeSet::from([1, 2]), 0);
        }
    }
}
