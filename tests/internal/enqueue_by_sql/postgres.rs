//! The words of `postgres.sql`.

use crate::db::conn::dialect::Dialect::Postgres;
use crate::db::conn::listening::wake;
use crate::db::internal_tests::enqueue_by_sql::policy::{Sources, part_of};
use crate::db::internal_tests::enqueue_by_sql::rates;
use crate::db::internal_tests::enqueue_by_sql::rules::{self, From, Rule};
use crate::db::internal_tests::enqueue_by_sql::{
    CallerColumn, OPTIONS, TIMES, Words, constants, holds, json_type, must_be_json, with_sources,
    word,
};
use crate::db::model::job_columns::{JobColumns, JobShape};
use crate::db::model::rate::{MOST_RATES, MOST_STARTS};
use crate::db::schema::functions::close_functions;
use crate::db::table::quotas::MOST_SLOTS;
use crate::job::rate::{LONGEST, PERIODS};

pub(super) fn words() -> Words {
    let due = JobShape {
        has_active_job_id: true,
        has_own: true,
        ..JobShape::default()
    };
    let plain = JobShape {
        has_time: true,
        ..due
    };
    let (all, plain, replaced) = (
        JobColumns::all(),
        JobColumns::of(plain),
        JobColumns::replaced(),
    );
    let common = JobColumns::of(due).without_batch();
    let inserted = with_sources(Postgres, &all, &all.parameters(), &of_job);
    let mut words = vec![
        word("names", all.names()),
        word("values", inserted),
        word(
            "assignments",
            with_sources(Postgres, &replaced, &replaced.assignments(), &of_job),
        ),
        word("plain names", plain.names()),
        word(
            "plain values",
            with_sources(Postgres, &plain, &plain.parameters(), &of_record),
        ),
        word(
            "problem p_",
            problem(&rules::all(Postgres, From::Row, &|name| {
                format!("p_{name}")
            })),
        ),
        word(
            "problem r.",
            problem(&rules::all(Postgres, From::List, &checked_record)),
        ),
        word(
            "problem common p_",
            problem(&rules::common(Postgres, &|name| format!("p_{name}"))),
        ),
        word(
            "problem event",
            problem(&rules::event(Postgres, ("p_name", "p_payload"))),
        ),
        word(
            "problem batch",
            problem(&rules::batch(Postgres, ("p_name", "p_metadata"))),
        ),
        word(
            "problem class",
            problem(&rules::class(Postgres, &checked_record)),
        ),
        word(
            "holds v_hold.scope v_place",
            holds("v_hold.scope", "v_place"),
        ),
        word("wake", Postgres.render(&wake("1"))),
        word(
            "wake ready",
            Postgres.render(&wake("(SELECT count(*) FROM ready)")),
        ),
        word("is wrong", is_wrong()),
        word("problem of types", problem_of_types()),
        word("record", record()),
        word(
            "parameters",
            OPTIONS
                .map(|(name, kind)| format!("p_{name} {kind}"))
                .join(", "),
        ),
        word("new values", values(&|name| format!("NEW.{name}"))),
        word(
            "rare p_",
            rules::RARE.map(|name| format!("p_{name}")).join(", "),
        ),
        word("parameter names", values(&|name| format!("p_{name}"))),
        word("common names", common.names()),
        word(
            "common values",
            with_sources(Postgres, &common, &common.parameters(), &of_common),
        ),
        word("record arguments", values(&|name| format!("r.{name}"))),
        word(
            "record options",
            OPTIONS[1..]
                .iter()
                .map(|(name, _)| format!("r.{name}"))
                .collect::<Vec<_>>()
                .join(", "),
        ),
    ];
    for name in ["windlass_enqueue_v2", "windlass_enqueue"] {
        words.push(word(&format!("enqueue function {name}"), function(name)));
    }
    words.extend(each(&plain));
    words.extend([
        word("view columns", view_columns()),
        word("policy", policy_of_job()),
        word("extras of class", part_of(Postgres, OF_CLASS, "extras")),
        word(
            "scope of class",
            format!("CAST({OF_CLASS} AS json) ->> 'unique_scope'"),
        ),
        word("is once", is_once("p_at_most_once")),
        word("expires at j", expires_at()),
        word("tags", rules::tags()),
        word("meta", rules::meta()),
    ]);
    words.extend(rate_words());
    words.push(word("limits", limits()));
    words.push(word("most slots", MOST_SLOTS.to_string()));
    words.push(word("close functions", format!("{};", close_functions())));
    words.extend(constants(Postgres));
    words
}

/// Returns an expression for an input of the statements, from the variables of the function that
/// enqueues a job.
fn of_job(input: &str) -> String {
    match input {
        "queue_name" => "p_queue".to_owned(),
        "class_name" => "p_class".to_owned(),
        "max_attempts" | "max_crashes" => integer(&format!("p_{input}")),
        "policy" => "v_policy".to_owned(),
        "active_job_id" => "NULL".to_owned(),
        "rates" | "gate" => format!("v_{input}"),
        "due_at" => "v_at".to_owned(),
        "delay" => "v_delay".to_owned(),
        "concurrency_key" => "v_key".to_owned(),
        "concurrency_slots" => "v_limit".to_owned(),
        "concurrency_conflict" => "v_on_conflict".to_owned(),
        "arguments" | "priority" | "at_most_once" | "traceparent" | "idempotency_key"
        | "unique_id" | "tenant" | "batch_id" => format!("p_{input}"),
        _ => panic!("no caller can set {input} yet"),
    }
}

/// Returns the same for a job with few columns.
fn of_common(input: &str) -> String {
    match input {
        "queue_name" => "coalesce(p_queue, v_class.queue_name, 'default')".to_owned(),
        "class_name" => "p_class".to_owned(),
        "arguments" => "coalesce(p_arguments, 'null')".to_owned(),
        "priority" => "coalesce(p_priority, v_class.priority, 0)".to_owned(),
        "at_most_once" => "false".to_owned(),
        "max_attempts" | "max_crashes" | "policy" | "traceparent" | "active_job_id" | "tenant" => {
            "NULL".to_owned()
        }
        _ => panic!("{input} is no common column"),
    }
}

/// The condition that a job of a list runs at most once.
const ONCE: &str = "coalesce(r.at_most_once, v_class.at_most_once, false)";

/// Returns the same for a list of jobs, from the record of each.
fn of_record(input: &str) -> String {
    match input {
        "queue_name" => "coalesce(r.queue, v_class.queue_name, 'default')".to_owned(),
        "class_name" => "windlass_enqueue_many_v2.class".to_owned(),
        "arguments" => "coalesce(r.arguments, 'null')".to_owned(),
        "priority" => "coalesce(r.priority, v_class.priority, 0)".to_owned(),
        "max_attempts" => format!(
            "coalesce({}, CASE WHEN NOT {ONCE} THEN v_class.max_attempts END)",
            integer("r.max_attempts")
        ),
        "max_crashes" => format!(
            "coalesce({}, v_class.max_crashes)",
            integer("r.max_crashes")
        ),
        "at_most_once" => is_once("r.at_most_once"),
        "policy" => policy_of_record(),
        "active_job_id" => "NULL".to_owned(),
        "due_at" => "r.run_at AT TIME ZONE 'UTC'".to_owned(),
        "delay" => "CAST(round(r.delay_seconds * 1000000) AS bigint)".to_owned(),
        "traceparent" | "tenant" | "batch_id" => format!("r.{input}"),
        _ => panic!("no caller can set {input} yet"),
    }
}

/// The policy of the class as text.
const OF_CLASS: &str = "v_class.policy";

/// Returns a condition: a job runs at most once, or fails when the outcome of a run is unknown.
fn is_once(own: &str) -> String {
    let refined = part_of(Postgres, OF_CLASS, "delivery");
    format!("coalesce({own}, v_class.at_most_once, {refined} IS NOT NULL, false)")
}

fn policy_of_record() -> String {
    let column = |name: &str| format!("r.{name}");
    Sources {
        column: &column,
        of_class: OF_CLASS.to_owned(),
        extras: part_of(Postgres, OF_CLASS, "extras"), // those of a job with own ones are made one by one
    }
    .policy(Postgres)
}

/// Returns the policy of one job, from the variables of the function that enqueues it.
fn policy_of_job() -> String {
    let column = |name: &str| format!("p_{name}");
    Sources {
        column: &column,
        of_class: OF_CLASS.to_owned(),
        extras: "v_extras".to_owned(),
    }
    .policy(Postgres)
}

/// Returns the words of the function whose jobs differ in their arguments alone.
fn each(plain: &JobColumns) -> Words {
    let options = |column: &str| match column {
        "class" => "p_class".to_owned(),
        "arguments" => "CAST(NULL AS text)".to_owned(),
        other => format!("r.{other}"),
    };
    let keys: Vec<String> = OPTIONS[1..]
        .iter()
        .map(|(name, _)| format!("'{name}'"))
        .collect();
    let values: Vec<String> = OPTIONS[1..]
        .iter()
        .map(|(name, _)| format!("r.{name}"))
        .collect();
    vec![
        word(
            "problem class p_",
            problem(&rules::class(Postgres, &|name| format!("p_{name}"))),
        ),
        word(
            "problem options",
            problem(&rules::all(Postgres, From::List, &options)),
        ),
        word(
            "problem arguments a.",
            problem(&rules::arguments(
                Postgres,
                "a.arguments",
                ["CAST(NULL AS text)"; 2],
            )),
        ),
        word("option keys", keys.join(", ")),
        word("option values r.", values.join(", ")),
        word("policy r.", policy_of_record()),
        word("is once r.", is_once("r.at_most_once")),
        word("attempts r.", of_record("max_attempts")),
        word("crashes r.", of_record("max_crashes")),
        word(
            "each values",
            with_sources(Postgres, plain, &plain.parameters(), &of_each),
        ),
    ]
}

/// Returns an expression for an input of the statements, from the variables of that function.
fn of_each(input: &str) -> String {
    match input {
        "queue_name" => "v_queue".to_owned(),
        "class_name" => "p_class".to_owned(),
        "arguments" => "coalesce(e.arguments, 'null')".to_owned(),
        "priority" => "v_priority".to_owned(),
        "max_attempts" => "v_attempts".to_owned(),
        "max_crashes" => "v_crashes".to_owned(),
        "at_most_once" => "v_once".to_owned(),
        "policy" => "v_policy".to_owned(),
        "due_at" => "v_at".to_owned(),
        "traceparent" | "tenant" => format!("r.{input}"),
        "active_job_id" => "NULL".to_owned(),
        "batch_id" => "r.batch_id".to_owned(),
        "delay" => "CAST(NULL AS bigint)".to_owned(),
        _ => panic!("no caller can set {input} yet"),
    }
}

/// Returns when a job `j` expires, by the part `expiry` of its policy. In a list it is a column of the job.
fn expires_at() -> String {
    let time = "CAST(CAST(expiry ->> 'at' AS timestamptz) AT TIME ZONE 'UTC' AS timestamp)";
    let longest = crate::job::new_job::LONGEST_DELAY / 1_000;
    format!(
        "least(coalesce({time}, greatest(coalesce(j.scheduled_at, {{now}}), {{now}}) \
         + CAST(least(CAST(expiry ->> 'in' AS numeric), {longest}) AS bigint) * interval '1 millisecond'), \
         timestamp '{{latest expiry}}')"
    )
}

fn checked_record(column: &str) -> String {
    match column {
        "class" => "windlass_enqueue_many_v2.class".to_owned(),
        other => format!("r.{other}"),
    }
}

/// Returns a number of the caller in the type of its column; more than that has no limit.
fn integer(number: &str) -> String {
    // `least` would take the other number for NULL.
    format!(
        "CAST(CASE WHEN {number} IS NOT NULL THEN least({number}, {}) END AS integer)",
        i32::MAX
    )
}

/// Returns an expression: what is wrong with a job, or NULL.
fn problem(rules: &[Rule]) -> String {
    let cases = rules.iter().map(|rule| {
        let says = rule.says.as_ref();
        let says = says.map(|says| format!("'{}'", says.replace('\'', "''")));
        let says = says.unwrap_or_else(|| "NULL".to_owned());
        format!("\n        WHEN {} THEN {says}", rule.condition)
    });
    format!("CASE{} END", cases.collect::<String>())
}

/// Returns the jobs of a list, each `e.value`, as records `r`, without their arguments.
fn record() -> String {
    let columns = OPTIONS[1..]
        .iter()
        .map(|(name, kind)| format!("{name} {kind}"));
    let columns: Vec<String> = columns.collect();
    format!("jsonb_to_record(e.value) AS r ({})", columns.join(", "))
}

/// Returns a condition: a column of the list's job `e.value` has another type than that of JSON which is for it.
fn has_another_type(column: CallerColumn) -> String {
    let (name, json) = (column.0, json_type(column));
    format!("jsonb_typeof(e.value -> '{name}') NOT IN ('{json}', 'null')")
}

fn has_no_time() -> String {
    TIMES.map(is_no_time).join(" OR ")
}

fn is_no_time(column: &str) -> String {
    let pattern = rules::TIME_PATTERN;
    format!("(e.value ->> '{column}') COLLATE \"C\" !~ '{pattern}'")
}

/// The columns that the jobs of a list may have often, beside their arguments.
const FREQUENT: [&str; 6] = [
    "queue",
    "priority",
    "run_at",
    "delay_seconds",
    "max_attempts",
    "traceparent",
];

/// Returns a condition: the job `e.value` of a list cannot be read as a record. Each look into it takes time, so most
/// jobs need few of them.
fn is_wrong() -> String {
    let options = OPTIONS[1..].iter().copied();
    let (often, rarely): (Vec<_>, Vec<_>) = options.partition(|(name, _)| FREQUENT.contains(name));
    let types = |columns: Vec<_>| {
        let types: Vec<String> = columns.into_iter().map(has_another_type).collect();
        types.join(" OR ")
    };
    format!(
        "CASE WHEN jsonb_typeof(e.value) <> 'object' THEN true WHEN e.value - 'arguments' = jsonb '{{braces}}' THEN false \
         ELSE {} OR {} OR (e.value - ARRAY['arguments', '{}'] <> jsonb '{{braces}}' \
         AND (e.value - ARRAY[{{keys}}] <> jsonb '{{braces}}' OR {})) END",
        types(often),
        has_no_time(),
        FREQUENT.join("', '"),
        types(rarely),
    )
}

/// Returns an expression: which column of such a job is wrong, and why.
fn problem_of_types() -> String {
    let case =
        |condition: String, says: String| format!("\n            WHEN {condition} THEN '{says}'");
    let types = OPTIONS[1..].iter().copied();
    let types = types.map(|column| case(has_another_type(column), must_be_json(column)));
    let times = TIMES.map(|column| case(is_no_time(column), rules::must_be_a_time(column)));
    format!("CASE{} END", types.chain(times).collect::<String>())
}

/// Returns the columns of the view.
fn view_columns() -> String {
    let columns = std::iter::once(("class", "text"))
        .chain(OPTIONS)
        .chain([("id", "bigint"), ("outcome", "text")]);
    let columns = columns.map(|(name, kind)| format!("CAST(NULL AS {kind}) AS {name}"));
    columns.collect::<Vec<_>>().join(",\n    ")
}

/// Returns the values of the options of one job, in order.
fn values(source: &dyn Fn(&str) -> String) -> String {
    OPTIONS.map(|(name, _)| source(name)).join(", ")
}

/// Returns the words of the function that checks rates.
fn rate_words() -> Words {
    let mut words: Words = rates::rules()
        .into_iter()
        .map(|(name, says, _)| word(&format!("rate {name}"), says))
        .collect();
    let periods = PERIODS.map(|(name, _)| format!("'{name}'"));
    words.extend([
        word("rate same key", rates::SAME_KEY),
        word(
            "rate key has control",
            rates::has_control(Postgres, "rate.value ->> 'key'"),
        ),
        word("rate parts", rates::PARTS),
        word("rate periods", periods.join(", ")),
        word("stored rate", rates::stored_rate(Postgres, "p_class")),
        word("own burst", rates::own_burst(Postgres)),
        word("most rates", MOST_RATES.to_string()),
        word("most starts", MOST_STARTS.to_string()),
        word("longest period", LONGEST.to_string()),
    ]);
    words
}

/// Returns the limits that a quota may have: their order, names, seconds, and what each counts.
fn limits() -> String {
    let all = rules::LIMITS.iter().enumerate();
    let all = all.map(|(place, (per, field))| {
        let seconds = per.window().map(|window| window.as_secs());
        let seconds = seconds.map_or("NULL".to_owned(), |seconds| seconds.to_string());
        let (name, counts) = (per.name(), per.counts());
        format!("({place}, '{name}', '{field}', CAST({seconds} AS bigint), '{counts}')")
    });
    all.collect::<Vec<_>>().join(", ")
}

/// Returns the function that enqueues one job.
///
/// The collation of a caller may take different names for the same, so it is not passed on.
fn function(name: &str) -> String {
    let parameters = OPTIONS.map(|(column, kind)| format!("{column} {kind} DEFAULT NULL"));
    format!(
        "CREATE OR REPLACE FUNCTION {name}(class text, {}) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER AS $$\n\
         BEGIN\n    RETURN (windlass_enqueue_job_v2(NULL, class COLLATE \"default\", {})).id;\nEND;\n$$;",
        parameters.join(", "),
        values(&str::to_owned),
    )
}
