//! Asking what became of a job, and waiting for it.

use super::super::client::{Ask, Reply, get, serve};
use super::{Answer, Program};
use crate::on_each_database;
use crate::support::TestDb;
use crate::support::jobs::{Gate, Log, Note, Wait};
use crate::support::wait::until;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::sync::Arc;
use windlass::{Context, Handle, Job, JobResult, Registry, Worker};

/// Returns the sum of its numbers; without one, it fails.
#[derive(Debug, Serialize, Deserialize)]
struct Sum(Vec<i64>);

impl Job for Sum {
    const NAME: &'static str = "sum";
    type State = ();
    type Output = i64;

    fn perform(self, _cx: &Context<'_, ()>) -> JobResult<i64> {
        if self.0.is_empty() {
            return Err("nothing to add".into());
        }
        Ok(self.0.iter().sum())
    }
}

fn worker(db: &TestDb, gate: &Arc<Gate>) -> Handle {
    let registry = Registry::new()
        .register::<Sum>(())
        .register::<Wait>(gate.clone())
        .register::<Note>(Arc::new(Log::default()));
    Worker::new(&db.database, registry).start().unwrap()
}

fn the_outcome_is_waited_for(db: &TestDb) {
    let server = serve(&db.database);
    let program = Program::local(&server);
    let enqueue = |body: &str| program.post("/v1/jobs", body).id();
    let job = enqueue("{\"class\": \"sum\", \"arguments\": [1, 2, 39]}");
    let queued = program.get(&format!("/v1/jobs/{job}?wait=0"));
    assert_eq!(
        (queued.json["status"].as_str(), &queued.json["attempt"]),
        (Some("queued"), &json!(0))
    );
    let _worker = worker(db, &Arc::default());
    let done = program.get(&format!("/v1/jobs/{job}?wait=60s"));
    assert_eq!(
        (&done.json["status"], &done.json["result"]),
        (&json!("succeeded"), &json!(42))
    );
    assert!(done.json["finished_at"].is_string());
    let job = enqueue("{\"class\": \"sum\", \"arguments\": []}");
    let failed = program.get(&format!("/v1/jobs/{job}?wait=60"));
    assert_eq!(failed.json["status"], "failed");
    assert!(
        failed.json["error"]
            .as_str()
            .unwrap()
            .contains("nothing to add")
    );
}

fn many_wait_at_once_and_each_is_answered(db: &TestDb) {
    let server = serve(&db.database);
    let program = Program::local(&server);
    let gate = Arc::new(Gate::default());
    let job = program.post("/v1/jobs", "{\"class\": \"wait\"}").id();
    let _worker = worker(db, &gate);
    until("it runs", || gate.begun() == 1);
    let path = format!("/v1/jobs/{job}?wait=60s");
    std::thread::scope(|scope| {
        let waiting: Vec<_> = (0..100)
            .map(|_| scope.spawn(|| program.get(&path)))
            .collect();
        // The pages are served meanwhile.
        Ask::new(server.address(), "GET", "/queues")
            .send()
            .expect(200);
        gate.open();
        for waited in waiting {
            assert_eq!(waited.join().unwrap().json["status"], "succeeded");
        }
    });
}

fn a_wait_ends_with_its_time_and_with_the_server(db: &TestDb) {
    let server = serve(&db.database);
    let (gate, body) = (Arc::new(Gate::default()), "{\"class\": \"wait\"}");
    let job = Program::local(&server).post("/v1/jobs", body).id();
    let _worker = worker(db, &gate);
    until("it runs", || gate.begun() == 1);
    let short = Program::local(&server).get(&format!("/v1/jobs/{job}?wait=100ms"));
    assert_eq!(short.json["status"], "running");
    let path = format!("/v1/jobs/{job}?wait=60s");
    let waiting = Program::local(&server).ask("GET", &path);
    let waiting = waiting.header("Connection", "close").open();
    // Connections are accepted in their order, so the first one is served.
    get(&server, "/livez").expect(200);
    server.stop();
    let answer = Answer::checked("get", &path, Reply::read(waiting));
    assert_eq!(answer.json["status"], "running");
    gate.open();
    server.wait();
}

fn what_is_not_there_or_no_time_is_said(db: &TestDb) {
    let server = serve(&db.database);
    let program = Program::local(&server);
    assert!(program.get("/v1/jobs/4711").refused(404).contains("4711"));
    assert!(program.get("/v1/jobs/x").refused(400).contains("number"));
    for wait in ["soon", "61s", "-1", "1h"] {
        let answer = program.get(&format!("/v1/jobs/1?wait={wait}"));
        assert!(answer.refused(400).contains("60 s"), "{wait}");
    }
    let nothing = Ask::new(server.address(), "GET", "/v1/nothing").send();
    assert_eq!(
        nothing.header("content-type"),
        Some("application/problem+json")
    );
    nothing.expect(404);
}

on_each_database!(
    the_outcome_is_waited_for,
    many_wait_at_once_and_each_is_answered,
    a_wait_ends_with_its_time_and_with_the_server,
    what_is_not_there_or_no_time_is_said,
);
