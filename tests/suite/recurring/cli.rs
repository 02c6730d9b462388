//! `windlass recurring`.

use super::{rewind, schedule, stamp};
use crate::on_each_database;
use crate::support::TestDb;
use crate::support::program::{Windlass, windlass};
use windlass::recurring;

on_each_database!(
    tasks_are_listed,
    ticks_are_foretold,
    the_tasks_of_the_configuration_are_foretold,
    a_task_is_run_paused_and_resumed,
);

fn tasks_are_listed(db: &TestDb) {
    let said = windlass(&db.url, &["recurring", "list"]);
    assert!(said.is_done(), "{said:?}");
    assert_eq!(said.out, "There are no recurring tasks.\n");
    schedule(
        db,
        &stamp("b", "30 3 * * MON Europe/Berlin").description("weekly"),
    );
    schedule(db, &stamp("a", "every 45s"));
    recurring::pause(&mut db.connection(), "a").unwrap();
    let said = windlass(&db.url, &["recurring", "list"]);
    assert!(said.is_done(), "{said:?}");
    let lines: Vec<&str> = said.out.lines().collect();
    assert!(lines[0].starts_with("KEY  SCHEDULE"), "{}", said.out);
    assert!(lines[1].starts_with("a    every 45s UTC"), "{}", said.out);
    assert!(lines[1].contains("paused since 2"), "{}", said.out);
    assert!(lines[2].contains("30 3 * * MON Europe/Berlin") && lines[2].ends_with("weekly"));
    let said = windlass(&db.url, &["recurring", "list", "--json"]).json();
    assert_eq!(said["tasks"][1]["key"], "b");
    assert_eq!(said["tasks"][1]["time_zone"], "Europe/Berlin");
    assert!(said["tasks"][0]["next_run_at"].is_null());
}

fn ticks_are_foretold(db: &TestDb) {
    schedule(db, &stamp("b", "30 3 * * * Europe/Berlin"));
    schedule(db, &stamp("a", "every 100000s"));
    let said = windlass(&db.url, &["recurring", "next"]);
    assert!(said.is_done(), "{said:?}");
    let (table, note) = said.out.split_once("\n\n").unwrap();
    assert_eq!(table.lines().count(), 11, "{}", said.out);
    assert!(note.starts_with("No scheduler is running"), "{note}");
    assert!(said.out.contains(" 03:30:00 CE"), "{}", said.out);
    let said = windlass(
        &db.url,
        &["recurring", "next", "b", "--count", "2", "--json"],
    )
    .json();
    let ticks = said["ticks"].as_array().unwrap();
    assert_eq!(ticks.len(), 2);
    let next = recurring::upcoming(&mut db.connection(), "b", 1).unwrap()[0];
    let at: chrono::DateTime<chrono::Utc> = ticks[0]["at"].as_str().unwrap().parse().unwrap();
    assert_eq!(at, next);
    let said = windlass(&db.url, &["recurring", "next", "nobody"]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.err.contains("`nobody` does not exist"), "{}", said.err);
}

fn the_tasks_of_the_configuration_are_foretold(db: &TestDb) {
    schedule(db, &stamp("a", "every 100000s"));
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("windlass.toml");
    let text = "[scheduler]\ntime_zone = 'Europe/Berlin'\n\
                [recurring.b]\nclass = 'cleanup'\nschedule = '30 3 * * *'\n";
    std::fs::write(&file, text).unwrap();
    let next = |arguments: &[&str], variable: &str| {
        let arguments = [&["recurring", "next", "--count", "1"], arguments].concat();
        let command = Windlass::new(&arguments).env("DATABASE_URL", &db.url);
        command.env("WINDLASS_CONFIG", variable).run()
    };
    let file = file.to_str().unwrap();
    for said in [next(&["--config", file], ""), next(&[], file)] {
        assert!(said.is_done(), "{said:?}");
        assert!(said.out.contains(" 03:30:00 CE"), "{}", said.out);
        assert!(said.out.contains("not declared yet"), "{}", said.out);
        let lines = said.out.lines().take_while(|line| !line.is_empty());
        assert_eq!(
            lines.count(),
            3,
            "the one of the database too: {}",
            said.out
        );
    }
    let said = next(&["b", "--config", file], "");
    assert!(said.is_done(), "{said:?}");
}

fn a_task_is_run_paused_and_resumed(db: &TestDb) {
    schedule(db, &stamp("a", "every 100000s"));
    let said = windlass(&db.url, &["recurring", "run", "a"]);
    assert!(said.is_done(), "{said:?}");
    assert_eq!(said.out, "Enqueued job 1 of a.\n");
    let said = windlass(&db.url, &["recurring", "run", "a", "--json"]).json();
    assert_eq!(said["job_id"], 2);
    assert_eq!(db.rows("ready_executions"), 2);
    assert_eq!(
        windlass(&db.url, &["recurring", "pause", "a"]).out,
        "Paused a.\n"
    );
    rewind(db, "a", 150_000);
    let paused = || recurring::list(&mut db.connection()).unwrap()[0].paused_at;
    assert!(paused().is_some());
    assert_eq!(
        windlass(&db.url, &["recurring", "resume", "a"]).out,
        "Resumed a.\n"
    );
    assert!(paused().is_none());
    for command in ["run", "pause", "resume"] {
        let said = windlass(&db.url, &["recurring", command, "nobody"]);
        assert_eq!(said.code, Some(1), "{said:?}");
    }
}
