//! From local clock times to moments: the effects of clock changes.

use crate::recurring::cron::Cron;
use crate::recurring::time_zone::{LocalTime, Zone, ZoneRules};
use chrono::{NaiveDateTime, TimeDelta};

/// Returns the first moment after `after` at which the schedule is due. Moments are in UTC; all
/// else is local time.
pub(crate) fn next(cron: &Cron, zone: Zone, after: NaiveDateTime) -> Option<NaiveDateTime> {
    let rules = &zone.rules();
    if cron.every_hour {
        next_elapsed(cron, rules, after)
    } else {
        next_once(cron, rules, after)
    }
}

/// Returns how far the zone's clock is ahead of UTC at a moment.
fn ahead(rules: &ZoneRules, moment: NaiveDateTime) -> TimeDelta {
    TimeDelta::seconds(rules.seconds_ahead(moment).into())
}

/// Each local time is due once. Times map to moments in order, so the times up to the clock's
/// current one have passed.
fn next_once(cron: &Cron, rules: &ZoneRules, after: NaiveDateTime) -> Option<NaiveDateTime> {
    let mut time = after.checked_add_signed(ahead(rules, after))?;
    loop {
        time = cron.next(time.checked_add_signed(TimeDelta::microseconds(1))?)?;
        let moment = first_moment(rules, time)?;
        if moment > after {
            return Some(moment);
        }
    }
}

/// Returns when the clock first shows a time or, if it never does, skips it.
fn first_moment(rules: &ZoneRules, time: NaiveDateTime) -> Option<NaiveDateTime> {
    match rules.local_time(time) {
        LocalTime::Shown(ahead) => time.checked_sub_signed(TimeDelta::seconds(ahead.into())),
        LocalTime::Skipped => jump_over(rules, time),
    }
}

/// No clock is further from UTC than this.
const FARTHEST: TimeDelta = TimeDelta::hours(26);

fn jump_over(rules: &ZoneRules, time: NaiveDateTime) -> Option<NaiveDateTime> {
    let mut from = time.checked_sub_signed(FARTHEST)?;
    let until = time.checked_add_signed(FARTHEST)?;
    loop {
        let change = rules.first_change(from, until)?;
        if time < change + ahead(rules, change) {
            return Some(change);
        }
        from = change;
    }
}

/// Elapsed time counts: the clock is followed from one change to the next, and a time that it shows
/// twice is due twice.
fn next_elapsed(cron: &Cron, rules: &ZoneRules, after: NaiveDateTime) -> Option<NaiveDateTime> {
    let mut from = after.checked_add_signed(TimeDelta::microseconds(1))?;
    loop {
        let ahead = ahead(rules, from);
        let moment = cron.next(from.checked_add_signed(ahead)?)? - ahead;
        match rules.first_change(from, moment) {
            None => return Some(moment),
            Some(change) => from = change,
        }
    }
}
