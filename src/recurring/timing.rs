//! Schedules that a program computes itself.

use crate::error::{Error, Result};
use crate::recurring::window::{NEVER, TickWindow};
use chrono::{DateTime, Datelike as _, NaiveDateTime, SubsecRound as _, Utc};
use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// A schedule that a program computes itself, for what [`Schedule`](crate::Schedule) cannot express:
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
/// use windlass::{RecurringTask, Timing};
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
        let is_over = window.until.is_some_and(|until| until.naive_utc() <= next);
        Ok(if is_over { NEVER } else { next })
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
