//! A Postgres server that comes later, or goes and comes back: nothing exits,
//! and work goes on.

use super::with_password;
use crate::support::TestDb;
use crate::support::jobs::{Log, Note};
use crate::support::process::{HEARTBEAT, THRESHOLD};
use crate::support::program::{Running, Windlass};
use crate::support::proxy::{Proxy, cut_once_at};
use crate::support::wait::{DEADLINE, until};
use rustix::process::Signal;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use windlass::hooks::Subscriber;
use windlass::{Database, Event, Handle, Job, NewJob, Registry, Worker};

/// A worker and a `windlass supervise` whose way to the server can be cut.
struct Scene {
    db: TestDb,
    proxy: Proxy,
    log: Arc<Log>,
    troubles: Arc<AtomicUsize>,
    losses: Arc<AtomicUsize>,
    worker: Handle,
    supervisor: Running,
}

impl Scene {
    fn new(db: TestDb, proxy: Proxy) -> Self {
        let url = with_password(&proxy.url(&db.url));
        let [troubles, losses] = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
        let counts = [Arc::clone(&troubles), Arc::clone(&losses)];
        let log = Arc::new(Log::default());
        let registry = Registry::new().register::<Note>(Arc::clone(&log));
        let worker = Worker::new(&Database::open(&url).unwrap(), registry)
            .heartbeat_interval(HEARTBEAT)
            .alive_threshold(THRESHOLD)
            .subscriber(Subscriber::new(move |event| {
                match event {
                    Event::Unreachable { .. } => counts[0].fetch_add(1, Ordering::SeqCst),
                    Event::Lost { .. } => counts[1].fetch_add(1, Ordering::SeqCst),
                    _ => 0,
                };
            }))
            .start()
            .unwrap();
        let supervise = [
            "supervise",
            "--heartbeat-interval=100ms",
            "--alive-threshold=3s",
        ];
        let supervisor = Windlass::new(&supervise).env("DATABASE_URL", &url).start();
        Scene {
            db,
            proxy,
            log,
            troubles,
            losses,
            worker,
            supervisor,
        }
    }

    /// Waits until a job that is due now and one that is due soon are done.
    fn works(&self) {
        let mut conn = self.db.connect();
        let before = self.log.len();
        Note::new("now").enqueue(&mut conn).unwrap();
        let later = NewJob::new(&Note::new("later")).unwrap();
        later
            .after(Duration::from_millis(20))
            .enqueue(&mut conn)
            .unwrap();
        until("both jobs are done", || self.log.len() == before + 2);
    }

    /// That both have noticed the trouble, and that neither has ended.
    fn suffers(&mut self, before: usize) {
        until("the worker tells of the trouble", || {
            self.troubles.load(Ordering::SeqCst) > before
        });
        self.supervisor.logs("trying again");
        assert!(self.worker.join(Duration::ZERO).is_none());
        assert!(self.supervisor.is_running());
    }

    fn ends_well(mut self) {
        // A registration from before the outage needs a running supervisor, and its threshold, to go away.
        until("no process is registered twice", || {
            let twice =
                "SELECT count(*) - count(DISTINCT kind || pid) AS n FROM solid_queue_processes";
            self.db.count(twice) == 0
        });
        self.worker.stop();
        let stopped = self.worker.join(DEADLINE).unwrap();
        assert!(stopped.is_drained());
        self.supervisor.signal(Signal::TERM);
        let said = self.supervisor.said();
        assert_eq!(said.code, Some(0), "{said:?}");
        // One line a trouble, though libpq tells it in several.
        assert!(
            said.err.lines().all(|line| line.starts_with('[')),
            "{}",
            said.err
        );
        assert!(!said.err.contains("hunter2"), "{}", said.err);
        assert_eq!(self.db.rows("processes"), 0);
        assert_eq!(self.db.rows("claimed_executions"), 0);
    }
}

#[test]
fn a_server_that_comes_later_is_waited_for() {
    let db = TestDb::postgres();
    let proxy = Proxy::closed(&db.url);
    let mut scene = Scene::new(db, proxy);
    scene.suffers(0);
    scene.proxy.open();
    scene.works();
    scene.ends_well();
}

#[test]
fn a_server_that_goes_and_comes_back_finds_all_at_work() {
    let db = TestDb::postgres();
    let proxy = Proxy::opened(&db.url);
    let mut scene = Scene::new(db, proxy);
    scene.works();
    let before = scene.troubles.load(Ordering::SeqCst);
    scene.proxy.close();
    scene.suffers(before);
    until("it no longer trusts its registration", || {
        scene.losses.load(Ordering::SeqCst) > 0
    });
    assert!(scene.supervisor.is_running());
    scene.proxy.open();
    scene.works();
    // A registration may have been cut off before its answer came: then its row
    // belongs to nothing that lives, until it is found dead.
    until(
        "worker, supervisor, dispatcher and scheduler are left",
        || scene.db.rows("processes") == 4,
    );
    assert_eq!(scene.db.rows("failed_executions"), 0);
    scene.ends_well();
}

/// Its tables are looked at when the way is open again.
#[test]
fn a_server_that_goes_while_its_tables_are_looked_at_is_waited_for() {
    let db = TestDb::postgres();
    for text in ["windlass_schema_migrations", "pg_attribute"] {
        let database = Database::open(&cut_once_at(&db.url, text)).unwrap();
        let log = Arc::new(Log::default());
        let registry = Registry::new().register::<Note>(Arc::clone(&log));
        let _worker = Worker::new(&database, registry).start().unwrap();
        Note::new(text).enqueue(&mut db.connection()).unwrap();
        until("it works", || log.len() == 1);
    }
}

/// Tables that are not checked while the server is down are checked when it comes.
#[test]
fn a_server_that_comes_later_without_tables_is_refused_then() {
    let db = TestDb::empty_postgres();
    let mut proxy = Proxy::closed(&db.url);
    let database = Database::open(&proxy.url(&db.url)).unwrap();
    let heard = Arc::new(Log::default());
    let hear = Arc::clone(&heard);
    let mut worker = Worker::new(&database, Registry::new())
        .subscriber(Subscriber::new(move |event| {
            if let Event::Broken { reason } = event {
                hear.add(*reason);
            }
        }))
        .start()
        .unwrap();
    proxy.open();
    let stopped = worker.join(DEADLINE).unwrap();
    assert!(stopped.is_broken());
    assert!(heard.lines()[0].contains("run `windlass migrate"));
}
