//! The two dialects of SQL, and the words of our statements that differ in them.

/// A dialect of SQL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Dialect {
    /// Postgres 14 or later.
    Postgres,
    /// SQLite 3.51.3 or later.
    Sqlite,
}

/// The database's clock on Postgres, as a timestamp without zone, in UTC.
const NOW: &str = "(statement_timestamp() AT TIME ZONE 'UTC')";

/// A timestamp of SQLite: its format, without the closing bracket.
const STRFTIME: &str = "strftime('%Y-%m-%d %H:%M:%f000', ";

const CAUTIOUS: &str = "(at_most_once OR crash_count > 0 OR coalesce(max_crashes = 0, false))";

impl Dialect {
    /// Replaces the words that differ:
    ///
    /// - `{now}`: the database's clock as a timestamp without zone, in UTC.
    /// - `IN {in $1}` .. `IN {in $9}`: whether it is one of the numbers of a
    ///   JSON array, or, `IN {in SELECT id FROM held}`, of a few rows. There is
    ///   no `NOT IN` of it.
    /// - `{rows $1}`: the elements of a JSON array, as rows with a `value`; its
    ///   parts are `value ->> 0`, `value ->> 1`, all of them texts.
    /// - `{later $1}`: the database's clock plus so many microseconds.
    /// - `{time $1}`: a text in the form `2026-11-21 10:00:00.000000`.
    /// - `{moment x}`: the timestamp x, or NULL where it is none that a
    ///   calendar has: `infinity`, or whatever else SQLite lets stand there.
    /// - `{lock}`, `{lock skip}`, `{lock of c}`, `{lock skip of c}`: the row locks that SQLite,
    ///   whose write lock is taken already, neither has nor needs.
    ///
    /// And some that do not: `{next x}`, the integer after x, or x where there
    /// is none; and `{cautious}`, whether a job is not to be noted as
    /// begun before a thread is free for it, because a crash that it has no
    /// part in would fail it, or it has been suspected before.
    pub(crate) fn write(self, text: &str) -> String {
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
        // IN would be a join, for which the planner may well read all of a
        // table; an array is looked up in its index, in order.
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
            "CASE WHEN {argument} BETWEEN timestamp '0001-01-01' AND timestamp '9999-12-31' THEN {argument} END"
        ),
        "lock" => lock(argument),
        _ => unknown(name),
    });
}

/// `FOR UPDATE`, of a table if the argument ends with one, and without waiting
/// if it begins with `skip`.
fn lock(argument: &str) -> String {
    let (of, skip) = match argument.strip_prefix("skip") {
        Some(of) => (of.trim_start(), " SKIP LOCKED"),
        None => (argument, ""),
    };
    let space = if of.is_empty() { "" } else { " " };
    format!("FOR UPDATE{space}{of}{skip}")
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
             THEN {argument} ELSE {STRFTIME}{argument}) END"
        ),
        "lock" => String::new(),
        _ => unknown(name),
    }
}

fn unknown(word: &str) -> ! {
    unreachable!("`{{{word}}}` is no word of the SQL templates")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_replaced_and_the_rest_is_left() {
        assert_eq!(
            Dialect::Sqlite.write("SELECT {now} WHERE id IN {in $1}"),
            "SELECT strftime('%Y-%m-%d %H:%M:%f000', 'now') WHERE id IN (SELECT value FROM json_each($1))"
        );
        assert_eq!(
            Dialect::Postgres.write("SELECT 1 WHERE id IN {in SELECT id FROM held}"),
            "SELECT 1 WHERE id = ANY (ARRAY(SELECT id FROM held))"
        );
        assert_eq!(
            Dialect::Sqlite.write("SELECT 1 WHERE id IN {in SELECT id FROM held}"),
            "SELECT 1 WHERE id IN (SELECT id FROM held)"
        );
        assert_eq!(
            Dialect::Postgres.write("SELECT 1 WHERE id IN {in $1} ORDER BY id"),
            "SELECT 1 WHERE id = ANY (ARRAY(SELECT value::bigint FROM json_array_elements_text($1::json))) ORDER BY id"
        );
    }
}
