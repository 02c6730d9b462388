//! Waits for a Postgres server that is away: of a job for a connection, and of
//! a caller for a job.

use crate::support::TestDb;
use crate::support::jobs::{Log, Note};
use crate::support::proxy::Proxy;
use crate::support::wait::{DEADLINE, until};
use serde::{Deserialize, Serialize};
use std::error::Error as _;
use std::sync::Arc;
use std::time::{Duration, Instant};
use windlass::{Context, Database, Handle, Interrupted, Job, JobResult, NewJob, Policy};
use windlass::{Registry, Worker};

const SECOND: Duration = Duration::from_secs(1);

/// Asks for a connection when it may, and notes what came of it.
#[derive(Debug, Serialize, Deserialize)]
struct Ask;

impl Job for Ask {
    const NAME: &'static str = "ask";
    type State = Log;
    type Output = ();

    fn perform(self, cx: &Context<'_, Log>) -> JobResult {
        cx.add("begun");
        until("it may ask", || cx.count("go") > 0);
        match cx.connection() {
            Ok(_) => cx.add("connected"),
            Err(error) => {
                let why = error
                    .source()
                    .and_then(|why| why.downcast_ref::<Interrupted>());
                cx.add(format!("{why:?}"));
                Err(error)?;
            }
        }
        Ok(())
    }
}

struct Scene {
    /// Stopped first, while there is a way to the server.
    worker: Handle,
    proxy: Proxy,
    db: TestDb,
    log: Arc<Log>,
}

impl Scene {
    /// A job that is about to ask, and a server that is away.
    fn new(threshold: Duration, policy: Policy) -> Self {
        let db = TestDb::postgres();
        let mut proxy = Proxy::opened(&db.url);
        let log = Arc::new(Log::default());
        let database = Database::open(&proxy.url(&db.url)).unwrap();
        let worker = Worker::new(&database, Registry::new().register::<Ask>(Arc::clone(&log)))
            .heartbeat_interval(threshold / 20)
            .alive_threshold(threshold)
            .shutdown_timeout(DEADLINE)
            .start()
            .unwrap();
        let ask = NewJob::new(&Ask).unwrap().policy(policy);
        ask.enqueue(&mut db.connection()).unwrap();
        until("it has begun", || log.count("begun") == 1);
        proxy.close();
        log.add("go");
        Scene {
            db,
            proxy,
            log,
            worker,
        }
    }

    fn comes_to(&self, what: &str) {
        until("the job has its answer", || self.log.len() > 2);
        assert_eq!(self.log.lines()[2], what);
    }
}

fn patient() -> Policy {
    Policy::new()
}

#[test]
fn a_job_waits_for_its_connection() {
    let mut scene = Scene::new(600 * SECOND, patient());
    // As long as it would wait for a connection that others have.
    let away = Instant::now();
    until("the server was away for long", || {
        away.elapsed() > 33 * SECOND
    });
    assert_eq!(scene.log.len(), 2);
    scene.proxy.open();
    scene.comes_to("connected");
    until("it has finished", || {
        scene
            .db
            .count("SELECT count(*) AS n FROM solid_queue_jobs WHERE finished_at IS NOT NULL")
            == 1
    });
}

#[test]
fn it_waits_no_longer_when_the_process_stops() {
    let mut scene = Scene::new(600 * SECOND, patient());
    scene.worker.stop();
    scene.comes_to("Some(Stopping)");
    scene.proxy.open();
    until("it is given back", || {
        scene.db.rows("ready_executions") == 1
    });
    assert!(scene.worker.join(DEADLINE).is_some());
    let outcomes = "SELECT outcome AS t FROM windlass_attempts";
    assert_eq!(scene.db.texts(outcomes), ["released"]);
}

#[test]
fn nor_when_its_claim_is_lost() {
    let mut scene = Scene::new(3 * SECOND, patient());
    scene.comes_to("Some(Lost)");
    scene.proxy.open();
}

#[test]
fn nor_when_its_time_is_over() {
    let mut scene = Scene::new(600 * SECOND, patient().timeout(2 * SECOND));
    scene.comes_to("Some(TimedOut)");
    scene.proxy.open();
}

#[test]
fn a_caller_waits_for_its_job_all_the_same() {
    let db = TestDb::postgres();
    let mut proxy = Proxy::opened(&db.url);
    let database = Database::open(&proxy.url(&db.url)).unwrap();
    let policy = Policy::new().keep_result(600 * SECOND);
    let note = NewJob::new(&Note::new("a")).unwrap().policy(policy);
    let job = note.enqueue(&mut db.connection()).unwrap().id;
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| windlass::jobs::wait_for(&database, job, DEADLINE));
        until("it waits", || db.rows_of("windlass_waiters") == 1);
        proxy.close();
        let away = Instant::now();
        until("it has noticed, if it does", || {
            waits.is_finished() || away.elapsed() > 3 * SECOND
        });
        assert!(!waits.is_finished());
        let registry = Registry::new().register::<Note>(Arc::new(Log::default()));
        let _worker = Worker::new(&db.database, registry).start().unwrap();
        until("the job has finished", || {
            db.rows_of("windlass_results") == 1
        });
        proxy.open();
        let info = waits.join().unwrap().unwrap().unwrap();
        assert!(info.status.has_ended());
    });
}
