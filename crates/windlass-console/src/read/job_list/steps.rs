//! Steps through the ids of jobs, each of which is quick.

use crate::read::sql::job_window::{KeyRange, ListPosition};
use crate::read::sql::newest_job::newest_job;
use diesel::QueryResult;
use std::time::{Duration, Instant};
use windlass::Conn;
use windlass::database::Dialect;
use windlass::internal::clock;

/// The least number of ids in the first step.
const STEP: i64 = 10_000;

/// A step that took less, and little more than the quickest, is followed by one of twice the size:
/// there may be gaps of any length. Where there are rows, or were, a step of twice the size takes
/// twice as long, so the size stays.
const QUICK: Duration = Duration::from_millis(5);

/// The longest time that is added to [`QUICK`] for each statement of a step, on a slow connection.
const LONGEST_TRIP: Duration = Duration::from_millis(20);

/// The time after which a list shows the jobs that it has found so far.
pub(crate) const ENOUGH: Duration = Duration::from_millis(50);

/// The ranges of keys that a list looks at, one after another.
///
/// Postgres passes each row that was deleted lately, at 2 µs each: 100,000 jobs that workers have
/// deleted would keep a page waiting for 200 ms. Only the first that comes by pays for them.
#[derive(Debug)]
pub(crate) struct IdSteps {
    rest: Option<KeyRange>,
    position: ListPosition,
    size: i64,
    began: Instant,
    step_began: Option<Instant>,
    /// A step that took longer is not followed by a larger one.
    quick: Duration,
    /// The duration of the quickest step.
    quickest: Duration,
}

impl IdSteps {
    /// Returns the whole range as one step.
    pub(crate) fn one(range: KeyRange, position: ListPosition) -> Self {
        IdSteps {
            rest: Some(range.from(position)),
            position,
            size: i64::MAX,
            began: clock::instant(),
            step_began: None,
            quick: QUICK,
            quickest: QUICK,
        }
    }

    /// Returns steps through the ids of jobs. The further a search has come, the larger they are, so that
    /// it is never continued for ever.
    pub(crate) fn of_jobs(
        conn: &mut Conn<'_>,
        range: KeyRange,
        position: ListPosition,
    ) -> QueryResult<Self> {
        let mut steps = IdSteps::one(range, position);
        if conn.dialect() == Dialect::Sqlite {
            return Ok(steps);
        }
        let asked = clock::instant();
        let newest = newest_job(conn)?;
        steps.began = clock::instant();
        let trip = steps.began.duration_since(asked).min(LONGEST_TRIP);
        steps.quick = QUICK + 2 * trip;
        steps.quickest = steps.quick;
        steps.rest = steps.rest.zip(newest).map(|(rest, newest)| {
            let passed = match position {
                ListPosition::Before(_) => newest.saturating_sub(rest.highest),
                ListPosition::After(_) => rest.lowest,
            };
            steps.size = STEP.max(passed / 8);
            let highest = rest.highest.min(newest);
            KeyRange { highest, ..rest }
        });
        Ok(steps)
    }

    /// Returns the next step, or `None` after the last.
    pub(crate) fn next(&mut self) -> Option<KeyRange> {
        let rest = self.rest.filter(|rest| rest.lowest <= rest.highest)?;
        let now = clock::instant();
        if let Some(began) = self.step_began.replace(now) {
            let took = now.duration_since(began);
            if took < self.quick && took < self.quickest * 3 / 2 {
                self.size = self.size.saturating_mul(2);
            }
            self.quickest = self.quickest.min(took);
        }
        let size = self.size - 1;
        let (step, left) = match self.position {
            ListPosition::Before(_) => {
                let lowest = rest.highest.saturating_sub(size);
                // Below are no ids that a database has given.
                let lowest = if lowest <= 0 { rest.lowest } else { lowest };
                let step = lowest.max(rest.lowest);
                (
                    KeyRange {
                        lowest: step,
                        ..rest
                    },
                    (step > rest.lowest).then(|| KeyRange {
                        highest: step - 1,
                        ..rest
                    }),
                )
            }
            ListPosition::After(_) => {
                let step = rest.lowest.max(0).saturating_add(size).min(rest.highest);
                (
                    KeyRange {
                        highest: step,
                        ..rest
                    },
                    (step < rest.highest).then(|| KeyRange {
                        lowest: step + 1,
                        ..rest
                    }),
                )
            }
        };
        self.rest = left;
        Some(step)
    }

    /// Returns the last key of the steps so far, if there are more.
    pub(crate) fn reached(&self) -> Option<i64> {
        let rest = self.rest?;
        Some(match self.position {
            ListPosition::Before(_) => rest.highest.saturating_add(1),
            ListPosition::After(_) => rest.lowest.saturating_sub(1),
        })
    }

    /// Returns the same if the time is used up.
    pub(crate) fn stop(&self) -> Option<i64> {
        self.reached().filter(|_| self.began.elapsed() >= ENOUGH)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(range: KeyRange, position: ListPosition, size: i64) -> IdSteps {
        let mut steps = IdSteps::one(range, position);
        steps.size = size;
        steps
    }

    fn all(mut steps: IdSteps) -> Vec<(i64, i64)> {
        let mut all = Vec::new();
        while let Some(step) = steps.next() {
            all.push((step.lowest, step.highest));
            // No step is quick.
            steps.step_began = None;
        }
        all
    }

    fn range(lowest: i64, highest: i64) -> KeyRange {
        KeyRange { lowest, highest }
    }

    #[test]
    fn steps_have_each_key_once() {
        let (back, forward) = (ListPosition::Before(26), ListPosition::After(4));
        let found = all(steps(range(3, 25), back, 10));
        assert_eq!(found, [(16, 25), (6, 15), (3, 5)]);
        let found = all(steps(range(3, 25), forward, 10));
        assert_eq!(found, [(5, 14), (15, 24), (25, 25)]);
    }

    #[test]
    fn the_last_step_has_the_keys_that_no_database_gives() {
        let found = all(steps(range(i64::MIN, 25), ListPosition::Before(26), 10));
        assert_eq!(found, [(16, 25), (6, 15), (i64::MIN, 5)]);
        let found = all(steps(
            range(i64::MIN, 15),
            ListPosition::After(i64::MIN),
            10,
        ));
        assert_eq!(found, [(i64::MIN + 1, 9), (10, 15)]);
        let whole = IdSteps::one(KeyRange::ALL, ListPosition::Before(i64::MAX));
        assert_eq!(all(whole), [(i64::MIN, i64::MAX - 1)]);
        assert_eq!(all(steps(range(5, 4), ListPosition::Before(9), 10)), []);
    }

    #[test]
    fn a_stop_is_where_the_search_goes_on() {
        for (position, stop) in [(ListPosition::Before(26), 16), (ListPosition::After(2), 12)] {
            let mut steps = steps(range(3, 25), position, 10);
            steps.next();
            assert_eq!(steps.stop(), None, "it is not late");
            steps.began = clock::instant() - ENOUGH;
            assert_eq!(steps.stop(), Some(stop));
            while steps.next().is_some() {}
            assert_eq!(steps.stop(), None, "there are no more");
        }
    }
}
