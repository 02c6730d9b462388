//! The view that a job has of itself, and its enqueues.

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::jobs::{Log, Note};
use crate::support::wait::until;
use diesel::connection::SimpleConnection as _;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use windlass::{Context, Dispatcher, Job, JobResult, NewJob, Registry, Worker};

/// Tells all that it sees.
#[derive(Debug, Serialize, Deserialize)]
struct Look;

impl Job for Look {
    const NAME: &'static str = "look";
    const ALIASES: &'static [&'static str] = &["old_look"];
    type State = Log;
    type Output = ();

    fn perform(self, cx: &Context<'_, Log>) -> JobResult {
        cx.check()?;
        assert!(!cx.is_lost() && !cx.is_stopping());
        cx.add(format!(
            "{} {} {} attempt {} claim {} enqueued {} scheduled {:?}",
            cx.job_id(),
            cx.class_name(),
            cx.queue_name(),
            cx.attempt(),
            cx.claim_id(),
            cx.enqueued_at().format("%F %T%.6f"),
            cx.scheduled_at().map(|time| time.to_rfc3339()),
        ));
        Ok(())
    }
}

fn a_job_sees_itself(db: &TestDb) {
    let log = Arc::new(Log::default());
    let registry = Registry::new().register::<Look>(Arc::clone(&log));
    let mut conn = db.connect();
    let first = NewJob::new(&Look)
        .unwrap()
        .queue("eyes")
        .enqueue(&mut conn)
        .unwrap();
    let second = NewJob::of_class("old_look", "null")
        .at("2026-01-02T03:04:05.123456Z".parse().unwrap())
        .enqueue(&mut conn)
        .unwrap();
    // As if it had failed twice before.
    db.execute(&format!(
        "UPDATE solid_queue_jobs SET attempts = 2 WHERE id = {}",
        second.id
    ));
    let enqueued =
        db.texts("SELECT CAST(created_at AS text) AS t FROM solid_queue_jobs ORDER BY id");
    let _worker = Worker::new(&db.database, registry)
        .threads(1)
        .start()
        .unwrap();
    until("both are done", || log.len() == 2);
    let expected = |line: &str| format!("{line:?}");
    let lines = log.lines();
    let without_fraction = |text: &str| text.trim_end_matches('0').to_owned();
    let parts: Vec<Vec<&str>> = lines.iter().map(|line| line.split(' ').collect()).collect();
    assert_eq!(
        parts[0][..5],
        [&*first.id.to_string(), "look", "eyes", "attempt", "1"],
        "{}",
        expected(&lines[0])
    );
    assert_eq!(
        parts[1][..5],
        [
            &*second.id.to_string(),
            "old_look",
            "default",
            "attempt",
            "3"
        ]
    );
    for (parts, enqueued) in parts.iter().zip(&enqueued) {
        let seen = format!("{} {}", parts[8], parts[9]);
        assert_eq!(without_fraction(&seen), without_fraction(enqueued));
    }
    assert!(lines[0].ends_with("scheduled None"), "{}", lines[0]);
    assert!(
        lines[1].ends_with("scheduled Some(\"2026-01-02T03:04:05.123456+00:00\")"),
        "{}",
        lines[1]
    );
    let claims: Vec<i64> = parts
        .iter()
        .map(|parts| parts[6].parse().unwrap())
        .collect();
    assert!(claims[0] < claims[1]);
}

/// Other programs share the tables, and SQLite stores a time as they wrote it.
fn times_in_the_form_of_another_program_are_read(db: &TestDb) {
    let log = Arc::new(Log::default());
    let registry = Registry::new().register::<Look>(Arc::clone(&log));
    let mut forms = vec![
        ("2026-02-28T23:59:58.000250", "23:59:58.000250"),
        ("2026-02-28 23:59:58", "23:59:58.000000"),
        ("2026-02-28 23:59:58.5", "23:59:58.500000"),
        ("2026-02-28 23:59", "23:59:00.000000"),
        ("2026-02-28", "00:00:00.000000"),
    ];
    if !db.is_postgres() {
        // There a timestamp has no zone.
        forms.push(("2026-02-28T23:59:58.250Z", "23:59:58.250000"));
        forms.push(("2026-02-28 23:59:58+01:30", "22:29:58.000000"));
    }
    for (form, _) in &forms {
        let job = NewJob::new(&Look).unwrap();
        let job = job.enqueue(&mut db.connection()).unwrap();
        for (table, id) in [("jobs", "id"), ("ready_executions", "job_id")] {
            db.execute(&format!(
                "UPDATE solid_queue_{table} SET created_at = '{form}' WHERE {id} = {}",
                job.id
            ));
        }
    }
    let _worker = Worker::new(&db.database, registry)
        .threads(1)
        .start()
        .unwrap();
    until("all are done", || log.len() == forms.len());
    for (line, (form, time)) in log.lines().iter().zip(&forms) {
        let seen = format!(" enqueued 2026-02-28 {time} ");
        assert!(line.contains(&seen), "{form}: {line}");
    }
}

/// Enqueues what comes after it, over a connection of the worker's pool.
#[derive(Debug, Serialize, Deserialize)]
struct Fan(u32);

impl Job for Fan {
    const NAME: &'static str = "fan";
    type State = Log;
    type Output = ();

    fn perform(self, cx: &Context<'_, Log>) -> JobResult {
        let mut connection = cx.connection()?;
        if self.0 > 0 {
            let jobs = [0, 1].map(|_| NewJob::new(&Fan(self.0 - 1)));
            let jobs = jobs.into_iter().collect::<windlass::Result<Vec<_>>>()?;
            windlass::enqueue_all(&mut connection, jobs)?;
        }
        NewJob::new(&Note::new(format!("from {}", cx.job_id())))?
            .after(Duration::from_millis(1))
            .enqueue(&mut connection)?;
        Ok(())
    }
}

/// More threads than the pool has connections: they take turns.
fn a_job_enqueues_others(db: &TestDb) {
    let database = windlass::Database::open_with_pool(&db.url, 2).unwrap();
    let log = Arc::new(Log::default());
    let registry = Registry::new()
        .register::<Fan>(Arc::clone(&log))
        .register::<Note>(Arc::clone(&log));
    let _worker = Worker::new(&database, registry).threads(6).start().unwrap();
    let _dispatcher = Dispatcher::new(&database)
        .polling_interval(Duration::from_millis(20))
        .start()
        .unwrap();
    Fan(4).enqueue(&mut db.connection()).unwrap();
    until("all notes are done", || log.len() == 31);
    let mut lines = log.lines();
    lines.sort();
    lines.dedup();
    assert_eq!(lines.len(), 31);
    assert_eq!(db.rows("failed_executions"), 0);
}

on_each_database!(
    a_job_sees_itself,
    times_in_the_form_of_another_program_are_read,
    a_job_enqueues_others
);

crate::through_a_pooler_in_all!(
    a_job_sees_itself,
    times_in_the_form_of_another_program_are_read,
    a_job_enqueues_others,
);

/// Runs a script, and looks whether its connection works.
#[derive(Debug, Serialize, Deserialize)]
struct Script(String);

impl Job for Script {
    const NAME: &'static str = "script";
    type State = Log;
    type Output = ();

    fn perform(self, cx: &Context<'_, Log>) -> JobResult {
        let done = cx.connection()?.postgres()?.batch_execute(&self.0);
        cx.add(format!("{} {}", self.0, done.is_ok()));
        Ok(())
    }
}

/// A script that fails in its middle leaves a transaction open that Diesel does not know.
#[test]
fn a_connection_with_a_failed_transaction_is_not_used_again() {
    let db = TestDb::postgres();
    let database = windlass::Database::open_with_pool(&db.url, 1).unwrap();
    let log = Arc::new(Log::default());
    let registry = Registry::new().register::<Script>(Arc::clone(&log));
    let _worker = Worker::new(&database, registry).threads(1).start().unwrap();
    let scripts = ["BEGIN; SELECT 1 / 0; COMMIT", "SELECT 2", "SELECT 3"];
    for script in scripts {
        let job = Script(script.to_owned());
        job.enqueue(&mut db.connection()).unwrap();
    }
    until("all have run", || log.len() == 3);
    let ended = [" false", " true", " true"];
    let wanted: Vec<String> = scripts
        .iter()
        .zip(ended)
        .map(|(text, end)| format!("{text}{end}"))
        .collect();
    assert_eq!(log.lines(), wanted);
}
