//! Which ticks to fire, given the time: no clock and no database here.

use super::task::NEVER;
use super::{MissedTicks, Stored};
use chrono::{NaiveDateTime, TimeDelta};
use std::time::Duration;

/// Ticks of one transaction; the others come in the next one.
const MOST: usize = 100;

/// What to do about a task.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// In order.
    pub(crate) ticks: Vec<NaiveDateTime>,
    /// The first tick after those, and after what is passed over.
    pub(crate) next_run_at: NaiveDateTime,
    /// The first of the ticks that are passed over.
    pub(crate) missed: Option<NaiveDateTime>,
}

/// `from` is the first tick that nobody has dealt with.
pub(crate) fn plan(
    task: &Stored,
    from: NaiveDateTime,
    now: NaiveDateTime,
    grace: Duration,
) -> Plan {
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
    Plan {
        ticks,
        next_run_at: next_run_at.unwrap_or(NEVER),
        missed,
    }
}
