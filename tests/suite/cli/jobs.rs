//! `windlass jobs` and `windlass failed`.

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::program::{Windlass, windlass};
use windlass::NewJob;

on_each_database!(
    jobs_are_listed,
    a_dry_run_changes_nothing,
    failed_jobs_are_retried,
    waiting_jobs_are_moved_cancelled_and_discarded,
    everything_must_be_asked_for,
    a_person_is_asked_first,
    jobs_that_cannot_be_changed_are_named,
    no_failures_are_no_missing_job,
    a_pipe_gets_whole_errors,
);

/// Two ready imports, a scheduled mail, and three failed imports, of which
/// the last may run at most once.
fn fill(db: &TestDb) {
    let mut conn = db.connect();
    for n in 1..=6 {
        let class = if n == 3 { "mail" } else { "import" };
        let mut job = NewJob::of_class(class, r#"{"secret":"hunter2"}"#).queue(format!("q{n}"));
        if n == 3 {
            job = job.after(std::time::Duration::from_secs(3600));
        }
        job.enqueue(&mut conn).unwrap();
    }
    db.execute("DELETE FROM solid_queue_ready_executions WHERE job_id > 3");
    db.execute(
        "INSERT INTO solid_queue_failed_executions (job_id, error, created_at) \
         SELECT id, '{\"exception_class\":\"Io\",\"message\":\"no ' || id || '\"}', created_at \
         FROM solid_queue_jobs WHERE id > 3 ORDER BY id",
    );
    db.execute("UPDATE solid_queue_jobs SET at_most_once = true WHERE id = 6");
}

fn jobs_are_listed(db: &TestDb) {
    fill(db);
    let said = windlass(&db.url, &["jobs", "list"]);
    assert!(said.is_done(), "{said:?}");
    assert_eq!(said.out.lines().count(), 7, "{}", said.out);
    assert!(!said.out.contains("hunter2"), "{}", said.out);
    let first = said.out.lines().nth(1).unwrap();
    let time = first.split(':').next_back().unwrap();
    assert!(
        time.get(2..3) == Some("Z"),
        "times are in UTC, and say so: {first}"
    );
    let said = windlass(&db.url, &["jobs", "list", "--state", "scheduled", "--json"]).json();
    assert_eq!(said["jobs"].as_array().unwrap().len(), 1);
    assert_eq!(said["jobs"][0]["class_name"], "mail");
    assert_eq!(said["jobs"][0]["state"], "scheduled");
    let said = windlass(&db.url, &["failed", "list", "--error", "no 5"]);
    assert!(said.out.contains("Io: no 5"), "{}", said.out);
    assert_eq!(said.out.lines().count(), 2, "{}", said.out);
    let said = windlass(&db.url, &["jobs", "list", "--class", "nobody"]);
    assert_eq!(said.out, "No job matches.\n");
}

fn a_dry_run_changes_nothing(db: &TestDb) {
    fill(db);
    for command in [
        "failed retry",
        "failed discard",
        "jobs cancel",
        "jobs discard",
    ] {
        let mut arguments: Vec<&str> = command.split(' ').collect();
        arguments.extend(["--all", "--dry-run"]);
        let said = windlass(&db.url, &arguments);
        assert!(said.is_done(), "{said:?}");
        assert!(
            said.out
                .contains("A dry run: nothing was changed. Selected to be "),
            "{}",
            said.out
        );
        arguments.push("--json");
        let said = windlass(&db.url, &arguments).json();
        assert_eq!(said["dry_run"], true);
        let selected = said["selected"].as_array().unwrap();
        let count = selected.iter().map(|row| row["count"].as_i64().unwrap());
        assert_eq!(count.sum::<i64>(), 3, "{said}");
    }
    assert_eq!(db.rows("ready_executions"), 2);
    assert_eq!(db.rows("scheduled_executions"), 1);
    assert_eq!(db.rows("failed_executions"), 3);
}

fn failed_jobs_are_retried(db: &TestDb) {
    fill(db);
    let said = windlass(&db.url, &["failed", "retry", "4", "6"]);
    assert_eq!(
        said.code,
        Some(1),
        "of those that were named, one is left alone: {said:?}"
    );
    assert!(
        said.out
            .starts_with("1 job was retried.\n1 may run at most once and was left alone"),
        "{}",
        said.out
    );
    assert_eq!(db.rows("ready_executions"), 3);
    let said = windlass(
        &db.url,
        &["failed", "retry", "--class", "import", "--error", "no 6"],
    );
    assert!(said.is_done(), "none was named: {said:?}");
    let arguments = ["failed", "retry", "--all", "--even-at-most-once", "--json"];
    let said = windlass(&db.url, &arguments).json();
    assert_eq!(
        (&said["changed"], &said["at_most_once"]),
        (&2.into(), &0.into()),
        "{said}"
    );
    assert_eq!(db.rows("failed_executions"), 0);
}

fn waiting_jobs_are_moved_cancelled_and_discarded(db: &TestDb) {
    fill(db);
    let done = |arguments: &[&str], out: &str| {
        let said = windlass(&db.url, arguments);
        assert!(said.is_done(), "{said:?}");
        assert_eq!(said.out, out);
    };
    done(
        &["jobs", "reschedule", "--queue", "q1", "--in", "2h 30m"],
        "1 job was rescheduled.\n",
    );
    done(
        &[
            "jobs",
            "reschedule",
            "1",
            "3",
            "--at",
            "2101-02-03T04:05:06Z",
        ],
        "2 jobs were rescheduled.\n",
    );
    let year = "SELECT count(*) AS n FROM solid_queue_scheduled_executions WHERE scheduled_at > '2101-01-01'";
    assert_eq!(db.count(year), 2);
    done(
        &["jobs", "reschedule", "1", "--in", "0s"],
        "1 job was rescheduled.\n",
    );
    done(
        &["jobs", "priority", "--to", "-7", "1"],
        "1 job was given another priority.\n",
    );
    let first = "SELECT job_id AS n FROM solid_queue_ready_executions ORDER BY priority LIMIT 1";
    assert_eq!(db.count(first), 1);
    done(&["jobs", "cancel", "1"], "1 job was cancelled.\n");
    assert_eq!(db.rows("ready_executions"), 1);
    done(
        &["jobs", "discard", "--all", "--yes"],
        "2 jobs were discarded.\n",
    );
    assert_eq!(
        db.rows("ready_executions") + db.rows("scheduled_executions"),
        0
    );
    assert_eq!(db.rows("jobs"), 4, "the cancelled and the failed ones");
    done(
        &["failed", "discard", "--class", "import"],
        "3 jobs were discarded.\n",
    );
    assert_eq!(db.rows("jobs"), 1);
}

fn everything_must_be_asked_for(db: &TestDb) {
    fill(db);
    for (command, says) in [
        ("failed retry", "no jobs are selected"),
        ("jobs cancel", "no jobs are selected"),
        ("jobs cancel --all", "3 jobs would be cancelled"),
        ("jobs discard --all", "pass `--yes`"),
        ("failed discard --all", "pass `--yes`"),
        ("jobs discard --limit 3", "no jobs are selected"),
        ("failed discard --all --error x", "cannot be used with"),
        ("jobs reschedule 1", "--in <TIME>"),
        ("jobs reschedule 1 --in 5", "time unit needed"),
        ("jobs reschedule 1 --at tomorrow", "invalid value"),
        ("jobs reschedule 1 --in 9999years", "1000 years"),
        ("jobs list --state sleeping", "possible values: ready"),
    ] {
        let arguments: Vec<&str> = command.split(' ').collect();
        let said = windlass(&db.url, &arguments);
        assert_eq!(said.code, Some(2), "{command}: {said:?}");
        assert!(said.err.contains(says), "{command}: {}", said.err);
    }
    assert_eq!(db.rows("ready_executions"), 2);
}

fn a_person_is_asked_first(db: &TestDb) {
    fill(db);
    let terminal = |command: &str, typed: &str| {
        let arguments: Vec<&str> = command.split(' ').collect();
        let command = Windlass::new(&arguments).env("DATABASE_URL", &db.url);
        command.on_a_terminal(typed)
    };
    let (code, text) = terminal("jobs cancel --all", "n\n");
    assert!(
        text.contains("3 jobs will be cancelled. Continue? [y/N]"),
        "{text}"
    );
    assert!(text.contains("No job was cancelled."), "{text}");
    assert_eq!(code, Some(1));
    let (_, text) = terminal("failed discard --class import", "\n");
    assert!(text.contains("3 jobs will be discarded"), "{text}");
    assert_eq!(
        db.rows("failed_executions") + db.rows("ready_executions"),
        5
    );
    // Jobs that are named, counted or agreed to beforehand need no confirmation.
    for command in [
        "jobs cancel 1",
        "jobs cancel --all --dry-run",
        "failed retry --all",
    ] {
        let (code, text) = terminal(command, "");
        assert!(!text.contains("Continue?"), "{command}: {text}");
        assert_eq!(code, Some(0), "{command}: {text}");
    }
    let (code, text) = terminal("jobs cancel --all", "y\n");
    assert!(text.contains("jobs were cancelled."), "{text}");
    assert_eq!((code, db.rows("ready_executions")), (Some(0), 0));
    let (code, _) = terminal("failed discard --all --yes", "");
    assert_eq!((code, db.rows("failed_executions")), (Some(0), 0));
}

fn jobs_that_cannot_be_changed_are_named(db: &TestDb) {
    fill(db);
    let said = windlass(&db.url, &["failed", "retry", "1", "4", "99"]);
    assert_eq!(
        said.out,
        "Job 1 has not failed: it waits.\nThere is no job 99.\n1 job was retried.\n"
    );
    assert_eq!(said.code, Some(1));
    let said = windlass(&db.url, &["failed", "retry", "1", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(json["not_selected"][0]["status"], "queued", "{json}");
    let said = windlass(&db.url, &["jobs", "reschedule", "5", "--in", "1h"]);
    assert!(
        said.out
            .starts_with("Job 5 does not wait: it has failed.\n"),
        "{said:?}"
    );
    assert_eq!(windlass(&db.url, &["jobs", "cancel", "1"]).code, Some(0));
    let said = windlass(&db.url, &["jobs", "cancel", "1"]);
    assert_eq!(
        (said.code, &*said.out),
        (
            Some(1),
            "Job 1 has ended: it was cancelled.\nNo job was cancelled.\n"
        )
    );
}

fn no_failures_are_no_missing_job(db: &TestDb) {
    let out = |arguments: &[&str]| windlass(&db.url, arguments).out;
    assert_eq!(out(&["failed", "list"]), "No job has failed.\n");
    assert_eq!(
        out(&["failed", "list", "--class", "a"]),
        "No failed job matches.\n"
    );
}

fn a_pipe_gets_whole_errors(db: &TestDb) {
    fill(db);
    let long = "x".repeat(300);
    db.execute(&format!(
        "UPDATE solid_queue_failed_executions SET error = \
         '{{\"exception_class\":\"Io\",\"message\":\"{long}: missing field `name`\"}}' WHERE job_id = 4"
    ));
    let said = windlass(&db.url, &["failed", "list"]);
    assert!(
        said.out
            .contains(&format!("Io: {long}: missing field `name`\n")),
        "{said:?}"
    );
    let command = Windlass::new(&["failed", "list"]).env("DATABASE_URL", &db.url);
    let (_, seen) = command.on_a_terminal("");
    assert!(
        seen.contains("Io: xxx") && seen.contains("x: missing field `name`"),
        "{seen}"
    );
    let longest = seen.lines().map(|line| line.chars().count()).max();
    assert_eq!(longest, Some(110), "{seen}");
}
