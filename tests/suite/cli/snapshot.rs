//! The output of the program, word for word. The files in `snapshots/` are the
//! expectation; `cargo insta review` shows and accepts a change.

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::program::{Said, Windlass, windlass};

on_each_database!(
    the_tables_of_a_busy_database,
    the_answers_of_the_queues,
    the_findings_of_the_doctor,
);

/// Compares, without what changes from run to run.
fn assert_snapshot(name: &str, text: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("snapshots");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    for (pattern, instead) in [
        (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d", "[time]"),
        (r"\b\d+(?:days?|h|m|s)(?: \d+(?:days?|h|m|s))?\b", "[age]"),
        (r#""(\w*seconds)": [\d.e-]+"#, r#""$1": "[age]""#),
        (r"(?:SQLite|Postgres) \d[\d.]*(?: \(.*?\))?", "[database]"),
        (r"due for \d+ s", "due for [age]"),
        // Only SQLite has one, and others work on the same server.
        (r"(?m)^(?:log|transactions) .*\n", ""),
        (r"time zones are .*", "time zones are [version]"),
        (r"(?m) {3,}", "  "),
        (r"(?m) +$", ""),
        (env!("CARGO_PKG_VERSION"), "[version]"),
    ] {
        settings.add_filter(pattern, instead);
    }
    settings.bind(|| insta::assert_snapshot!(name, text));
}

/// Returns each command line, with all of its output.
fn transcript(said: impl IntoIterator<Item = (String, Said)>) -> String {
    let told = said.into_iter().map(|(line, said)| {
        let Said { code, out, err } = said;
        let code = code.filter(|code| *code != 0);
        let code = code.map_or_else(String::new, |code| format!("[exit code {code}]\n"));
        format!("$ windlass {line}\n{out}{err}{code}")
    });
    told.collect::<Vec<_>>().join("\n")
}

fn session(db: &TestDb, lines: &[&str]) -> String {
    transcript(lines.iter().map(|line| {
        let arguments: Vec<String> = words(line);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        ((*line).to_owned(), windlass(&db.url, &arguments))
    }))
}

/// Words, and quoted texts as one.
fn words(line: &str) -> Vec<String> {
    let parts = line.split('\'').enumerate();
    let words = parts.flat_map(|(index, part)| {
        if index % 2 == 1 {
            vec![part.to_owned()]
        } else {
            part.split_whitespace().map(str::to_owned).collect()
        }
    });
    words.collect()
}

fn the_tables_of_a_busy_database(db: &TestDb) {
    super::status::fill(db);
    db.execute(
        "UPDATE solid_queue_processes SET metadata = \
         '{\"windlass\":\"0.0.9\",\"thread_pool_size\":5,\"queues\":\"mail,import*\"}' WHERE id = 7",
    );
    assert_snapshot(
        "busy",
        &session(
            db,
            &[
                "status",
                "processes",
                "queues list",
                "jobs list",
                "failed list",
                "jobs list --state finished",
            ],
        ),
    );
}

fn the_answers_of_the_queues(db: &TestDb) {
    assert_snapshot(
        "queues",
        &session(
            db,
            &[
                "queues list",
                "enqueue send '{\"to\":\"hunter2\"}' --queue mail --key a",
                "enqueue send --queue mail --key a --json",
                "enqueue send '{to}'",
                "queues show mail",
                "queues show sms --json",
                "queues pause mail --by ada --reason 'the provider is down'",
                "queues pause mail --by bob",
                "queues list",
                "queues list --json",
                "queues clear mail --dry-run",
                "queues clear mail",
                "queues resume mail --json",
                "queues resume mail",
                "processes",
            ],
        ),
    );
}

fn the_findings_of_the_doctor(db: &TestDb) {
    let fine = session(db, &["doctor"]);
    super::doctor::break_everything(db);
    let broken = session(db, &["doctor"]);
    db.execute("DROP INDEX index_solid_queue_poll_all");
    db.execute("DROP TABLE windlass_steps");
    let drifted = session(db, &["doctor"]);
    assert_snapshot("doctor", &[fine, broken, drifted].join("\n"));
}

#[test]
fn every_command_explains_itself() {
    let commands = [
        "status",
        "queues",
        "queues list",
        "queues show",
        "queues pause",
        "queues resume",
        "queues clear",
        "processes",
        "enqueue",
        "doctor",
        "completions",
        "man",
    ];
    for command in commands {
        let mut arguments = words(command);
        arguments.push("--help".to_owned());
        let line = arguments.join(" ");
        let said = Windlass::new(&arguments).run();
        assert!(said.is_done(), "{said:?}");
        let name = format!("help {command}").replace(' ', "-");
        assert_snapshot(&name, &transcript([(line, said)]));
    }
}
