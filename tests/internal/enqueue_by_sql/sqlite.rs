//! The words of `sqlite.sql`.

use crate::db::conn::dialect::Dialect::Sqlite;
use crate::db::internal_tests::enqueue_by_sql::policy::{Sources, extras_of_sqlite, part_of};
use crate::db::internal_tests::enqueue_by_sql::rates;
use crate::db::internal_tests::enqueue_by_sql::rules::{self, From, Rule};
use crate::db::internal_tests::enqueue_by_sql::{
    CallerColumn, OPTIONS, Words, constants, holds, json_type, must_be_json, with_sources, word,
};
use crate::db::model::job_columns::{JobColumns, JobShape};
use crate::db::model::new_row::{ORDERED, Per, UniqueScope};
use crate::job::arguments::MAX_DEPTH;

/// The columns of a job that was checked, each with its value from the columns of the caller.
const CHECKED: [&str; 23] = [
    "class",
    "queue",
    "arguments",
    "priority",
    "due_at",
    "delay",
    "unique_id",
    "unique_scope",
    "on_conflict",
    "idempotency_key",
    "concurrency_key",
    "concurrency_slots",
    "concurrency_conflict",
    "max_attempts",
    "max_crashes",
    "at_most_once",
    "traceparent",
    "policy",
    "tenant",
    "batch_id",
    "after_batch",
    "runs_on",
    "rates",
];

pub(super) fn words() -> Words {
    let plain = JobShape {
        has_time: true,
        has_active_job_id: true,
        has_own: true,
        has_rate: true,
        ..JobShape::default()
    };
    let (all, plain, replaced) = (
        JobColumns::all(),
        JobColumns::of(plain),
        JobColumns::replaced(),
    );
    let of_new = |input: &str| of_caller("NEW.", input);
    let of_record = |input: &str| of_caller("r.", input);
    let view = OPTIONS.iter().map(|(name, _)| *name);
    let view: Vec<&str> = std::iter::once("class")
        .chain(view)
        .chain(["id", "outcome"])
        .collect();
    let each = |form: &dyn Fn(&str) -> String| -> String {
        let parts = OPTIONS.iter().map(|(name, _)| form(name));
        parts.collect::<Vec<_>>().join(", ")
    };
    let null = |names: &[&str]| -> String {
        let names = names.iter().map(|name| format!("NULL AS {name}"));
        names.collect::<Vec<_>>().join(", ")
    };
    let new = |names: &[&str]| -> String {
        let names = names.iter().map(|name| format!("NEW.{name}"));
        names.collect::<Vec<_>>().join(", ")
    };
    let checked_values = CHECKED.map(|name| match name {
        "class" => "NEW.class".to_owned(),
        "queue" => of_new("queue_name"),
        "unique_scope" => format!(
            "coalesce(NEW.unique_scope, {} ->> '$.unique_scope', '{}')",
            rules::of_class(Sqlite, "policy"),
            UniqueScope::default().column()
        ),
        "on_conflict" => "coalesce(NEW.on_conflict, 'existing')".to_owned(),
        other => of_new(other),
    });
    let mut words = vec![
        word("view columns", null(&view)),
        word("view values", new(&view)),
        word("checked columns", null(&CHECKED)),
        word("checked values", checked_values.join(", ")),
        word("refuse unknown class", refuse_class()),
        word(
            "refuse class",
            refuse(&rules::class(Sqlite, &|name| format!("NEW.{name}"))),
        ),
        word(
            "refuse NEW.",
            refuse(&rules::all(Sqlite, From::Row, &|name| {
                format!("NEW.{name}")
            })),
        ),
        word("refuse r.", refuse(&of_list())),
        word(
            "refuse batch",
            refuse(&rules::batch(Sqlite, ("NEW.name", "NEW.metadata")))
                .replace("cannot enqueue the job", "cannot open the batch"),
        ),
        word(
            "refuse event",
            refuse(&rules::event(Sqlite, ("NEW.name", "NEW.payload")))
                .replace("cannot enqueue the job", "cannot emit the event"),
        ),
        word(
            "nul in jobs",
            r"instr(NEW.jobs, char(0)) OR instr(replace(NEW.jobs, '\\', ''), '\u0000')",
        ),
        word("is wrong", is_wrong()),
        word("refuse key", refuse_key()),
        word("names", all.names()),
        word(
            "values",
            with_sources(Sqlite, &all, &all.parameters(), &of_checked),
        ),
        word(
            "assignments",
            with_sources(Sqlite, &replaced, &replaced.assignments(), &of_checked),
        ),
        word("plain names", plain.names()),
        word(
            "plain values",
            with_sources(Sqlite, &plain, &plain.parameters(), &of_new),
        ),
        word(
            "record values",
            with_sources(Sqlite, &plain, &plain.parameters(), &of_record),
        ),
        word(
            "record columns",
            each(&|name| format!("{} AS {name}", part(name))),
        ),
        word("record columns bare", each(&part)),
        word("keys bare", each(&str::to_owned)),
        word(
            "is named",
            // A subquery is evaluated once for the list.
            "(SELECT instr(NEW.jobs, '\"unique_id\"') OR instr(NEW.jobs, '\"idempotency_key\"') OR instr(NEW.jobs, '\"concurrency_key\"') OR instr(NEW.jobs, '\"after_batch\"') \
             OR EXISTS (SELECT 1 FROM windlass_classes WHERE class_name = NEW.class AND quota IS NOT NULL))",
        ),
        word(
            "inserts",
            "NEW.known IS NULL AND (NEW.holder IS NULL OR NEW.place = 3 AND NEW.on_conflict IN ('replace', 'run_again'))",
        ),
    ];
    for place in ["<= 2", "= 0", "= 1", "= 2"] {
        words.push(word(
            &format!("replaces NEW.place {place}"),
            format!("NEW.known IS NULL AND NEW.place {place} AND NEW.on_conflict = 'replace'"),
        ));
    }
    for place in ["names.place", "names.after_place"] {
        words.push(word(
            &format!("holds names.scope {place}"),
            holds("names.scope", place),
        ));
    }
    for job in ["u.job_id", "u.after_job_id"] {
        words.push(word(&format!("place of {job}"), place_of(job)));
    }
    words.extend(each_words(&plain));
    words.push(word("take places", take_places()));
    words.push(word("expire j", expire()));
    words.extend(constants(Sqlite));
    words
}

/// Returns the statements that take a place in each limit.
fn take_places() -> String {
    let each = rules::LIMITS.iter().map(|(per, field)| {
        let (name, limit) = (per.name(), format!("NEW.limits ->> '$.{field}'"));
        let since = match per.window() {
            Some(window) => Sqlite.render(&format!("{{later -{}}}", window.as_micros())),
            None => "''".to_owned(),
        };
        let start = match per {
            Per::Minute => "%Y-%m-%d %H:%M:00.000000",
            Per::Second => "%Y-%m-%d %H:%M:%S.000000",
            Per::Day | Per::Waiting => "%Y-%m-%d 00:00:00.000000",
        };
        let slot = format!("quota = NEW.quota AND per = '{name}' AND slot = 0 AND {limit} IS NOT NULL");
        let used = format!("CASE WHEN starts_at > {since} THEN jobs ELSE 0 END");
        let waits = ["ready", "scheduled", "blocked"].map(|table| {
            format!("NOT EXISTS (SELECT 1 FROM solid_queue_{table}_executions AS e WHERE e.job_id = windlass_quota_jobs.job_id)")
        });
        let full = format!("{slot} AND jobs + 1 > {limit}");
        // Jobs that do not wait any more give their places back.
        let free = format!(
            "    DELETE FROM windlass_quota_jobs WHERE quota = NEW.quota AND EXISTS (SELECT 1 FROM windlass_quota_slots WHERE {full})\n    \
             AND {};\n    \
             UPDATE windlass_quota_slots SET jobs = (SELECT count(*) FROM windlass_quota_jobs WHERE quota = NEW.quota) WHERE {full};\n",
            waits.join(" AND ")
        );
        let free = if per.window().is_none() { free } else { String::new() };
        let counts = per.counts();
        let starts = if per.window().is_some() {
            format!("CASE WHEN starts_at > {since} THEN starts_at ELSE strftime('{start}', 'now') END")
        } else {
            format!("strftime('{start}', 'now')")
        };
        format!(
            "    INSERT INTO windlass_quota_slots (quota, per, slot, starts_at, jobs, limits)\n    \
             SELECT NEW.quota, '{name}', 0, strftime('{start}', 'now'), 0, NEW.limits WHERE {limit} IS NOT NULL\n    \
             AND NOT EXISTS (SELECT 1 FROM windlass_quota_slots WHERE {slot});\n{free}    \
             SELECT RAISE(ABORT, 'cannot enqueue the job: the quota of its class allows no more {counts}; try again later')\n    \
             FROM windlass_quota_slots WHERE {slot} AND {used} + 1 > {limit};\n    \
             UPDATE windlass_quota_slots SET jobs = {used} + 1, starts_at = {starts}, limits = NEW.limits WHERE {slot};"
        )
    });
    each.collect::<Vec<_>>().join("\n")
}

/// Returns the value of an option in a job `e` of a list.
fn part(name: &str) -> String {
    match name {
        "arguments" => "e.value -> '$.arguments'".to_owned(),
        _ => format!("e.value ->> '$.{name}'"),
    }
}

/// Returns an expression for an input of the statements, from the columns of the caller.
fn of_caller(from: &str, input: &str) -> String {
    let of_class = |column: &str| rules::of_class(Sqlite, column);
    let strict = of_class("at_most_once");
    let once = format!("coalesce({from}at_most_once, {strict}, 0)");
    match input {
        "queue_name" => format!(
            "coalesce({from}queue, {}, 'default')",
            of_class("queue_name")
        ),
        // A list has one class.
        "class_name" => "NEW.class".to_owned(),
        "arguments" => format!("coalesce({from}arguments, 'null')"),
        "priority" => format!("coalesce({from}priority, {}, 0)", of_class("priority")),
        "max_attempts" => format!(
            "coalesce({}, CASE WHEN NOT {once} THEN {} END)",
            integer(&format!("{from}{input}")),
            of_class(input)
        ),
        "max_crashes" => format!(
            "coalesce({}, {})",
            integer(&format!("{from}{input}")),
            of_class(input)
        ),
        "at_most_once" => format!(
            "coalesce({from}at_most_once, {strict}, {} IS NOT NULL)",
            part_of(Sqlite, &of_class("policy"), "delivery")
        ),
        "policy" => policy(from),
        "active_job_id" => "NULL".to_owned(),
        "rates" => stored_rates(from),
        // One with a concurrency key is checked first.
        "gate" => rates::line(
            &format!("{from}tenant"),
            &of_caller(from, "queue_name"),
            &format!("coalesce({from}rates, {})", of_class("rates")),
        ),
        "due_at" => time(&format!("{from}run_at")),
        "delay" => format!("CAST(round({from}delay_seconds * 1000000) AS integer)"),
        "concurrency_key" => format!(
            "coalesce({from}concurrency_group, {from}class) || '/' || {from}concurrency_key"
        ),
        "concurrency_slots" => format!(
            "CASE WHEN {from}concurrency_key IS NOT NULL THEN min(coalesce({from}concurrency_limit, 1), {}) END",
            i32::MAX
        ),
        "concurrency_conflict" => format!("nullif({from}concurrency_on_conflict, 'block')"),
        "traceparent" | "unique_id" | "idempotency_key" | "tenant" | "batch_id" | "after_batch"
        | "runs_on" => {
            format!("{from}{input}")
        }
        _ => panic!("no caller can set {input} yet"),
    }
}

/// Returns the words of the trigger whose jobs differ in their arguments alone.
fn each_words(plain: &JobColumns) -> Words {
    let columns = |name: &str| match name {
        "class" => "NEW.class".to_owned(),
        other => format!("r.{other}"),
    };
    let values = plain.names();
    let values = values.split(", ").map(|name| match name {
        "arguments" => "t.value".to_owned(),
        other => format!("v.{other}"),
    });
    let bare = OPTIONS.map(|(name, _)| match name {
        "arguments" => "t.value".to_owned(),
        other => part(other),
    });
    let keys = [
        "unique_id",
        "idempotency_key",
        "concurrency_key",
        "after_batch",
    ];
    let keys = keys.map(|key| format!("json_type(NEW.options, '$.{key}') IS NOT NULL"));
    let longest = 2 * MAX_DEPTH;
    vec![
        word(
            "refuse r. options",
            refuse(&rules::all(Sqlite, From::List, &columns)),
        ),
        word(
            "refuse arguments t.value",
            refuse(&rules::arguments(
                Sqlite,
                "t.value",
                ["(NEW.options ->> '$.tags')", "(NEW.options ->> '$.meta')"],
            )),
        ),
        word("each values", values.collect::<Vec<_>>().join(", ")),
        word("record columns each", bare.join(", ")),
        word(
            "is special",
            format!(
                "instr(NEW.arguments, '\\u') OR NEW.arguments GLOB '*[0-9][eE]*' OR NEW.arguments GLOB '*{}*' \
                 OR json_type(NEW.options, '$.tags') IS NOT NULL OR json_type(NEW.options, '$.meta') IS NOT NULL \
                 OR max(length(CAST(s.value AS blob))) > min({longest}, coalesce({}, {longest}))",
                "[0-9]".repeat(19),
                rules::of_class(Sqlite, "max_arguments"),
            ),
        ),
        // A subquery is evaluated once for the jobs.
        word(
            "is complex",
            format!(
                "(SELECT {} OR EXISTS (SELECT 1 FROM windlass_classes WHERE class_name = NEW.class AND quota IS NOT NULL))",
                keys.join(" OR ")
            ),
        ),
    ]
}

/// Returns the policy of a job, from the columns of the caller and of its class.
fn policy(from: &str) -> String {
    let column = |name: &str| format!("{from}{name}");
    let of_class = rules::of_class(Sqlite, "policy");
    let extras = extras_of_sqlite(&column, &of_class);
    Sources {
        column: &column,
        of_class,
        extras,
    }
    .policy(Sqlite)
}

/// Returns the rates of a job as they are stored, from the columns of the caller and of its class.
fn stored_rates(from: &str) -> String {
    format!(
        "CASE WHEN {from}rates IS NULL THEN {} ELSE (SELECT '[' || group_concat({}) || ']' FROM json_each({from}rates) AS rate) END",
        rules::of_class(Sqlite, "rates"),
        rates::stored_rate(Sqlite, "NEW.class"),
    )
}

/// Returns the statement that stores by when jobs `j` must have started whose policy says so. The condition on `j` follows.
fn expire() -> String {
    let time = time("(j.policy ->> '$.expiry.at')");
    let longest = crate::job::new_job::LONGEST_DELAY / 1_000;
    let due = Sqlite.render("max(coalesce(j.scheduled_at, {now}), {now})");
    format!(
        "INSERT INTO windlass_expiries (job_id, expires_at) SELECT j.id, min(coalesce({time}, \
         strftime('%Y-%m-%d %H:%M:%f000', {due}, (min(j.policy ->> '$.expiry.in', {longest}) / 1000.0) || ' seconds'), \
         '{{latest expiry}}'), '{{latest expiry}}') FROM solid_queue_jobs AS j \
         WHERE j.policy LIKE '%\"expiry\":%' AND j.policy -> '$.expiry' IS NOT NULL"
    )
}

/// Returns the same from the columns of a job that was checked.
fn of_checked(input: &str) -> String {
    match input {
        "queue_name" => "NEW.queue".to_owned(),
        "class_name" => "NEW.class".to_owned(),
        "active_job_id" => "NULL".to_owned(),
        "gate" => format!(
            "CASE WHEN coalesce(NEW.rates, NEW.tenant) IS NOT NULL THEN (SELECT \
             CASE WHEN NEW.concurrency_conflict = '{ORDERED}' THEN '' ELSE waits.line END || coalesce(char(30) || NEW.concurrency_key, '') \
             FROM (SELECT {} AS line) AS waits WHERE waits.line IS NOT NULL) END",
            rates::line("NEW.tenant", "NEW.queue", "NEW.rates")
        ),
        other if CHECKED.contains(&other) => format!("NEW.{other}"),
        other => panic!("no caller can set {other} yet"),
    }
}

/// Returns a number of the caller in the range of its column; more than that has no limit.
fn integer(number: &str) -> String {
    format!(
        "CASE WHEN {number} < {max} THEN {number} WHEN {number} IS NOT NULL THEN {max} END",
        max = i32::MAX
    )
}

/// Returns a time in the form that Windlass stores, in UTC, with its microseconds, which SQLite's own
/// functions do not keep.
pub(super) fn time(text: &str) -> String {
    let tail = format!("substr({text}, instr({text}, '.') + 1)");
    let digits = format!("substr({tail}, 1, length({tail}) - length(ltrim({tail}, '0123456789')))");
    let rest = format!("ltrim({tail}, '0123456789')");
    format!(
        "CASE WHEN instr({text}, '.') = 0 THEN strftime('%Y-%m-%d %H:%M:%S.000000', {text}) \
         ELSE strftime('%Y-%m-%d %H:%M:%S', substr({text}, 1, instr({text}, '.') - 1) || {rest}) \
           || '.' || substr({digits} || '000000', 1, 6) END"
    )
}

/// Returns an expression: where a job is, as in `windlass_named_job_v2`, or 5.
fn place_of(job: &str) -> String {
    let tables = ["ready", "scheduled", "blocked", "claimed"];
    let cases = tables.iter().enumerate().map(|(place, table)| {
        format!("WHEN EXISTS (SELECT 1 FROM solid_queue_{table}_executions WHERE job_id = {job}) THEN {place} ")
    });
    format!(
        "CASE {}WHEN EXISTS (SELECT 1 FROM windlass_results WHERE job_id = {job} AND expires_at > {}) THEN 4 ELSE 5 END",
        cases.collect::<String>(),
        Sqlite.render("{now}")
    )
}

/// Returns the rules for a list of jobs without names and limits.
fn of_list() -> Vec<Rule> {
    let mut rules = rules::all(Sqlite, From::List, &|name| match name {
        "class" => "NEW.class".to_owned(),
        other => format!("r.{other}"),
    });
    // The list was searched for these keys as they are usually written.
    let names = "coalesce(r.unique_id, r.idempotency_key, r.concurrency_key, r.after_batch)";
    rules.push(Rule {
        condition: format!("{names} IS NOT NULL"),
        says: Some("one of its keys is written with an escape".to_owned()),
    });
    rules
}

/// Returns the types of SQLite for a value of a type of JSON.
fn types_of(json: &str) -> &'static str {
    match json {
        "boolean" => "'true', 'false'",
        "string" => "'text'",
        "array" => "'array'",
        "object" => "'object'",
        _ => "'integer', 'real'",
    }
}

/// Returns a condition: the key `f` of a job `e` of a list is no column, is written with an escape, or
/// its value has another type than that of JSON which is for it.
fn is_wrong() -> String {
    let cases = ["number", "string", "boolean", "array", "object"].map(|json| {
        let names = OPTIONS[1..].iter();
        let names = names.filter(|column| json_type(**column) == json);
        let names: Vec<String> = names.map(|(name, _)| format!("'{name}'")).collect();
        let types = types_of(json);
        format!(
            "WHEN f.key IN ({}) THEN f.type NOT IN ({types}, 'null') ",
            names.join(", ")
        )
    });
    format!(
        "(CASE WHEN f.key = 'arguments' THEN 0 {}ELSE 1 END OR json_type(e.value, '$.' || f.key) IS NULL)",
        cases.concat()
    )
}

/// Returns an expression that refuses a job by such a key.
fn refuse_key() -> String {
    let cases = OPTIONS[1..].iter().copied().map(|column: CallerColumn| {
        let (name, types) = (column.0, types_of(json_type(column)));
        raise(
            &format!("f.key = '{name}' AND f.type NOT IN ({types}, 'null')"),
            &must_be_json(column),
        )
    });
    format!(
        "CASE{}\n        ELSE RAISE(ABORT, 'cannot enqueue the jobs: one of the list has a key that is no column of windlass_enqueue') END",
        cases.collect::<String>()
    )
}

/// Returns an expression that refuses a job by its columns.
fn refuse(rules: &[Rule]) -> String {
    let cases = rules.iter().map(|rule| match &rule.says {
        Some(says) => raise(&rule.condition, says),
        None => format!("\n        WHEN {} THEN NULL", rule.condition),
    });
    format!("CASE{} END", cases.collect::<String>())
}

fn raise(condition: &str, says: &str) -> String {
    let says = says.replace('\'', "''");
    format!(
        "\n        WHEN {condition}\n        THEN RAISE(ABORT, 'cannot enqueue the job: {says}')"
    )
}

/// Returns an expression that refuses the class of the caller: it is internal, or unknown.
fn refuse_class() -> String {
    let internal =
        "EXISTS (SELECT 1 FROM windlass_classes WHERE class_name = NEW.class AND internal)";
    let unknown = "EXISTS (SELECT 1 FROM windlass_settings WHERE name = 'strict_classes' AND value = 'on') \
         AND NOT EXISTS (SELECT 1 FROM windlass_classes WHERE class_name = NEW.class)";
    format!(
        "CASE{}{} END",
        raise(
            internal,
            "its class is internal, so only its program's own code enqueues it"
        ),
        raise(
            unknown,
            "no worker has stored its class, and strict_classes is on; start a worker that performs it, or correct the name"
        ),
    )
}
