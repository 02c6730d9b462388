//! Rates that are set while the programs run.

use super::{HOUR, drained, note};
use crate::on_each_database;
use crate::support::TestDb;
use crate::support::jobs::{Log, Note};
use crate::support::program::windlass;
use crate::support::wait::until;
use std::sync::Arc;
use std::time::Duration;
use windlass::jobs::{self, Reason};
use windlass::limits::{self, Rate};
use windlass::{NewJob, Registry, Worker, enqueue_all, testing};

const MINUTE: Duration = Duration::from_secs(61);

fn enqueue(db: &TestDb, jobs: usize, rate: &Rate) {
    let jobs = (0..jobs).map(|at| note(&at.to_string(), rate.clone()));
    enqueue_all(&mut db.connection(), jobs).unwrap();
}

fn a_set_rate_counts_until_it_is_cleared(db: &TestDb) {
    let mut conn = db.connection();
    enqueue(db, 9, &Rate::per_day(1).key("api/acme"));
    assert_eq!(drained(db), 1);
    let rate = Rate::per_hour(60).burst(4);
    limits::set_rate(&mut conn, "api/acme", &rate, "ada", "").unwrap();
    // The tokens that are there stay, and further ones come at the new rate.
    assert_eq!(drained(db), 0);
    testing::travel(&mut conn, MINUTE).unwrap();
    assert_eq!(drained(db), 1);
    testing::travel(&mut conn, HOUR).unwrap();
    assert_eq!(drained(db), 4);
    assert!(limits::clear(&mut conn, "api/acme").unwrap());
    assert_eq!(drained(db), 0);
    testing::travel(&mut conn, HOUR).unwrap();
    assert_eq!(drained(db), 0);
    testing::travel(&mut conn, 24 * HOUR).unwrap();
    assert_eq!(drained(db), 1);
}

/// The key itself counts before its group, and each key of a group has the rate for itself.
fn the_key_counts_before_its_group(db: &TestDb) {
    let mut conn = db.connection();
    let set = |burst: u32| Rate::per_hour(1).burst(burst);
    limits::set_rate(&mut db.connection(), "api/*", &set(2), "", "").unwrap();
    limits::set_rate(&mut db.connection(), "api/b", &set(3), "", "").unwrap();
    for key in ["api/a", "api/b", "api/c", "api", "other/a"] {
        enqueue(db, 6, &Rate::per_hour(1_000).burst(1_000).key(key));
    }
    assert_eq!(drained(db), 2 + 3 + 2 + 6 + 6);
    assert!(limits::clear_rate(&mut conn, "api/b").unwrap());
    testing::travel(&mut conn, 9 * HOUR).unwrap();
    assert_eq!(drained(db), 2 + 2 + 2);
    assert!(limits::clear(&mut conn, "api/*").unwrap());
    assert_eq!(drained(db), 0);
    testing::travel(&mut conn, HOUR).unwrap();
    assert_eq!((drained(db), db.rows("blocked_executions")), (5, 0));
}

/// Without a burst, a job may start whatever it costs; with one, a job that costs more never starts.
fn a_rate_without_a_burst_lets_each_job_through(db: &TestDb) {
    let mut conn = db.connection();
    limits::set_rate(&mut conn, "api/*", &Rate::per_hour(60), "", "").unwrap();
    let costly = Rate::per_second(100).burst(9).cost(9).key("api/acme");
    enqueue(db, 1, &costly);
    assert_eq!(drained(db), 1);
    let burst = Rate::per_hour(60).burst(2);
    limits::set_rate(&mut conn, "api/acme", &burst, "", "").unwrap();
    let job = note("never", costly).enqueue(&mut conn).unwrap().id;
    testing::travel(&mut conn, 24 * HOUR).unwrap();
    assert_eq!(drained(db), 0);
    let reason = jobs::explain(&mut conn, job).unwrap().unwrap().reason;
    let Reason::Rate {
        seconds,
        cost,
        set_as,
        ..
    } = &reason
    else {
        panic!("{reason:?}")
    };
    assert_eq!(
        (*seconds, *cost, set_as.as_deref()),
        (None, 9, Some("api/acme"))
    );
    let said = windlass(&db.url, &["explain", &job.to_string()]);
    for words in [
        "It waits for a token of api/acme: first in line; the rate was set to 60/h, 2 at once, as api/acme",
        "It costs 9 tokens, and the rate has 2 at most: it never starts.",
    ] {
        assert!(said.out.contains(words), "{said:?}");
    }
    let said = windlass(&db.url, &["doctor"]);
    let words = format!(
        "job {job} costs 9 tokens of the rate api/acme, which has 2 at most: it never starts, and no job behind it; raise the \
         burst: `windlass limits set api/acme --rate RATE --burst 9`"
    );
    assert!(said.out.contains(&words), "{said:?}");
}

/// Nothing waits until a time that was right before.
fn waiting_jobs_start_at_once_after_a_change(db: &TestDb) {
    let mut conn = db.connection();
    let fast = Rate::per_second(1_000).burst(100);
    let registry = Registry::new().register::<Note>(Arc::new(Log::default()));
    let worker = Worker::new(&db.database, registry).start().unwrap();
    let left = || db.count("SELECT count(*) AS n FROM solid_queue_jobs WHERE finished_at IS NULL");
    for (key, changed) in [("api/acme", "api/acme"), ("of/7", "of/*")] {
        enqueue(db, 20, &Rate::per_day(1).key(key));
        // Jobs with a second rate wait in another line.
        let both = note("both", Rate::per_day(1).key(key));
        let both = both.rate(Rate::per_second(9).key("other"));
        both.enqueue(&mut conn).unwrap();
        until("one has run", || left() == 20);
        limits::set_rate(&mut conn, changed, &fast, "", "").unwrap();
        until("all have run", || left() == 0);
        limits::clear(&mut conn, changed).unwrap();
    }
    limits::set_rate(&mut conn, "slow/*", &Rate::per_day(1), "", "").unwrap();
    enqueue(db, 20, &fast.key("slow/1"));
    until("one has run", || left() == 19);
    limits::clear(&mut conn, "slow/*").unwrap();
    until("all have run again", || left() == 0);
    drop(worker);
}

fn rates_are_shown_set_and_cleared_by_the_program(db: &TestDb) {
    let run = |arguments: &[&str]| windlass(&db.url, arguments);
    let says = |arguments: &[&str], words: &str| {
        let said = run(arguments);
        assert!(
            said.is_done() && said.out.contains(words),
            "{words}: {said:?}"
        );
    };
    let rate = ["limits", "set", "api/*", "--rate", "10/h", "--burst", "2"];
    says(
        &[&rate[..], &["--by", "ada"]].concat(),
        "The rate of api/* is 10/h, 2 at once",
    );
    says(&["limits", "list"], "api/* was set to 10/h, 2 at once");
    // Both stand in one row.
    says(
        &["limits", "set", "api/*", "3", "--reason", "slow"],
        "The limit of api/* is 3;",
    );
    says(
        &["limits", "list"],
        "api/* was set to 3 and 10/h, 2 at once",
    );
    enqueue(db, 5, &Rate::per_second(10).key("api/acme"));
    assert_eq!(drained(db), 2);
    let listed = run(&["limits", "list"]);
    let row = listed.out.lines().find(|line| line.starts_with("api/acme"));
    let row: Vec<&str> = row.unwrap_or_default().split_whitespace().collect();
    assert_eq!(
        row[..6],
        ["api/acme", "10/h,", "2", "at", "once", "api/*"],
        "{listed:?}"
    );
    assert_eq!((row[6], row[7]), ("0", "3"), "{listed:?}");
    let json = run(&["limits", "list", "--json"]).out;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["limits"][0]["rate"]["starts"], 10);
    assert_eq!(json["rates"][0]["waiting"], 3, "{json}");
    let doctor = run(&["doctor"]);
    let words = "1 limits are set: api/* to 3 and 10/h, 2 at once";
    assert!(doctor.out.contains(words), "{doctor:?}");
    says(
        &["limits", "clear", "api/*", "--rate"],
        "The rate of api/* is as its jobs have it.",
    );
    says(
        &["limits", "clear", "api/*", "--rate"],
        "No rate of api/* was set.",
    );
    says(&["limits", "list"], "api/* was set to 3 ");
    says(
        &["limits", "clear", "api/*", "--slots"],
        "as its jobs have it",
    );
    says(&["limits", "list"], "No limit is set.");
    let audited = db.texts(
        "SELECT action || ' ' || coalesce(parameters, '') AS t FROM windlass_audit WHERE target = 'api/*' ORDER BY id",
    );
    let expected = [
        r#"limits.set {"rate":"10/h, 2 at once"}"#,
        r#"limits.set {"slots":3}"#,
        r#"limits.clear {"only":"rate"}"#,
        r#"limits.clear {"only":"slots"}"#,
    ];
    assert_eq!(audited, expected);
}

fn what_is_no_rate_is_refused(db: &TestDb) {
    let mut conn = db.connection();
    let one = Rate::per_second(1);
    for key in ["", "a\nb", "a\0b", "\u{1f}", "*", "a/b/*", &"x".repeat(256)] {
        let error = limits::set_rate(&mut conn, key, &one, "", "")
            .unwrap_err()
            .to_string();
        assert!(error.starts_with("cannot set the rate of `"), "{error}");
        assert!(!error.chars().any(char::is_control), "{error:?}");
    }
    for rate in [
        Rate::per_second(0),
        Rate::per_second(1).burst(0),
        Rate::per_second(u32::MAX),
        Rate::per_day(1).burst(u32::MAX),
    ] {
        assert!(
            limits::set_rate(&mut conn, "api", &rate, "", "").is_err(),
            "{rate:?}"
        );
    }
    for arguments in [
        &["--rate", "10/x"][..],
        &["--rate", "0/s"],
        &["--rate", "99999999999/s"],
        &["--rate", "10/s", "--burst", "0"],
        &["--rate", "10/s", "--burst", "-1"],
        &["--burst", "3"],
        &["1", "--burst", "3"],
        &[],
    ] {
        let arguments = [&["limits", "set", "api/acme"], arguments].concat();
        let said = windlass(&db.url, &arguments);
        assert!(!said.is_done(), "{said:?}");
    }
    assert!(limits::list(&mut conn).unwrap().is_empty());
    // A row that was written by hand is computed with all the same.
    db.execute("INSERT INTO windlass_limits (limit_key, rate_number, rate_period, rate_burst, created_at) VALUES ('api/acme', -5, 9223372036854775807, -1, '2026-01-01')");
    enqueue(db, 2, &Rate::per_second(10).burst(9).key("api/acme"));
    assert_eq!(drained(db), 1);
    limits::list(&mut conn).unwrap();
    limits::rates(&mut conn, "a\0").unwrap();
}

/// The key of a type's rate is its name, which has no group.
fn a_key_without_a_group_has_a_rate(db: &TestDb) {
    let mut conn = db.connection();
    let jobs = (0..3)
        .map(|_| NewJob::of_class("note", r#"{"text":"a"}"#).rate(Rate::per_second(100).burst(9)));
    limits::set_rate(&mut conn, "note", &Rate::per_day(1).burst(2), "", "").unwrap();
    enqueue_all(&mut conn, jobs).unwrap();
    assert_eq!(drained(db), 2);
    assert!(limits::set(&mut conn, "note", 1, "", "").is_err());
}

on_each_database!(
    a_set_rate_counts_until_it_is_cleared,
    the_key_counts_before_its_group,
    a_rate_without_a_burst_lets_each_job_through,
    waiting_jobs_start_at_once_after_a_change,
    rates_are_shown_set_and_cleared_by_the_program,
    what_is_no_rate_is_refused,
    a_key_without_a_group_has_a_rate,
);
