//! Times and durations as texts that both databases read.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Returns a time as RFC 3339 in UTC with microseconds, rounded down: `2026-12-24T18:00:00.000000Z`.
pub(crate) fn rfc_3339(time: SystemTime) -> String {
    let micros = micros_since_epoch(time);
    let (seconds, micros) = (micros.div_euclid(1_000_000), micros.rem_euclid(1_000_000));
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = civil_from_days(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z")
}

fn micros_since_epoch(time: SystemTime) -> i128 {
    let micros = |nanos: u128| i128::try_from(nanos).unwrap_or(i128::MAX);
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => micros(after.as_nanos()).div_euclid(1000),
        Err(before) => (-micros(before.duration().as_nanos())).div_euclid(1000),
    }
}

/// Returns year, month and day of the Gregorian calendar, of a number of days since 1970-01-01.
///
/// This is `civil_from_days` of Howard Hinnant, <https://howardhinnant.github.io/date_algorithms.html>. Its years start
/// in March, so that the leap day is the last one.
fn civil_from_days(days: i128) -> (i128, i128, i128) {
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = match month_from_march < 10 {
        true => month_from_march + 3,
        false => month_from_march - 9,
    };
    let year = year_of_era + era * 400 + i128::from(month <= 2);
    (year, month, day)
}

/// The longest time of a policy that the database takes: 1000 years.
const LONGEST: Duration = Duration::from_secs(1000 * 366 * 86_400);

/// Returns a time of a policy in seconds. Longer times count as 1000 years, so `Duration::MAX` is practically no limit.
pub(crate) fn limited_seconds(duration: Duration) -> String {
    seconds(duration.min(LONGEST))
}

/// Returns a duration in seconds as a decimal number: `60`, `0.5`.
pub(crate) fn seconds(duration: Duration) -> String {
    let whole = duration.as_secs().to_string();
    match duration.subsec_nanos() {
        0 => whole,
        nanos => format!("{whole}.{}", format!("{nanos:09}").trim_end_matches('0')),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(seconds: u64, micros: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds) + Duration::from_micros(micros)
    }

    #[test]
    fn times_are_written_in_utc_with_microseconds() {
        for (time, text) in [
            (after(0, 0), "1970-01-01T00:00:00.000000Z"),
            (after(951_782_399, 999_999), "2000-02-28T23:59:59.999999Z"),
            (after(951_782_400, 0), "2000-02-29T00:00:00.000000Z"),
            (after(951_868_800, 1), "2000-03-01T00:00:00.000001Z"),
            (after(1_798_135_200, 0), "2026-12-24T18:00:00.000000Z"),
            (after(4_107_542_400, 0), "2100-03-01T00:00:00.000000Z"),
            (after(253_402_300_799, 0), "9999-12-31T23:59:59.000000Z"),
            (after(253_402_300_800, 0), "10000-01-01T00:00:00.000000Z"),
            (
                UNIX_EPOCH - Duration::from_nanos(1),
                "1969-12-31T23:59:59.999999Z",
            ),
            (
                UNIX_EPOCH - Duration::from_secs(62_135_596_800),
                "0001-01-01T00:00:00.000000Z",
            ),
        ] {
            assert_eq!(rfc_3339(time), text);
        }
    }

    #[test]
    fn each_day_follows_the_one_before() {
        let mut last = civil_from_days(-800_000);
        for days in -799_999..800_000 {
            let next = civil_from_days(days);
            let (year, month, day) = last;
            let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
            let most = match month {
                2 => 28 + i128::from(leap),
                4 | 6 | 9 | 11 => 30,
                _ => 31,
            };
            let follows = match (day < most, month < 12) {
                (true, _) => (year, month, day + 1),
                (false, true) => (year, month + 1, 1),
                (false, false) => (year + 1, 1, 1),
            };
            assert_eq!(next, follows);
            last = next;
        }
    }

    #[test]
    fn durations_are_decimal_numbers() {
        for (duration, text) in [
            (Duration::ZERO, "0"),
            (Duration::from_secs(60), "60"),
            (Duration::from_millis(1500), "1.5"),
            (Duration::from_nanos(1), "0.000000001"),
            (Duration::MAX, "18446744073709551615.999999999"),
        ] {
            assert_eq!(seconds(duration), text);
        }
        assert_eq!(limited_seconds(Duration::MAX), "31622400000");
        assert_eq!(limited_seconds(Duration::from_millis(1)), "0.001");
    }
}
