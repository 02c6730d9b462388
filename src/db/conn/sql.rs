//! Values of statements, and rows that many statements return.

use chrono::{Datelike, NaiveDateTime};
use diesel::QueryableByName;
use diesel::deserialize::{self, FromSql, FromSqlRow};
use diesel::sql_types::{BigInt, Nullable, Text};
use std::time::Duration;

/// Returns a list of ids in the form that `{in ..}` takes.
pub(crate) fn id_list(ids: &[i64]) -> String {
    let mut text = String::with_capacity(2 + ids.len() * 8);
    text.push('[');
    for (index, id) in ids.iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        text.push_str(&id.to_string());
    }
    text.push(']');
    text
}

#[derive(QueryableByName)]
pub(crate) struct Id {
    #[diesel(sql_type = BigInt)]
    pub(crate) id: i64,
}

/// The ids after one and up to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IdRange {
    pub(crate) after: i64,
    pub(crate) up_to: i64,
}

/// Returns a timestamp as text for both databases, in the format of Rails. A later time is cut to
/// the year 9999, as SQLite would sort a year of five digits first.
pub(crate) fn timestamp(time: NaiveDateTime) -> String {
    if time.year() > 9999 {
        return "9999-12-31 23:59:59.000000".to_owned();
    }
    time.format("%Y-%m-%d %H:%M:%S%.6f").to_string()
}

/// The longest delay. SQLite writes no year after 9999: a job for later would have no time, and be
/// due at once.
const LONGEST: Duration = Duration::from_secs(1_000 * 366 * 86_400);

/// Returns a duration in microseconds for a statement, cut to a thousand years.
pub(crate) fn micros(delay: Duration) -> i64 {
    i64::try_from(delay.min(LONGEST).as_micros()).unwrap_or(i64::MAX)
}

/// A row that names a job.
#[derive(QueryableByName)]
pub(crate) struct Execution {
    #[diesel(sql_type = BigInt)]
    pub(crate) job_id: i64,
}

pub(crate) fn job_ids(rows: Vec<Execution>) -> Vec<i64> {
    rows.into_iter().map(|row| row.job_id).collect()
}

/// A text with its invalid bytes replaced by U+FFFD. SQLite stores any bytes as text, valid UTF-8
/// or not.
#[derive(Debug, FromSqlRow)]
pub(crate) struct Lossy(String);

impl From<Lossy> for String {
    fn from(text: Lossy) -> Self {
        text.0
    }
}

#[cfg(feature = "postgres")]
impl FromSql<Text, diesel::pg::Pg> for Lossy {
    fn from_sql(value: diesel::pg::PgValue<'_>) -> deserialize::Result<Self> {
        Ok(Lossy(
            String::from_utf8_lossy(value.as_bytes()).into_owned(),
        ))
    }
}

#[cfg(feature = "sqlite")]
impl FromSql<Text, diesel::sqlite::Sqlite> for Lossy {
    fn from_sql(
        mut value: <diesel::sqlite::Sqlite as diesel::backend::Backend>::RawValue<'_>,
    ) -> deserialize::Result<Self> {
        Ok(Lossy(
            String::from_utf8_lossy(value.read_blob()).into_owned(),
        ))
    }
}

/// The same, of a text that may be NULL.
#[derive(Debug, FromSqlRow)]
pub(crate) struct MaybeLossy(Option<String>);

impl From<MaybeLossy> for Option<String> {
    fn from(text: MaybeLossy) -> Self {
        text.0
    }
}

impl<DB> FromSql<Nullable<Text>, DB> for MaybeLossy
where
    DB: diesel::backend::Backend,
    Lossy: FromSql<Text, DB>,
{
    fn from_sql(value: DB::RawValue<'_>) -> deserialize::Result<Self> {
        let Lossy(text) = Lossy::from_sql(value)?;
        Ok(MaybeLossy(Some(text)))
    }

    fn from_nullable_sql(value: Option<DB::RawValue<'_>>) -> deserialize::Result<Self> {
        value.map_or(Ok(MaybeLossy(None)), Self::from_sql)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_lists_are_json() {
        assert_eq!(id_list(&[]), "[]");
        assert_eq!(id_list(&[1, -2, 30]), "[1,-2,30]");
    }
}
