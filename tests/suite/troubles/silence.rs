//! A Postgres server whose answers do not come, while TCP acknowledges
//! everything: a black hole on the way, or sessions that are frozen.

use crate::support::TestDb;
use crate::support::bouncer::Bouncer;
use crate::support::db::{count, execute};
use crate::support::process::{Do, Process, Role, Scene, Work};
use crate::support::proxy::{Proxy, Swallow};
use crate::support::server::Server;
use crate::support::wait::until;
use diesel::prelude::*;
use rustix::process::{Pid, Signal, kill_process};
use std::time::{Duration, Instant};
use windlass::Job;

/// The time limit of a statement, instead of 40 s.
const STATEMENT: Duration = Duration::from_secs(2);

const SHUTDOWN: Duration = Duration::from_secs(1);

/// The time that a stop may take longer on a machine that is busy with other tests.
const SLACK: Duration = Duration::from_secs(30);

fn role(url: &str) -> impl FnOnce(&mut Role) {
    let url = url.to_owned();
    move |role| {
        role.url = url;
        role.shutdown_ms = u64::try_from(SHUTDOWN.as_millis()).unwrap();
        role.statement_ms = Some(u64::try_from(STATEMENT.as_millis()).unwrap());
    }
}

fn enqueue(db: &TestDb, name: &str, what: Do) {
    Work::new(name, what).enqueue(&mut db.connection()).unwrap();
}

/// A job that is due now is done, and one that the dispatcher must see to.
fn works(scene: &Scene<'_>, name: &str) {
    let mut conn = scene.db.connect();
    let (now, later) = (format!("{name}-now"), format!("{name}-later"));
    Work::new(&now, Do::Nothing).enqueue(&mut conn).unwrap();
    let job = windlass::NewJob::new(&Work::new(&later, Do::Nothing)).unwrap();
    job.after(Duration::from_millis(20))
        .enqueue(&mut conn)
        .unwrap();
    scene.ended(&now, 1);
    scene.ended(&later, 1);
}

/// Two processes behind `url` come back to work after a while in which nothing
/// is answered, and run nothing twice.
fn is_left_behind(db: &TestDb, url: &str, begin: impl FnOnce(), end: impl FnOnce()) {
    let scene = Scene::new(db);
    let mut supervisor = scene.worker_with(|r| {
        role(url)(r);
        r.workers = Some(1);
    });
    works(&scene, "before");
    enqueue(db, "across", Do::WaitFor(scene.gate("gate")));
    scene.started("across", 1);
    begin();
    enqueue(db, "meanwhile", Do::Nothing);
    // Ends where its end cannot be written.
    scene.open("gate");
    scene.ended("across", 1);
    supervisor.logs("cannot send a heartbeat");
    supervisor.logs("no answer within");
    std::thread::sleep(2 * STATEMENT);
    assert!(supervisor.is_running());
    end();
    let back = Instant::now();
    works(&scene, "after");
    eprintln!("at work again after {:?}", back.elapsed());
    scene.drained();
    for name in ["across", "meanwhile", "before-now", "before-later"] {
        assert_eq!(scene.count("end", name), 1, "{name}");
        assert_eq!(scene.count("start", name), 1, "{name}");
    }
    assert_eq!(db.rows("failed_executions"), 0);
    supervisor.signal(Signal::TERM);
    assert_eq!(supervisor.exit().code(), Some(0));
    assert_eq!(db.rows("claimed_executions"), 0);
}

fn a_proxy_is_left_behind(what: Swallow) {
    let db = TestDb::postgres();
    let proxy = Proxy::opened(&db.url);
    let url = proxy.url(&db.url);
    is_left_behind(&db, &url, || proxy.swallow(what), || proxy.pass());
}

#[test]
fn a_black_hole_is_left_behind() {
    a_proxy_is_left_behind(Swallow::Everything);
}

#[test]
fn lost_answers_are_left_behind() {
    a_proxy_is_left_behind(Swallow::Answers);
}

#[test]
fn lost_questions_are_left_behind() {
    a_proxy_is_left_behind(Swallow::Questions);
}

/// A frozen server that passes on in the end what it was sent meanwhile.
#[test]
fn a_frozen_pgbouncer_is_left_behind() {
    let db = TestDb::postgres();
    let Some(bouncer) = Bouncer::start(&db.url) else {
        eprintln!("NOT TESTED: `bin/test all` says where PgBouncer is");
        return;
    };
    let url = bouncer.url(&db.url);
    is_left_behind(&db, &url, || bouncer.freeze(), || bouncer.thaw());
}

/// The same behind a pooler, where no connection has a session of its own.
#[test]
fn a_frozen_pgbouncer_in_transaction_mode_is_left_behind() {
    let db = TestDb::postgres();
    let Some(bouncer) = Bouncer::by_transaction(&db.url) else {
        eprintln!("NOT TESTED: `bin/test` says where PgBouncer is");
        return;
    };
    let url = format!("{}?pooling=transaction", bouncer.url(&db.url));
    is_left_behind(&db, &url, || bouncer.freeze(), || bouncer.thaw());
}

/// Ends in a black hole, with a job that runs, in little more than this.
fn ends(workers: Option<usize>, signal: Signal, most: Duration) {
    let db = TestDb::postgres();
    let proxy = Proxy::opened(&db.url);
    let scene = Scene::with_deaths(&db);
    let url = proxy.url(&db.url);
    let mut process: Process = scene.worker_with(|r| {
        role(&url)(r);
        // Longer than any stop here: nothing but the stop shortens a wait.
        r.statement_ms = None;
        r.workers = workers;
    });
    enqueue(&db, "cut", Do::StickOnce(scene.gate("stuck")));
    let started = scene.started("cut", 1);
    proxy.swallow(Swallow::Everything);
    process.logs("cannot send a heartbeat");
    process.signal(signal);
    let start = Instant::now();
    let status = process.exit();
    let took = start.elapsed();
    eprintln!("{workers:?} {signal:?}: ended after {took:?}");
    assert!(took < most + SLACK, "{took:?}");
    assert_eq!(status.code(), Some(75));
    // Its child as well.
    until("nothing runs the job any more", || {
        !std::path::Path::new(&format!("/proc/{}", started.pid)).exists()
    });
    // Nothing is lost.
    let _other = scene.supervisor(1);
    scene.ended("cut", 1);
    scene.drained();
}

#[test]
fn sigterm_ends_a_worker_in_a_black_hole() {
    ends(None, Signal::TERM, SHUTDOWN + Duration::from_secs(3));
}

#[test]
fn sigquit_ends_a_worker_in_a_black_hole() {
    ends(None, Signal::QUIT, Duration::from_secs(1));
}

#[test]
fn sigterm_ends_a_supervisor_in_a_black_hole() {
    ends(Some(1), Signal::TERM, SHUTDOWN + Duration::from_secs(5));
}

#[test]
fn sigquit_ends_a_supervisor_in_a_black_hole() {
    ends(Some(1), Signal::QUIT, Duration::from_secs(1));
}

/// A server of the test's own, whose sessions can be frozen.
struct Frozen {
    db: TestDb,
    /// Of the processes under test.
    url: String,
    stopped: std::cell::RefCell<Vec<Pid>>,
    _server: Server,
}

const THEIRS: &str = "application_name = 'theirs'";

impl Frozen {
    fn new() -> Option<Self> {
        let Some(server) = Server::start() else {
            eprintln!("NOT TESTED: frozen sessions need WINDLASS_TEST_POSTGRES_BIN");
            return None;
        };
        let db = server.database();
        Some(Frozen {
            url: format!("{}?application_name=theirs", db.url),
            db,
            stopped: std::cell::RefCell::default(),
            _server: server,
        })
    }

    /// Freezes the sessions of which this is true, and counts them. It must be
    /// true of them when they are frozen: one that happens to hold a lock of
    /// the server's own, for its log say, would freeze the whole server.
    fn freeze(&self, which: &str) -> usize {
        let (mut frozen, mut conn) = (0, self.db.connect());
        for pid in self.pids(&format!("{THEIRS} AND {which}")) {
            let process = Pid::from_raw(pid.parse().unwrap()).unwrap();
            // It may have ended meanwhile.
            if kill_process(process, Signal::STOP).is_err() {
                continue;
            }
            let still =
                format!("SELECT count(*) AS n FROM pg_stat_activity WHERE pid = {pid} AND {which}");
            if count(&mut conn, &still) == 1 {
                self.stopped.borrow_mut().push(process);
                frozen += 1;
            } else {
                kill_process(process, Signal::CONT).unwrap();
            }
        }
        frozen
    }

    fn pids(&self, which: &str) -> Vec<String> {
        self.db.texts(&format!(
            "SELECT CAST(pid AS text) AS t FROM pg_stat_activity WHERE {which}"
        ))
    }

    fn stopped(&self) -> String {
        let pids = self.stopped.borrow();
        let pids = pids.iter().map(|pid| pid.as_raw_nonzero().to_string());
        std::iter::once("0".to_owned())
            .chain(pids)
            .collect::<Vec<_>>()
            .join(", ")
    }

    fn thaw(&self) {
        for pid in self.stopped.borrow_mut().drain(..) {
            let _ = kill_process(pid, Signal::CONT);
        }
    }

    /// Lets every change of a table wait at its COMMIT for a lock that the
    /// result holds.
    fn trap(&self, event: &str, table: &str) -> PgConnection {
        let mut holder = PgConnection::establish(&self.db.url).unwrap();
        for statement in [
            "CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS \
             'BEGIN IF current_setting(''application_name'') = ''theirs'' THEN \
             PERFORM pg_advisory_xact_lock_shared(7); END IF; RETURN NULL; END'",
            &format!(
                "CREATE CONSTRAINT TRIGGER trap AFTER {event} ON solid_queue_{table} \
                 DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION wait()"
            ),
            "SELECT pg_advisory_lock(7)",
        ] {
            execute(&mut holder, statement);
        }
        holder
    }

    fn is_trapped(&self) -> bool {
        let waits =
            "SELECT count(*) AS n FROM pg_locks WHERE locktype = 'advisory' AND NOT granted";
        count(&mut self.db.connection(), waits) > 0
    }
}

const IN_THE_TRAP: &str = "wait_event_type = 'Lock' AND wait_event = 'advisory'";

impl Drop for Frozen {
    fn drop(&mut self) {
        self.thaw();
    }
}

#[test]
fn frozen_sessions_are_left_behind() {
    let Some(frozen) = Frozen::new() else { return };
    let scene = Scene::new(&frozen.db);
    let mut supervisor = scene.worker_with(|r| {
        role(&frozen.url)(r);
        r.workers = Some(1);
    });
    works(&scene, "before");
    // All of them, but for those that are opened from now on.
    let all = frozen.pids(THEIRS).join(", ");
    until("all sessions are frozen", || {
        let left = format!("pid IN ({all}) AND pid NOT IN ({})", frozen.stopped());
        frozen.freeze(&format!("state = 'idle' AND {left}"));
        let left = format!("pid IN ({all}) AND pid NOT IN ({})", frozen.stopped());
        frozen.pids(&left).is_empty()
    });
    works(&scene, "after");
    frozen.thaw();
    works(&scene, "thawed");
    assert_eq!(scene.effects().len(), 12, "nothing ran twice");
    supervisor.signal(Signal::TERM);
    assert_eq!(supervisor.exit().code(), Some(0));
}

/// The end of a job is written and not committed: its row is locked by the
/// frozen session for as long as that is frozen.
#[test]
fn a_session_frozen_before_its_commit_loses_no_end() {
    let Some(frozen) = Frozen::new() else { return };
    let scene = Scene::new(&frozen.db);
    let mut worker = scene.worker_with(role(&frozen.url));
    enqueue(&frozen.db, "first", Do::Nothing);
    scene.drained();
    let trap = frozen.trap("DELETE", "claimed_executions");
    enqueue(&frozen.db, "held", Do::Nothing);
    until("its end waits for its commit", || frozen.is_trapped());
    until("its session is frozen", || frozen.freeze(IN_THE_TRAP) > 0);
    drop(trap);
    worker.logs("cannot finish jobs");
    enqueue(&frozen.db, "after", Do::Nothing);
    scene.ended("after", 1);
    frozen.thaw();
    scene.drained();
    assert_eq!(scene.effects().len(), 6, "nothing ran twice");
    assert_eq!(frozen.db.rows("failed_executions"), 0);
    worker.signal(Signal::TERM);
    assert_eq!(worker.exit().code(), Some(0));
    assert_eq!(frozen.db.rows("claimed_executions"), 0);
}

/// A heartbeat that is not committed locks the row of its process, which
/// registers anew.
#[test]
fn a_session_frozen_in_its_heartbeat_does_not_keep_its_process_from_working() {
    let Some(frozen) = Frozen::new() else { return };
    let scene = Scene::new(&frozen.db);
    let mut worker = scene.worker_with(role(&frozen.url));
    enqueue(&frozen.db, "first", Do::Nothing);
    scene.drained();
    let trap = frozen.trap("UPDATE OF heartbeat_seq", "processes");
    until("its heartbeat waits for its commit", || frozen.is_trapped());
    until("its session is frozen", || frozen.freeze(IN_THE_TRAP) > 0);
    drop(trap);
    worker.logs("lost the registration");
    until("it has registered anew", || {
        worker.log().matches("registered").count() > 1
    });
    enqueue(&frozen.db, "after", Do::Nothing);
    scene.ended("after", 1);
    frozen.thaw();
    worker.signal(Signal::TERM);
    assert_eq!(worker.exit().code(), Some(0));
    until("both rows have gone", || frozen.db.rows("processes") == 0);
}
