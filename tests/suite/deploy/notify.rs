//! Processes under a service manager, which they notify of their state.

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::db::execute;
use crate::support::process::{Process, Scene};
use crate::support::program::{Running, Windlass};
use crate::support::wait::{DEADLINE, until};
use rustix::process::Signal;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::Duration;

on_each_database!(
    it_says_when_it_is_ready_alive_and_stopping,
    a_manager_that_is_gone_does_not_matter,
    a_lone_worker_is_alive_while_its_heartbeat_gets_through,
);

/// A stand-in for systemd, which receives the notifications.
struct Manager(UnixDatagram);

impl Manager {
    fn at(path: &Path) -> Self {
        let socket = UnixDatagram::bind(path).unwrap();
        socket.set_read_timeout(Some(DEADLINE)).unwrap();
        Manager(socket)
    }

    /// Receives messages until one contains `wanted`, and returns them.
    fn hears(&self, wanted: &str) -> Vec<String> {
        let mut heard = Vec::new();
        loop {
            let mut bytes = [0; 512];
            let length = self.0.recv(&mut bytes).expect(wanted);
            let text = String::from_utf8(bytes[..length].to_vec()).unwrap();
            heard.extend(text.lines().map(str::to_owned));
            if heard.iter().any(|line| line == wanted) {
                return heard;
            }
        }
    }

    /// Waits until no message has come for this long.
    fn hears_nothing_for(&self, silence: Duration) {
        self.0.set_read_timeout(Some(silence)).unwrap();
        until("nothing is said any more", || {
            self.0.recv(&mut [0; 512]).is_err()
        });
        self.0.set_read_timeout(Some(DEADLINE)).unwrap();
    }
}

fn supervise(db: &TestDb, socket: &Path, told: &Path) -> Running {
    let script =
        r#"echo "${NOTIFY_SOCKET:-none} ${WATCHDOG_USEC:-none}" >> "$0"; exec cat > /dev/null"#;
    let told = told.to_str().unwrap();
    Windlass::new(&["supervise", "--", "sh", "-c", script, told])
        .env("DATABASE_URL", &db.url)
        .env("NOTIFY_SOCKET", socket.to_str().unwrap())
        .env("WATCHDOG_USEC", "2000000")
        .start()
}

fn it_says_when_it_is_ready_alive_and_stopping(db: &TestDb) {
    let directory = tempfile::tempdir().unwrap();
    let (socket, told) = (
        directory.path().join("notify"),
        directory.path().join("told"),
    );
    let manager = Manager::at(&socket);
    let supervisor = supervise(db, &socket, &told);
    assert_eq!(manager.hears("READY=1"), ["READY=1"]);
    manager.hears("STATUS=1 of 1 children run");
    for _ in 0..3 {
        let heard = manager.hears("WATCHDOG=1");
        assert!(!heard.contains(&"STOPPING=1".to_owned()), "{heard:?}");
    }
    until("the child has started", || told.exists());
    supervisor.signal(Signal::TERM);
    manager.hears("STOPPING=1");
    assert_eq!(supervisor.said().code, Some(0));
    // That is between it and its manager.
    until("the child has told", || {
        std::fs::read_to_string(&told).unwrap() == "none none\n"
    });
}

fn a_manager_that_is_gone_does_not_matter(db: &TestDb) {
    let directory = tempfile::tempdir().unwrap();
    let told = directory.path().join("told");
    let supervisor = supervise(db, &directory.path().join("nobody"), &told);
    until("the child has started", || told.exists());
    supervisor.logs("cannot notify the service manager");
    supervisor.signal(Signal::TERM);
    assert_eq!(supervisor.said().code, Some(0));
}

fn lone_worker(scene: &Scene<'_>, url: &str, socket: &Path) -> Process {
    let socket = socket.to_str().unwrap();
    scene.worker_told(
        url,
        &[("NOTIFY_SOCKET", socket), ("WATCHDOG_USEC", "1200000")],
    )
}

/// systemd ends a program that is not ready for too long.
#[cfg(feature = "postgres")]
#[test]
fn a_lone_worker_is_ready_while_it_waits_for_its_database() {
    let db = TestDb::postgres();
    let mut proxy = crate::support::proxy::Proxy::closed(&db.url);
    let scene = Scene::new(&db);
    let socket = scene.directory().join("notify");
    let manager = Manager::at(&socket);
    let mut worker = lone_worker(&scene, &proxy.url(&db.url), &socket);
    manager.hears("READY=1");
    proxy.open();
    until("it is registered", || db.rows("processes") == 1);
    worker.signal(Signal::TERM);
    assert_eq!(worker.exit().code(), Some(0));
}

fn a_lone_worker_is_alive_while_its_heartbeat_gets_through(db: &TestDb) {
    let scene = Scene::with_deaths(db);
    let socket = scene.directory().join("notify");
    let manager = Manager::at(&socket);
    let mut worker = lone_worker(&scene, &db.url, &socket);
    assert_eq!(manager.hears("READY=1"), ["READY=1"]);
    for _ in 0..3 {
        manager.hears("WATCHDOG=1");
    }
    // No heartbeat gets through.
    let mut conn = db.connect();
    execute(
        &mut conn,
        if db.is_postgres() {
            "BEGIN"
        } else {
            "BEGIN IMMEDIATE"
        },
    );
    if db.is_postgres() {
        execute(&mut conn, "LOCK TABLE solid_queue_processes");
    }
    manager.hears_nothing_for(Duration::from_secs(3));
    assert!(worker.is_running());
    execute(&mut conn, "ROLLBACK");
    manager.hears("WATCHDOG=1");
    worker.signal(Signal::TERM);
    manager.hears("STOPPING=1");
    assert_eq!(worker.exit().code(), Some(0));
}
