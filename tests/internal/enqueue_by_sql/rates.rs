//! The rates of a job as SQL: the rules for them, the form in which they are stored, and the line of a job.

use crate::db::conn::dialect::Dialect;
use crate::db::model::rate::{MOST_RATES, MOST_STARTS};
use crate::job::rate::{LONGEST, PERIODS};

/// Returns the messages about rates: the name of each, its text, and the condition about a rate that SQLite checks.
pub(super) fn rules() -> [(&'static str, String, String); 5] {
    let words = PERIODS.map(|(name, _)| format!("'{name}'")).join(", ");
    let burst = own_burst(Dialect::Sqlite);
    let numbers = ["number", "burst", "cost"].map(is_no_number);
    [
        (
            "shape",
            format!(
                "its rates must be a JSON array of at most {MOST_RATES} objects, each with a number and a period, and maybe \
                 with a burst, a key and a cost"
            ),
            format!(
                "CASE WHEN rate.type <> 'object' THEN 1 ELSE (SELECT count(*) <> count(DISTINCT part.key) \
                 OR max(part.key NOT IN ({PARTS})) FROM json_each(rate.value) AS part) END"
            ),
        ),
        (
            "key",
            "the key of its rate must have 1 to 255 bytes and no control character".to_owned(),
            format!(
                "coalesce(json_type(rate.value, '$.key'), 'null') NOT IN ('text', 'null') \
                 OR length(CAST(rate.value ->> '$.key' AS blob)) NOT BETWEEN 1 AND 255 OR {}",
                has_control(Dialect::Sqlite, "rate.value ->> '$.key'")
            ),
        ),
        (
            "period",
            format!(
                "the period of its rate must be second, minute, hour or day, or an integer of microseconds from 1 to {LONGEST}"
            ),
            format!(
                "CASE json_type(rate.value, '$.period') WHEN 'text' THEN rate.value ->> '$.period' NOT IN ({words}) \
                 WHEN 'integer' THEN rate.value ->> '$.period' NOT BETWEEN 1 AND {LONGEST} ELSE 1 END"
            ),
        ),
        (
            "number",
            format!(
                "the number, the burst and the cost of its rate must be integers from 1 to {MOST_STARTS}, and so must the burst \
                 that its number makes"
            ),
            format!("{} OR {burst} > {MOST_STARTS}", numbers.join(" OR ")),
        ),
        (
            "cost",
            "it costs more starts than the burst of its rate, so it could never start; raise the burst, or split the job"
                .to_owned(),
            format!("rate.value ->> '$.cost' > {burst}"),
        ),
    ]
}

/// Returns a condition: a text has a control character other than NUL.
pub(super) fn has_control(dialect: Dialect, text: &str) -> String {
    match dialect {
        Dialect::Postgres => format!(r#"({text}) COLLATE "C" ~ '[\u0001-\u001f\u007f-\u009f]'"#),
        Dialect::Sqlite => format!(
            "{text} GLOB '*[' || char(1) || '-' || char(31) || char(127) || '-' || char(159) || ']*'"
        ),
    }
}

/// Returns an expression of SQLite: the line of a job without its concurrency key, or NULL if it has no share and no rates.
pub(super) fn line(tenant: &str, queue: &str, rates: &str) -> String {
    let keys = format!(
        "(SELECT group_concat(coalesce(rate.value ->> '$.key', NEW.class), char(31)) FROM json_each({rates}) AS rate)"
    );
    let share = format!(
        "(SELECT char(29) || fair.queue_name || char(28) || {tenant} FROM windlass_fair_queues AS fair \
         WHERE fair.queue_name = {queue} AND NOT fair.is_ending)"
    );
    format!(
        "CASE WHEN {tenant} IS NULL THEN {keys} ELSE coalesce({share} || coalesce(char(31) || {keys}, ''), {keys}) END"
    )
}

/// Returns a condition of SQLite: a part of a rate is no number of starts.
fn is_no_number(name: &str) -> String {
    let types = match name {
        "number" => "'integer'",
        _ => "'integer', 'null'",
    };
    format!(
        "coalesce(json_type(rate.value, '$.{name}'), 'null') NOT IN ({types}) \
         OR rate.value ->> '$.{name}' NOT BETWEEN 1 AND {MOST_STARTS}"
    )
}

/// The message about two rates with one key.
pub(super) const SAME_KEY: &str = "two of its rates have the same key";

/// The parts that a rate may have.
pub(super) const PARTS: &str = "'number', 'period', 'burst', 'key', 'cost'";

/// Returns an expression: a part of a rate, which is `rate.value`.
fn rate_part(dialect: Dialect, name: &str) -> String {
    match dialect {
        Dialect::Postgres if name == "key" => "(rate.value ->> 'key')".to_owned(),
        Dialect::Postgres => format!("CAST(rate.value ->> '{name}' AS bigint)"),
        Dialect::Sqlite => format!("(rate.value ->> '$.{name}')"),
    }
}

/// Returns an expression: the period of a rate in microseconds.
fn micros(dialect: Dialect) -> String {
    let word = match dialect {
        Dialect::Postgres => "rate.value ->> 'period'",
        Dialect::Sqlite => "rate.value ->> '$.period'",
    };
    let cases = PERIODS.map(|(name, micros)| format!("WHEN '{name}' THEN {micros} "));
    format!(
        "CASE {word} {}ELSE {} END",
        cases.concat(),
        rate_part(dialect, "period")
    )
}

/// Returns an expression: the burst of a rate, or that which its number makes.
pub(super) fn own_burst(dialect: Dialect) -> String {
    let of = |name: &str| rate_part(dialect, name);
    let greatest = match dialect {
        Dialect::Postgres => "greatest",
        Dialect::Sqlite => "max",
    };
    format!(
        "coalesce({}, {greatest}(1, coalesce({}, 1), {} * 100000 / ({})))",
        of("burst"),
        of("cost"),
        of("number"),
        micros(dialect)
    )
}

/// Returns an expression: a rate `rate.value` that was checked, as it is stored. `class` is its key if it has none.
pub(super) fn stored_rate(dialect: Dialect, class: &str) -> String {
    let of = |name: &str| rate_part(dialect, name);
    let quoted = match dialect {
        Dialect::Postgres => "to_json",
        Dialect::Sqlite => "json_quote",
    };
    format!(
        "'{{\"key\":' || {quoted}(coalesce({}, {class})) || ',\"number\":' || {} || ',\"period\":' || {} || ',\"burst\":' || {} \
         || CASE WHEN {cost} > 1 THEN ',\"cost\":' || {cost} ELSE '' END || '}}'",
        of("key"),
        of("number"),
        micros(dialect),
        own_burst(dialect),
        cost = of("cost"),
    )
}
