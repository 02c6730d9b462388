//! Decides which ticks to fire at a given time, without a clock or a database.

use crate::db::model::recurring::RecurringTaskRow;
use crate::error::Result;
use crate::recurring::task::RecurringTask;
use crate::recurring::time_zone::Zone;
use crate::recurring::timing::{MissedTicks, NEVER, Timings};
use chrono::{NaiveDateTime, TimeDelta};
use std::time::Duration;

/// The number of ticks in one transaction; further ones follow in the next.
const MOST: usize = 100;

/// The number of missed ticks of a program's own timing that are passed at once; the walk goes on in
/// the next transaction.
const STEPS: usize = 10_000;

/// The decision about a task.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TickPlan {
    /// In order.
    pub(crate) ticks: Vec<NaiveDateTime>,
    /// The first tick after those, and after any that are skipped.
    pub(crate) next_run_at: NaiveDateTime,
    /// The first skipped tick.
    pub(crate) missed: Option<NaiveDateTime>,
}

/// Plans the ticks from `from`, the first that was not handled yet.
///
/// # Errors
/// If a timing of the program computes its ticks, and the program lacks it or it fails.
pub(crate) fn plan(
    task: &RecurringTask,
    timings: &Timings,
    from: NaiveDateTime,
    row: &RecurringTaskRow,
    grace: Duration,
) -> Result<TickPlan> {
    if let Some(name) = task.schedule.named() {
        let after = |tick| timings.within(&task.key, name, task.options.window, tick);
        return walk(task, from, row.now, grace, after);
    }
    if task.schedule.is_start() {
        return Ok(plan_start(task, from, row.now));
    }
    Ok(plan_calendar(task, from, row.now, grace))
}

/// The start of a deployment does not count as missed, however late a scheduler reaches it.
fn plan_start(task: &RecurringTask, from: NaiveDateTime, now: NaiveDateTime) -> TickPlan {
    let is_due = from <= now;
    TickPlan {
        ticks: Vec::from_iter(Some(from).filter(|tick| is_due && task.options.window.has(*tick))),
        next_run_at: if is_due { NEVER } else { from },
        missed: None,
    }
}

/// Returns the time so long before `now`, but not before `from`.
fn back(now: NaiveDateTime, age: Duration, from: NaiveDateTime) -> NaiveDateTime {
    let age = TimeDelta::from_std(age).unwrap_or(TimeDelta::MAX);
    now.checked_sub_signed(age)
        .unwrap_or(NaiveDateTime::MIN)
        .max(from)
}

/// Plans the ticks of a schedule that is searched from any time.
fn plan_calendar(
    task: &RecurringTask,
    from: NaiveDateTime,
    now: NaiveDateTime,
    grace: Duration,
) -> TickPlan {
    let times = task.times_in(Zone::UTC);
    let back = |age: Duration| back(now, age, from);
    let due_from = |time| times.from(time).filter(|tick| *tick <= now);
    let mut next = match task.options.missed {
        MissedTicks::AllWithin(age) => due_from(back(age.max(grace))),
        MissedTicks::Skip => due_from(back(grace)),
        MissedTicks::Latest => due_from(back(grace)).or_else(|| times.last_between(from, now)),
    };
    let missed = due_from(from).filter(|first| next.is_none_or(|next| *first < next));
    let mut ticks = Vec::new();
    while let Some(tick) = next.filter(|tick| *tick <= now && ticks.len() < MOST) {
        ticks.push(tick);
        next = times.after(tick);
    }
    let next_run_at = match ticks.last() {
        Some(_) => next,
        None => times.after(now.max(from - TimeDelta::microseconds(1))),
    };
    TickPlan {
        ticks,
        next_run_at: next_run_at.unwrap_or(NEVER),
        missed,
    }
}

/// Plans the ticks of a program's own timing. Each tick is computed from the one before, so that
/// every process finds the same ones.
fn walk(
    task: &RecurringTask,
    from: NaiveDateTime,
    now: NaiveDateTime,
    grace: Duration,
    after: impl Fn(NaiveDateTime) -> Result<NaiveDateTime>,
) -> Result<TickPlan> {
    let oldest = match task.options.missed {
        MissedTicks::AllWithin(age) => back(now, age.max(grace), from),
        _ => back(now, grace, from),
    };
    let window = task.options.window;
    let (mut tick, mut ticks, mut passed) = (from, Vec::new(), Vec::new());
    while tick <= now && ticks.len() < MOST && passed.len() < STEPS {
        match window.has(tick) {
            true if tick >= oldest => ticks.push(tick),
            true => passed.push(tick),
            false => {}
        }
        tick = after(tick)?;
    }
    // The last of those that were missed, unless more of them follow.
    if task.options.missed == MissedTicks::Latest && ticks.is_empty() && tick > now {
        ticks.extend(passed.pop());
    }
    Ok(TickPlan {
        ticks,
        next_run_at: tick,
        missed: passed.first().copied(),
    })
}

// --- The due times of a recurring task ---

impl RecurringTask {
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
        timings.within(&self.key, name, self.options.window, time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(seconds: i64) -> NaiveDateTime {
        let start = chrono::DateTime::from_timestamp(1_800_000_000, 0).unwrap();
        start.naive_utc() + TimeDelta::seconds(seconds)
    }

    /// Ticks every 60 s, at 0, 60, 120 and so on.
    fn planned(missed: &str, from: i64, now: i64, grace: u64) -> (Vec<i64>, i64, Option<i64>) {
        let row = RecurringTaskRow {
            id: 1,
            key: "task".to_owned(),
            schedule: "* * * * *".to_owned(),
            time_zone: "UTC".to_owned(),
            class_name: "a".to_owned(),
            arguments: "{}".to_owned(),
            queue_name: "default".to_owned(),
            priority: 0,
            description: None,
            options: format!("{{\"missed\":{missed}}}"),
            next_run_at: Some(time(from)),
            last_run_at: None,
            queued_run_at: None,
            open_jobs: None,
            paused_at: None,
            declared_at: None,
            revision: None,
            row_version: 0,
            starts: None,
            now: time(now),
            is_unlisted: false,
            is_undeclared: false,
        };
        let task = RecurringTask::read(&row).unwrap();
        let grace = Duration::from_secs(grace);
        let plan = plan(&task, &Timings::default(), time(from), &row, grace).unwrap();
        let seconds = |tick: NaiveDateTime| (tick - time(0)).num_seconds();
        (
            plan.ticks.into_iter().map(seconds).collect(),
            seconds(plan.next_run_at),
            plan.missed.map(seconds),
        )
    }

    #[test]
    fn what_is_due_in_time_is_fired_whatever_the_policy() {
        for missed in ["\"latest\"", "\"skip\"", "{\"all_within\":\"1s\"}"] {
            assert_eq!(
                planned(missed, 60, 60, 10),
                (vec![60], 120, None),
                "{missed}"
            );
            assert_eq!(
                planned(missed, 60, 70, 10),
                (vec![60], 120, None),
                "{missed}"
            );
            assert_eq!(
                planned(missed, 60, 125, 65),
                (vec![60, 120], 180, None),
                "{missed}"
            );
            assert_eq!(planned(missed, 60, 59, 10), (vec![], 60, None), "{missed}");
        }
    }

    #[test]
    fn what_was_missed_is_up_to_the_policy() {
        for (missed, now, expected) in [
            ("\"latest\"", 290, (vec![240], 300, Some(60))),
            ("\"latest\"", 305, (vec![300], 360, Some(60))),
            ("\"latest\"", 71, (vec![60], 120, None)),
            ("\"skip\"", 290, (vec![], 300, Some(60))),
            ("\"skip\"", 305, (vec![300], 360, Some(60))),
            (
                "{\"all_within\":\"2m\"}",
                290,
                (vec![180, 240], 300, Some(60)),
            ),
            (
                "{\"all_within\":\"1day\"}",
                250,
                (vec![60, 120, 180, 240], 300, None),
            ),
        ] {
            assert_eq!(planned(missed, 60, now, 10), expected, "{missed} at {now}");
        }
    }

    #[test]
    fn a_transaction_has_a_bounded_number_of_ticks() {
        let (ticks, next, _) = planned("{\"all_within\":\"1day\"}", 60, 60_000, 10);
        assert_eq!((ticks.len(), ticks[99], next), (MOST, 6_000, 6_060));
    }

    /// The stored time may not be a tick if the zone's rules have changed.
    #[test]
    fn a_place_between_ticks_is_as_good_as_the_next_one() {
        assert_eq!(planned("\"latest\"", 61, 90, 10), (vec![], 120, None));
        assert_eq!(planned("\"latest\"", 61, 125, 10), (vec![120], 180, None));
    }

    #[test]
    fn a_clock_that_was_set_back_fires_nothing() {
        assert_eq!(planned("\"latest\"", 3_600, 0, 10), (vec![], 3_600, None));
    }
}
