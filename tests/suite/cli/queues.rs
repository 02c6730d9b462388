//! `windlass queues`, on what a worker then does.

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::jobs::{Log, Note};
use crate::support::program::windlass;
use crate::support::wait::until;
use std::sync::Arc;
use std::time::Duration;
use windlass::{Job as _, NewJob, Registry, Worker};

on_each_database!(
    a_worker_obeys,
    a_pause_names_its_user,
    unknown_names_are_pointed_out,
);

fn a_worker_obeys(db: &TestDb) {
    assert!(windlass(&db.url, &["queues", "pause", "default"]).is_done());
    let log = Arc::new(Log::default());
    Note::new("x").enqueue(&mut db.connection()).unwrap();
    let registry = Registry::new().register::<Note>(Arc::clone(&log));
    let worker = Worker::new(&db.database, registry).polling_interval(Duration::from_millis(50));
    let _worker = worker.start().unwrap();
    // It works, and has passed the paused one over.
    let free = NewJob::new(&Note::new("free")).unwrap().queue("other");
    free.enqueue(&mut db.connection()).unwrap();
    until("the other queue goes on", || log.lines() == ["free"]);
    let shown = windlass(&db.url, &["queues", "show", "default", "--json"]).json();
    assert_eq!(shown["size"], 1);
    assert!(windlass(&db.url, &["queues", "resume", "default"]).is_done());
    until("the job is done", || log.lines() == ["free", "x"]);
}

fn unknown_names_are_pointed_out(db: &TestDb) {
    NewJob::of_class("send", "{}")
        .queue("mail")
        .enqueue(&mut db.connection())
        .unwrap();
    for (arguments, asks) in [
        (["queues", "show", "mial"], true),
        (["queues", "pause", "mial"], true),
        (["classes", "pause", "sned"], true),
        (["queues", "show", "mail"], false),
        (["queues", "pause", "mail"], false),
        (["classes", "pause", "send"], false),
    ] {
        let said = windlass(&db.url, &arguments);
        assert!(said.is_done(), "{said:?}");
        assert_eq!(said.out.contains("is the name right?"), asks, "{said:?}");
    }
    let said = windlass(&db.url, &["queues", "show", "mail"]);
    assert!(
        said.out.starts_with("1 job of mail is ready, for "),
        "{said:?}"
    );
    let json = windlass(&db.url, &["queues", "show", "nowhere", "--json"]).json();
    assert_eq!(json["known"], false);
}

fn a_pause_names_its_user(db: &TestDb) {
    let said = crate::support::program::Windlass::new(&["queues", "pause", "mail"])
        .env("DATABASE_URL", &db.url)
        .env("USER", "ada")
        .run();
    assert!(said.is_done(), "{said:?}");
    let queues = windlass::queues::list(&mut db.connection()).unwrap();
    let by = queues[0].paused_by.clone().unwrap();
    assert!(by.starts_with("ada@") && by.len() > 4, "{by}");
}
