//! Each fault fires its alert and no other, over metrics that were scraped while it was there.

use super::Served;
use super::promtool::{Story, contrib, names, promtool, reads};
use super::scrape::{Scrape, get};
use crate::on_each_database;
use crate::support::TestDb;
use crate::support::process::{Do, Process, Scene, Work};
use crate::support::program::{Running, Windlass, windlass};
use crate::support::wait::until;
use rustix::process::Signal;
use std::time::{Duration, Instant};
use windlass::{NewJob, enqueue_all};

on_each_database!(
    a_dead_worker,
    no_supervisor,
    no_scheduler,
    a_late_queue,
    many_failures,
    a_long_transaction,
    a_job_that_kills_its_process,
);

/// A fleet without a fault: a supervisor with a dispatcher, another one with a scheduler, a worker,
/// a recurring task, and some jobs that have finished.
struct Fleet<'a> {
    db: &'a TestDb,
    worker: Process,
    supervisor: Running,
    scheduler: Running,
    healthy: Scrape,
    scene: Scene<'a>,
}

fn supervise(db: &TestDb, without: &str) -> Running {
    let arguments = [
        "supervise",
        "--heartbeat-interval=100ms",
        "--alive-threshold=3s",
        without,
    ];
    Windlass::new(&arguments)
        .env("DATABASE_URL", &db.url)
        .start()
}

/// Scrapes a server that has just started: its figures are of this moment.
fn scrape(db: &TestDb) -> Scrape {
    let mut page = Scrape::default();
    until("no part is late", || {
        let served = Served::of(db);
        let text = get(&served.address, "/metrics", &[]).body;
        reads(&text);
        page = Scrape::parse(&text);
        page.is_complete()
    });
    page
}

/// The counter of jobs of the class `work` that ended so.
fn ended(page: &Scrape, outcome: &str) -> f64 {
    let series =
        format!("windlass_jobs_total{{queue=\"default\",class=\"work\",outcome=\"{outcome}\"}}");
    page.0.get(&series).copied().unwrap_or(0.0)
}

fn running(page: &Scrape, kind: &str) -> f64 {
    page.value(&format!(
        "windlass_processes{{kind=\"{kind}\",state=\"running\"}}"
    ))
}

fn enqueue(db: &TestDb, count: usize, what: &Do) {
    let job = || NewJob::new(&Work::new("n", what.clone())).unwrap();
    enqueue_all(&mut db.connection(), (0..count).map(|_| job())).unwrap();
}

/// Waits for a page, and returns it.
fn wait_for(what: &str, db: &TestDb, mut is_it: impl FnMut(&Scrape) -> bool) -> Scrape {
    let mut page = Scrape::default();
    until(what, || {
        page = scrape(db);
        is_it(&page)
    });
    page
}

impl<'a> Fleet<'a> {
    fn start(db: &'a TestDb) -> Self {
        let scene = Scene::with_deaths(db);
        let add = [
            "recurring",
            "add",
            "yearly",
            "--class=work",
            "--schedule=@yearly",
        ];
        let said = windlass(&db.url, &add);
        assert_eq!(said.code, Some(0), "{said:?}");
        let (supervisor, scheduler) = (
            supervise(db, "--no-scheduler"),
            supervise(db, "--no-dispatcher"),
        );
        let worker = scene.worker();
        enqueue(db, 20, &Do::Nothing);
        let healthy = wait_for("the fleet is healthy", db, |page| {
            let kinds = ["supervisor", "worker", "dispatcher", "scheduler"];
            let kinds = kinds.map(|kind| running(page, kind));
            kinds == [2.0, 1.0, 1.0, 1.0] && ended(page, "finished") == 20.0
        });
        assert_eq!(healthy.value("windlass_recurring_tasks"), 1.0);
        Story::of_health(&healthy).fires(&[]);
        Fleet {
            db,
            scene,
            supervisor,
            scheduler,
            worker,
            healthy,
        }
    }

    /// That exactly this alert fires, once the page shows the fault.
    #[track_caller]
    fn fires(&self, alert: &str, shows: impl FnMut(&Scrape) -> bool) {
        let fault = wait_for(alert, self.db, shows);
        let scraped_at = Instant::now();
        std::thread::sleep(Duration::from_secs(2));
        let later = scrape(self.db);
        Story::new(&self.healthy, &fault, &later, scraped_at.elapsed()).fires(&[alert]);
    }
}

fn a_dead_worker(db: &TestDb) {
    let mut fleet = Fleet::start(db);
    fleet.worker.signal(Signal::KILL);
    fleet.worker.exit();
    fleet.fires("WindlassWorkerDied", |page| {
        page.value("windlass_processes_died_total") == 1.0
    });
}

fn no_supervisor(db: &TestDb) {
    let fleet = Fleet::start(db);
    for supervisor in [&fleet.supervisor, &fleet.scheduler] {
        supervisor.signal(Signal::KILL);
    }
    // Two minutes later, in which nothing has sent a heartbeat for them.
    let a_while_ago = match db.is_postgres() {
        true => "(now() AT TIME ZONE 'UTC') - interval '2 minutes'",
        false => "strftime('%Y-%m-%d %H:%M:%f000', 'now', '-2 minutes')",
    };
    until("their rows are old", || {
        db.execute(&format!(
            "UPDATE solid_queue_processes SET last_heartbeat_at = {a_while_ago} WHERE kind <> 'Worker'"
        ));
        let page = scrape(db);
        page.sum("windlass_processes", "state=\"dead\"") == 4.0
    });
    fleet.fires("WindlassNoSupervisor", |page| {
        running(page, "supervisor") == 0.0
    });
}

fn no_scheduler(db: &TestDb) {
    let fleet = Fleet::start(db);
    fleet.scheduler.signal(Signal::TERM);
    fleet.fires("WindlassNoScheduler", |page| {
        running(page, "scheduler") == 0.0
    });
}

/// No worker performs this class.
fn a_late_queue(db: &TestDb) {
    let fleet = Fleet::start(db);
    let job = NewJob::of_class("send", "{}").queue("mail");
    job.enqueue(&mut db.connection()).unwrap();
    fleet.fires("WindlassQueueLate", |page| {
        page.0
            .contains_key("windlass_queue_oldest_ready_age_seconds{queue=\"mail\"}")
    });
}

fn many_failures(db: &TestDb) {
    let fleet = Fleet::start(db);
    enqueue(db, 10, &Do::Panic);
    fleet.fires("WindlassFailureRate", |page| ended(page, "failed") == 10.0);
}

/// SQLite reports no transactions, but its log grows while one is open.
fn a_long_transaction(db: &TestDb) {
    let fleet = Fleet::start(db);
    let mut long = db.connect();
    for text in ["BEGIN", "SELECT count(*) AS n FROM solid_queue_jobs"] {
        crate::support::db::execute(&mut long, text);
    }
    if !db.is_postgres() {
        crate::support::db::count(&mut long, "SELECT count(*) AS n FROM solid_queue_jobs");
        db.execute("CREATE TABLE ballast (bytes blob)");
        for _ in 0..66 {
            db.execute("INSERT INTO ballast VALUES (zeroblob(4194304))");
        }
    }
    fleet.fires("WindlassLongTransaction", |page| match db.is_postgres() {
        true => page.value("windlass_oldest_transaction_seconds") > 1.0,
        false => page.value("windlass_sqlite_wal_bytes") > 0.0,
    });
    crate::support::db::execute(&mut long, "ROLLBACK");
}

fn a_job_that_kills_its_process(db: &TestDb) {
    let mut fleet = Fleet::start(db);
    fleet.worker.signal(Signal::TERM);
    fleet.worker.exit();
    // It starts its worker again each time.
    let _supervisor = fleet.scene.supervisor(1);
    enqueue(db, 1, &Do::Abort);
    fleet.fires("WindlassCrashLoopingJob", |page| {
        page.value("windlass_crash_looping_jobs") == 1.0
    });
}

#[cfg(feature = "postgres")]
#[test]
fn a_database_that_is_away() {
    use crate::support::proxy::{Proxy, Swallow};
    use windlass::Database;
    use windlass_console::web::Probes;
    let db = TestDb::postgres();
    let fleet = Fleet::start(&db);
    let proxy = Proxy::opened(&db.url);
    let database = Database::open(&proxy.url(&db.url)).unwrap();
    let served = Served::start(Probes::new(&database));
    assert_eq!(served.scrape().value("windlass_up"), 1.0);
    proxy.swallow(Swallow::Everything);
    let mut page = Scrape::default();
    until("it is noticed", || {
        page = served.scrape();
        page.value("windlass_up") == 0.0
    });
    let second = Duration::from_secs(1);
    Story::new(&fleet.healthy, &page, &page, second).fires(&["WindlassDatabaseAway"]);
}

#[test]
fn a_file_that_is_away() {
    let directory = tempfile::tempdir().unwrap();
    let db = TestDb::sqlite_in(directory.path());
    let fleet = Fleet::start(&db);
    let file = db.url.strip_prefix("sqlite://").unwrap();
    std::fs::rename(file, directory.path().join("elsewhere")).unwrap();
    let page = wait_for("it is noticed", &db, |page| {
        page.value("windlass_up") == 0.0
    });
    let second = Duration::from_secs(1);
    Story::new(&fleet.healthy, &page, &page, second).fires(&["WindlassDatabaseAway"]);
}

/// Alerts on the metrics themselves.
#[test]
fn metrics_that_are_absent_or_late() {
    let nothing = Scrape::default();
    Story::of_health(&nothing).fires(&["WindlassMetricsAbsent"]);
    let page = |lag: &str| {
        Scrape::parse(&format!(
            "windlass_up 1\nwindlass_statistics_lag_seconds {lag}\n"
        ))
    };
    let (healthy, late) = (page("20"), page("900"));
    let second = Duration::from_secs(1);
    Story::new(&healthy, &late, &late, second).fires(&["WindlassStatisticsLate"]);
}

#[test]
fn the_rules_are_valid() {
    let file = contrib("alerts.yml");
    let verdict = promtool(&["check", "rules", file.to_str().unwrap()], "");
    assert!(verdict.is_fine, "{}", verdict.says);
    assert_eq!(names().len(), 10);
}
