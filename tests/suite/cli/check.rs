//! `windlass check`.

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::program::{Said, Windlass};
use std::path::Path;

on_each_database!(
    with_a_database_it_says_how_many_connections_will_open,
    tables_that_are_missing_are_told,
    commands_find_the_database_in_the_file,
);

fn write(directory: &Path, text: &str) {
    std::fs::write(directory.join("windlass.toml"), text).unwrap();
}

fn check(directory: &Path, arguments: &[&str]) -> Said {
    let arguments: Vec<&str> = ["check"]
        .into_iter()
        .chain(arguments.iter().copied())
        .collect();
    Windlass::new(&arguments).current_dir(directory).run()
}

#[test]
fn a_variable_that_is_wrong_for_each_worker_is_told_once() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), "[[workers]]\n[[workers]]\n[[workers]]\n");
    let said = Windlass::new(&["check"])
        .current_dir(directory.path())
        .env("WINDLASS_WORKERS_THREADS", "abc")
        .run();
    assert_eq!(said.code, Some(1), "{said:?}");
    let told = said.out.matches("`abc` is not a whole number").count()
        + said.err.matches("`abc` is not a whole number").count();
    assert_eq!(told, 1, "{said:?}");
}

/// Everything at once, each with its line.
#[test]
fn what_is_wrong_is_told_at_once() {
    let directory = tempfile::tempdir().unwrap();
    write(
        directory.path(),
        r#"
[database]
url = "mysql://me:hunter2@db/app"
pool = 5

[supervisor]
heartbeat_interval = 10
alive_threshold = "20s"
shutdown_timeout = "25 parsecs"
heartbeet = "1s"

[[workers]]
threads = 4
queues = ["mail", "a b"]

[[workers]]
threads = "5"
polling_interval = "0s"

[dispatchers]
batch_size = 0

[retenton]
every = "1 min"
"#,
    );
    let said = check(directory.path(), &[]);
    assert_eq!(said.code, Some(1), "{said:?}");
    let lines = [
        "windlass.toml:3: database.url: `mysql://db/app` is not a database",
        "windlass.toml:4: database.pool (windlass.toml:4) must be at least workers.threads (windlass.toml:13) + 2",
        "windlass.toml:7: supervisor.heartbeat_interval: the number 10 has no unit",
        "windlass.toml:8: supervisor.alive_threshold (windlass.toml:8) must be at least three heartbeat intervals",
        "windlass.toml:9: supervisor.shutdown_timeout: `25 parsecs` is not a duration",
        "windlass.toml:10: `supervisor` has no setting `heartbeet`",
        "windlass.toml:14: workers.queues: ",
        "windlass.toml:17: workers.threads: write 5 without quotes",
        "windlass.toml:18: workers.polling_interval: it must be above zero",
        "windlass.toml:20: there may be several of these: write `[[dispatchers]]`",
        "windlass.toml:21: dispatchers.batch_size: ",
        "windlass.toml:23: there is no table `retenton`; did you mean `retention`?",
    ];
    let told: Vec<&str> = said.out.lines().skip(1).map(str::trim).collect();
    assert_eq!(told.len(), lines.len() + 1, "{}", said.out);
    for line in lines {
        let found = told.iter().any(|told| told.starts_with(line));
        assert!(found, "{line}\n{}", said.out);
    }
    assert!(!said.out.contains("hunter2"), "{}", said.out);
    let json = check(directory.path(), &["--json"]);
    let json: serde_json::Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!(json["problems"][0]["line"], 3);
    assert_eq!(json["problems"][0]["place"], "windlass.toml");
}

#[test]
fn what_is_no_toml_is_told_with_the_rest() {
    let directory = tempfile::tempdir().unwrap();
    let text =
        "[supervisor]\npidfile = \nshutdown_timeout = 5\n\n[[workers]]\nthreads = 2\nthreads = 3\n";
    write(directory.path(), text);
    let said = check(directory.path(), &[]);
    assert_eq!(said.code, Some(1), "{said:?}");
    for line in [
        "windlass.toml:2: ",
        "windlass.toml:3: ",
        "windlass.toml:7: duplicate key",
    ] {
        assert!(said.out.contains(line), "{line}\n{}", said.out);
    }
}

#[test]
fn the_configuration_in_effect_is_printed_with_its_origins() {
    let directory = tempfile::tempdir().unwrap();
    let text = "[database]\nurl = 'sqlite://jobs.db'\n\n[[workers]]\nqueues = 'mail'\n\n[[workers]]\nthreads = 9\n";
    write(directory.path(), text);
    let print = |arguments: &[&str]| {
        Windlass::new(arguments)
            .current_dir(directory.path())
            .env("WINDLASS_WORKERS_THREADS", "7")
            .env("WINDLASS_WORKERS_2_POLLING_INTERVAL", "2s")
            .env("WINDLASS_DATABASE_URL", "sqlite://other.db")
            .env("WINDLASS_SUPERVISOR_PIDFILE", " ")
            .run()
    };
    let said = print(&["check", "--print"]);
    assert!(said.is_done(), "{said:?}");
    let shown = |line: &str| {
        let mut words = said.out.lines().map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            words.join(" ")
        });
        assert!(words.any(|words| words == line), "{line}\n{}", said.out);
    };
    shown(r#"queues = ["mail"] # windlass.toml:5"#);
    shown("threads = 7 # WINDLASS_WORKERS_THREADS");
    shown(r#"polling_interval = "2s" # WINDLASS_WORKERS_2_POLLING_INTERVAL"#);
    shown(r#"polling_interval = "5s" # default"#);
    shown(r#"pidfile = "" # default"#);
    shown(r#"url = "sqlite://other.db" # WINDLASS_DATABASE_URL"#);
    // Reads back as what it shows.
    let again = tempfile::tempdir().unwrap();
    write(again.path(), &said.out);
    let said = check(again.path(), &[]);
    assert!(said.is_done(), "{said:?}");
    let json = print(&["check", "--print", "--json"]).json();
    let settings = json["settings"].as_array().unwrap();
    assert!(
        settings
            .iter()
            .any(|setting| setting["key"] == "workers.threads"
                && setting["number"] == 2
                && setting["origin"] == "WINDLASS_WORKERS_THREADS")
    );
    // The command line weighs the most.
    let url = "sqlite://third.db";
    let said = print(&["check", "--print", "--database", url]);
    assert_eq!(said.code, Some(1), "there is no such file: {said:?}");
}

#[test]
fn recurring_tasks_are_printed() {
    let directory = tempfile::tempdir().unwrap();
    let text =
        "[recurring.report]\nclass = 'report'\narguments = { days = 7 }\nschedule = '@weekly'\n";
    write(directory.path(), text);
    let said = check(directory.path(), &["--print"]);
    assert!(said.is_done(), "{said:?}");
    let lines: Vec<&str> = said.out.lines().collect();
    let begin = lines.iter().position(|line| *line == "[recurring.report]");
    let shown: Vec<String> = lines[begin.unwrap() + 1..][..3]
        .iter()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    assert_eq!(
        shown,
        [
            "class = \"report\" # windlass.toml:2",
            "arguments = { days = 7 } # windlass.toml:3",
            "schedule = \"@weekly\" # windlass.toml:4",
        ]
    );
    let json = check(directory.path(), &["--print", "--json"]).json();
    let task = &json["recurring"][0];
    assert_eq!(task["key"], "report");
    assert_eq!(task["arguments"]["days"], 7);
    assert_eq!(task["origin"], "windlass.toml:1");
    let said = Windlass::new(&["check", "--print"])
        .current_dir(directory.path())
        .env("WINDLASS_SCHEDULER_TIME_ZONE", "Asia/Tokyo")
        .run();
    assert!(said.out.contains("time_zone = \"Asia/Tokyo\""), "{said:?}");
    assert!(
        said.out.contains("# WINDLASS_SCHEDULER_TIME_ZONE"),
        "{said:?}"
    );
}

#[test]
fn variables_that_set_nothing_are_warned_of() {
    let directory = tempfile::tempdir().unwrap();
    let said = Windlass::new(&["check"])
        .current_dir(directory.path())
        .env("WINDLASS_WORKER_THREADS", "7")
        .run();
    assert_eq!(said.code, Some(0), "{said:?}");
    let warning = "WINDLASS_WORKER_THREADS: this variable does not set anything; did you mean `WINDLASS_WORKERS_THREADS`?";
    assert!(said.out.contains(warning), "{}", said.out);
    let said = Windlass::new(&["check"])
        .current_dir(directory.path())
        .env("WINDLASS_WORKERS_THREADS", "many")
        .run();
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(
        said.out
            .contains("WINDLASS_WORKERS_THREADS: workers.threads: `many` is not"),
        "{said:?}"
    );
}

#[test]
fn a_file_that_is_named_must_be_there() {
    let directory = tempfile::tempdir().unwrap();
    let said = check(directory.path(), &["--config", "no.toml"]);
    assert_eq!((said.code, &*said.out), (Some(1), ""), "{said:?}");
    assert!(said.err.contains("no.toml"), "{said:?}");
}

fn with_a_database_it_says_how_many_connections_will_open(db: &TestDb) {
    let directory = tempfile::tempdir().unwrap();
    write(
        directory.path(),
        "[[workers]]\nprocesses = 2\nthreads = 10\n",
    );
    let said = check(directory.path(), &["--database", &db.url]);
    assert!(said.is_done(), "{said:?}");
    // 3 + 2 + 2 + 2 * 6 + 2 * 12
    assert!(said.out.contains("at most 43 connections"), "{}", said.out);
    let json = check(directory.path(), &["--database", &db.url, "--json"]).json();
    assert_eq!(json["connections"]["total"], 43);
    assert_eq!(json["database"]["allows"].is_i64(), db.is_postgres());
    if db.is_postgres() {
        write(directory.path(), "[[workers]]\nprocesses = 1000\n");
        let said = check(directory.path(), &["--database", &db.url]);
        assert_eq!(said.code, Some(1), "{said:?}");
        assert!(
            said.out.contains("raise its max_connections"),
            "{}",
            said.out
        );
    }
}

fn tables_that_are_missing_are_told(db: &TestDb) {
    let directory = tempfile::tempdir().unwrap();
    let url = if db.is_postgres() {
        "postgres://nobody@127.0.0.1:1/none"
    } else {
        "sqlite://none.db"
    };
    let said = check(directory.path(), &["--database", url]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(
        said.out.contains("cannot open the database"),
        "{}",
        said.out
    );
    // Not asked unless told to.
    write(directory.path(), &format!("[database]\nurl = {url:?}\n"));
    let said = check(directory.path(), &[]);
    assert!(said.is_done(), "{said:?}");
    assert_eq!(check(directory.path(), &["--connect"]).code, Some(1));
}

fn commands_find_the_database_in_the_file(db: &TestDb) {
    let directory = tempfile::tempdir().unwrap();
    write(
        directory.path(),
        &format!("[database]\nurl = {:?}\n", db.url),
    );
    let status = |variable: Option<&str>| {
        let command = Windlass::new(&["status"]).current_dir(directory.path());
        match variable {
            Some(name) => command.env(name, "sqlite://no-such-file.db").run(),
            None => command.run(),
        }
    };
    assert!(status(None).is_done());
    for variable in ["DATABASE_URL", "WINDLASS_DATABASE_URL"] {
        assert_eq!(status(Some(variable)).code, Some(1), "{variable}");
    }
}
