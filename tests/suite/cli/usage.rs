//! The texts of the program about itself, and about command lines that are wrong.

use crate::support::TestDb;
use crate::support::program::{Windlass, windlass};

#[test]
fn help_has_examples_and_shows_no_password() {
    let said = Windlass::new(&["--help"])
        .env("DATABASE_URL", "postgres://me:hunter2@localhost/app")
        .run();
    assert!(said.is_done(), "{said:?}");
    assert!(said.out.contains("Examples:"), "{}", said.out);
    assert!(!said.out.contains("hunter2"), "{}", said.out);
    for command in [
        "migrate",
        "migrations copy",
        "check",
        "supervise",
        "status",
        "jobs list",
        "jobs cancel",
        "jobs discard",
        "jobs reschedule",
        "jobs priority",
        "failed list",
        "failed retry",
        "failed discard",
        "bench",
    ] {
        let arguments: Vec<&str> = command.split(' ').chain(["--help"]).collect();
        let said = Windlass::new(&arguments).run();
        assert!(said.is_done(), "{said:?}");
        assert!(said.out.contains("Examples:"), "{}", said.out);
    }
}

#[test]
fn it_tells_its_version() {
    let version = env!("CARGO_PKG_VERSION");
    let said = Windlass::new(&["-V"]).run();
    assert_eq!(said.out, format!("windlass {version}\n"), "{said:?}");
    let said = Windlass::new(&["--version"]).run();
    let zones = format!("windlass {version}\ntime zones 20");
    assert!(said.out.starts_with(&zones), "{said:?}");
}

#[test]
fn wrong_command_lines_exit_with_2() {
    for (arguments, says) in [
        ("", "Usage: windlass"),
        ("statsu", "status"),
        ("status", "Usage: windlass status"),
        ("failed retry abc", "a job's id is a whole number"),
        ("enqueue note {} --at tomorrow", "2026-12-24T18:00:00Z"),
        ("jobs reschedule 1 --at soon", "2026-12-24T18:00:00Z"),
        ("status", "pass `--database URL` or set DATABASE_URL"),
        (
            "migrations copy m",
            "pass `--database URL` or set DATABASE_URL",
        ),
        (
            "migrations copy m --dialect mysql",
            "[possible values: postgres, sqlite]",
        ),
        ("supervise --processes 2", "PROGRAM"),
        ("supervise --processes 0 -- app", "0 is not in 1.."),
        ("supervise --heartbeat-interval 10", "time unit needed"),
        (
            "supervise --database a.db --alive-threshold 20s",
            "at least three heartbeat intervals",
        ),
    ] {
        let arguments: Vec<&str> = arguments.split_whitespace().collect();
        let said = Windlass::new(&arguments).run();
        assert_eq!(said.code, Some(2), "{arguments:?}: {said:?}");
        assert!(said.err.contains(says), "{arguments:?}: {}", said.err);
        assert_eq!(said.out, "", "{arguments:?}");
    }
}

#[test]
fn an_empty_database_url_is_none() {
    let said = windlass("", &["status"]);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.err.contains("no database is named"), "{}", said.err);
}

#[test]
fn the_option_counts_more_than_the_environment_anywhere_in_the_line() {
    let db = TestDb::sqlite();
    for arguments in [
        ["--database", &db.url, "status"],
        ["status", "--database", &db.url],
    ] {
        let said = Windlass::new(&arguments)
            .env("DATABASE_URL", "no-such-file.db")
            .run();
        assert!(said.is_done(), "{said:?}");
    }
}

/// `windlass status | head -1`.
#[test]
fn a_reader_that_leaves_is_no_error() {
    use std::process::{Command, Stdio};
    let db = TestDb::sqlite();
    let mut child = Command::new(crate::support::program::PROGRAM)
        .args(["status", "--database", &db.url])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
}
