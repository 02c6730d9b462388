//! Decides which ticks to fire at a given time, without a clock or a database.

use crate::recurring::missed::MissedTicks;
use crate::recurring::stored::Stored;
use crate::recurring::task::NEVER;
use chrono::{NaiveDateTime, TimeDelta};
use std::time::Duration;

/// The number of ticks in one transaction; further ones follow in the next.
const MOST: usize = 100;

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
pub(crate) fn plan(
    task: &Stored,
    from: NaiveDateTime,
    now: NaiveDateTime,
    grace: Duration,
) -> TickPlan {
    let schedule = &task.schedule;
    let back = |age: Duration| {
        let age = TimeDelta::from_std(age).unwrap_or(TimeDelta::MAX);
        now.checked_sub_signed(age)
            .unwrap_or(NaiveDateTime::MIN)
            .max(from)
    };
    let due_from = |time| schedule.from(time).filter(|tick| *tick <= now);
    let mut next = match task.missed {
        MissedTicks::AllWithin(age) => due_from(back(age.max(grace))),
        MissedTicks::Skip => due_from(back(grace)),
        MissedTicks::Latest => due_from(back(grace)).or_else(|| schedule.last_between(from, now)),
    };
    let missed = due_from(from).filter(|first| next.is_none_or(|next| *first < next));
    let mut ticks = Vec::new();
    while let Some(tick) = next.filter(|tick| *tick <= now && ticks.len() < MOST) {
        ticks.push(tick);
        next = schedule.after(tick);
    }
    let next_run_at = match ticks.last() {
        Some(_) => next,
        None => schedule.after(now.max(from - TimeDelta::microseconds(1))),
    };
    TickPlan {
        ticks,
        next_run_at: next_run_at.unwrap_or(NEVER),
        missed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::model::recurring::RecurringTaskRow;

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
            lock_version: 0,
            now: time(now),
        };
        let task = Stored::read(&row).unwrap();
        let plan = plan(&task, time(from), row.now, Duration::from_secs(grace));
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
