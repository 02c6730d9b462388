//! Jobs during a failover: a primary is lost and its standby takes over, at an address with both hosts.

use crate::support::TestDb;
use crate::support::process::{Do, Process, Scene, Work};
use crate::support::program::windlass;
use crate::support::server::{Server, free_port};
use crate::support::wait::{eventually, until};
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use windlass::{Database, Job};

/// A primary with a standby.
struct Fleet {
    primary: Server,
    standby: Server,
}

/// The time that a statement of a loop may take: a frozen server gives no answer.
const LIMIT: Duration = Duration::from_secs(3);

impl Fleet {
    fn start() -> Option<Self> {
        let Some(primary) =
            Server::start_with("-c fsync=off -c max_wal_senders=5 -c shared_buffers=16MB")
        else {
            eprintln!("NOT TESTED: standbys need WINDLASS_TEST_POSTGRES_BIN, which bin/test sets");
            return None;
        };
        let standby = primary.standby();
        let fleet = Fleet { primary, standby };
        until("the standby follows", || {
            fleet.on_primary(
                "SELECT count(*) AS n FROM pg_stat_replication WHERE state = 'streaming'",
            ) == 1
        });
        Some(fleet)
    }

    fn on_primary(&self, query: &str) -> i64 {
        let mut connection = Database::open(&self.primary.url())
            .unwrap()
            .connect()
            .unwrap();
        crate::support::db::count(&mut connection, query)
    }

    /// From now on, each commit waits for the standby.
    fn is_synchronous(&self) {
        let mut connection = Database::open(&self.primary.url())
            .unwrap()
            .connect()
            .unwrap();
        crate::support::db::execute(
            &mut connection,
            "ALTER SYSTEM SET synchronous_standby_names = '*'",
        );
        crate::support::db::execute(&mut connection, "SELECT pg_reload_conf()");
        until("the standby confirms commits", || {
            self.on_primary(
                "SELECT count(*) AS n FROM pg_stat_replication WHERE sync_state = 'sync'",
            ) == 1
        });
    }

    /// Stops replication: the standby does not receive commits that are acknowledged from now on.
    fn standby_stops_following(&self) {
        let url = format!("{}?target_session_attrs=any", self.standby.url());
        let mut connection = Database::open(&url).unwrap().connect().unwrap();
        crate::support::db::execute(&mut connection, "ALTER SYSTEM SET primary_conninfo = ''");
        crate::support::db::execute(&mut connection, "SELECT pg_reload_conf()");
        until("the standby follows no more", || {
            crate::support::db::count(
                &mut connection,
                "SELECT count(*) AS n FROM pg_stat_wal_receiver",
            ) == 0
        });
    }

    fn database(&self) -> TestDb {
        let (primary, standby) = (self.primary.host(), self.standby.host());
        TestDb::at(&format!(
            "postgres://postgres@{primary},{standby}/postgres?connect_timeout=2"
        ))
    }
}

/// Two threads that enqueue, and remember what was acknowledged.
struct Enqueuers {
    stops: Arc<AtomicBool>,
    acknowledged: Arc<Mutex<Vec<String>>>,
    threads: Vec<JoinHandle<()>>,
}

impl Enqueuers {
    fn start(db: &TestDb) -> Self {
        let (stops, acknowledged) = (
            Arc::<AtomicBool>::default(),
            Arc::<Mutex<Vec<String>>>::default(),
        );
        let number = Arc::new(AtomicUsize::new(0));
        let thread = || {
            let database = Database::open(&db.url).unwrap();
            let (stops, acknowledged, number) =
                (stops.clone(), acknowledged.clone(), number.clone());
            std::thread::spawn(move || {
                let mut kept = None;
                while !stops.load(Ordering::Relaxed) {
                    let name = format!("job-{}", number.fetch_add(1, Ordering::Relaxed));
                    let Ok(mut connection) = kept.take().map_or_else(|| database.connect(), Ok)
                    else {
                        continue;
                    };
                    if Work::new(&name, Do::Sleep(2))
                        .enqueue(&mut connection)
                        .is_ok()
                    {
                        acknowledged.lock().unwrap().push(name);
                        kept = Some(connection);
                    }
                    std::thread::sleep(Duration::from_millis(10));
                }
            })
        };
        Enqueuers {
            threads: (0..2).map(|_| thread()).collect(),
            stops: Arc::clone(&stops),
            acknowledged: Arc::clone(&acknowledged),
        }
    }

    fn acknowledged(&self) -> Vec<String> {
        self.acknowledged.lock().unwrap().clone()
    }

    /// Waits until so many more have been acknowledged.
    fn go_on(&self, count: usize) {
        let wanted = self.acknowledged().len() + count;
        until("jobs are enqueued", || self.acknowledged().len() >= wanted);
    }

    fn stop(self) -> Vec<String> {
        self.stops.store(true, Ordering::Relaxed);
        self.threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        Arc::into_inner(self.acknowledged)
            .unwrap()
            .into_inner()
            .unwrap()
    }
}

fn supervisor(scene: &Scene<'_>) -> Process {
    scene.worker_with(|role| {
        role.workers = Some(2);
        role.statement_ms = Some(u64::try_from(LIMIT.as_millis()).unwrap());
    })
}

fn ends(scene: &Scene<'_>) -> BTreeSet<String> {
    let ends = scene
        .effects()
        .into_iter()
        .filter(|effect| effect.what == "end");
    ends.map(|effect| effect.name).collect()
}

/// The names of the jobs that have finished.
fn finished(db: &TestDb) -> BTreeSet<String> {
    let texts =
        db.texts("SELECT arguments AS t FROM solid_queue_jobs WHERE finished_at IS NOT NULL");
    let name = |text: String| {
        let name = text.split('"').find(|part| part.starts_with("job-"));
        name.unwrap().to_owned()
    };
    texts.into_iter().map(name).collect()
}

/// Waits until work goes on, and prints how long that took.
fn goes_on(what: &str, since: Instant, scene: &Scene<'_>, enqueuers: &Enqueuers) {
    enqueuers.go_on(1);
    let enqueued = since.elapsed();
    let before = ends(scene).len();
    until("jobs run", || ends(scene).len() > before + 2);
    eprintln!(
        "{what}: jobs were enqueued again after {enqueued:.1?}, and ran after {:.1?}",
        since.elapsed()
    );
}

/// Ends all, and returns what was acknowledged and is not there.
fn lost(
    db: &TestDb,
    scene: &Scene<'_>,
    enqueuers: Enqueuers,
    mut supervisor: Process,
) -> Vec<String> {
    enqueuers.go_on(20);
    let acknowledged = enqueuers.stop();
    scene.drained();
    let (finished, ends) = (finished(db), ends(scene));
    for name in &finished {
        assert!(ends.contains(name), "{name} has finished, but never ran");
    }
    supervisor.signal(Signal::TERM);
    assert_eq!(supervisor.exit().code(), Some(0));
    let doctor = windlass(&db.url, &["doctor"]);
    assert_eq!(doctor.code, Some(0), "{doctor:?}");
    let is_lost = |name: &String| !finished.contains(name);
    acknowledged.into_iter().filter(is_lost).collect()
}

#[test]
fn a_synchronous_standby_loses_nothing() {
    let Some(fleet) = Fleet::start() else { return };
    fleet.is_synchronous();
    let db = fleet.database();
    let scene = Scene::with_deaths(&db);
    let (supervisor, enqueuers) = (supervisor(&scene), Enqueuers::start(&db));
    enqueuers.go_on(50);
    until("jobs run", || ends(&scene).len() > 10);
    let since = Instant::now();
    fleet.primary.kill();
    fleet.standby.promote();
    goes_on(
        "a killed primary, a synchronous standby",
        since,
        &scene,
        &enqueuers,
    );
    let lost = lost(&db, &scene, enqueuers, supervisor);
    assert_eq!(lost, Vec::<String>::new());
}

#[test]
fn an_asynchronous_standby_loses_only_what_it_had_not_received() {
    let Some(fleet) = Fleet::start() else { return };
    let db = fleet.database();
    let scene = Scene::with_deaths(&db);
    let (supervisor, enqueuers) = (supervisor(&scene), Enqueuers::start(&db));
    enqueuers.go_on(50);
    until("jobs run", || ends(&scene).len() > 10);
    let safe = enqueuers.acknowledged();
    let written = db
        .texts("SELECT CAST(pg_current_wal_flush_lsn() AS text) AS t")
        .remove(0);
    until("the standby has received them", || {
        db.count(&format!(
            "SELECT count(*) AS n FROM pg_stat_replication WHERE flush_lsn >= '{written}'"
        )) == 1
    });
    fleet.standby_stops_following();
    let received = enqueuers.acknowledged();
    enqueuers.go_on(100);
    let since = Instant::now();
    fleet.primary.kill();
    fleet.standby.promote();
    goes_on(
        "a killed primary, an asynchronous standby",
        since,
        &scene,
        &enqueuers,
    );
    let lost = lost(&db, &scene, enqueuers, supervisor);
    eprintln!("{} jobs were acknowledged and lost", lost.len());
    assert!(lost.iter().all(|name| !safe.contains(name)), "{lost:?}");
    let late = lost.iter().filter(|name| !received.contains(name)).count();
    assert!(late >= 100, "{lost:?}");
}

/// One that accepts connections and says nothing, as a frozen server.
#[test]
fn a_silent_first_host_is_passed_over() {
    let db = TestDb::postgres();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let first = format!("@127.0.0.1:{},", silent.local_addr().unwrap().port());
    let url = format!("{}?connect_timeout=2", db.url.replacen('@', &first, 1));
    let database = Database::open(&url).unwrap();
    drop(database.connect().unwrap());
    // The next one starts with the host that answers: the silent one has heard of the first alone.
    drop(database.connect().unwrap());
    silent.set_nonblocking(true).unwrap();
    let tries = std::iter::from_fn(|| silent.accept().ok()).count();
    assert!((1..=2).contains(&tries), "{tries}");
    let work = Work::new("one", Do::Nothing);
    let scene = Scene::new(&db);
    let worker = scene.worker_with(|role| role.url.clone_from(&url));
    work.enqueue(&mut database.connect().unwrap()).unwrap();
    scene.ended("one", 1);
    drop(worker);
}

#[test]
fn a_refusal_names_each_host() {
    let Some(fleet) = Fleet::start() else { return };
    let (standby, closed) = (fleet.standby.host(), free_port());
    let url = format!("postgres://postgres:hunter2@127.0.0.1:{closed},{standby}/postgres");
    let said = windlass(&url, &["status"]);
    assert_eq!(said.code, Some(1), "{said:?}");
    let port = standby.rsplit_once(':').unwrap().1;
    for part in [
        &format!("port {closed}"),
        &format!("port {port}"),
        "no host of the address accepts changes",
    ] {
        assert!(said.err.contains(part), "{part}: {said:?}");
    }
    assert!(!said.err.contains("hunter2"), "{said:?}");
}

#[test]
fn an_address_that_cannot_be_meant_is_refused_at_once() {
    for (url, part) in [
        ("postgres://me:hunter2@one,/app", "no name"),
        (
            "postgres://me:hunter2@one:1,me:hunter2@two:2/app",
            "before the first host",
        ),
        ("postgres://me:hunter2@one:99999,two/app", "from 1 to 65535"),
        (
            "postgres://me:hunter2@one,two/app?target_session_attrs=master",
            "`read-write`",
        ),
    ] {
        let said = windlass(url, &["status"]);
        assert!(
            said.err.contains(part) && !said.err.contains("hunter2"),
            "{said:?}"
        );
        assert_ne!(said.code, Some(0));
    }
}

#[test]
fn doctor_says_what_a_failover_loses() {
    let Some(fleet) = Fleet::start() else { return };
    let db = fleet.database();
    let says = || windlass(&db.url, &["doctor"]).out;
    let said = says();
    assert!(said.contains("loses what it had not received"), "{said}");
    fleet.is_synchronous();
    let said = eventually("doctor sees the standby", || {
        Some(says()).filter(|said| said.contains("confirms each commit"))
    });
    assert!(!said.contains("loses what"), "{said}");
    db.execute("ALTER SYSTEM SET synchronous_commit = 'off'");
    db.execute("SELECT pg_reload_conf()");
    eventually("doctor sees the setting", || {
        Some(says()).filter(|said| said.contains("`synchronous_commit` is `off`"))
    });
}

/// A frozen server is found out by the time limits of statements, which take most of a minute.
mod in_all {
    use super::*;

    /// The old primary stands still, and is one more primary when it goes on.
    #[test]
    fn a_primary_that_comes_back_acknowledges_nothing() {
        let Some(fleet) = Fleet::start() else { return };
        fleet.is_synchronous();
        let db = fleet.database();
        let scene = Scene::with_deaths(&db);
        let (supervisor, enqueuers) = (supervisor(&scene), Enqueuers::start(&db));
        enqueuers.go_on(50);
        until("jobs run", || ends(&scene).len() > 10);
        let since = Instant::now();
        fleet.primary.freeze();
        fleet.standby.promote();
        goes_on(
            "a frozen primary, a synchronous standby",
            since,
            &scene,
            &enqueuers,
        );
        fleet.primary.thaw();
        enqueuers.go_on(20);
        fleet.primary.kill();
        let lost = lost(&db, &scene, enqueuers, supervisor);
        assert_eq!(lost, Vec::<String>::new());
    }
}
