//! The rules of an enqueue as SQL: what [`NewJob`](crate::NewJob) refuses, in both dialects.

use crate::db::conn::dialect::Dialect;
use crate::db::internal_tests::enqueue_by_sql::rates;
use crate::db::model::extras::{MAX_LABEL, MAX_TAGS};
use crate::db::model::new_row::Per;
use crate::db::model::rate::MOST_RATES;
use crate::db::table::flows::batches::{IS_OPEN, IS_OURS};
use crate::db::table::run_time::MAX_PAYLOAD;
use crate::flow::batch::MOST_METADATA;
use crate::flow::waits::{LARGEST_PAYLOAD, LONGEST_NAME};
use crate::job::arguments::MAX_DEPTH;
use crate::job::bounds::{MAX_ARGUMENTS, ONE_ATTEMPT};
use crate::job::concurrency::MAX_KEY;
use crate::job::new_job::LONGEST_DELAY;
use crate::queue::{MAX_NAME, NAME_MARKS};

/// The limits that a quota may have, and their names, in the order in which they are asked.
pub(super) const LIMITS: [(Per, &str); 4] = [
    (Per::Day, "per_day"),
    (Per::Minute, "per_minute"),
    (Per::Second, "per_second"),
    (Per::Waiting, "waiting"),
];

/// A condition about a job, in the order in which they are checked: the first that is met decides.
pub(super) struct Rule {
    pub(super) condition: String,
    /// The message about a job that is refused: `its queue must ..`. `None` if the job is good.
    pub(super) says: Option<String>,
}

/// The source of the columns of a job.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum From {
    /// A row, or the parameters of a function.
    Row,
    /// An object of a list, so that its arguments are JSON. The class, which all have in common, is
    /// checked before.
    List,
    /// An event, whose payload follows the rules of arguments.
    Event,
}

/// Makes the rules of one dialect for columns that `column` finds.
pub(super) struct Rules<'c> {
    dialect: Dialect,
    from: From,
    column: &'c dyn Fn(&str) -> String,
    rules: Vec<Rule>,
}

/// The columns of jobs that most jobs do not have.
pub(super) const RARE: [&str; 29] = [
    "run_at",
    "delay_seconds",
    "unique_id",
    "unique_scope",
    "on_conflict",
    "idempotency_key",
    "concurrency_key",
    "concurrency_group",
    "concurrency_limit",
    "concurrency_on_conflict",
    "max_attempts",
    "max_crashes",
    "at_most_once",
    "traceparent",
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
    "tenant",
    "batch_id",
    "after_batch",
    "runs_on",
    "rates",
];

/// Returns the message about tags.
pub(super) fn tags() -> String {
    format!(
        "its tags must be a JSON array of at most {MAX_TAGS} texts, each of 1 to {MAX_LABEL} bytes and without NUL"
    )
}

/// Returns the message about metadata.
pub(super) fn meta() -> String {
    format!(
        "its meta must be a JSON object of at most {MAX_TAGS} keys, each of 1 to {MAX_LABEL} bytes and without NUL"
    )
}

/// Returns the message about a column that is not a valid time.
pub(super) fn must_be_a_time(column: &str) -> String {
    format!("its {column} must be a time in the years 1 to 9999, as 2026-12-24T18:00:00Z")
}

/// The pattern of the times that SQLite reads, for Postgres, which would take `now` and others.
pub(super) const TIME_PATTERN: &str = "^[0-9]{4}-[0-9]{2}-[0-9]{2}([T ]([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9]([.][0-9]+)?)?\
     (Z|[+-](0[0-9]|1[0-4]):[0-5][0-9])?)?$";

/// Returns the rules for columns that `column` finds.
pub(super) fn all(dialect: Dialect, from: From, column: &dyn Fn(&str) -> String) -> Vec<Rule> {
    let mut rules = Rules::new(dialect, from, column);
    if from == From::Row {
        rules.class();
    }
    rules.name("queue");
    rules.priority();
    rules.arguments();
    let rare = RARE.map(column).join(", ");
    rules.rules.push(Rule {
        condition: match dialect {
            Dialect::Postgres => format!("num_nonnulls({rare}) = 0"),
            Dialect::Sqlite => format!("coalesce({rare}) IS NULL"),
        },
        says: None,
    });
    rules.keys();
    rules.limit();
    rules.times();
    rules.numbers();
    rules.extras();
    rules.policy();
    rules.batches();
    rules.rates();
    rules.rules
}

/// Returns the rules for the columns that most jobs have.
pub(super) fn common(dialect: Dialect, column: &dyn Fn(&str) -> String) -> Vec<Rule> {
    let mut rules = all(dialect, From::Row, column);
    let last = rules.iter().position(|rule| rule.says.is_none());
    rules.truncate(last.unwrap_or(rules.len()));
    rules
}

/// Returns the rules for an event: its name, and its payload, which is text.
pub(super) fn event(dialect: Dialect, (name, payload): (&str, &str)) -> Vec<Rule> {
    let none = |_: &str| String::new();
    let mut rules = Rules::new(dialect, From::Event, &none);
    let refuses = [
        format!("{name} IS NULL"),
        rules.is_no("'text'", name),
        format!("{} NOT BETWEEN 1 AND {LONGEST_NAME}", rules.bytes(name)),
        rules.has_nul(name),
    ];
    rules.add(
        any(&refuses),
        format!("its name must have 1 to {LONGEST_NAME} bytes and no NUL"),
    );
    let refuses = [rules.is_no("'text'", payload), rules.is_too_large(payload)];
    rules.add(
        any(&refuses),
        format!(
            "its payload must be JSON text of at most {LARGEST_PAYLOAD} bytes, or as many as `windlass events max` has set; \
             store the data elsewhere and pass a reference"
        ),
    );
    rules.json("payload", payload, MAX_DEPTH);
    rules.rules
}

/// Returns the rules for a batch: its name, and its metadata, which is text.
pub(super) fn batch(dialect: Dialect, (name, metadata): (&str, &str)) -> Vec<Rule> {
    let column = |_: &str| name.to_owned();
    let mut rules = Rules::new(dialect, From::Event, &column);
    rules.add(format!("{name} IS NULL"), "its name is missing");
    rules.name("name");
    let refuses = [
        rules.is_no("'text'", metadata),
        format!("{} > {MOST_METADATA}", rules.bytes(metadata)),
    ];
    rules.add(
        any(&refuses),
        format!("its metadata must be JSON text of at most {MOST_METADATA} bytes"),
    );
    rules.json("metadata", metadata, MAX_DEPTH);
    rules.rules
}

/// Returns the rules for arguments alone, beside tags and metadata that were checked.
pub(super) fn arguments(dialect: Dialect, text: &str, [tags, meta]: [&str; 2]) -> Vec<Rule> {
    let column = |name: &str| match name {
        "arguments" => text.to_owned(),
        "tags" => tags.to_owned(),
        _ => meta.to_owned(),
    };
    let mut rules = Rules::new(dialect, From::Row, &column);
    rules.arguments();
    rules.rules
}

/// Returns the rules for the class alone.
pub(super) fn class(dialect: Dialect, column: &dyn Fn(&str) -> String) -> Vec<Rule> {
    let mut rules = Rules::new(dialect, From::Row, column);
    rules.class();
    rules.rules
}

/// Returns an expression: a column of the job's class, or NULL if no worker has stored it.
pub(super) fn of_class(dialect: Dialect, column: &str) -> String {
    match dialect {
        Dialect::Postgres => format!("v_class.{column}"),
        Dialect::Sqlite => {
            format!(
                "(SELECT known.{column} FROM windlass_classes AS known WHERE known.class_name = NEW.class)"
            )
        }
    }
}

impl<'c> Rules<'c> {
    fn new(dialect: Dialect, from: From, column: &'c dyn Fn(&str) -> String) -> Self {
        Rules {
            dialect,
            from,
            column,
            rules: Vec::new(),
        }
    }

    fn of(&self, column: &str) -> String {
        (self.column)(column)
    }

    fn is_postgres(&self) -> bool {
        self.dialect == Dialect::Postgres
    }

    fn add(&mut self, condition: String, says: impl Into<String>) {
        let says = Some(says.into());
        self.rules.push(Rule { condition, says });
    }

    /// Returns the number of bytes of a text.
    fn bytes(&self, text: &str) -> String {
        match self.dialect {
            Dialect::Postgres => format!("octet_length({text})"),
            Dialect::Sqlite => format!("length(CAST({text} AS blob))"),
        }
    }

    /// Returns a condition that SQLite needs, where any column takes any value.
    fn is_no(&self, kinds: &str, value: &str) -> String {
        match self.dialect {
            Dialect::Postgres => "false".to_owned(),
            Dialect::Sqlite => format!("typeof({value}) NOT IN ('null', {kinds})"),
        }
    }

    /// Returns a condition: the payload of an event is larger than what is set, or the default.
    fn is_too_large(&self, payload: &str) -> String {
        let size = self.bytes(payload);
        let value = match self.dialect {
            Dialect::Postgres => "CAST(substring(s.value FROM '^[0-9]{1,9}$') AS integer)",
            Dialect::Sqlite => "CAST(s.value AS integer)",
        };
        format!(
            "({size} > {LARGEST_PAYLOAD} AND {size} > coalesce((SELECT {value} FROM windlass_settings AS s \
             WHERE s.name = '{MAX_PAYLOAD}'), 0))"
        )
    }

    fn has_nul(&self, text: &str) -> String {
        match self.dialect {
            Dialect::Postgres => "false".to_owned(), // its texts have none
            Dialect::Sqlite => format!("instr({text}, char(0)) > 0"),
        }
    }

    fn class(&mut self) {
        let class = self.of("class");
        self.add(format!("{class} IS NULL"), "its class is missing");
        self.name("class");
    }

    fn name(&mut self, column: &str) {
        let value = self.of(column);
        let size = self.bytes(&value);
        let foreign = match self.dialect {
            Dialect::Postgres => format!("{value} COLLATE \"C\" ~ '[^a-zA-Z0-9{NAME_MARKS}]'"),
            Dialect::Sqlite => format!("{value} GLOB '*[^a-zA-Z0-9{NAME_MARKS}]*'"),
        };
        let refuses = [
            self.is_no("'text'", &value),
            format!("{size} NOT BETWEEN 1 AND {MAX_NAME}"),
            foreign,
            self.has_nul(&value),
        ];
        let marks: Vec<String> = NAME_MARKS.chars().map(|mark| format!("`{mark}`")).collect();
        self.add(
            any(&refuses),
            format!(
                "its {column} must have 1 to {MAX_NAME} bytes, only ASCII letters, digits and {}",
                marks.join(" ")
            ),
        );
    }

    fn priority(&mut self) {
        if self.is_postgres() {
            return; // the type of the column
        }
        let priority = self.of("priority");
        self.add(
            any(&[
                self.is_no("'integer'", &priority),
                format!("{priority} NOT BETWEEN {} AND {}", i32::MIN, i32::MAX),
            ]),
            "its priority must be an integer of 32 bits",
        );
    }

    fn arguments(&mut self) {
        let text = self.of("arguments");
        // Beside `null`, which is shorter than any maximum, the texts of the tags and the metadata count.
        let extras = ["tags", "meta"].map(|column| {
            let size = self.bytes(&self.of(column));
            format!(" + coalesce({size} + 9, 0)")
        });
        let size = format!("coalesce({}, 0){}", self.bytes(&text), extras.concat());
        let most = of_class(self.dialect, "max_arguments");
        self.add(
            any(&[
                self.is_no("'text'", &text),
                format!("{size} > coalesce({most}, {MAX_ARGUMENTS})"),
            ]),
            format!(
                "its arguments must be JSON text of at most {MAX_ARGUMENTS} bytes, or as many as its class takes, with the \
                 tags and the metadata; store the data elsewhere and pass a reference"
            ),
        );
        self.json("arguments", &text, MAX_DEPTH);
    }

    /// Adds the rules for text that is JSON, nested no deeper than so.
    fn json(&mut self, what: &str, text: &str, deepest: usize) {
        let (are, verb) = match what {
            "payload" | "meta" | "metadata" => ("is", "contains"),
            _ => ("are", "contain"),
        };
        let size = self.bytes(text);
        let (nul, is_too_deep) = match self.dialect {
            Dialect::Postgres => (
                format!(r"strpos(replace({text}, E'\\\\', ''), E'\\u0000') > 0"),
                // A text that is deep enough is longer than that.
                format!("{size} > 2 * {deepest} AND windlass_is_too_deep({text}, {deepest})"),
            ),
            Dialect::Sqlite => {
                if self.from != From::List {
                    self.add(
                        format!("{text} IS NOT NULL AND NOT json_valid({text})"),
                        format!("its {what} {are} not JSON"),
                    );
                }
                (
                    format!(
                        r"{} OR instr(replace({text}, '\\', ''), '\u0000') > 0",
                        self.has_nul(text)
                    ),
                    depth(text, deepest),
                )
            }
        };
        self.add(
            nul,
            format!(
                "its {what} {verb} a NUL character, which Postgres cannot keep; encode binary data"
            ),
        );
        self.add(
            is_too_deep,
            format!(
                "its {what} {are} nested deeper than {deepest} arrays and objects, and could not be decoded again; \
                 store the data elsewhere and pass a reference"
            ),
        );
        self.add(
            self.has_lone_surrogate(text),
            format!("its {what} could not be read again: a text has half of a surrogate pair"),
        );
        self.add(
            self.has_wide_number(text),
            format!(
                "its {what} could not be read again: a number is beyond a float, or an integer of more than 64 bits; \
                 pass it as a text"
            ),
        );
    }

    /// Returns a condition: JSON text has `\ud800` without its other half, or the other way round.
    fn has_lone_surrogate(&self, text: &str) -> String {
        let (high, low) = (r"\u[dD][89abAB][0-9a-fA-F][0-9a-fA-F]", r"\u[dD][c-fC-F]");
        if self.is_postgres() {
            let pattern = format!(r"{high}(?!{low})|(?<!{high}){low}").replace(r"\u", r"\\\\u");
            return format!(
                r"strpos(lower({text}), E'\\ud') > 0 AND replace({text}, E'\\\\', '//') ~ E'{pattern}'"
            );
        }
        let hex = "[0-9a-fA-F]";
        // A first half without the second one after it, or a second half without the first one before it.
        let lone = [
            format!(r"{high}[^\]"),
            format!(r"{high}\[^u]"),
            format!(r"{high}\u[^dD]"),
            format!(r"{high}\u[dD][^c-fC-F]"),
            format!("[^0-9a-fA-F]{low}"),
            format!("[^0-9a-fA-F]{hex}{low}"),
            format!("[^89abAB]{hex}{hex}{low}"),
            format!("[^dD]???{low}"),
            format!("[^u]????{low}"),
            format!(r"[^\]?????{low}"),
        ];
        let lone = lone.map(|pattern| format!(r"replace({text}, '\\', '//') GLOB '*{pattern}*'"));
        format!(
            r"{text} GLOB '*\u[dD][89a-fA-F]*' AND ({})",
            lone.join(" OR ")
        )
    }

    /// Returns a condition: a number in JSON text is beyond a float, or an integer of more than 64 bits.
    fn has_wide_number(&self, text: &str) -> String {
        if self.is_postgres() {
            return format!(
                "{text} ~ '[0-9]{{19}}|[eE][+]?[0-9]{{3}}' AND windlass_has_wide_number({text})"
            );
        }
        let digits = "[0-9]".repeat(19);
        // SQLite reads an integer of more than 63 bits as a float.
        format!(
            "({text} GLOB '*{digits}*' OR {text} GLOB '*[0-9][eE]*') AND EXISTS (SELECT 1 FROM json_tree({text}) AS part \
             WHERE (part.type = 'real' AND abs(part.atom) > 1.7976931348623157e308) OR (part.type = 'integer' \
             AND typeof(part.atom) = 'real' AND (part.atom > 18446744073709551616.0 OR part.atom < -9223372036854775808.0)))"
        )
    }

    fn keys(&mut self) {
        for column in ["idempotency_key", "unique_id"] {
            let value = self.of(column);
            let size = self.bytes(&value);
            let refuses = [
                self.is_no("'text'", &value),
                format!("{size} NOT BETWEEN 1 AND {MAX_NAME}"),
                self.has_nul(&value),
            ];
            self.add(
                any(&refuses),
                format!("its {column} must have 1 to {MAX_NAME} bytes and no NUL"),
            );
        }
        for (column, known) in [
            (
                "unique_scope",
                "'while_waiting', 'until_finished', 'until_result_expires'",
            ),
            (
                "on_conflict",
                "'existing', 'refuse', 'replace', 'run_again'",
            ),
            ("concurrency_on_conflict", "'block', 'discard', 'ordered'"),
        ] {
            let says = format!("its {column} must be one of {}", known.replace('\'', ""));
            self.add(format!("{} NOT IN ({known})", self.of(column)), says);
        }
    }

    fn limit(&mut self) {
        let (key, group) = (self.of("concurrency_key"), self.of("concurrency_group"));
        let limit = self.of("concurrency_limit");
        let whole = format!("coalesce({group}, {}) || '/' || {key}", self.of("class"));
        let size = self.bytes(&whole);
        let refuses = [
            self.is_no("'text'", &key),
            self.is_no("'text'", &group),
            format!("{key} = ''"),
            format!("{group} = ''"),
            format!("{size} > {MAX_KEY}"),
            self.has_nul(&whole),
        ];
        self.add(
            any(&refuses),
            format!(
                "its concurrency_key and concurrency_group must not be empty, have at most {MAX_KEY} bytes together, and no NUL"
            ),
        );
        let on_conflict = self.of("concurrency_on_conflict");
        self.add(
            format!(
                "{key} IS NULL AND ({limit} IS NOT NULL OR {group} IS NOT NULL OR {on_conflict} IS NOT NULL)"
            ),
            "its concurrency_key is missing, without which there is no limit",
        );
        self.add(
            any(&[self.is_no("'integer'", &limit), format!("{limit} < 1")]),
            "its concurrency_limit must be 1 or more; pause its queue to stop its jobs",
        );
        self.add(
            format!("{on_conflict} = 'ordered' AND {limit} <> 1"),
            "its concurrency key is ordered, so its concurrency_limit must be 1",
        );
    }

    fn times(&mut self) {
        let (at, delay) = (self.of("run_at"), self.of("delay_seconds"));
        self.add(
            format!("{at} IS NOT NULL AND {delay} IS NOT NULL"),
            "it has both run_at and delay_seconds; choose one",
        );
        self.time("run_at");
        self.seconds("delay_seconds", ">=", "0 or more");
    }

    fn time(&mut self, column: &str) {
        let at = self.of(column);
        let is_wrong = match self.dialect {
            Dialect::Postgres => format!(
                "{at} AT TIME ZONE 'UTC' NOT BETWEEN timestamp '0001-01-01' AND timestamp '9999-12-31 23:59:59.999999'"
            ),
            Dialect::Sqlite => format!(
                "{at} IS NOT NULL AND (typeof({at}) <> 'text' OR {at} NOT GLOB '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]*' \
                 OR date(substr({at}, 1, 10), '+0 days') IS NOT substr({at}, 1, 10) OR datetime({at}) IS NULL \
                 OR datetime({at}) NOT BETWEEN '0001-01-01' AND '9999-12-31 23:59:59' OR substr({at}, 12, 2) = '24' OR {nul} \
                 OR (length({at}) > 10 AND substr({at}, 11) NOT GLOB '[T ][0-9][0-9]:[0-9][0-9]*') \
                 OR NOT ({zone} IN ('', 'Z') OR {zone} GLOB '[+-][0-9][0-9]:[0-9][0-9]'))",
                nul = self.has_nul(&at),
                zone = format_args!("ltrim(substr({at}, 12), '0123456789:.')"),
            ),
        };
        self.add(is_wrong, must_be_a_time(column));
    }

    /// Adds the rule for a number of seconds that is at least 0, or above it.
    fn seconds(&mut self, column: &str, above: &str, least: &str) {
        let value = self.of(column);
        self.add(
            any(&[
                self.is_no("'integer', 'real'", &value),
                format!(
                    "NOT ({value} {above} 0 AND {value} <= {})",
                    LONGEST_DELAY / 1_000_000
                ),
            ]),
            format!("its {column} must be {least}, and at most 1000 years"),
        );
    }

    fn numbers(&mut self) {
        for (column, least, most) in [
            ("max_attempts", 1, ""),
            ("max_crashes", 0, ""),
            ("version", 1, " and at most 4294967295"),
        ] {
            let value = self.of(column);
            let is_more = match most {
                "" => "false".to_owned(),
                _ => format!("{value} > {}", u32::MAX),
            };
            self.add(
                any(&[
                    self.is_no("'integer'", &value),
                    format!("{value} < {least}"),
                    is_more,
                ]),
                format!("its {column} must be an integer, {least} or more{most}"),
            );
        }
        let once = self.of("at_most_once");
        if !self.is_postgres() {
            self.add(
                format!("{once} NOT IN (0, 1)"),
                "its at_most_once must be true or false",
            );
        }
        let of_class = of_class(self.dialect, "at_most_once");
        self.add(
            format!(
                "coalesce({once}, {of_class}) AND {} > 1",
                self.of("max_attempts")
            ),
            ONE_ATTEMPT,
        );
        let header = self.of("traceparent");
        self.add(
            self.is_no_traceparent(&header),
            "its traceparent is not one of W3C Trace Context; pass the header as it is, \
             `00-<32 digits>-<16 digits>-<2 digits>` with lower-case hexadecimal digits",
        );
    }

    /// Adds the rules for tags and metadata. Postgres checks their parts in `windlass_extras`.
    fn extras(&mut self) {
        let (tags, meta) = (self.of("tags"), self.of("meta"));
        for (column, text) in [("tags", &tags), ("meta", &meta)] {
            let no_text = self.is_no("'text'", text);
            if no_text != "false" {
                self.add(no_text, format!("its {column} must be JSON text"));
            }
            // They are stored within an object.
            self.json(column, text, MAX_DEPTH - 1);
        }
        if self.is_postgres() {
            return;
        }
        let (tags_say, meta_say) = (self::tags(), self::meta());
        let is_no_label =
            |text: &str| format!("length(CAST({text} AS blob)) NOT BETWEEN 1 AND {MAX_LABEL}");
        self.add(
            format!(
                "json_type({tags}) <> 'array' OR (SELECT count(DISTINCT tag.value) > {MAX_TAGS} \
                 OR max(tag.type <> 'text' OR {}) FROM json_each({tags}) AS tag)",
                is_no_label("tag.value")
            ),
            tags_say,
        );
        self.add(
            format!(
                "json_type({meta}) <> 'object' OR (SELECT count(DISTINCT part.key) > {MAX_TAGS} \
                 OR count(*) <> count(DISTINCT part.key) OR max({}) \
                 FROM json_each({meta}) AS part)",
                is_no_label("part.key")
            ),
            meta_say,
        );
    }

    /// Adds the rules for the columns of the policy, and for the tenant.
    fn policy(&mut self) {
        for column in [
            "timeout_seconds",
            "keep_result_seconds",
            "backoff_seconds",
            "backoff_cap_seconds",
        ] {
            self.seconds(column, ">=", "0 or more");
        }
        for column in ["expires_in_seconds", "retry_for_seconds"] {
            self.seconds(column, ">", "above 0");
        }
        let (first, cap) = (self.of("backoff_seconds"), self.of("backoff_cap_seconds"));
        self.add(
            format!("{cap} IS NOT NULL AND {first} IS NULL"),
            "its backoff_seconds is missing, the first delay, without which there is no cap",
        );
        let (time, after) = (self.of("not_after"), self.of("expires_in_seconds"));
        self.add(
            format!("{time} IS NOT NULL AND {after} IS NOT NULL"),
            "it has both not_after and expires_in_seconds; choose one",
        );
        self.time("not_after");
        let at = self.of("run_at");
        let is_before = match self.dialect {
            Dialect::Postgres => format!("{time} <= {at}"),
            Dialect::Sqlite => format!("julianday({time}) <= julianday({at})"),
        };
        self.add(
            is_before,
            "it would expire before it is due: its not_after is not behind its run_at",
        );
        let tenant = self.of("tenant");
        let refuses = [
            self.is_no("'text'", &tenant),
            format!("{} NOT BETWEEN 1 AND {MAX_NAME}", self.bytes(&tenant)),
            self.has_nul(&tenant),
            rates::has_control(self.dialect, &tenant),
        ];
        self.add(
            any(&refuses),
            format!("its tenant must have 1 to {MAX_NAME} bytes and no control character"),
        );
    }

    /// Adds the rules for batches. Postgres looks them up in `windlass_keep_batches`.
    fn batches(&mut self) {
        let (after, runs_on) = (self.of("after_batch"), self.of("runs_on"));
        self.add(
            format!("{runs_on} NOT IN ('success', 'failure', 'finish')"),
            "its runs_on must be one of success, failure, finish",
        );
        self.add(
            format!("{runs_on} IS NOT NULL AND {after} IS NULL"),
            "its after_batch is missing, whose outcome its runs_on names",
        );
        self.add(
            format!(
                "{after} IS NOT NULL AND {} IS NOT NULL",
                self.of("unique_id")
            ),
            "it waits for a batch, and cannot have a unique_id",
        );
        self.add(
            format!("{after} = {}", self.of("batch_id")),
            "it waits for its own batch, which could not end",
        );
        if self.is_postgres() {
            return;
        }
        for column in ["batch_id", "after_batch"] {
            let id = self.of(column);
            self.add(
                format!(
                    "{id} IS NOT NULL AND NOT EXISTS (SELECT 1 FROM solid_queue_batches AS b WHERE b.id = {id} AND {IS_OURS})"
                ),
                format!("there is no batch of its {column}"),
            );
        }
        let batch = self.of("batch_id");
        self.add(
            format!(
                "EXISTS (SELECT 1 FROM solid_queue_batches AS b WHERE b.id = {batch} AND b.finished_at IS NOT NULL AND NOT {IS_OPEN})"
            ),
            "the batch of its batch_id is over",
        );
    }

    /// Adds the rules for rates. Postgres checks their parts in `windlass_rates_of`.
    fn rates(&mut self) {
        let text = self.of("rates");
        let no_text = self.is_no("'text'", &text);
        if no_text != "false" {
            self.add(no_text, "its rates must be JSON text");
        }
        self.json("rates", &text, MAX_DEPTH);
        if self.is_postgres() {
            return;
        }
        let class = match self.from {
            From::Row => self.of("class"),
            _ => "NEW.class".to_owned(),
        };
        for (name, says, condition) in rates::rules() {
            let among = format!("(SELECT max({condition}) FROM json_each({text}) AS rate)");
            self.add(
                match name {
                    "shape" => format!(
                        "json_type({text}) <> 'array' OR json_array_length({text}) > {MOST_RATES} OR {among}"
                    ),
                    _ => among,
                },
                says,
            );
        }
        self.add(
            format!(
                "(SELECT count(*) <> count(DISTINCT coalesce(rate.value ->> '$.key', {class})) FROM json_each({text}) AS rate)"
            ),
            rates::SAME_KEY,
        );
    }

    fn is_no_traceparent(&self, header: &str) -> String {
        let zeros = format!(
            "substr({header}, 4, 32) = '{}' OR substr({header}, 37, 16) = '{}'",
            "0".repeat(32),
            "0".repeat(16)
        );
        let zeros = format!("{} > {MAX_NAME} OR {zeros}", self.bytes(header));
        match self.dialect {
            Dialect::Postgres => {
                let fields = "-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}";
                format!(
                    "{zeros} OR {header} COLLATE \"C\" !~ '^(00{fields}|(?!00|ff)[0-9a-f]{{2}}{fields}(-.*)?)$'"
                )
            }
            Dialect::Sqlite => {
                let hex = |digits: usize| "[0-9a-f]".repeat(digits);
                let fields = format!("-{}-{}-{}", hex(32), hex(16), hex(2));
                let other = format!("{}{fields}", hex(2));
                format!(
                    "typeof({header}) NOT IN ('null', 'text') OR {} OR {zeros} OR {header} GLOB 'ff*' \
                     OR ({header} GLOB '00*' AND length({header}) <> 55) \
                     OR ({header} NOT GLOB '{other}' AND {header} NOT GLOB '{other}-*')",
                    self.has_nul(header)
                )
            }
        }
    }
}

/// Returns a condition of SQLite: JSON text is nested too deeply to be read again.
fn depth(text: &str, deepest: usize) -> String {
    format!(
        "length({text}) - length(replace(replace({text}, '[', ''), '{{', '')) > {deepest} AND ( \
         WITH RECURSIVE level (value, depth) AS (SELECT {text}, 1 UNION ALL \
         SELECT part.value, level.depth + 1 FROM level, json_each(level.value) AS part \
         WHERE part.type IN ('array', 'object') AND level.depth <= {deepest}) \
         SELECT max(depth) FROM level) > {deepest}"
    )
}

fn any(conditions: &[String]) -> String {
    let conditions = conditions.iter().filter(|one| *one != "false");
    conditions.cloned().collect::<Vec<_>>().join(" OR ")
}
