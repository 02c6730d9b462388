//! `windlass recurring add`, `change`, `remove` and `history`, and the runs that `check` shows.

use super::{rewind, schedule, scheduler, stamp, until_ticked};
use crate::on_each_database;
use crate::support::TestDb;
use crate::support::program::{Windlass, windlass};
use crate::support::wait::until;
use windlass::recurring;
use windlass_console::Config;

on_each_database!(
    a_task_is_added_and_fired,
    only_what_is_given_changes,
    a_change_skips_no_tick,
    a_task_is_removed,
    a_task_of_a_file_is_changed_in_the_file,
    a_task_of_the_code_is_changed_in_the_code,
    the_last_ticks_are_shown,
    what_cannot_be_is_refused,
);

fn options(db: &TestDb) -> serde_json::Value {
    let text = db.texts("SELECT options AS t FROM solid_queue_recurring_tasks");
    serde_json::from_str(&text[0]).unwrap()
}

fn a_task_is_added_and_fired(db: &TestDb) {
    let add = [
        "recurring",
        "add",
        "a",
        "--class",
        "stamp",
        "--arguments",
        r#"{"text":"x"}"#,
    ];
    let options = [
        "--schedule",
        "every 1s",
        "--queue",
        "slow",
        "--jitter",
        "5m",
        "--attempts",
        "3",
    ];
    let until = [
        "--until",
        "2999-01-01T00:00:00Z",
        "--description",
        "each second",
    ];
    let said = windlass(&db.url, &[&add[..], &options, &until].concat());
    assert!(said.is_done(), "{said:?}");
    assert!(
        said.out.starts_with("Added a; its next tick is at 2"),
        "{}",
        said.out
    );
    let said = windlass(&db.url, &["recurring", "list"]).out;
    assert!(said.contains("every 1s UTC, jitter 5m"), "{said}");
    assert!(said.contains("until 2999-01-01 00:00:00Z"), "{said}");
    // Of one tick in 300, the jitter is less than a second.
    let json = windlass(&db.url, &["recurring", "next", "--json", "--count", "9"]).json();
    let ticks = json["ticks"].as_array().unwrap();
    // A fraction of a second comes before the Z.
    let time = |tick: &serde_json::Value, of: &str| {
        let text = tick[of].as_str().unwrap_or_default();
        text.trim_end_matches('Z').to_owned()
    };
    let times = ticks
        .iter()
        .map(|tick| (time(tick, "at"), time(tick, "starts_at")));
    assert!(
        times.clone().all(|(at, starts_at)| starts_at >= at),
        "{json}"
    );
    assert!(
        times.clone().any(|(at, starts_at)| starts_at > at),
        "{json}"
    );
    let again = windlass(&db.url, &[&add[..], &options].concat());
    assert_eq!(again.code, Some(1), "{again:?}");
    assert!(
        again.err.contains("exists already: change it"),
        "{}",
        again.err
    );
    let _scheduler = scheduler(db).start().unwrap();
    until_ticked(db, "a", 1);
    let jobs =
        "SELECT count(*) AS n FROM solid_queue_jobs WHERE queue_name = 'slow' AND max_attempts = 3";
    assert!(db.count(jobs) > 0);
}

fn only_what_is_given_changes(db: &TestDb) {
    // Its first tick is at midnight in Berlin, and the first of each hour comes before: at any time of day.
    let add = "recurring add a --class stamp --schedule @daily --missed 6h --overlap skip --priority 7 \
               --timeout 9s --expires-in 2h --retry-for 3h --backoff 1s..1m --from 2100-01-01T00:00:00Z --zone Europe/Berlin --delivery at-most-once";
    let run = |line: &str| windlass(&db.url, &line.split_whitespace().collect::<Vec<_>>());
    let said = run(add);
    assert!(said.is_done(), "{said:?}");
    let before = options(db);
    let next = recurring::list(&mut db.connection()).unwrap()[0].next_run_at;
    let said = run("recurring change a --queue slow --description x");
    assert!(said.is_done(), "{said:?}");
    let task = recurring::list(&mut db.connection()).unwrap().remove(0);
    assert_eq!((options(db), task.next_run_at), (before.clone(), next));
    assert_eq!((task.queue_name.as_str(), task.priority), ("slow", 7));
    assert_eq!(
        (task.description.as_deref(), task.time_zone.as_str()),
        (Some("x"), "Europe/Berlin")
    );
    assert_eq!(before["policy"]["timeout"], 9000);
    assert_eq!(before["missed"]["all_within"], "6h");
    let said =
        run("recurring change a --schedule @hourly --jitter 1m --attempts 1 --unset delivery");
    assert!(said.is_done(), "{said:?}");
    assert!(recurring::list(&mut db.connection()).unwrap()[0].next_run_at < next || next.is_none());
    assert_eq!(
        (&options(db)["jitter"], &options(db)["max_attempts"]),
        (&"1m".into(), &1.into())
    );
    assert!(options(db)["delivery"].is_null());
    let unset = [
        "from",
        "jitter",
        "missed",
        "overlap",
        "timeout",
        "expires-in",
        "retry-for",
        "backoff",
        "attempts",
        "description",
        "priority",
    ];
    let unset: Vec<String> = unset.iter().map(|name| format!("--unset {name}")).collect();
    let said = run(&format!("recurring change a {}", unset.join(" ")));
    assert!(said.is_done(), "{said:?}");
    let expected = serde_json::json!({"missed": "latest", "overlap": "allow", "policy": {}});
    assert_eq!(options(db), expected);
    let task = recurring::list(&mut db.connection()).unwrap().remove(0);
    assert_eq!((task.priority, task.description), (0, None));
    let said = run("recurring change a --until 2026-01-01T00:00:00Z");
    assert_eq!(said.out, "Changed a; it has no further tick.\n");
}

/// Ticks that no scheduler has fired yet are fired after a change that leaves the times as they are.
fn a_change_skips_no_tick(db: &TestDb) {
    schedule(db, &stamp("a", "every 1s"));
    rewind(db, "a", 60);
    let next = || recurring::list(&mut db.connection()).unwrap()[0].next_run_at;
    let before = next();
    let change = |option: &str, value: &str| {
        let said = windlass(&db.url, &["recurring", "change", "a", option, value]);
        assert!(said.is_done(), "{said:?}");
    };
    change("--queue", "slow");
    assert_eq!(next(), before);
    change("--schedule", "every 2s");
    assert!(next() > before);
}

fn a_task_is_removed(db: &TestDb) {
    schedule(db, &stamp("a", "@daily"));
    assert_eq!(
        windlass(&db.url, &["recurring", "remove", "a"]).out,
        "Removed a.\n"
    );
    for command in ["remove", "change", "history"] {
        let said = windlass(&db.url, &["recurring", command, "a"]);
        assert_eq!(said.code, Some(1), "{said:?}");
        assert!(said.err.contains("`a` does not exist"), "{}", said.err);
    }
}

fn until_declared(db: &TestDb) {
    until("it is declared", || {
        !recurring::list(&mut db.connection()).unwrap().is_empty()
    });
}

fn a_task_of_a_file_is_changed_in_the_file(db: &TestDb) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("windlass.toml");
    std::fs::write(&file, "\n[recurring.a]\nclass = 'a'\nschedule = '@daily'\n").unwrap();
    let _scheduler = Config::load(&file)
        .unwrap()
        .scheduler(&db.database)
        .start()
        .unwrap();
    until_declared(db);
    for arguments in [
        &["recurring", "remove", "a"][..],
        &["recurring", "change", "a", "--queue", "b"],
    ] {
        let said = windlass(&db.url, arguments);
        assert_eq!(said.code, Some(1), "{said:?}");
        let expected = format!("is declared at {}:2: change it there", file.display());
        assert!(said.err.contains(&expected), "{}", said.err);
    }
}

fn a_task_of_the_code_is_changed_in_the_code(db: &TestDb) {
    let _scheduler = scheduler(db).task(stamp("a", "@daily")).start().unwrap();
    until_declared(db);
    let said = windlass(&db.url, &["recurring", "remove", "a"]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(
        said.err.contains("is declared by a program's code"),
        "{}",
        said.err
    );
}

fn the_last_ticks_are_shown(db: &TestDb) {
    schedule(db, &stamp("a", "every 1s"));
    let said = windlass(&db.url, &["recurring", "history", "a"]);
    assert!(said.out.starts_with("a has had no tick"), "{said:?}");
    rewind(db, "a", 5);
    let handle = scheduler(db).start().unwrap();
    until_ticked(db, "a", 4);
    drop(handle);
    let jobs: Vec<String> = db.texts(
        "SELECT CAST(job_id AS varchar) AS t FROM solid_queue_ready_executions ORDER BY job_id",
    );
    windlass(&db.url, &["jobs", "cancel", &jobs[0]]);
    let json = windlass(
        &db.url,
        &["recurring", "history", "a", "--count", "1000", "--json"],
    )
    .json();
    let ticks = json["ticks"].as_array().unwrap();
    assert_eq!(ticks.len(), jobs.len());
    let of = |index: usize| {
        (
            ticks[index]["job_id"].to_string(),
            ticks[index]["state"].clone(),
        )
    };
    assert_eq!(
        of(0),
        (jobs.last().unwrap().clone(), "ready".into()),
        "newest first"
    );
    assert_eq!(of(jobs.len() - 1), (jobs[0].clone(), "cancelled".into()));
    assert!(ticks.last().unwrap()["finished_at"].is_string());
    let said = windlass(&db.url, &["recurring", "history", "a", "--count", "2"]).out;
    assert_eq!(said.lines().count(), 3, "{said}");
    let few = ["recurring", "history", "a", "--count", "2", "--json"];
    let few = &windlass(&db.url, &few).json()["ticks"];
    assert_eq!(few.as_array().unwrap()[..], ticks[..2], "the newest");
}

fn what_cannot_be_is_refused(db: &TestDb) {
    let add = [
        "recurring",
        "add",
        "a",
        "--class",
        "a",
        "--schedule",
        "@daily",
    ];
    for (options, code, expected) in [
        (&["--timeout", "0s"][..], 2, "must be above zero"),
        (
            &["--backoff", "1h..10s"],
            2,
            "the first delay is longer than the longest",
        ),
        (
            &["--missed", "often"],
            2,
            "it is `latest`, `skip`, or an age",
        ),
        (
            &["--from", "tomorrow"],
            2,
            "a time is written with its date and zone",
        ),
        (&["--zone", "Mars"], 1, "there is no time zone `Mars`"),
        (&["--jitter", "2000y"], 1, "jitter of more than 1000 years"),
        (&["--arguments", "{"], 2, "the arguments are not JSON"),
        (
            &["--priority", "1", "--ahead-by", "1h"],
            2,
            "cannot be used with",
        ),
        (
            &[
                "--from",
                "2027-01-01T00:00:00Z",
                "--until",
                "2026-01-01T00:00:00Z",
            ],
            1,
            "window without time",
        ),
    ] {
        let said = windlass(&db.url, &[&add[..], options].concat());
        assert_eq!(said.code, Some(code), "{said:?}");
        assert!(said.err.contains(expected), "{}", said.err);
    }
    let start = [
        "recurring",
        "add",
        "a",
        "--class",
        "a",
        "--schedule",
        "@start",
    ];
    assert!(
        windlass(&db.url, &start)
            .err
            .contains("code or configuration declares")
    );
    assert_eq!(recurring::list(&mut db.connection()).unwrap(), []);
    let enqueue = windlass(&db.url, &["enqueue", "a", "--timeout", "0s"]);
    assert_eq!(enqueue.code, Some(2), "{enqueue:?}");
}

#[test]
fn check_shows_the_next_runs() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("windlass.toml");
    let text = "[scheduler]\ntime_zone = 'Asia/Tokyo'\n\
                [recurring.a]\nclass = 'a'\nschedule = '30 3 * * *'\njitter = '5 min'\n\
                [recurring.b]\nclass = 'b'\nschedule = '@daily'\nuntil = '2026-01-01T00:00:00Z'\n\
                [recurring.c]\nclass = 'c'\nschedule = '@start'\n";
    std::fs::write(&file, text).unwrap();
    let check = |json: &[&str]| {
        let arguments = [&["check", "--config", file.to_str().unwrap()], json].concat();
        Windlass::new(&arguments).run()
    };
    let said = check(&[]);
    assert!(said.is_done(), "{said:?}");
    let lines: Vec<&str> = said
        .out
        .lines()
        .skip_while(|line| !line.starts_with("The next runs"))
        .collect();
    assert_eq!(lines.len(), 4, "{}", said.out);
    assert!(
        lines[1].starts_with("  a (30 3 * * * Asia/Tokyo, jitter 5m): 2"),
        "{}",
        said.out
    );
    assert_eq!(lines[1].matches(" 18:30:00Z").count(), 5, "{}", said.out);
    assert_eq!(
        lines[2],
        "  b (@daily Asia/Tokyo): it ended at 2026-01-01 00:00:00Z"
    );
    assert_eq!(
        lines[3],
        "  c (@start Asia/Tokyo): it is due when a new deployment starts"
    );
    let json = check(&["--json"]).json();
    assert_eq!(json["upcoming"][0]["runs"].as_array().unwrap().len(), 5);
}
