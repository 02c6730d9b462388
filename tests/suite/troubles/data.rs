//! Rows that no program should have written: each ends with a reason, none holds
//! up another, none runs for ever.

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::jobs::{Log, Note};
use crate::support::wait::until;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use windlass::{Context, Handle, Job, JobResult, Registry, Worker};

on_each_database!(
    arguments_that_make_no_sense,
    errors_that_are_hard_to_write,
    names_at_the_limits,
    times_that_are_none,
);

/// A job that fails with this text, this many times.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Complain(String, usize);

impl Job for Complain {
    const NAME: &'static str = "complain";
    type State = ();
    type Output = ();

    fn perform(self, _cx: &Context<'_, ()>) -> JobResult {
        Err(self.0.repeat(self.1).into())
    }
}

fn worker(db: &TestDb, log: &Arc<Log>) -> Handle {
    let registry = Registry::new()
        .register::<Note>(Arc::clone(log))
        .register::<Complain>(());
    Worker::new(&db.database, registry)
        .polling_interval(Duration::from_millis(20))
        .start()
        .unwrap()
}

const TIME: &str = "'2026-11-21 03:36:27.384057'";

/// Inserts a ready row as Rails does; each value is given as SQL.
fn insert(db: &TestDb, class: &str, queue: &str, arguments: &str, time: &str) {
    let key = format!("{:032x}", fastrand::u128(..));
    db.in_transaction(&[
        &format!(
            "INSERT INTO solid_queue_jobs (queue_name, class_name, arguments, active_job_id, \
             scheduled_at, created_at, updated_at) \
             VALUES ({queue}, {class}, {arguments}, '{key}', {time}, {time}, {time})"
        ),
        &format!(
            "INSERT INTO solid_queue_ready_executions (job_id, queue_name, created_at) \
             SELECT id, queue_name, {TIME} FROM solid_queue_jobs WHERE active_job_id = '{key}'"
        ),
    ]);
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// Enqueues a valid job last, and requires that it is done and that nothing is left running.
fn the_last_is_done(db: &TestDb, log: &Log) {
    insert(db, "'note'", "'default'", r#"'{"text":"last"}'"#, TIME);
    until("the last is done", || log.lines().contains(&"last".into()));
    until("nothing is left", || {
        db.rows("claimed_executions") + db.rows("ready_executions") == 0
    });
}

fn errors(db: &TestDb) -> Vec<serde_json::Value> {
    let errors = db.texts("SELECT error AS t FROM solid_queue_failed_executions ORDER BY job_id");
    let parsed = errors.iter().map(|error| serde_json::from_str(error));
    parsed.map(|error| error.expect("readable JSON")).collect()
}

fn arguments_that_make_no_sense(db: &TestDb) {
    let mut bad = vec![
        "NULL".to_owned(),
        "''".to_owned(),
        quoted("not JSON, it's \u{1F600}"),
        quoted(r#"{"text":"\ud800"}"#),
        quoted(r#"{"text":12}"#),
        quoted(r#"{"job_class":"note","arguments":"none"}"#),
        quoted(&"[".repeat(100_000)),
        quoted(&format!("\"{}\"", "x".repeat(2_000_000))),
    ];
    if !db.is_postgres() {
        bad.push("X'FF00FE'".to_owned());
        bad.push("CAST(X'7B22FFFE' AS text)".to_owned());
    }
    for arguments in &bad {
        insert(db, "'note'", "'default'", arguments, TIME);
    }
    let log = Arc::new(Log::default());
    let _worker = worker(db, &log);
    the_last_is_done(db, &log);
    let errors = errors(db);
    assert_eq!(errors.len(), bad.len());
    for error in errors {
        assert_eq!(error["exception_class"], "undecodable_arguments");
        let message = error["message"].as_str().unwrap();
        assert!(message.starts_with("the arguments do not match `note`: "));
    }
}

fn errors_that_are_hard_to_write(db: &TestDb) {
    let texts = [
        ("2 MB of it: \u{DF}", 180_000),
        ("NUL \0, and \\u0000, and \\ud800 \\", 1),
        (
            "\u{FFFE}\u{10FFFF}\u{202E} right to left, and 'quotes'; DROP",
            1,
        ),
        ("", 1),
    ];
    for (text, times) in texts {
        let job = Complain(text.to_owned(), times);
        let arguments = serde_json::to_string(&job).unwrap();
        insert(db, "'complain'", "'default'", &quoted(&arguments), TIME);
    }
    let log = Arc::new(Log::default());
    let _worker = worker(db, &log);
    the_last_is_done(db, &log);
    let errors = errors(db);
    let message = |index: usize| errors[index]["message"].as_str().unwrap().to_owned();
    assert!(message(0).ends_with("(cut)") && message(0).len() < 17_000);
    assert_eq!(message(1), "NUL \u{FFFD}, and \\u0000, and \\ud800 \\");
    assert_eq!(message(2), texts[2].0);
    assert_eq!(message(3), "");
}

/// A job of an unknown class waits for a worker that has registered it.
fn names_at_the_limits(db: &TestDb) {
    let names = [
        "n".repeat(255),
        "\u{1F600}".repeat(63),
        r#"it's "quoted"; {{"in $1}} \"#.to_owned(),
        "*".to_owned(),
        " ".to_owned(),
        String::new(),
    ];
    for name in &names {
        insert(db, &quoted(name), &quoted(name), "'{}'", TIME);
        let text = format!(r#"{{"text":{}}}"#, serde_json::to_string(name).unwrap());
        insert(db, "'note'", &quoted(name), &quoted(&text), TIME);
    }
    let log = Arc::new(Log::default());
    let _worker = worker(db, &log);
    the_last_is_done(db, &log);
    let mut done = log.lines();
    done.retain(|line| line != "last");
    done.sort();
    let mut names = names.to_vec();
    names.sort();
    assert_eq!(done, names, "known classes run, whatever their queue");
    assert_eq!(db.rows("scheduled_executions"), 6, "unknown ones wait");
    assert_eq!(db.rows("failed_executions"), 0);
}

fn times_that_are_none(db: &TestDb) {
    let times = if db.is_postgres() {
        &[
            "'infinity'",
            "'-infinity'",
            "'294276-12-31'",
            "'4713-01-01 BC'",
        ][..]
    } else {
        &[
            "'yesterday'",
            "''",
            "'2026-02-30 00:00:00.000000'",
            "'2026-11-21T03:36:27Z'",
            "'2026-11-21 03:36:27'",
            "1795232187",
            "1e300",
            "X'FF'",
        ][..]
    };
    for time in times {
        let arguments = r#"'{"text":"a"}'"#;
        insert(db, "'note'", "'default'", arguments, time);
    }
    let log = Arc::new(Log::default());
    let _worker = worker(db, &log);
    the_last_is_done(db, &log);
    assert_eq!(log.len(), times.len() + 1);
    assert_eq!(db.rows("failed_executions"), 0);
}
