//! The two dialects of SQL, and the placeholders of the statements that differ between them.

use chrono::{Datelike, NaiveDateTime};
use diesel::QueryableByName;
use diesel::deserialize::{self, FromSql, FromSqlRow};
use diesel::sql_types::{BigInt, Nullable, Text};
use std::time::Duration;

/// A dialect of SQL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// Postgres 14 or later.
    Postgres,
    /// SQLite 3.51.3 or later.
    Sqlite,
}

/// The database's clock on Postgres, as a timestamp without time zone, in UTC.
const NOW: &str = "(statement_timestamp() AT TIME ZONE 'UTC')";

/// The start of a SQLite timestamp with its format; the closing bracket is missing.
const STRFTIME: &str = "strftime('%Y-%m-%d %H:%M:%f000', ";

const CAUTIOUS: &str = "(at_most_once OR crash_count > 0 OR coalesce(max_crashes = 0, false))";

impl Dialect {
    /// Returns the text with its placeholders replaced:
    ///
    /// - `{now}`: the database's clock as a timestamp without time zone, in UTC.
    /// - `IN {in $1}` .. `IN {in $9}`: whether it is one of the numbers of a JSON array, or, with
    ///   `IN {in SELECT id FROM held}`, of a few rows. There is no `NOT IN` of it.
    /// - `{rows $1}`: the elements of a JSON array, as rows with a `value`; its parts are `value
    ///   ->> 0`, `value ->> 1`, all of them texts.
    /// - `{later $1}`: the database's clock plus that many microseconds.
    /// - `{time $1}`: a text in the form `2026-11-21 10:00:00.000000`.
    /// - `{moment x}`: the timestamp x, or NULL if it is not a calendar time: `infinity`, or any
    ///   other value that SQLite stores there.
    /// - `{micros x}`: the timestamp x as microseconds since 1970; SQLite has milliseconds of it.
    /// - `{group x}`: the group of the concurrency key x, with `*` for all its keys: `import/*`.
    /// - `{keep}`, `{keep skip}`, ..: a lock of rows that keeps them from being deleted or locked by `{lock}`, and that any number
    ///   of transactions may hold.
    /// - `{hold}`, `{hold skip}`, ..: the lock of an UPDATE that changes no key. It does not wait for `{keep}`, nor that
    ///   for it.
    /// - `{lock}`, `{lock skip}`, `{lock of c}`, `{lock skip of c}`: row locks. SQLite has none and
    ///   needs none, as its write lock is taken already.
    ///
    /// Two are the same in both dialects. `{next x}` is the integer after x, or x if there is none.
    /// `{cautious}` is whether a job must not be marked as started before a thread is free for it:
    /// because it would fail for a crash that it did not cause, or because it has been suspected
    /// before.
    pub(crate) fn render(self, text: &str) -> String {
        let mut out = String::with_capacity(text.len() + 64);
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            let (word, after) = after.split_once('}').unwrap_or((after, ""));
            out.push_str(before);
            self.write_word(word, &mut out);
            rest = after;
        }
        out.push_str(rest);
        out
    }

    fn write_word(self, word: &str, out: &mut String) {
        let (name, argument) = word.split_once(' ').unwrap_or((word, ""));
        match (name, self) {
            ("cautious", _) => out.push_str(CAUTIOUS),
            ("next", _) => out.push_str(&format!(
                "CASE WHEN {argument} < {} THEN {argument} + 1 ELSE {argument} END",
                i32::MAX
            )),
            (_, Dialect::Postgres) => write_postgres(name, argument, out),
            (_, Dialect::Sqlite) => out.push_str(&sqlite(name, argument)),
        }
    }
}

fn write_postgres(name: &str, argument: &str, out: &mut String) {
    if name == "in" && out.ends_with("IN ") {
        // IN would be a join, for which the planner may read the whole table; an array is looked up
        // in the index, in order.
        out.truncate(out.len() - "IN ".len());
    }
    out.push_str(&match name {
        "now" => NOW.to_owned(),
        "in" if argument.starts_with("SELECT ") => format!("= ANY (ARRAY({argument}))"),
        "in" => format!(
            "= ANY (ARRAY(SELECT value::bigint FROM json_array_elements_text({argument}::json)))"
        ),
        "rows" => format!("json_array_elements(CAST({argument} AS json)) AS input (value)"),
        "later" => format!(
            "(statement_timestamp() AT TIME ZONE 'UTC' + {argument} * interval '1 microsecond')"
        ),
        "time" => format!("CAST({argument} AS timestamp)"),
        "moment" => format!(
            "CASE WHEN {argument} BETWEEN timestamp '0001-01-01' AND timestamp '9999-12-31 23:59:59.999999' THEN {argument} END"
        ),
        "group" => format!("substr({argument}, 1, strpos({argument}, '/')) || '*'"),
        "micros" => format!("CAST(extract(epoch FROM {argument}) * 1000000 AS bigint)"),
        "lock" => lock("FOR UPDATE", argument),
        "keep" => lock("FOR KEY SHARE", argument),
        "hold" => lock("FOR NO KEY UPDATE", argument),
        _ => unknown(name),
    });
}

/// Returns a row lock: of a table if the argument ends with one, without waiting if it starts
/// with `skip`.
fn lock(strength: &str, argument: &str) -> String {
    let (of, skip) = match argument.strip_prefix("skip") {
        Some(of) => (of.trim_start(), " SKIP LOCKED"),
        None => (argument, ""),
    };
    let space = if of.is_empty() { "" } else { " " };
    format!("{strength}{space}{of}{skip}")
}

fn sqlite(name: &str, argument: &str) -> String {
    match name {
        "now" => format!("{STRFTIME}'now')"),
        "in" if argument.starts_with("SELECT ") => format!("({argument})"),
        "in" => format!("(SELECT value FROM json_each({argument}))"),
        "rows" => format!("json_each({argument}) AS input"),
        "later" => format!("{STRFTIME}'now', ({argument} / 1000000.0) || ' seconds')"),
        "time" => argument.to_owned(),
        "moment" => format!(
            "CASE WHEN length({argument}) = 26 AND substr({argument}, 20, 1) = '.' \
             AND strftime('%Y-%m-%d %H:%M:%S', {argument}) = substr({argument}, 1, 19) \
             AND substr({argument}, 12, 2) < '24' THEN {argument} ELSE {STRFTIME}{argument}, '+0 days') END"
        ),
        "group" => format!("substr({argument}, 1, instr({argument}, '/')) || '*'"),
        "micros" => format!(
            "CAST(round((julianday({argument}) - 2440587.5) * 86400000.0) AS bigint) * 1000"
        ),
        "lock" | "keep" | "hold" => String::new(),
        _ => unknown(name),
    }
}

fn unknown(word: &str) -> ! {
    unreachable!("`{{{word}}}` is no word of the SQL templates")
}

// --- Values of statements, and rows that many statements return ---

/// Returns a list of ids in the form that `{in ..}` takes.
pub fn id_list(ids: &[i64]) -> String {
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

#[doc(hidden)]
#[derive(Debug, QueryableByName)]
pub struct Id {
    #[diesel(sql_type = BigInt)]
    pub id: i64,
}

/// The same of an aggregate, which has none if there are no rows.
#[doc(hidden)]
#[derive(Debug, QueryableByName)]
pub struct MaybeId {
    #[diesel(sql_type = Nullable<BigInt>)]
    pub id: Option<i64>,
}

/// The ids after one and up to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IdRange {
    pub(crate) after: i64,
    pub(crate) up_to: i64,
}

/// Returns a timestamp as text for both databases, in the format of Rails. A later time is cut to
/// the year 9999, as SQLite would sort a year of five digits first.
pub fn timestamp(time: NaiveDateTime) -> String {
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
#[doc(hidden)]
#[derive(Debug, QueryableByName)]
pub struct Execution {
    #[diesel(sql_type = BigInt)]
    pub job_id: i64,
}

pub(crate) fn job_ids(rows: Vec<Execution>) -> Vec<i64> {
    rows.into_iter().map(|row| row.job_id).collect()
}

/// A text with its invalid bytes replaced by U+FFFD. SQLite stores any bytes as text, valid UTF-8
/// or not.
#[derive(Debug, FromSqlRow)]
pub struct Lossy(String);

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
    fn words_are_replaced_and_the_rest_is_left() {
        assert_eq!(
            Dialect::Sqlite.render("SELECT {now} WHERE id IN {in $1}"),
            "SELECT strftime('%Y-%m-%d %H:%M:%f000', 'now') WHERE id IN (SELECT value FROM json_each($1))"
        );
        assert_eq!(
            Dialect::Postgres.render("SELECT 1 WHERE id IN {in SELECT id FROM held}"),
            "SELECT 1 WHERE id = ANY (ARRAY(SELECT id FROM held))"
        );
        assert_eq!(
            Dialect::Sqlite.render("SELECT 1 WHERE id IN {in SELECT id FROM held}"),
            "SELECT 1 WHERE id IN (SELECT id FROM held)"
        );
        assert_eq!(
            Dialect::Postgres.render("SELECT 1 WHERE id IN {in $1} ORDER BY id"),
            "SELECT 1 WHERE id = ANY (ARRAY(SELECT value::bigint FROM json_array_elements_text($1::json))) ORDER BY id"
        );
    }

    #[test]
    fn id_lists_are_json() {
        assert_eq!(id_list(&[]), "[]");
        assert_eq!(id_list(&[1, -2, 30]), "[1,-2,30]");
    }
}
