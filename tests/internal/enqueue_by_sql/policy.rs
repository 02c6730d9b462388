//! The policy of a job as SQL: made of the columns of the caller and the policy of the class, part by part, as Rust writes it.

use crate::db::conn::dialect::Dialect;
use crate::job::policy::Policy;

/// The parts of a policy in the order in which Rust writes them.
const PARTS: [&str; 13] = [
    "delivery",
    "backoff",
    "on_failure",
    "keep_finished",
    "keep_result",
    "unique_scope",
    "timeout",
    "timeout_grace",
    "on_timeout",
    "expiry",
    "retry_limit",
    "propagation_style",
    "extras",
];

/// The columns of which a policy is made.
const COLUMNS: [&str; 12] = [
    "unique_scope",
    "tags",
    "meta",
    "version",
    "timeout_seconds",
    "backoff_seconds",
    "backoff_cap_seconds",
    "expires_in_seconds",
    "not_after",
    "retry_for_seconds",
    "keep_result_seconds",
    "at_most_once",
];

/// The sources of a policy.
pub(super) struct Sources<'s> {
    /// A column of the caller.
    pub(super) column: &'s dyn Fn(&str) -> String,
    /// The policy of the class as text, or NULL.
    pub(super) of_class: String,
    /// The extras of the job, from the columns and the class, as JSON text or NULL.
    pub(super) extras: String,
}

impl Sources<'_> {
    /// Returns an expression: the policy as text, or NULL if it says nothing.
    pub(super) fn policy(&self, dialect: Dialect) -> String {
        let of = |name: &str| (self.column)(name);
        let own = COLUMNS.map(of).join(", ");
        let is_of_class = match dialect {
            Dialect::Postgres => format!("num_nonnulls({own}) = 0"),
            Dialect::Sqlite => format!("coalesce({own}) IS NULL"),
        };
        let parts = PARTS.map(|part| {
            let value = match (self.own(dialect, part), self.part_of_class(dialect, part)) {
                (Some(own), _) if part == "extras" => own,
                (Some(own), of_class) => format!("coalesce({own}, {of_class})"),
                (None, of_class) => of_class,
            };
            format!("coalesce(',\"{part}\":' || {value}, '')")
        });
        format!(
            "CASE WHEN {is_of_class} THEN {} ELSE nullif('{{' || substr({}, 2) || '}}', '{{braces}}') END",
            self.of_class,
            parts.join(" || "),
        )
    }

    fn part_of_class(&self, dialect: Dialect, part: &str) -> String {
        let value = part_of(dialect, &self.of_class, part);
        match part {
            // The word of the caller is the whole delivery.
            "delivery" => format!(
                "CASE WHEN {} IS NULL THEN {value} END",
                (self.column)("at_most_once")
            ),
            _ => value,
        }
    }

    /// Returns an expression: a part as the columns of the caller say it, or NULL if they do not.
    fn own(&self, dialect: Dialect, part: &str) -> Option<String> {
        let of = |name: &str| (self.column)(name);
        let millis = |name: &str| millis(dialect, &of(name));
        let in_object = |key: &str, value: &str| format!("'{{\"{key}\":' || {value} || '}}'");
        let made = match part {
            "backoff" => {
                let (first, cap) = (millis("backoff_seconds"), millis("backoff_cap_seconds"));
                format!(
                    "CASE WHEN {} IS NULL THEN {} ELSE '{{\"exponential\":{{\"first\":' || {first} \
                     || ',\"cap\":' || {cap} || '}}}}' END",
                    of("backoff_cap_seconds"),
                    in_object("fixed", &first),
                )
            }
            "keep_result" => millis("keep_result_seconds"),
            "unique_scope" => format!("'\"' || {} || '\"'", of("unique_scope")),
            "timeout" => millis("timeout_seconds"),
            "expiry" => format!(
                "coalesce({}, {})",
                in_object("in", &millis("expires_in_seconds")),
                in_object(
                    "at",
                    &format!("'\"' || {} || '\"'", rfc3339(dialect, &of("not_after")))
                ),
            ),
            "retry_limit" => in_object("for", &millis("retry_for_seconds")),
            "extras" => self.extras.clone(),
            _ => return None,
        };
        Some(made)
    }
}

/// Returns an expression: a part of a policy, as JSON text or NULL.
pub(super) fn part_of(dialect: Dialect, policy: &str, part: &str) -> String {
    match dialect {
        Dialect::Postgres => format!("CAST(CAST({policy} AS json) -> '{part}' AS text)"),
        Dialect::Sqlite => format!("({policy} -> '$.{part}')"),
    }
}

/// Returns an expression: seconds as whole milliseconds, rounded up as Rust does.
fn millis(dialect: Dialect, seconds: &str) -> String {
    let integer = match dialect {
        Dialect::Postgres => "bigint",
        Dialect::Sqlite => "integer",
    };
    // Less than a microsecond counts as one.
    format!(
        "CAST((CAST(CASE WHEN {seconds} > 0 AND {seconds} < 0.000001 THEN 1 ELSE round({seconds} * 1000000) END AS {integer}) + 999) \
         / 1000 AS text)"
    )
}

/// Returns an expression: a time in UTC with as many digits of the second as Rust writes.
fn rfc3339(dialect: Dialect, time: &str) -> String {
    match dialect {
        Dialect::Postgres => format!(
            "regexp_replace(to_char({time} AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US'), '([.]000000|000)$', '') || 'Z'"
        ),
        Dialect::Sqlite => {
            let stored = super::sqlite::time(time);
            format!(
                "CASE WHEN {stored} LIKE '%.000000' THEN substr({date}, 1, 19) WHEN {stored} LIKE '%000' \
                 THEN substr({date}, 1, 23) ELSE {date} END || 'Z'",
                date = format_args!("replace({stored}, ' ', 'T')"),
            )
        }
    }
}

/// Returns an expression of SQLite: the tags, the metadata and the version of a job, as JSON text or NULL. Those of the class
/// are added; of both, that of the caller counts.
pub(super) fn extras_of_sqlite(column: &dyn Fn(&str) -> String, of_class: &str) -> String {
    let (tags, meta, version) = (column("tags"), column("meta"), column("version"));
    let class = part_of(Dialect::Sqlite, of_class, "extras");
    let both = |own: &str, part: &str, empty: &str| {
        format!(
            "SELECT key, value, type, fullkey, 0 AS place, {own} AS whole FROM json_each(coalesce({own}, '{empty}')) \
             UNION ALL SELECT key, value, type, fullkey, 1, {class} -> '$.{part}' FROM json_each(coalesce({class} -> '$.{part}', '{empty}'))"
        )
    };
    let all_tags = format!(
        "(SELECT json_group_array(value) FROM (SELECT value, min(place * 100 + key) FROM ({}) GROUP BY value ORDER BY 2))",
        both(&tags, "tags", "[]")
    );
    let all_meta = format!(
        "(SELECT json_group_object(key, json(part)) FROM (SELECT key, CASE WHEN type IN ('object', 'array') THEN value \
         WHEN type IN ('true', 'false') THEN type ELSE coalesce(whole -> fullkey, json_quote(value)) END AS part, min(place) \
         FROM ({}) GROUP BY key ORDER BY key))",
        both(&meta, "meta", "{braces}")
    );
    format!(
        "CASE WHEN coalesce({tags}, {meta}, {version}) IS NULL THEN {class} ELSE nullif('{{' || substr(\
         coalesce(',\"tags\":' || nullif({all_tags}, '[]'), '') || coalesce(',\"meta\":' || nullif({all_meta}, '{{braces}}'), '') \
         || CASE WHEN {version} <> 1 THEN ',\"version\":' || {version} ELSE '' END, 2) || '}}', '{{braces}}') END"
    )
}

#[test]
fn the_parts_are_those_of_a_policy() {
    let written = serde_json::json!({
        "delivery": "after_known_outcome",
        "backoff": {"fixed": 1},
        "on_failure": {"class": "a", "queue": "b", "priority": 0},
        "keep_finished": true,
        "keep_result": 1,
        "unique_scope": "while_waiting",
        "timeout": 1,
        "timeout_grace": 1,
        "on_timeout": "fail",
        "expiry": {"in": 1},
        "retry_limit": {"for": 1},
        "propagation_style": "child",
        "extras": {"tags": ["a"], "meta": {"b": 1}, "version": 2},
    });
    let read: Policy = serde_json::from_value(written.clone()).unwrap();
    let text = serde_json::to_string(&read).unwrap();
    let again: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(again, written);
    let places = PARTS.map(|part| text.find(&format!("\"{part}\":")).unwrap());
    assert!(places.is_sorted(), "{text}");
}
