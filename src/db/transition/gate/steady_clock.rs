//! The steps of the database's clock.

use crate::clock;
use crate::db::conn::connection::Conn;
use crate::db::table::rates::{self, Moment};
use diesel::QueryResult;
use std::time::{Duration, Instant};

/// Notices steps of the database's clock: by how much time passes there, and here. Only lengths of time are compared.
#[derive(Debug, Default)]
pub(crate) struct SteadyClock {
    last: Option<Reading>,
}

/// The clock, read between two times of this process.
#[derive(Debug, Clone, Copy)]
struct Reading {
    now: i64,
    before: Instant,
    after: Instant,
}

/// A difference that is no step, and the part of the time between two readings that is none.
const TOLERANCE: Duration = Duration::from_millis(250);
const DRIFT: u32 = 1_000;

impl SteadyClock {
    /// Reads the clock, and notes its step if it has made one since the last reading.
    pub(super) fn read(&mut self, conn: &mut Conn<'_>) -> QueryResult<Moment> {
        let mut moment = Moment { clock: 0, steps: 0 };
        for _ in 0..3 {
            let before = clock::instant();
            moment = rates::moment(conn)?;
            let reading = Reading {
                now: moment.now(),
                before,
                after: clock::instant(),
            };
            let step = self.last.map_or(0, |last| last.step(reading));
            if step == 0 {
                self.last = Some(reading);
                break;
            }
            rates::note_step(conn, moment.steps, moment.steps + step)?;
        }
        Ok(moment)
    }
}

impl Reading {
    /// Returns by how many microseconds the clock was set forward, or back, until the next reading.
    fn step(self, next: Reading) -> i64 {
        let micros = |time: Duration| i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
        let shortest = next.before.saturating_duration_since(self.after);
        let longest = next.after.saturating_duration_since(self.before);
        let tolerance = micros(TOLERANCE + longest / DRIFT);
        let passed = next.now - self.now;
        if passed > micros(longest) + tolerance {
            passed - micros(longest)
        } else if passed < micros(shortest) - tolerance {
            passed - micros(shortest)
        } else {
            0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_told_from_a_pause() {
        let start = Instant::now();
        let at = |now: i64, before: u64, after: u64| Reading {
            now: now * 1_000,
            before: start + Duration::from_millis(before),
            after: start + Duration::from_millis(after),
        };
        let first = at(0, 0, 5);
        assert_eq!(first.step(at(1_000, 1_000, 1_001)), 0);
        // A slow answer.
        assert_eq!(first.step(at(1_000, 1_000, 9_000)), 0);
        assert_eq!(first.step(at(8_000, 1_000, 9_000)), 0);
        assert_eq!(first.step(at(3_601_000, 1_000, 1_001)), 3_599_999_000);
        assert_eq!(
            first.step(at(-3_599_000, 1_000, 1_001)),
            -3_599_995_000 - 5_000 + 10_000
        );
    }
}
