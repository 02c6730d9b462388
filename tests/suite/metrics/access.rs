//! Who may scrape.

use super::Served;
use super::scrape::{Answer, get, try_get};
use crate::on_each_database;
use crate::support::TestDb;
use crate::support::program::windlass;
use windlass_console::Config;
use windlass_console::web::{Probes, Server};

on_each_database!(
    with_tokens_the_metrics_need_one,
    open_metrics_need_none,
    another_name_is_refused_without_a_token,
    a_server_with_pages_has_them_too,
    a_server_with_pages_is_opened_by_its_configuration,
);

/// Makes a token of this role.
fn token(db: &TestDb, name: &str, role: &str) -> String {
    let said = windlass(
        &db.url,
        &["web", "tokens", "add", name, "--role", role, "--json"],
    );
    said.json()["token"].as_str().unwrap().to_owned()
}

fn scrape_with(address: &str, token: &str) -> Answer {
    let header = format!("Authorization: Bearer {token}");
    get(address, "/metrics", &[&header])
}

fn with_tokens_the_metrics_need_one(db: &TestDb) {
    let viewer = token(db, "prometheus", "viewer");
    let enqueuer = token(db, "script", "enqueuer");
    let served = Served::of(db);
    let answer = get(&served.address, "/metrics", &[]);
    assert_eq!(answer.status, 401, "{answer:?}");
    assert!(
        answer.head.contains("www-authenticate: Bearer"),
        "{answer:?}"
    );
    assert!(!answer.body.contains("windlass_"), "{answer:?}");
    assert_eq!(scrape_with(&served.address, &enqueuer).status, 401);
    assert_eq!(scrape_with(&served.address, "wrong").status, 401);
    let answer = scrape_with(&served.address, &viewer);
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(answer.body.contains("windlass_up 1\n"), "{answer:?}");
    for path in ["/livez", "/readyz", "/startedz"] {
        assert_eq!(get(&served.address, path, &[]).status, 200, "{path}");
    }
}

fn open_metrics_need_none(db: &TestDb) {
    token(db, "prometheus", "viewer");
    let served = Served::start(Probes::new(&db.database).metrics_open(true));
    let answer = get(&served.address, "/metrics", &[]);
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(answer.body.contains("windlass_up 1\n"), "{answer:?}");
}

/// A page elsewhere could have its name lead to this host, and read the answer.
fn another_name_is_refused_without_a_token(db: &TestDb) {
    let served = Served::of(db);
    let ask = |path: &str, headers: &[&str]| {
        let port = served.address.rsplit_once(':').unwrap().1;
        let host = format!("Host: evil.example:{port}");
        let headers: Vec<&str> = [&[&*host], headers].concat();
        super::scrape::get_as(&served.address, path, &headers).status
    };
    assert_eq!(ask("/metrics", &[]), 421);
    assert_eq!(ask("/metrics", &["Authorization: Basic YTpi"]), 421);
    assert_eq!(ask("/metrics", &["Authorization: Bearer wrong"]), 401);
    for path in ["/livez", "/readyz", "/startedz"] {
        assert_eq!(ask(path, &[]), 200, "{path}");
    }
    for path in ["/", "/queues/readyz", "/readyz/", "/db/x/readyz"] {
        assert!([404, 421].contains(&ask(path, &[])), "{path}");
    }
    let viewer = token(db, "prometheus", "viewer");
    let header = format!("Authorization: Bearer {viewer}");
    assert_eq!(ask("/metrics", &[&header]), 200);
    let open = Served::start(Probes::new(&db.database).metrics_open(true));
    let host = "Host: workers.svc.cluster.local:4041";
    let answer = super::scrape::get_as(&open.address, "/metrics", &[host]);
    assert_eq!(answer.status, 200, "{answer:?}");
}

fn a_server_with_pages_has_them_too(db: &TestDb) {
    let server = Server::new(&db.database).listen("127.0.0.1:0").start();
    let server = server.unwrap();
    let address = server.address().to_string();
    for path in ["/metrics", "/livez", "/readyz", "/startedz", "/"] {
        let answer = try_get(&address, path, &[]).unwrap();
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
    }
}

fn a_server_with_pages_is_opened_by_its_configuration(db: &TestDb) {
    token(db, "prometheus", "viewer");
    let status = |more: &str| {
        let text = format!("[web]\nlisten = \"127.0.0.1:0\"\n{more}");
        let server = Config::parse(&text).unwrap().web(&db.database);
        let server = server.unwrap().start().unwrap();
        let address = server.address().to_string();
        try_get(&address, "/metrics", &[]).unwrap().status
    };
    assert_eq!(status(""), 401);
    assert_eq!(status("metrics_open = true\n"), 200);
}
