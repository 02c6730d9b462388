//! Metrics and probes while the database is away, or gives no answer.

use super::Served;
use super::promtool::reads;
use super::scrape::{Scrape, get};
use crate::on_each_database;
use crate::support::TestDb;
use crate::support::wait::until;
use windlass::{Database, Registry, Worker};
use windlass_console::web::Probes;

on_each_database!(
    probes_are_answered_for_the_process,
    without_tables_nothing_is_ready
);

fn status(served: &Served, path: &str) -> (u16, String) {
    let answer = get(&served.address, path, &[]);
    (answer.status, answer.body)
}

fn probes_are_answered_for_the_process(db: &TestDb) {
    let worker = Worker::new(&db.database, Registry::new()).start().unwrap();
    let served = Served::start(Probes::new(&db.database).process(worker.health()));
    until("it is ready", || status(&served, "/readyz").0 == 200);
    for (path, says) in [
        ("/livez", "alive\n"),
        ("/readyz", "ready\n"),
        ("/startedz", "started\n"),
    ] {
        assert_eq!(status(&served, path), (200, says.to_owned()));
    }
    worker.quiet();
    until("it is not ready", || status(&served, "/readyz").0 == 503);
    let (_, says) = status(&served, "/readyz");
    assert!(says.starts_with("worker: it is quiet"), "{says}");
    assert_eq!(status(&served, "/livez").0, 200);
    drop(worker);
    let (_, says) = status(&served, "/readyz");
    assert_eq!(says, "worker: it has ended\n");
    assert_eq!(status(&served, "/livez").0, 200);
}

fn without_tables_nothing_is_ready(db: &TestDb) {
    let served = Served::of(db);
    assert_eq!(status(&served, "/readyz"), (200, "ready\n".to_owned()));
    let empty = tempfile::tempdir().unwrap();
    let file = empty.path().join("empty.db");
    std::fs::write(&file, "").unwrap();
    let database = Database::open(file.to_str().unwrap()).unwrap();
    let served = Served::start(Probes::new(&database));
    let (code, says) = status(&served, "/readyz");
    assert_eq!(code, 503);
    assert!(says.contains("windlass migrate"), "{says}");
    assert_eq!(status(&served, "/livez").0, 200);
    assert_eq!(served.scrape().value("windlass_up"), 0.0);
}

#[cfg(feature = "postgres")]
mod of_postgres {
    use super::*;
    use crate::support::proxy::{Proxy, Swallow};
    use std::time::Duration;

    /// On a machine that does many other things.
    const QUICKLY: Duration = Duration::from_secs(8);

    fn served(proxy: &Proxy, db: &TestDb) -> (Database, Served) {
        let database = Database::open(&proxy.url(&db.url)).unwrap();
        let served = Served::start(Probes::new(&database));
        (database, served)
    }

    fn is_away(page: &str) {
        reads(page);
        let page = Scrape::parse(page);
        assert_eq!(page.value("windlass_up"), 0.0);
        let names = page
            .0
            .keys()
            .filter(|name| !name.contains("windlass_build_info"));
        assert_eq!(names.collect::<Vec<_>>(), ["windlass_up"]);
    }

    #[test]
    fn a_database_that_is_away_is_reported_at_once() {
        let db = TestDb::postgres();
        let mut proxy = Proxy::closed(&db.url);
        let (_, served) = served(&proxy, &db);
        let answer = get(&served.address, "/metrics", &[]);
        is_away(&answer.body);
        assert!(answer.took < QUICKLY, "{answer:?}");
        let (code, says) = status(&served, "/readyz");
        assert_eq!((code, &*says), (503, "web: the database does not answer\n"));
        assert_eq!(status(&served, "/livez").0, 200);
        assert_eq!(status(&served, "/startedz").0, 200);
        proxy.open();
        until("it is back", || {
            served.scrape().value("windlass_up") == 1.0 && status(&served, "/readyz").0 == 200
        });
    }

    #[test]
    fn a_database_that_gives_no_answer_blocks_nothing() {
        let db = TestDb::postgres();
        let proxy = Proxy::opened(&db.url);
        let (_, served) = served(&proxy, &db);
        assert_eq!(served.scrape().value("windlass_up"), 1.0);
        proxy.swallow(Swallow::Everything);
        until("it is noticed", || {
            served.scrape().0.get("windlass_up") == Some(&0.0)
        });
        // While others wait for the database.
        let waits = std::thread::scope(|scope| {
            let scrapes: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| get(&served.address, "/metrics", &[])))
                .collect();
            let probes = (0..20).map(|_| get(&served.address, "/livez", &[]));
            let slowest = probes.map(|probe| probe.took).max().unwrap();
            for scrape in scrapes {
                let answer = scrape.join().unwrap();
                assert!(answer.took < QUICKLY, "{answer:?}");
                is_away(&answer.body);
            }
            slowest
        });
        assert!(waits < Duration::from_secs(1), "{waits:?}");
        proxy.pass();
        until("it is back", || {
            served.scrape().0.get("windlass_up") == Some(&1.0)
        });
    }

    #[test]
    fn a_part_that_is_late_costs_only_itself() {
        let db = TestDb::postgres();
        let (_, served) = served(&Proxy::opened(&db.url), &db);
        let _ = served;
        let served = Served::of(&db);
        let mut conn = db.connect();
        let lock = [
            "BEGIN",
            "LOCK TABLE windlass_attempts IN ACCESS EXCLUSIVE MODE",
        ];
        for text in lock {
            crate::support::db::execute(&mut conn, text);
        }
        let page = Scrape::of(&served.address);
        assert_eq!(page.value("windlass_up"), 1.0);
        let part =
            |name: &str| page.value(&format!("windlass_scrape_part_missing{{part=\"{name}\"}}"));
        assert_eq!((part("database"), part("queues")), (1.0, 0.0));
        assert!(!page.0.contains_key("windlass_crash_looping_jobs"));
        assert!(page.value("windlass_scrape_seconds") < 6.0);
        crate::support::db::execute(&mut conn, "ROLLBACK");
    }
}
