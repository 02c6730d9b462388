//! Processes that listen: `--listen`, `listen` in the configuration, and `probes` of the builders.

use super::scrape::{get, try_get};
use crate::on_each_database;
use crate::support::TestDb;
use crate::support::jobs::{Log, Note};
use crate::support::program::{Windlass, windlass};
use crate::support::server::free_port;
use crate::support::wait::until;
use rustix::process::Signal;
use std::net::TcpListener;
use std::sync::Arc;
use windlass::{Registry, Supervisor, Worker};
use windlass_console::Config;
use windlass_console::web::Probes;

on_each_database!(
    a_supervisor_listens,
    the_probes_of_a_handle_end_with_it,
    an_address_in_use_fails_before_anything_starts,
    a_configured_supervisor_listens,
);

/// The status of a path; `None` if nothing listens.
fn status(address: &str, path: &str) -> Option<u16> {
    Some(try_get(address, path, &[]).ok()?.status)
}

fn a_supervisor_listens(db: &TestDb) {
    let address = format!("127.0.0.1:{}", free_port());
    let supervisor = Windlass::new(&["supervise", "--heartbeat-interval=1s", "--listen", &address])
        .env("DATABASE_URL", &db.url)
        .start();
    until("it is ready", || status(&address, "/readyz") == Some(200));
    assert_eq!(status(&address, "/livez"), Some(200));
    assert_eq!(status(&address, "/startedz"), Some(200));
    let page = super::scrape::Scrape::of(&address);
    assert_eq!(
        page.value("windlass_process_live{kind=\"supervisor\"}"),
        1.0
    );
    let running = "windlass_processes{kind=\"supervisor\",state=\"running\"}";
    assert_eq!(page.value(running), 1.0);
    // It has no pages.
    assert_eq!(status(&address, "/"), Some(404));
    let url = format!("--url=http://{address}/readyz");
    let said = windlass(&db.url, &["health", &url]);
    assert_eq!(said.code, Some(0), "{said:?}");
    supervisor.signal(Signal::TSTP);
    until("it is not ready", || {
        status(&address, "/readyz") == Some(503)
    });
    assert_eq!(status(&address, "/livez"), Some(200));
    let said = windlass(&db.url, &["health", &url]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.out.contains("supervisor: it is quiet"), "{said:?}");
    supervisor.signal(Signal::CONT);
    until("it is ready again", || {
        status(&address, "/readyz") == Some(200)
    });
    supervisor.signal(Signal::TERM);
    assert_eq!(supervisor.said().code, Some(0));
    assert_eq!(status(&address, "/livez"), None, "nothing listens any more");
}

fn the_probes_of_a_handle_end_with_it(db: &TestDb) {
    let address = format!("127.0.0.1:{}", free_port());
    let registry = Registry::new().register::<Note>(Arc::<Log>::default());
    let worker = Worker::new(&db.database, registry)
        .probes(Probes::new(&db.database).listen(&address))
        .start()
        .unwrap();
    until("it is ready", || status(&address, "/readyz") == Some(200));
    let page = super::scrape::Scrape::of(&address);
    assert_eq!(page.value("windlass_process_ready{kind=\"worker\"}"), 1.0);
    drop(worker);
    assert_eq!(status(&address, "/livez"), None);
}

fn an_address_in_use_fails_before_anything_starts(db: &TestDb) {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let probes = Probes::new(&db.database).listen(&address);
    let supervisor = Supervisor::new(&db.database).probes(probes.clone());
    let error = supervisor.start().unwrap_err().to_string();
    assert!(
        error.contains("listen on") && error.contains(&address),
        "{error}"
    );
    let worker = Worker::new(&db.database, Registry::new()).probes(probes);
    worker.start().unwrap_err();
    assert_eq!(db.rows("processes"), 0);
    let said = windlass(&db.url, &["supervise", "--listen", &address]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.err.contains(&address), "{said:?}");
}

fn a_configured_supervisor_listens(db: &TestDb) {
    let address = format!("127.0.0.1:{}", free_port());
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let in_use = taken.local_addr().unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    let text = format!(
        "[database]\nurl = {:?}\n[supervisor]\nlisten = \"{address}\"\n[[workers]]\nlisten = \"{in_use}\"\n",
        db.url
    );
    std::fs::write(file.path(), text).unwrap();
    let config = Config::load(file.path()).unwrap();
    let database = config.database().unwrap();
    let supervisor = config.supervisor(&database, None);
    let error = supervisor.map(drop).unwrap_err().to_string();
    assert!(error.contains("has no program"), "{error}");
    let error = config.worker(&database, Registry::new()).unwrap().start();
    let error = error.map(drop).unwrap_err().to_string();
    assert!(
        error.contains("listen on") && error.contains(&in_use.to_string()),
        "{error}"
    );
    let said = Windlass::new(&[
        "supervise",
        "--config",
        file.path().to_str().unwrap(),
        "--",
        "sleep",
        "600",
    ])
    .start();
    until("it listens", || status(&address, "/livez") == Some(200));
    assert_eq!(get(&address, "/metrics?only=process", &[]).status, 200);
    said.signal(Signal::QUIT);
}

#[test]
fn addresses_that_conflict_are_found() {
    let check = |text: &str| {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        Windlass::new(&["check", "--config", file.path().to_str().unwrap()]).run()
    };
    for (text, says) in [
        (
            "[supervisor]\nlisten = \"4041\"\n",
            "`4041` is not a host and a port",
        ),
        (
            "[supervisor]\nlisten = \"127.0.0.1:1\"\n[[workers]]\nlisten = \"127.0.0.1:1\"\nprogram = \"app\"\n",
            "is `127.0.0.1:1`, as supervisor.listen",
        ),
        (
            "[[workers]]\nlisten = \"127.0.0.1:1\"\nprocesses = 2\nprogram = \"app\"\n",
            "is for one process",
        ),
    ] {
        let said = check(text);
        assert_eq!(said.code, Some(1), "{said:?}");
        let all = format!("{}{}", said.out, said.err);
        assert!(all.contains(says), "`{says}` is not in {all}");
    }
}
