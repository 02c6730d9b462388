//! The time within which a task has ticks.

use crate::recurring::schedule::Schedule;
use chrono::{DateTime, NaiveDate, NaiveDateTime, NaiveTime, TimeDelta, Utc};

/// The end of the calendar.
pub(crate) const NEVER: NaiveDateTime = match NaiveDate::from_ymd_opt(9999, 12, 31) {
    Some(day) => day.and_time(NaiveTime::MIN),
    None => NaiveDateTime::MAX,
};

/// The time within which a task has ticks: from `from`, up to but without `until`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct TickWindow {
    pub(crate) from: Option<DateTime<Utc>>,
    pub(crate) until: Option<DateTime<Utc>>,
}

impl TickWindow {
    pub(crate) fn has(self, tick: NaiveDateTime) -> bool {
        let tick = tick.and_utc();
        self.from.is_none_or(|from| from <= tick) && self.until.is_none_or(|until| tick < until)
    }

    /// Returns the time after which to look for the first tick after `time`.
    pub(crate) fn start(self, time: NaiveDateTime) -> NaiveDateTime {
        let before = self.from.and_then(|from| before(from.naive_utc()));
        before.map_or(time, |before| before.max(time))
    }

    /// Returns why the window is impossible.
    pub(crate) fn problem(self) -> Option<String> {
        let (from, until) = (self.from?, self.until?);
        (until <= from)
            .then(|| format!("has a window without time: `from` is {from}, and `until` is {until}"))
    }
}

fn before(time: NaiveDateTime) -> Option<NaiveDateTime> {
    time.checked_sub_signed(TimeDelta::microseconds(1))
}

/// When a task is due: the times of its schedule within its window.
#[derive(Debug, Clone)]
pub(crate) struct TickTimes {
    pub(crate) schedule: Schedule,
    pub(crate) window: TickWindow,
}

impl TickTimes {
    /// Returns the first tick after `time`. Returns `None` if there is none, or only a program can
    /// compute it.
    pub(crate) fn after(&self, time: NaiveDateTime) -> Option<NaiveDateTime> {
        let tick = self.schedule.after(self.window.start(time))?;
        self.window.has(tick).then_some(tick)
    }

    /// Returns the first tick at `time` or after it.
    pub(crate) fn from(&self, time: NaiveDateTime) -> Option<NaiveDateTime> {
        self.after(before(time)?)
    }

    /// Returns the last tick between `from` and `until`, both included.
    pub(crate) fn last_between(
        &self,
        from: NaiveDateTime,
        until: NaiveDateTime,
    ) -> Option<NaiveDateTime> {
        let from = self
            .window
            .from
            .map_or(from, |own| own.naive_utc().max(from));
        let end = self.window.until.and_then(|end| before(end.naive_utc()));
        let until = end.map_or(until, |end| end.min(until));
        if until < from {
            return None;
        }
        self.schedule.last_between(from, until)
    }

    /// Returns the ticks after `time`, in order.
    pub(crate) fn upcoming(&self, time: NaiveDateTime) -> impl Iterator<Item = DateTime<Utc>> + '_ {
        let ticks = std::iter::successors(self.after(time), |tick| self.after(*tick));
        ticks.map(|tick| tick.and_utc())
    }
}
