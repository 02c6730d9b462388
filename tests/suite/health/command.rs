//! `windlass health`, as containers run it.

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::jobs::Log;
use crate::support::process::{HEARTBEAT, Scene};
use crate::support::program::{Said, Windlass, windlass};
use crate::support::server::free_port;
use crate::support::wait::until;
use rustix::process::Signal;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::time::{Duration, Instant};
use windlass::{Dispatcher, Registry, Supervisor, Worker};

on_each_database!(
    a_process_of_this_host_is_found,
    a_process_is_found_by_its_kind_host_and_name,
    a_process_that_was_killed_is_unhealthy,
    a_quiet_process_is_healthy_but_not_ready,
    it_speaks_json,
);

#[track_caller]
fn is(said: &Said, healthy: bool, text: &str) {
    assert_eq!(said.code, Some(i32::from(!healthy)), "{said:?}");
    let verdict = if healthy { "healthy: " } else { "UNHEALTHY: " };
    assert!(said.out.starts_with(verdict), "{said:?}");
    assert!(said.out.contains(text), "`{text}` is not in {said:?}");
    assert_eq!(said.err, "", "{said:?}");
}

fn health(db: &TestDb, arguments: &[&str]) -> Said {
    windlass(&db.url, &[&["health"], arguments].concat())
}

fn a_process_of_this_host_is_found(db: &TestDb) {
    is(&health(db, &[]), false, "no process on `");
    let _worker = Worker::new(&db.database, Registry::new()).start().unwrap();
    until("it is registered", || db.rows("processes") == 1);
    is(&health(db, &[]), true, "worker-");
    let other = "UPDATE solid_queue_processes SET hostname = 'another'";
    assert_eq!(db.execute(other), 1);
    is(&health(db, &[]), false, "no process on `");
    is(&health(db, &["--host=another"]), true, "worker-");
}

fn a_process_is_found_by_its_kind_host_and_name(db: &TestDb) {
    let _dispatcher = Dispatcher::new(&db.database).start().unwrap();
    let _supervisor = Supervisor::new(&db.database).start().unwrap();
    until("both are registered", || db.rows("processes") == 2);
    is(&health(db, &["--kind=worker"]), false, "no worker on `");
    is(&health(db, &["--kind=Supervisor"]), true, "supervisor-");
    is(&health(db, &["--kind=dispatcher"]), true, "dispatcher-");
    is(
        &health(db, &["--kind=dispatcher", "--host=nowhere"]),
        false,
        "no dispatcher on `nowhere` is registered",
    );
    let name = "SELECT name AS t FROM solid_queue_processes WHERE kind = 'Dispatcher'";
    let name = &db.texts(name)[0];
    is(&health(db, &["--name", name]), true, name);
    is(
        &health(db, &["--name=worker-x"]),
        false,
        "no process named `worker-x` is registered",
    );
}

fn a_process_that_was_killed_is_unhealthy(db: &TestDb) {
    let scene = Scene::new(db);
    let mut worker = scene.worker();
    let check = ["--kind=worker", "--alive-threshold=2s"];
    until("it is healthy", || health(db, &check).code == Some(0));
    worker.signal(Signal::KILL);
    worker.exit();
    until("it is not", || health(db, &check).code == Some(1));
    is(&health(db, &check), false, "has sent no heartbeat for ");
    is(&health(db, &["--kind=worker"]), true, "s ago");
}

fn a_quiet_process_is_healthy_but_not_ready(db: &TestDb) {
    let worker = Worker::new(
        &db.database,
        Registry::new().register::<crate::support::jobs::Note>(std::sync::Arc::<Log>::default()),
    );
    let worker = worker.heartbeat_interval(HEARTBEAT).start().unwrap();
    until("it is ready", || health(db, &["--ready"]).code == Some(0));
    worker.quiet();
    until("it is not", || health(db, &["--ready"]).code == Some(1));
    is(&health(db, &["--ready"]), false, "is quiet");
    is(&health(db, &[]), true, "worker-");
}

fn it_speaks_json(db: &TestDb) {
    let said = health(db, &["--json", "--host=nowhere"]);
    assert_eq!(said.code, Some(1));
    let json: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(
        json,
        serde_json::json!({"healthy": false, "says": "no process on `nowhere` is registered"})
    );
}

/// Answers one request with this, and then says no more. Returns the address.
fn answers(answer: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = [0; 1024];
        let count = stream.read(&mut request).unwrap();
        let request = String::from_utf8_lossy(&request[..count]).into_owned();
        assert!(request.starts_with("GET /readyz HTTP/1.1\r\n"), "{request}");
        assert!(request.contains(&format!("\r\nHost: 127.0.0.1:{port}\r\n")));
        stream.write_all(answer.as_bytes()).unwrap();
        if !answer.contains("\r\n\r\n") {
            std::thread::sleep(Duration::from_secs(600));
        }
    });
    format!("http://127.0.0.1:{port}/readyz")
}

fn asked(url: &str, arguments: &[&str]) -> Said {
    let url = format!("--url={url}");
    Windlass::new(&[&["health", &url], arguments].concat()).run()
}

#[test]
fn a_process_is_asked_over_http() {
    let url = answers("HTTP/1.1 200 OK\r\n\r\nready\n");
    is(&asked(&url, &[]), true, "status 200: ready");
    let url = answers("HTTP/1.1 503 Service Unavailable\r\n\r\nworker: it is quiet\n");
    is(&asked(&url, &[]), false, "status 503: worker: it is quiet");
    let url = format!("http://127.0.0.1:{}/readyz", free_port());
    is(&asked(&url, &[]), false, "refused");
}

#[test]
fn an_answer_that_does_not_end_is_not_waited_for() {
    let start = Instant::now();
    let url = answers("HTTP/1.1 200 OK\r\nA: b");
    let said = asked(&url, &["--timeout=300ms"]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(start.elapsed() < Duration::from_secs(60));
}

#[test]
fn a_wrong_address_is_wrong_usage() {
    for (arguments, text) in [
        (&["health", "--url=https://127.0.0.1/readyz"][..], "http://"),
        (&["health", "--url=localhost:80"], "http://"),
        (
            &["health", "--url=http://a/", "--kind=worker"],
            "cannot be used with",
        ),
    ] {
        let said = Windlass::new(arguments).run();
        assert_eq!(said.code, Some(2), "{said:?}");
        assert!(said.err.contains(text), "{said:?}");
    }
}

#[cfg(feature = "postgres")]
#[test]
fn a_database_without_an_answer_is_not_waited_for() {
    use crate::support::proxy::{Proxy, Swallow};
    let db = TestDb::postgres();
    let proxy = Proxy::opened(&db.url);
    proxy.swallow(Swallow::Everything);
    let start = Instant::now();
    let said = windlass(&proxy.url(&db.url), &["health", "--timeout=500ms"]);
    is(&said, false, "no answer within 500ms");
    assert!(start.elapsed() < Duration::from_secs(5));
}
