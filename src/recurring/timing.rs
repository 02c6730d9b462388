//! The ticks of a task: the handling of those that were missed, the time within which it has some,
//! and schedules that a program computes itself.

use crate::error::{Error, Result};
use crate::job::options::humane;
use crate::recurring::schedule::Schedule;
use chrono::{
    DateTime, Datelike as _, NaiveDate, NaiveDateTime, NaiveTime, SubsecRound as _, TimeDelta, Utc,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// The handling of ticks that no scheduler fired in time: those overdue by more than
/// [`Scheduler::grace`](crate::Scheduler::grace).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum MissedTicks {
    /// Fires the latest one, unless a later tick is due anyway: one job, however many ticks were
    /// missed. This is the default.
    #[default]
    Latest,
    /// Fires each of them that is not older than this, with a job of its own.
    AllWithin(#[serde(with = "humane")] Duration),
    /// Fires none of them.
    Skip,
}

// --- The time within which a task has ticks ---

/// The end of the calendar.
pub const NEVER: NaiveDateTime = match NaiveDate::from_ymd_opt(9999, 12, 31) {
    Some(day) => day.and_time(NaiveTime::MIN),
    None => NaiveDateTime::MAX,
};

/// The time within which a task has ticks: from `from`, up to but without `until`.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TickWindow {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<DateTime<Utc>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<DateTime<Utc>>,
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

/// The times at which a task is due: those of its schedule within its window.
#[doc(hidden)]
#[derive(Debug, Clone)]
pub struct TickTimes {
    pub schedule: Schedule,
    pub window: TickWindow,
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
    pub fn upcoming(&self, time: NaiveDateTime) -> impl Iterator<Item = DateTime<Utc>> + '_ {
        let ticks = std::iter::successors(self.after(time), |tick| self.after(*tick));
        ticks.map(|tick| tick.and_utc())
    }
}

// --- Schedules that a program computes itself ---

/// A schedule that a program computes itself, for what [`Schedule`](crate::recurring::Schedule) cannot express:
/// business days, the tides, the hours of a shop.
///
/// A task names it in its schedule, as `@timing business_days`, and only the name is stored. A
/// scheduler fires such a task if it was given a timing of this name: by
/// [`RecurringTask::timing`](crate::RecurringTask::timing),
/// [`Scheduler::timing`](crate::Scheduler::timing) or `Config::timing`. Other schedulers report the
/// task once (`Event::TaskRefused`), and leave it.
///
/// ```
/// use chrono::{DateTime, Datelike, Days, Utc, Weekday};
/// use std::sync::Arc;
/// use windlass::RecurringTask;
/// use windlass::recurring::Timing;
///
/// /// Every working day at midnight.
/// struct BusinessDays;
///
/// impl Timing for BusinessDays {
///     fn next_after(&self, time: DateTime<Utc>) -> Option<DateTime<Utc>> {
///         let mut day = time.date_naive();
///         loop {
///             day = day.checked_add_days(Days::new(1))?;
///             if !matches!(day.weekday(), Weekday::Sat | Weekday::Sun) {
///                 return Some(day.and_hms_opt(0, 0, 0)?.and_utc());
///             }
///         }
///     }
/// }
///
/// let task = RecurringTask::of_class("report", "@timing business_days", "report", "{}")?
///     .timing(Arc::new(BusinessDays));
/// # let _ = task;
/// # Ok::<(), windlass::Error>(())
/// ```
pub trait Timing: Send + Sync {
    /// Returns the first due time after `time`; `None` if there are no more.
    ///
    /// The result must depend on `time` only, so that every process computes the same. It is called
    /// with the tick before, or with the time at which the task was created or resumed. Fractions of
    /// a microsecond are dropped.
    ///
    /// If the result is not after `time`, or this panics, the task is reported and not fired until
    /// it is changed or the scheduler is started again. All other tasks go on.
    fn next_after(&self, time: DateTime<Utc>) -> Option<DateTime<Utc>>;
}

impl<F: Fn(DateTime<Utc>) -> Option<DateTime<Utc>> + Send + Sync> Timing for F {
    fn next_after(&self, time: DateTime<Utc>) -> Option<DateTime<Utc>> {
        self(time)
    }
}

/// The timings of a program, by name.
#[derive(Clone, Default)]
pub(crate) struct Timings(BTreeMap<String, Arc<dyn Timing>>);

impl Timings {
    /// Adds a timing. Returns `false` if there is another one of this name.
    pub(crate) fn add(&mut self, name: &str, timing: Arc<dyn Timing>) -> bool {
        let other = self.0.get(name);
        if other.is_some_and(|other| !std::ptr::addr_eq(Arc::as_ptr(other), Arc::as_ptr(&timing))) {
            return false;
        }
        self.0.insert(name.to_owned(), timing);
        true
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &Arc<dyn Timing>)> {
        self.0.iter().map(|(name, timing)| (name.as_str(), timing))
    }

    /// Returns the first tick of a task after `time` within its window; the end of the calendar if
    /// there is none.
    ///
    /// # Errors
    /// As for [`after`](Self::after).
    pub(crate) fn within(
        &self,
        key: &str,
        name: &str,
        window: TickWindow,
        time: NaiveDateTime,
    ) -> Result<NaiveDateTime> {
        let next = self.after(key, name, window.start(time))?;
        let has_ended = window.until.is_some_and(|until| until.naive_utc() <= next);
        Ok(if has_ended { NEVER } else { next })
    }

    /// Returns the first tick of a task after `time`; the end of the calendar if there is none.
    ///
    /// # Errors
    /// If there is no timing of this name, it panics, or its result is not after `time`.
    pub(crate) fn after(
        &self,
        key: &str,
        name: &str,
        time: NaiveDateTime,
    ) -> Result<NaiveDateTime> {
        let wrong = |reason: String| Error::RecurringTask {
            key: key.to_owned(),
            reason,
        };
        let Some(timing) = self.0.get(name) else {
            return Err(wrong(format!(
                "has the schedule `@timing {name}`, and this program has no timing of this name: \
                 only a scheduler that has it fires this task"
            )));
        };
        let given = time.and_utc();
        let next = catch_unwind(AssertUnwindSafe(|| timing.next_after(given))).map_err(|_| {
            wrong(format!(
                "is not fired: its timing `{name}` panicked at {given}"
            ))
        })?;
        let Some(next) = next.filter(|next| next.year() <= 9999) else {
            return Ok(NEVER);
        };
        let next = next.naive_utc().trunc_subsecs(6);
        if next <= time {
            return Err(wrong(format!(
                "is not fired: its timing `{name}` returned {}, which is not after {given}",
                next.and_utc()
            )));
        }
        Ok(next)
    }
}

impl fmt::Debug for dyn Timing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Timing")
    }
}

impl fmt::Debug for Timings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}
