//! Every change of every zone's clock in two years, against a walk that knows
//! nothing of calendars: it looks at the clock once a minute, as a daemon
//! would, and does what the rule says.

use chrono::{DateTime, Datelike, NaiveDateTime, Offset, TimeDelta, TimeZone, Timelike, Utc};
use chrono_tz::{TZ_VARIANTS, Tz};
use std::collections::BTreeMap;
use windlass::Schedule;

/// A schedule, and whether it is due by a time of the clock.
type Case = (&'static str, fn(&NaiveDateTime) -> bool);

/// Where the hour is given: every time of the clock counts once.
const ONCE: [Case; 9] = [
    ("30 2 * * *", |t| (t.hour(), t.minute()) == (2, 30)),
    ("0 0 * * *", |t| (t.hour(), t.minute()) == (0, 0)),
    ("15 23,0 * * *", |t| {
        [0, 23].contains(&t.hour()) && t.minute() == 15
    }),
    ("*/10 2 * * *", |t| t.hour() == 2 && t.minute() % 10 == 0),
    ("0,30 1-3 * * *", |t| {
        (1..=3).contains(&t.hour()) && t.minute() % 30 == 0
    }),
    ("59 23 * * SUN", |t| {
        (t.hour(), t.minute()) == (23, 59) && t.weekday().num_days_from_sunday() == 0
    }),
    ("5 1 1-7 * *", |t| {
        (t.hour(), t.minute()) == (1, 5) && t.day() <= 7
    }),
    ("20 0,2,22 28 * MON", |t| {
        [0, 2, 22].contains(&t.hour())
            && t.minute() == 20
            && (t.day() == 28 || t.weekday().num_days_from_sunday() == 1)
    }),
    ("0 45 0-22 ? * *", |t| t.hour() <= 22 && t.minute() == 45),
];

/// Where it is not: elapsed time counts.
const ELAPSED: [Case; 5] = [
    ("*/20 * * * *", |t| t.minute() % 20 == 0),
    ("0 */2 * * *", |t| t.hour() % 2 == 0 && t.minute() == 0),
    ("7 0-23 * * *", |t| t.minute() == 7),
    ("@hourly", |t| t.minute() == 0),
    ("0 30 * ? * 1", |t| {
        t.minute() == 30 && t.weekday().num_days_from_sunday() == 0
    }),
];

const MINUTE: TimeDelta = TimeDelta::minutes(1);

/// How many minutes the zone's clock is ahead of UTC.
fn ahead(zone: Tz, moment: NaiveDateTime) -> i32 {
    let offset = zone.offset_from_utc_datetime(&moment).fix();
    offset.local_minus_utc() / 60
}

fn clock(zone: Tz, moment: NaiveDateTime) -> NaiveDateTime {
    moment + TimeDelta::minutes(ahead(zone, moment).into())
}

/// The changes of two years, each with a zone that has it: many have the same.
fn changes() -> BTreeMap<(NaiveDateTime, i32, i32), Tz> {
    let start: DateTime<Utc> = "2026-01-01T00:00:00Z".parse().unwrap();
    let mut changes = BTreeMap::new();
    for zone in TZ_VARIANTS {
        for half_day in 0..2 * 2 * 366 {
            let mut from = start.naive_utc() + TimeDelta::hours(12 * half_day);
            let to = from + TimeDelta::hours(12);
            let (before, after) = (ahead(zone, from), ahead(zone, to));
            if before == after {
                continue;
            }
            while ahead(zone, from) == before {
                from += MINUTE;
            }
            changes.insert((from, before, after), zone);
        }
    }
    changes
}

/// What a daemon does that looks at the clock once a minute.
fn walk(
    zone: Tz,
    from: NaiveDateTime,
    until: NaiveDateTime,
    case: &Case,
    once: bool,
) -> Vec<NaiveDateTime> {
    let mut ticks = Vec::new();
    let mut seen = clock(zone, from);
    let mut moment = from + MINUTE;
    while moment <= until {
        let shown = clock(zone, moment);
        if !once {
            ticks.extend(case.1(&shown).then_some(moment));
        } else if shown > seen {
            // Usually one minute; more where the clock has jumped.
            let mut is_due = false;
            while seen < shown {
                seen += MINUTE;
                is_due |= case.1(&seen);
            }
            ticks.extend(is_due.then_some(moment));
        }
        moment += MINUTE;
    }
    ticks
}

#[test]
fn every_change_of_a_clock_follows_the_rule() {
    let changes = changes();
    // Summer time alone makes that many, north and south.
    assert!(changes.len() > 40, "{changes:?}");
    assert!(
        changes
            .keys()
            .any(|(_, before, after)| (before - after).abs() == 30)
    );
    let cases = ONCE.iter().map(|case| (case, true));
    let cases: Vec<(&Case, bool)> = cases
        .chain(ELAPSED.iter().map(|case| (case, false)))
        .collect();
    for ((change, ..), zone) in changes {
        let (from, until) = (change - TimeDelta::hours(30), change + TimeDelta::hours(30));
        for (case, once) in &cases {
            let schedule: Schedule = case.0.parse().unwrap();
            let schedule = schedule.in_time_zone(zone.name()).unwrap();
            let ticks: Vec<NaiveDateTime> = schedule
                .upcoming(from.and_utc())
                .map(|tick| tick.naive_utc())
                .take_while(|tick| *tick <= until)
                .collect();
            let expected = walk(zone, from, until, case, *once);
            assert_eq!(ticks, expected, "{} in {zone} around {change}", case.0);
            // From wherever one asks, the answer is the same.
            for tick in &ticks {
                let before = (*tick - TimeDelta::microseconds(1)).and_utc();
                assert_eq!(schedule.next_after(before), Some(tick.and_utc()), "{zone}");
            }
        }
    }
}

/// The rule as the documentation has it, for all to read.
#[test]
fn what_the_rule_says_in_berlin() {
    for (text, after, ticks) in [
        // The clock goes from 2:00 to 3:00.
        (
            "30 2 * * *",
            "2026-03-28T12:00:00Z",
            ["2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"],
        ),
        (
            "0,30 2,3 * * *",
            "2026-03-29T00:00:00Z",
            ["2026-03-29T01:00:00Z", "2026-03-29T01:30:00Z"],
        ),
        (
            "*/30 * * * *",
            "2026-03-29T00:30:00Z",
            ["2026-03-29T01:00:00Z", "2026-03-29T01:30:00Z"],
        ),
        // And from 3:00 to 2:00.
        (
            "30 2 * * *",
            "2026-10-24T12:00:00Z",
            ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"],
        ),
        (
            "*/30 * * * *",
            "2026-10-25T00:30:00Z",
            ["2026-10-25T01:00:00Z", "2026-10-25T01:30:00Z"],
        ),
        (
            "15 30 2 ? * 1",
            "2026-10-25T00:30:15Z",
            ["2026-11-01T01:30:15Z", "2026-11-08T01:30:15Z"],
        ),
    ] {
        let schedule: Schedule = format!("{text} Europe/Berlin").parse().unwrap();
        let next: Vec<DateTime<Utc>> = schedule.upcoming(after.parse().unwrap()).take(2).collect();
        let ticks = ticks.map(|tick| tick.parse::<DateTime<Utc>>().unwrap());
        assert_eq!(next, ticks, "{text}");
    }
}
