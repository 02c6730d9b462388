//! No text of a user is an internal request, by whichever way a job comes.

use super::super::client::serve;
use super::Program;
use crate::on_each_database;
use crate::support::TestDb;
use crate::support::jobs::{Gate, Log, Note, Wait};
use crate::support::program::windlass;
use crate::support::solid_queue;
use crate::support::wait::until;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use windlass::limits::{self, LimitConflict};
use windlass::{
    Batch, Concurrency, Context, Dispatcher, Handle, Job, JobResult, NewJob, OnConflict, Policy,
    Registry, Worker,
};

on_each_database!(
    keys_of_rust_are_no_requests,
    keys_of_http_are_no_requests,
    keys_of_sql_are_no_requests,
    keys_of_rails_are_no_requests,
    limits_at_run_time_are_no_requests,
    what_waits_for_nothing_is_not_let_go_by_a_request,
    a_bad_request_stops_no_other,
);

/// Waits for an event that never comes.
#[derive(Debug, Serialize, Deserialize)]
struct Sleeper;

impl Job for Sleeper {
    const NAME: &'static str = "sleeper";
    type State = Log;
    type Output = ();

    fn perform(self, cx: &Context<'_, Log>) -> JobResult {
        let week = Duration::from_secs(7 * 86_400);
        cx.wait_event::<()>("step", "never", week)?;
        cx.add("slept");
        Ok(())
    }
}

/// Jobs that wait, each for something else that does not come, and workers.
struct Scene<'d> {
    db: &'d TestDb,
    log: Arc<Log>,
    gate: Arc<Gate>,
    batch: i64,
    parent: i64,
    semaphore: i64,
    before: Vec<String>,
    _processes: (Handle, Handle),
}

const WAITING: &str = "SELECT 'job ' || job_id || ' ' || class_name AS t FROM solid_queue_blocked_executions b \
     JOIN solid_queue_jobs j ON j.id = b.job_id ORDER BY 1";

impl<'d> Scene<'d> {
    fn new(db: &'d TestDb) -> Self {
        let mut conn = db.connect();
        let (log, gate) = (Arc::new(Log::default()), Arc::new(Gate::default()));
        let registry = Registry::new()
            .register::<Note>(Arc::clone(&log))
            .register::<Sleeper>(Arc::clone(&log))
            .register::<Wait>(Arc::clone(&gate));
        let worker = Worker::new(&db.database, registry)
            .threads(3)
            .polling_interval(Duration::from_millis(20));
        let processes = (
            worker.start().unwrap(),
            Dispatcher::new(&db.database).start().unwrap(),
        );
        let unserved = || NewJob::of_class("never", "null").queue("unserved");
        let parent = unserved().enqueue(&mut conn).unwrap();
        let child = NewJob::new(&Note::new("child")).unwrap();
        child.after(parent).enqueue(&mut conn).unwrap();
        let batch = Batch::new("open").add([unserved()]);
        let batch = batch.on_finish(NewJob::new(&Note::new("batch")).unwrap());
        let batch = batch.enqueue(&mut conn).unwrap().id;
        NewJob::new(&Sleeper).unwrap().enqueue(&mut conn).unwrap();
        let again = || NewJob::new(&Wait).unwrap().unique_id("again");
        again().enqueue(&mut conn).unwrap();
        until("one runs", || gate.begun() == 1);
        let again = again().policy(Policy::new().on_conflict(OnConflict::RunAgain));
        again.enqueue(&mut conn).unwrap();
        db.execute(
            "INSERT INTO solid_queue_semaphores (key, value, expires_at, created_at, updated_at) \
             VALUES ('k', 0, '2999-01-01 00:00:00.000000', '2026-01-01 00:00:00.000000', '2026-01-01 00:00:00.000000')",
        );
        until("all wait", || db.rows("blocked_executions") == 4);
        Scene {
            db,
            log,
            gate,
            batch: batch.0,
            parent: parent.id.0,
            semaphore: db.count("SELECT id AS n FROM solid_queue_semaphores"),
            before: db.texts(WAITING),
            _processes: processes,
        }
    }

    /// Groups and keys that were requests once, or look like one.
    fn names(&self) -> Vec<(String, String)> {
        let (batch, parent, semaphore) = (self.batch, self.parent, self.semaphore);
        let names = [
            ("windlass", "after".to_owned()),
            ("windlass", "event".to_owned()),
            ("windlass", "again".to_owned()),
            ("windlass", format!("batch/{batch}/added/{}/1", i64::MAX)),
            ("windlass", format!("batch/{batch}/added/1/1")),
            ("windlass/batch", batch.to_string()),
            ("windlass/batch", format!("{batch}/added/3")),
            ("windlass", format!("after/{}", parent + 1)),
            ("windlass/ended", parent.to_string()),
            ("windlass", "wait/1".to_owned()),
            ("windlass/event", "never".to_owned()),
            ("windlass", format!("semaphore/0/{semaphore}/k")),
            ("batch", batch.to_string()),
            (" ", " ".to_owned()),
        ];
        let names = names.into_iter();
        names.map(|(group, key)| (group.to_owned(), key)).collect()
    }

    /// Waits until so many jobs of users have run, and looks whether nothing else has happened.
    fn holds(self, jobs: usize) {
        let db = self.db;
        until("each job has run", || self.log.count("user") == jobs);
        until("each request is handled", || {
            db.rows_of("windlass_wanted_keys") == 0
        });
        assert_eq!(db.texts(WAITING), self.before);
        assert_eq!(self.log.len(), jobs, "{:?}", self.log.lines());
        assert_eq!(self.gate.begun(), 1);
        let total = "SELECT CAST(total_jobs AS bigint) AS n FROM solid_queue_batches";
        assert_eq!(db.count(total), 1);
        let slots = "SELECT CAST(value AS bigint) AS n FROM solid_queue_semaphores WHERE key = 'k'";
        assert_eq!(db.count(slots), 0);
        assert!(
            limits::check_semaphores(&mut db.connection())
                .unwrap()
                .is_empty()
        );
        self.gate.open();
    }
}

fn keys_of_rust_are_no_requests(db: &TestDb) {
    let scene = Scene::new(db);
    let mut conn = db.connect();
    let names = scene.names();
    for (group, key) in &names {
        for conflict in [LimitConflict::Block, LimitConflict::Discard] {
            let limit = Concurrency::new(key).group(group).limit(1_000_000);
            let job = NewJob::new(&Note::new("user")).unwrap();
            job.concurrency(limit.on_conflict(conflict))
                .enqueue(&mut conn)
                .unwrap();
        }
    }
    scene.holds(2 * names.len());
}

fn keys_of_http_are_no_requests(db: &TestDb) {
    let scene = Scene::new(db);
    let server = serve(&db.database);
    let program = Program::local(&server);
    let names = scene.names();
    for (group, key) in &names {
        let body = json!({
            "class": "note", "arguments": {"text": "user"}, "concurrency_group": group,
            "concurrency_key": key, "concurrency_limit": 1_000_000,
        });
        let done = program.post("/v1/jobs", &body.to_string());
        assert!(done.status() < 300, "{body}: {done:?}");
    }
    scene.holds(names.len());
}

fn keys_of_sql_are_no_requests(db: &TestDb) {
    let scene = Scene::new(db);
    let names = scene.names();
    for (group, key) in &names {
        db.execute(&format!(
            "INSERT INTO windlass_enqueue (class, arguments, concurrency_group, concurrency_key, concurrency_limit) \
             VALUES ('note', '{{\"text\":\"user\"}}', '{group}', '{key}', 1000000)"
        ));
        let list = json!([{
            "arguments": {"text": "user"}, "concurrency_group": group, "concurrency_key": key, "concurrency_limit": 1_000_000,
        }]);
        db.execute(&match db.is_postgres() {
            true => format!("SELECT windlass_enqueue_many('note', '{list}')"),
            false => {
                format!("INSERT INTO windlass_enqueue_many (class, jobs) VALUES ('note', '{list}')")
            }
        });
    }
    scene.holds(2 * names.len());
}

/// `limits_concurrency` of Ruby makes any text of its group and key. A key of blanks alone is none there.
fn keys_of_rails_are_no_requests(db: &TestDb) {
    let scene = Scene::new(db);
    let arguments = r#"[{"text":"user","_aj_symbol_keys":["text"]}]"#;
    let names = scene.names();
    for (group, key) in &names {
        let key = format!("{group}/{key}");
        for _ in 0..2 {
            solid_queue::enqueue_limited(db, "note", arguments, &key, 1);
        }
    }
    let blanks = ["", " ", "  ", "   "];
    for key in blanks {
        solid_queue::enqueue(db, "note", arguments);
        db.execute(&format!(
            "UPDATE solid_queue_jobs SET concurrency_key = '{key}' WHERE id = (SELECT max(id) FROM solid_queue_jobs)"
        ));
    }
    scene.holds(2 * names.len() + blanks.len());
}

fn limits_at_run_time_are_no_requests(db: &TestDb) {
    let scene = Scene::new(db);
    for (group, key) in scene.names() {
        let key = format!("{group}/{key}");
        let said = windlass(&db.url, &["limits", "set", &key, "1000000"]);
        assert!(said.is_done(), "{said:?}");
    }
    scene.holds(0);
}

/// As one that was written by hand.
fn what_waits_for_nothing_is_not_let_go_by_a_request(db: &TestDb) {
    let scene = Scene::new(db);
    db.execute("INSERT INTO windlass_limits (limit_key, slots, created_at) SELECT concurrency_key, 9, min(created_at) FROM solid_queue_blocked_executions GROUP BY concurrency_key");
    db.execute("INSERT INTO windlass_wanted_keys (key) SELECT DISTINCT concurrency_key FROM solid_queue_blocked_executions");
    scene.holds(0);
}

fn a_bad_request_stops_no_other(db: &TestDb) {
    let scene = Scene::new(db);
    let batch = scene.batch;
    for values in [
        "(NULL, NULL, NULL, NULL, NULL)".to_owned(),
        "(NULL, 'batch', NULL, NULL, NULL)".to_owned(),
        "(NULL, 'unheard of', 1, 2, 'x')".to_owned(),
        "(NULL, 'event', NULL, NULL, NULL)".to_owned(),
        "(NULL, '', 1, NULL, NULL)".to_owned(),
        format!("(NULL, 'batch', {batch}, -5, NULL)"),
        format!("(NULL, 'semaphore', {}, -5, NULL)", scene.semaphore),
        format!("(NULL, 'ended', {}, NULL, NULL)", i64::MAX),
        format!("(NULL, 'batch', {}, {}, NULL)", i64::MAX, i64::MAX),
        format!("('windlass/batch/{batch}/added/1/1', NULL, NULL, NULL, NULL)"),
    ] {
        db.execute(&format!(
            "INSERT INTO windlass_wanted_keys (key, kind, target_id, amount, name) VALUES {values}"
        ));
    }
    let limit = Concurrency::new("a").group("b");
    let job = NewJob::new(&Note::new("user")).unwrap().concurrency(limit);
    job.enqueue(&mut db.connection()).unwrap();
    scene.holds(1);
}
