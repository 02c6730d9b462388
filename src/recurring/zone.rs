//! From local clock times to moments: the effects of clock changes.

use crate::recurring::cron::Cron;
use chrono::{MappedLocalTime, NaiveDateTime, Offset, TimeDelta, TimeZone};
use chrono_tz::Tz;

/// Returns the first moment after `after` at which the schedule is due. Moments are in UTC; all
/// else is local time.
pub(crate) fn next(cron: &Cron, zone: Tz, after: NaiveDateTime) -> Option<NaiveDateTime> {
    if cron.every_hour {
        next_elapsed(cron, zone, after)
    } else {
        next_once(cron, zone, after)
    }
}

/// Returns how far the zone's clock is ahead of UTC at a moment.
fn ahead(zone: Tz, moment: NaiveDateTime) -> TimeDelta {
    let offset = zone.offset_from_utc_datetime(&moment).fix();
    TimeDelta::seconds(offset.local_minus_utc().into())
}

const SECOND: TimeDelta = TimeDelta::seconds(1);

/// Each local time is due once. Times map to moments in order, so the times up to the clock's
/// current one have passed.
fn next_once(cron: &Cron, zone: Tz, after: NaiveDateTime) -> Option<NaiveDateTime> {
    let mut time = after.checked_add_signed(ahead(zone, after))?;
    loop {
        time = cron.next(time.checked_add_signed(TimeDelta::microseconds(1))?)?;
        let moment = first_moment(zone, time)?;
        if moment > after {
            return Some(moment);
        }
    }
}

/// Returns when the clock first shows a time or, if it never does, skips it.
fn first_moment(zone: Tz, time: NaiveDateTime) -> Option<NaiveDateTime> {
    let minus = |offset: chrono_tz::TzOffset| {
        time.checked_sub_signed(TimeDelta::seconds(offset.fix().local_minus_utc().into()))
    };
    match zone.offset_from_local_datetime(&time) {
        MappedLocalTime::Single(offset) => minus(offset),
        MappedLocalTime::Ambiguous(one, other) => Some(minus(one)?.min(minus(other)?)),
        MappedLocalTime::None => jump_over(zone, time),
    }
}

/// No clock is further from UTC than this.
const FARTHEST: TimeDelta = TimeDelta::hours(26);

fn jump_over(zone: Tz, time: NaiveDateTime) -> Option<NaiveDateTime> {
    let mut from = time.checked_sub_signed(FARTHEST)?;
    let until = time.checked_add_signed(FARTHEST)?;
    loop {
        let change = first_change(zone, from, until)?;
        if time < change + ahead(zone, change) {
            return Some(change);
        }
        from = change;
    }
}

/// Elapsed time counts: the clock is followed from one change to the next, and a time that it shows
/// twice is due twice.
fn next_elapsed(cron: &Cron, zone: Tz, after: NaiveDateTime) -> Option<NaiveDateTime> {
    let mut from = after.checked_add_signed(TimeDelta::microseconds(1))?;
    loop {
        let ahead = ahead(zone, from);
        let moment = cron.next(from.checked_add_signed(ahead)?)? - ahead;
        match first_change(zone, from, moment) {
            None => return Some(moment),
            Some(change) => from = change,
        }
    }
}

/// Returns the first moment after `from`, up to `until`, at which the UTC offset differs from that
/// at `from`. No clock changes twice within six hours.
fn first_change(zone: Tz, from: NaiveDateTime, until: NaiveDateTime) -> Option<NaiveDateTime> {
    let before = ahead(zone, from);
    let mut same = from;
    while same < until {
        let mut other = (same + TimeDelta::hours(6)).min(until);
        if ahead(zone, other) == before {
            same = other;
            continue;
        }
        // Changes occur at whole seconds.
        while other - same > SECOND {
            let middle = same + (other - same) / 2;
            if ahead(zone, middle) == before {
                same = middle;
            } else {
                other = middle;
            }
        }
        use chrono::SubsecRound as _;
        return Some(other.trunc_subsecs(0));
    }
    None
}
