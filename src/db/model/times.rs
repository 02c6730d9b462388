//! Times that a claim reads: any program may have written them, and a claim must not fail for one that is none.

#[cfg(feature = "sqlite")]
use chrono::NaiveDate;
use chrono::NaiveDateTime;
use diesel::backend::Backend;
use diesel::deserialize::{self, FromSql};
use diesel::sql_types::{Double, Nullable, Timestamp};

#[cfg(feature = "sqlite")]
type SqliteValue<'v> = <diesel::sqlite::Sqlite as Backend>::RawValue<'v>;

/// Parses a timestamp in the form that Windlass and Rails write, by its places, or in another form of ISO
/// 8601, which another program may have written. Returns `None` for what is no calendar time.
#[cfg(feature = "sqlite")]
fn parse(text: &str) -> Option<NaiveDateTime> {
    parse_usual(text).or_else(|| parse_other(text.trim()))
}

#[cfg(feature = "sqlite")]
fn parse_usual(text: &str) -> Option<NaiveDateTime> {
    let number = |from: usize, to: usize| text.get(from..to)?.parse::<u32>().ok();
    if text.len() != 26 || text.as_bytes()[19] != b'.' {
        return None;
    }
    let year = i32::try_from(number(0, 4)?).ok()?;
    let date = NaiveDate::from_ymd_opt(year, number(5, 7)?, number(8, 10)?)?;
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    date.and_hms_micro_opt(hour, minute, second, number(20, 26)?)
}

#[cfg(feature = "sqlite")]
fn parse_other(text: &str) -> Option<NaiveDateTime> {
    let text = text.replacen('T', " ", 1).replacen('Z', "+00:00", 1);
    let zoned = |form: &&str| {
        let time = chrono::DateTime::parse_from_str(&text, form).ok()?;
        Some(time.naive_utc())
    };
    let plain = |form: &&str| NaiveDateTime::parse_from_str(&text, form).ok();
    let day = || NaiveDate::parse_from_str(&text, "%Y-%m-%d").ok();
    let forms = ["%Y-%m-%d %H:%M:%S%.f%#z", "%Y-%m-%d %H:%M%#z"];
    let zoned = forms.iter().find_map(zoned);
    let forms = ["%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%d %H:%M"];
    let plain = || forms.iter().find_map(plain);
    zoned
        .or_else(plain)
        .or_else(|| day().map(NaiveDateTime::from))
}

/// Returns two timestamps that were selected as one text with `/` between them.
#[cfg(feature = "sqlite")]
fn parse_two(mut value: SqliteValue<'_>) -> [Option<NaiveDateTime>; 2] {
    let text = String::from_utf8_lossy(value.read_blob());
    match text.rsplit_once('/') {
        Some((one, other)) => [parse(one), parse(other)],
        None => [None, None],
    }
}

/// A time; on SQLite the first of two, with `/` between them, that is a calendar time.
#[derive(Debug)]
pub(crate) struct FirstTime(pub(crate) NaiveDateTime);

#[cfg(feature = "postgres")]
impl FromSql<Timestamp, diesel::pg::Pg> for FirstTime {
    fn from_sql(value: diesel::pg::PgValue<'_>) -> deserialize::Result<Self> {
        FromSql::<Timestamp, diesel::pg::Pg>::from_sql(value).map(FirstTime)
    }
}

#[cfg(feature = "sqlite")]
impl FromSql<Timestamp, diesel::sqlite::Sqlite> for FirstTime {
    fn from_sql(value: SqliteValue<'_>) -> deserialize::Result<Self> {
        let [one, other] = parse_two(value);
        Ok(FirstTime(one.or(other).unwrap_or_default()))
    }
}

/// The seconds between two times, `None` if one of them is no calendar time. On Postgres a number; on
/// SQLite both times as one text, with `/` between them.
#[derive(Debug)]
pub(crate) struct SecondsBetween(pub(crate) Option<f64>);

#[cfg(feature = "postgres")]
impl FromSql<Double, diesel::pg::Pg> for SecondsBetween {
    fn from_sql(value: diesel::pg::PgValue<'_>) -> deserialize::Result<Self> {
        let seconds: f64 = FromSql::<Double, diesel::pg::Pg>::from_sql(value)?;
        Ok(SecondsBetween(Some(seconds)))
    }
}

#[cfg(feature = "sqlite")]
impl FromSql<Double, diesel::sqlite::Sqlite> for SecondsBetween {
    fn from_sql(value: SqliteValue<'_>) -> deserialize::Result<Self> {
        let [from, to] = parse_two(value);
        let between = to.zip(from).map(|(to, from)| to - from);
        Ok(SecondsBetween(between.map(|time| time.as_seconds_f64())))
    }
}

impl<DB> FromSql<Nullable<Double>, DB> for SecondsBetween
where
    DB: Backend,
    SecondsBetween: FromSql<Double, DB>,
{
    fn from_sql(value: DB::RawValue<'_>) -> deserialize::Result<Self> {
        <SecondsBetween as FromSql<Double, DB>>::from_sql(value)
    }

    fn from_nullable_sql(value: Option<DB::RawValue<'_>>) -> deserialize::Result<Self> {
        value.map_or(Ok(SecondsBetween(None)), Self::from_sql)
    }
}

#[cfg(all(test, feature = "sqlite"))]
mod tests {
    use super::*;

    #[test]
    fn only_calendar_times_are_parsed() {
        for (text, read) in [
            ("2026-02-28 23:59:58.000250", "2026-02-28 23:59:58.000250"),
            ("2026-02-28 23:59:58", "2026-02-28 23:59:58"),
            ("2026-02-28 23:59:58.5", "2026-02-28 23:59:58.500"),
            ("2026-02-28T23:59:58.000250Z", "2026-02-28 23:59:58.000250"),
            ("2026-02-28 23:59:58.1 +01:00", "2026-02-28 22:59:58.100"),
            ("2026-02-28T23:59-02:30", "2026-03-01 02:29:00"),
            ("2026-02-28 23:59", "2026-02-28 23:59:00"),
            ("2026-02-28", "2026-02-28 00:00:00"),
            // As long as the usual form.
            ("2026-02-28 23:59:58.12 +00", "2026-02-28 23:59:58.120"),
            ("2026-02-28T23:59:58 +00:00", "2026-02-28 23:59:58"),
        ] {
            let time = parse(text).map(|time| time.to_string());
            assert_eq!(time.unwrap_or_default(), read, "{text}");
        }
        for text in [
            "",
            "infinity",
            "2026-02-30 00:00:00.000000",
            "2026-02-28 24:00:00.000000",
            "2026-02-2\u{e9} 23:59:58",
            "1234.5",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
