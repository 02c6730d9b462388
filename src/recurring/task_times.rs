//! When a recurring task is due.

use crate::error::Result;
use crate::recurring::task::RecurringTask;
use crate::recurring::time_zone::Zone;
use crate::recurring::timing::Timings;
use crate::recurring::window::{NEVER, TickTimes};
use chrono::NaiveDateTime;
#[cfg(feature = "cli")]
use std::time::Duration;

impl RecurringTask {
    /// Returns its times, in the scheduler's time zone if it has none of its own.
    pub(crate) fn times_in(&self, default: Zone) -> TickTimes {
        TickTimes {
            schedule: self.schedule.clone().or_in(default),
            window: self.window,
        }
    }

    /// Returns how much its jobs are delayed at most.
    #[cfg(feature = "cli")]
    pub(crate) fn jitter_of(&self) -> Option<Duration> {
        self.jitter
    }

    /// Returns the first tick after a time, or the end of the calendar.
    ///
    /// # Errors
    /// If a timing computes its ticks, and it is not among `timings` or fails.
    pub(crate) fn next_tick(
        &self,
        default: Zone,
        timings: &Timings,
        time: NaiveDateTime,
    ) -> Result<NaiveDateTime> {
        let Some(name) = self.schedule.named() else {
            return Ok(self.times_in(default).after(time).unwrap_or(NEVER));
        };
        timings.within(&self.key, name, self.window, time)
    }
}
