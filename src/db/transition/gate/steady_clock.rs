//! The steps of the database's clock.

use crate::clock;
use crate::db::conn::connection::Conn;
use crate::db::table::rates::{self, RateMoment};
use diesel::QueryResult;
use std::time::Duration;

/// Notices steps of the database's clock: by how much time passes there, and here. Only lengths of time are compared.
#[derive(Debug, Default)]
pub(super) struct SteadyClock {
    last: Option<ClockReading>,
}

/// The clock, read between two times of this process, which go on while its host is suspended.
#[derive(Debug, Clone, Copy)]
struct ClockReading {
    moment: RateMoment,
    before: Duration,
    after: Duration,
}

/// A difference that is no step, and the part of the time between two readings that is none.
const TOLERANCE: Duration = Duration::from_millis(250);
const DRIFT: u32 = 1_000;

impl SteadyClock {
    /// Reads the clock, and notes its step if it has made one since the last reading that no other process has noted. It
    /// is not called in a transaction, so that no other waits for the row for long.
    pub(super) fn note_steps(&mut self, conn: &mut Conn<'_>) -> QueryResult<()> {
        for _ in 0..3 {
            let before = clock::since_boot();
            let reading = ClockReading {
                moment: rates::moment(conn)?,
                before,
                after: clock::since_boot(),
            };
            let last = self.last.replace(reading);
            let step = last.map_or(0, |last| last.step(reading));
            if step == 0 {
                return Ok(());
            }
            let steps = reading.moment.steps;
            rates::note_step(conn, steps, steps + step)?;
        }
        Ok(())
    }

    /// Returns the time of a look without the steps, or `None` if the clock has made one since the last reading that is not
    /// noted.
    pub(super) fn look(&mut self, moment: RateMoment) -> Option<i64> {
        let after = clock::since_boot();
        let reading = |before| ClockReading {
            moment,
            before,
            after,
        };
        let Some(last) = self.last else {
            self.last = Some(reading(Duration::ZERO));
            return Some(moment.now());
        };
        if last.step(reading(last.after)) != 0 {
            return None;
        }
        Some(moment.now())
    }
}

impl ClockReading {
    /// Returns by how many microseconds the clock was set forward, or back, until the next reading, at least. 0 if another
    /// process has noted a step meanwhile.
    fn step(self, next: ClockReading) -> i64 {
        if self.moment.steps != next.moment.steps {
            return 0;
        }
        let micros = |time: Duration| i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
        let shortest = micros(next.before.saturating_sub(self.after));
        let longest = next.after.saturating_sub(self.before);
        let tolerance = micros(TOLERANCE + longest / DRIFT);
        let passed = next.moment.clock - self.moment.clock;
        let is_step = passed > micros(longest) + tolerance || passed < shortest - tolerance;
        match is_step {
            true => passed - shortest,
            false => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_told_from_a_pause() {
        let at = |clock: i64, before: u64, after: u64| ClockReading {
            moment: RateMoment {
                clock: clock * 1_000,
                steps: 0,
            },
            before: Duration::from_millis(before),
            after: Duration::from_millis(after),
        };
        let first = at(0, 0, 5);
        assert_eq!(first.step(at(1_000, 1_000, 1_001)), 0);
        // A slow answer.
        assert_eq!(first.step(at(1_000, 1_000, 9_000)), 0);
        assert_eq!(first.step(at(8_000, 1_000, 9_000)), 0);
        let (hour, second) = (3_600_000_000, 1_000_000);
        let forward = first.step(at(3_601_000, 1_000, 1_001));
        assert!((forward - hour).abs() < second, "{forward}");
        let back = first.step(at(-3_599_000, 1_000, 1_001));
        assert!((back + hour).abs() < second, "{back}");
        // Another process was faster.
        let mut noted = at(3_601_000, 1_000, 1_001);
        noted.moment.steps = hour;
        assert_eq!(first.step(noted), 0);
    }
}
