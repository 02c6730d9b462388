//! From where a loop looks for wanted keys: not from the beginning each time,
//! past all that were taken and that a long transaction keeps in the index.

use crate::clock;
use crate::db::table::wanted_keys::BEGINNING;
use std::time::{Duration, Instant};

/// How far the wanted keys were looked through. As long as a look from the
/// beginning is cheap, each one begins there.
///
/// Ids may be committed out of their order. So the mark is an id that was the
/// last one some time ago, and what is committed even later waits for the next
/// look from the beginning.
#[derive(Debug, Default)]
pub(crate) struct WantedMark {
    after: i64,
    /// The last id that was given out, and when that was asked.
    last: Option<(i64, Instant)>,
    /// When the next look from the beginning is due, where not each is one.
    again_at: Option<Instant>,
    /// When a claim was last taken for a sign that such looks take long.
    suspected_at: Option<Instant>,
    is_suspect: bool,
    /// A claim has passed over keys since the last look from the beginning.
    has_passed: bool,
}

/// A look for wanted keys.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Look {
    /// The id after which it begins.
    pub(crate) after: i64,
    is_from_beginning: bool,
    is_time_to_ask: bool,
}

/// A look from the beginning that takes longer has much to pass that was taken
/// and not yet cleared away.
const DEAR: Duration = Duration::from_millis(5);

/// A claim that takes longer is a reason to measure such a look by itself.
const SLOW_CLAIM: Duration = Duration::from_millis(10);

/// The age of the mark at least, and the time between two looks from the
/// beginning, unless these take so long that it is [`SHARE`] times that.
const INTERVAL: Duration = Duration::from_secs(1);

const SHARE: u32 = 10;

impl Look {
    /// Whether the last id is to be asked for after a look that took so long.
    pub(crate) fn asks_after(&self, looked: Duration) -> bool {
        self.is_time_to_ask || (self.is_from_beginning && looked > DEAR)
    }
}

impl WantedMark {
    /// A claim looks for wanted keys, after the id that this returns.
    pub(crate) fn claim(&mut self) -> i64 {
        self.has_passed = self.after > BEGINNING;
        self.after
    }

    /// For how long the keys that a claim has passed over may wait. `None`: it
    /// has passed over none.
    pub(crate) fn patience(&self) -> Option<Duration> {
        let again_at = self.again_at.filter(|_| self.has_passed)?;
        Some(again_at.saturating_duration_since(clock::instant()))
    }

    /// Whether a promotion is to look from the beginning, or to move the mark,
    /// although no key was seen to be wanted.
    pub(crate) fn is_due(&self) -> bool {
        self.is_suspect || self.is_time()
    }

    fn is_time(&self) -> bool {
        self.is_time_to_ask() || self.again_at.is_some_and(|at| at <= clock::instant())
    }

    fn is_time_to_ask(&self) -> bool {
        let asked_at = self.last.map(|(_, at)| at);
        asked_at.is_some_and(|at| at.elapsed() >= INTERVAL)
    }

    /// Notes how long a claim took, which looked after the mark as well.
    pub(crate) fn suspect(&mut self, took: Duration) {
        let is_recent = |at: Instant| at.elapsed() < INTERVAL;
        if took > SLOW_CLAIM && self.last.is_none() && !self.suspected_at.is_some_and(is_recent) {
            self.suspected_at = Some(clock::instant());
            self.is_suspect = true;
        }
    }

    /// A promotion looks.
    pub(crate) fn begin(&self) -> Look {
        let is_due = self.again_at.is_none_or(|at| at <= clock::instant());
        Look {
            after: if is_due { BEGINNING } else { self.after },
            is_from_beginning: is_due,
            is_time_to_ask: self.is_time_to_ask(),
        }
    }

    /// Notes how long a look took, and the last id, if that was asked for. One
    /// that found a full batch may have left some where it began.
    pub(crate) fn end(&mut self, look: Look, looked: Duration, is_full: bool, last: Option<i64>) {
        self.is_suspect = false;
        self.has_passed &= !look.is_from_beginning;
        if look.is_from_beginning && looked <= DEAR {
            if !is_full {
                *self = WantedMark {
                    suspected_at: self.suspected_at,
                    ..WantedMark::default()
                };
            }
            return;
        }
        if let Some(last) = last {
            self.move_on(last);
        }
        if look.is_from_beginning && !(is_full && self.again_at.is_some()) {
            self.again_at = Some(clock::deadline(looked.saturating_mul(SHARE).max(INTERVAL)));
        }
    }

    /// The mark moves to what was the last id when that was asked for before,
    /// some time ago.
    fn move_on(&mut self, last: i64) {
        let now = clock::instant();
        match self.last {
            Some((_, at)) if now - at < INTERVAL => {}
            before => {
                // The ids begin anew where the table was made anew.
                let before = before.map_or(BEGINNING, |(id, _)| id);
                self.after = before.min(last);
                self.last = Some((last, now));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_millis(6);

    /// A look that took so long, when `last` was the last id.
    fn look(mark: &mut WantedMark, took: Duration, last: i64) -> i64 {
        let look = mark.begin();
        let last = look.asks_after(took).then_some(last);
        mark.end(look, took, false, last);
        look.after
    }

    /// As if more than the longest pause had gone by since the last look.
    fn age(mark: &mut WantedMark) {
        mark.again_at = mark.again_at.map(|_| clock::instant());
        mark.last = mark.last.map(|(id, at)| (id, at - INTERVAL));
    }

    #[test]
    fn as_long_as_it_is_cheap_each_look_begins_at_the_beginning() {
        let mut mark = WantedMark::default();
        for last in 1..5 {
            assert_eq!(look(&mut mark, Duration::ZERO, last), BEGINNING);
            assert!(!mark.is_due());
        }
    }

    #[test]
    fn the_mark_is_an_id_that_is_no_longer_new() {
        let mut mark = WantedMark::default();
        look(&mut mark, LONG, 70);
        assert_eq!(mark.claim(), BEGINNING);
        assert!(!mark.is_due());
        age(&mut mark);
        assert!(mark.is_due());
        look(&mut mark, LONG, 90);
        assert_eq!(mark.claim(), 70);
        assert_eq!(look(&mut mark, Duration::ZERO, 95), 70);
        assert_eq!(mark.claim(), 70);
    }

    #[test]
    fn a_look_from_the_beginning_follows_in_its_time() {
        let mut mark = WantedMark::default();
        for last in [70, 90] {
            look(&mut mark, 1_000 * LONG, last);
            age(&mut mark);
        }
        assert_eq!(look(&mut mark, 1_000 * LONG, 95), BEGINNING);
        assert_eq!(mark.patience(), None);
        assert_eq!(mark.claim(), 90);
        let pause = mark.patience().unwrap();
        assert!(pause > 9_000 * LONG, "{pause:?}");
        age(&mut mark);
        assert_eq!(look(&mut mark, Duration::ZERO, 99), BEGINNING);
        assert_eq!(mark.claim(), BEGINNING, "it is cheap again");
        assert!(!mark.is_due());
    }

    #[test]
    fn a_table_that_was_made_anew_has_smaller_ids() {
        let mut mark = WantedMark::default();
        look(&mut mark, LONG, 70);
        age(&mut mark);
        look(&mut mark, LONG, 3);
        assert_eq!(mark.claim(), 3);
    }

    #[test]
    fn a_slow_claim_is_looked_into_once_in_a_while() {
        let mut mark = WantedMark::default();
        mark.suspect(SLOW_CLAIM);
        assert!(!mark.is_due());
        mark.suspect(2 * SLOW_CLAIM);
        assert!(mark.is_due());
        look(&mut mark, Duration::ZERO, 1);
        mark.suspect(2 * SLOW_CLAIM);
        assert!(!mark.is_due());
    }
}
