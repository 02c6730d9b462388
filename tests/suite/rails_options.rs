//! Options that apply only to a database that a Rails app shares, once they are set.

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::jobs::{Log, Note};
use crate::support::program::windlass;
use crate::support::solid_queue;
use crate::support::wait::until;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use windlass::schema::{self, RailsOption};
use windlass::{Concurrency, Job, JobId, NewJob, OnConflict, Policy, Registry, Supervisor, Worker};
use windlass_console::Verdict;

fn envelopes(db: &TestDb, on: bool) -> Vec<String> {
    let done = schema::set_rails_option(&mut db.connection(), RailsOption::ActiveJobEnvelopes, on);
    done.unwrap().completed
}

fn stored(db: &TestDb, job: JobId) -> String {
    let text = format!(
        "SELECT arguments AS t FROM solid_queue_jobs WHERE id = {}",
        job.0
    );
    db.texts(&text).remove(0)
}

/// Runs all jobs, and returns their texts, sorted.
fn run_all(db: &TestDb, jobs: usize) -> Vec<String> {
    let log = Arc::new(Log::default());
    let registry = Registry::new().register::<Note>(Arc::clone(&log));
    let worker = Worker::new(&db.database, registry).polling_interval(Duration::from_millis(20));
    let _worker = worker.start().unwrap();
    until("all have run", || log.len() == jobs);
    let mut lines = log.lines();
    lines.sort();
    lines
}

/// Every way to enqueue: one, many, later, by a unique id that replaces, by SQL.
fn enqueue_in_each_way(db: &TestDb) -> Vec<JobId> {
    let mut conn = db.connect();
    let new = |text: &str| NewJob::new(&Note::new(text)).unwrap();
    let mut jobs = vec![new("one \"quoted\"").enqueue(&mut conn).unwrap().id];
    let many = windlass::enqueue_all(&mut conn, [new("two"), new("three")]).unwrap();
    jobs.extend(many.iter().map(|job| job.id));
    let limited = new("four").concurrency(Concurrency::new("k"));
    jobs.push(limited.enqueue(&mut conn).unwrap().id);
    let unique = |text: &str| {
        new(text)
            .unique_id("u")
            .policy(Policy::new().on_conflict(OnConflict::Replace))
    };
    unique("before").enqueue(&mut conn).unwrap();
    jobs.push(unique("five").enqueue(&mut conn).unwrap().id);
    db.execute(
        "INSERT INTO windlass_enqueue (class, arguments) VALUES ('note', '{\"text\": \"six\"}')",
    );
    jobs.push(JobId(db.count("SELECT max(id) AS n FROM solid_queue_jobs")));
    jobs
}

fn jobs_carry_the_envelope_of_active_job(db: &TestDb) {
    assert!(!envelopes(db, true).is_empty());
    assert_eq!(envelopes(db, true), Vec::<String>::new());
    let jobs = enqueue_in_each_way(db);
    for job in &jobs {
        let text = stored(db, *job);
        let envelope: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
        let id = format!("windlass-{}", job.0);
        assert_eq!(envelope["job_class"], "note", "{text}");
        assert_eq!(envelope["job_id"], id, "{text}");
        assert_eq!(envelope["queue_name"], "default");
        assert_eq!(envelope["executions"], 0);
        assert!(envelope["arguments"][0]["text"].is_string(), "{text}");
        let at = envelope["enqueued_at"].as_str().unwrap();
        assert!(chrono::DateTime::parse_from_rfc3339(at).is_ok(), "{at}");
        let ids = format!(
            "SELECT active_job_id AS t FROM solid_queue_jobs WHERE id = {}",
            job.0
        );
        assert_eq!(db.texts(&ids), [id]);
    }
    // The page of a finished job in Mission Control shows the time.
    let without = "SELECT count(*) AS n FROM solid_queue_jobs WHERE scheduled_at IS NULL";
    assert_eq!(db.count(without), 0);
    assert_eq!(db.rows("scheduled_executions"), 0);
    assert_eq!(
        run_all(db, 6),
        ["five", "four", "one \"quoted\"", "six", "three", "two"]
    );
    let shown = windlass(&db.url, &["jobs", "show", &jobs[0].0.to_string(), "--json"]).json();
    assert_eq!(
        shown["arguments"],
        serde_json::json!({"text": "one \"quoted\""})
    );
}

/// Mission Control discards, and sets the count of executions back in the envelope before it makes a job ready.
fn ruby_retries_a_failed_job_of_rust(db: &TestDb) {
    envelopes(db, true);
    let job = Note::new("again").enqueue(&mut db.connection()).unwrap().id;
    db.execute("DELETE FROM solid_queue_ready_executions");
    let mut envelope: Value = serde_json::from_str(&stored(db, job)).unwrap();
    envelope["executions"] = 0.into();
    let text = envelope.to_string().replace('\'', "''");
    db.in_transaction(&[
        &format!(
            "UPDATE solid_queue_jobs SET arguments = '{text}' WHERE id = {}",
            job.0
        ),
        "INSERT INTO solid_queue_ready_executions (job_id, queue_name, priority, created_at) \
         SELECT id, queue_name, priority, created_at FROM solid_queue_jobs",
    ]);
    assert_eq!(run_all(db, 1), ["again"]);
}

/// Jobs that were enqueued before stay as they are, and the envelopes of those that were not after.
fn envelopes_are_turned_off_again(db: &TestDb) {
    let mut conn = db.connect();
    let before = Note::new("before").enqueue(&mut conn).unwrap().id;
    envelopes(db, true);
    let with = Note::new("with").enqueue(&mut conn).unwrap().id;
    assert!(!envelopes(db, false).is_empty());
    let after = Note::new("after").enqueue(&mut conn).unwrap().id;
    assert_eq!(stored(db, before), r#"{"text":"before"}"#);
    assert!(stored(db, with).starts_with("{\"job_class\":"));
    assert_eq!(stored(db, after), r#"{"text":"after"}"#);
    assert_eq!(run_all(db, 3), ["after", "before", "with"]);
}

fn arguments_are_edited_in_their_envelope(db: &TestDb) {
    envelopes(db, true);
    let job = Note::new("text").enqueue(&mut db.connection()).unwrap().id;
    let id = job.0.to_string();
    let new = r#"{"text":"new"}"#;
    let edited = windlass(&db.url, &["jobs", "edit", &id, "--arguments", new]);
    assert_eq!(edited.code, Some(0), "{edited:?}");
    assert!(stored(db, job).contains(&format!(r#""arguments":[{new}]"#)));
    assert_eq!(run_all(db, 1), ["new"]);
}

/// They are no jobs of Ruby, which a supervisor would leave as Ruby has failed them.
fn what_ruby_took_for_dead_is_taken_back(db: &TestDb) {
    envelopes(db, true);
    Note::new("again").enqueue(&mut db.connection()).unwrap();
    db.execute("DELETE FROM solid_queue_ready_executions");
    db.execute(
        "INSERT INTO solid_queue_failed_executions (job_id, error, created_at) SELECT id, \
         '{\"exception_class\":\"SolidQueue::Processes::ProcessPrunedError\",\"message\":\"gone\",\"backtrace\":null}', \
         created_at FROM solid_queue_jobs",
    );
    let supervisor = Supervisor::new(&db.database)
        .heartbeat_interval(Duration::from_millis(50))
        .alive_threshold(Duration::from_millis(500));
    let supervisor = supervisor.start().unwrap();
    until("it is taken back", || db.rows("failed_executions") == 0);
    drop(supervisor);
    assert_eq!(run_all(db, 1), ["again"]);
}

/// Rails makes its tables again, without the triggers.
fn migrate_makes_wanted_triggers_again(db: &TestDb) {
    envelopes(db, true);
    if db.is_postgres() {
        db.execute("DROP TRIGGER windlass_envelope ON solid_queue_jobs");
    } else {
        db.execute("DROP TRIGGER windlass_envelope");
    }
    let findings = windlass_console::doctor(&mut db.connection()).unwrap();
    let schema = findings.iter().find(|one| one.check == "schema").unwrap();
    assert_ne!(schema.verdict, Verdict::Fine, "{schema:?}");
    let done = db.database.migrate().unwrap().completed;
    let missing = "the trigger windlass_envelope of solid_queue_jobs is missing";
    assert_eq!(done, [missing]);
    assert!(db.database.migrate().unwrap().is_empty());
}

/// Without polling: what Ruby makes ready is announced, if that was asked for.
fn jobs_of_ruby_wake_idle_workers(db: &TestDb) {
    let said = windlass(&db.url, &["migrate", "--wake-from-ruby", "on"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let log = Arc::new(Log::default());
    let registry = Registry::new().register::<Note>(Arc::clone(&log));
    let worker = Worker::new(&db.database, registry).polling_interval(Duration::from_secs(600));
    let _worker = worker.start().unwrap();
    for number in 1..=5 {
        if db.is_postgres() {
            until("the worker is idle", || {
                db.count("SELECT count(*) AS n FROM solid_queue_processes WHERE listening") == 1
            });
        }
        solid_queue::enqueue(db, "note", r#"[{"text":"from Ruby"}]"#);
        until("the job is done", || log.len() == number);
    }
    let said = windlass(&db.url, &["migrate", "--wake-from-ruby", "off"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let triggers = "SELECT count(*) AS n FROM pg_trigger WHERE tgname = 'windlass_wake_from_ruby' \
         AND tgrelid = 'solid_queue_ready_executions'::regclass";
    if db.is_postgres() {
        assert_eq!(db.count(triggers), 0);
    }
}

on_each_database!(
    jobs_carry_the_envelope_of_active_job,
    ruby_retries_a_failed_job_of_rust,
    envelopes_are_turned_off_again,
    arguments_are_edited_in_their_envelope,
    what_ruby_took_for_dead_is_taken_back,
    migrate_makes_wanted_triggers_again,
    jobs_of_ruby_wake_idle_workers,
);
