//! The classes that may be enqueued by SQL.

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::enqueue_by_sql::run;
use crate::support::jobs::{Log, Note};
use crate::support::wait::{DEADLINE, until};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use windlass::audit::Actor;
use windlass::jobs::EnqueueOutcome;
use windlass::{
    Context, Delivery, Error, Job, JobResult, NewJob, OnConflict, Policy, Registry, Worker,
};

on_each_database!(
    internal_classes_are_refused,
    what_a_type_says_holds_for_enqueues_by_its_name,
    a_waiting_job_of_an_internal_class_is_not_replaced,
    unknown_classes_are_refused_if_that_is_set,
    what_strict_means_is_in_the_audit,
);

#[derive(Serialize, Deserialize)]
struct Secret;

impl Job for Secret {
    const NAME: &'static str = "secret";
    const INTERNAL: bool = true;
    type State = ();
    type Output = ();

    fn perform(self, _: &Context<'_, ()>) -> JobResult {
        Ok(())
    }
}

const SECRET: [&str; 2] = [
    "INSERT INTO windlass_enqueue (class) VALUES ('secret')",
    "INSERT INTO windlass_enqueue (class, unique_id) VALUES ('secret', 'a')",
];

fn enqueue_many(db: &TestDb, class: &str) -> Result<(), String> {
    run(
        db,
        &match db.is_postgres() {
            true => format!("SELECT windlass_enqueue_many('{class}', '[{{}}]')"),
            false => format!("INSERT INTO windlass_enqueue_many VALUES ('{class}', '[{{}}]')"),
        },
    )
}

fn work(db: &TestDb) -> (Arc<Log>, windlass::Handle) {
    let log = Arc::new(Log::default());
    let registry = Registry::new()
        .register::<Secret>(())
        .register::<Note>(Arc::clone(&log));
    let worker = Worker::new(&db.database, registry).threads(1);
    let worker = worker.start().unwrap();
    until("the classes are stored", || {
        db.rows_of("windlass_classes") == 2
    });
    (log, worker)
}

fn internal_classes_are_refused(db: &TestDb) {
    let _worker = work(db);
    for text in SECRET {
        let error = run(db, text).unwrap_err();
        assert!(error.contains("internal"), "{error}");
    }
    let error = enqueue_many(db, "secret").unwrap_err();
    assert!(error.contains("internal"), "{error}");
    assert_eq!(db.rows("jobs"), 0);
}

/// A payment that must not be made twice.
#[derive(Serialize, Deserialize)]
struct Pay;

impl Job for Pay {
    const NAME: &'static str = "pay";
    const QUEUE: &'static str = "money";
    const PRIORITY: i32 = -3;
    const MAX_ARGUMENTS: usize = 100;
    type State = ();
    type Output = ();

    fn policy() -> Policy {
        Policy::new().delivery(Delivery::AtMostOnce).max_crashes(2)
    }

    fn perform(self, _: &Context<'_, ()>) -> JobResult {
        Ok(())
    }
}

/// An import with large arguments.
#[derive(Serialize, Deserialize)]
struct Load;

impl Job for Load {
    const NAME: &'static str = "load";
    const MAX_ARGUMENTS: usize = 200_000;
    type State = ();
    type Output = ();

    fn policy() -> Policy {
        Policy::new().max_attempts(4)
    }

    fn perform(self, _: &Context<'_, ()>) -> JobResult {
        Ok(())
    }
}

fn what_a_type_says_holds_for_enqueues_by_its_name(db: &TestDb) {
    let registry = Registry::new().register::<Pay>(()).register::<Load>(());
    let worker = Worker::new(&db.database, registry)
        .queues(["none"])
        .unwrap();
    let mut worker = worker.start().unwrap();
    until("the classes are stored", || {
        db.rows_of("windlass_classes") == 2
    });
    worker.stop();
    assert!(worker.join(DEADLINE).is_some());
    let large = |bytes: usize| format!("\"{}\"", "x".repeat(bytes - 2));
    let insert = |class: &str, size: usize| {
        let arguments = large(size);
        format!("INSERT INTO windlass_enqueue (class, arguments) VALUES ('{class}', '{arguments}')")
    };
    let by_rust = |class: &str, size: usize| {
        let enqueued = NewJob::of_class(class, large(size)).enqueue(&mut db.connection());
        enqueued.map(drop).map_err(|error| error.to_string())
    };
    for (class, size, fits) in [
        ("pay", 100, true),
        ("pay", 101, false),
        ("load", 200_000, true),
        ("load", 200_001, false),
        ("other", 65_536, true),
        ("other", 65_537, false),
    ] {
        for enqueued in [run(db, &insert(class, size)), by_rust(class, size)] {
            assert_eq!(enqueued.is_ok(), fits, "{class} {size}: {enqueued:?}");
        }
    }
    enqueue_many(db, "pay").unwrap();
    let own = "INSERT INTO windlass_enqueue (class, queue, priority, max_attempts, max_crashes) VALUES ('load', 'q', 1, 9, 0)";
    run(db, own).unwrap();
    run(
        db,
        "INSERT INTO windlass_enqueue (class, at_most_once) VALUES ('load', TRUE)",
    )
    .unwrap();
    let twice = "INSERT INTO windlass_enqueue (class, max_attempts) VALUES ('pay', 2)";
    assert!(
        run(db, twice)
            .unwrap_err()
            .contains("more than one attempt")
    );
    let text = |column: &str| format!("coalesce(CAST({column} AS text), '-')");
    let columns = [
        "class_name",
        "queue_name",
        "priority",
        "max_attempts",
        "max_crashes",
    ]
    .map(text);
    let found = db.texts(&format!(
        "SELECT DISTINCT {} || CASE WHEN at_most_once THEN ' once' ELSE '' END AS t FROM solid_queue_jobs ORDER BY 1",
        columns.join(" || ' ' || ")
    ));
    assert_eq!(
        found,
        [
            "load default 0 - - once",
            "load default 0 4 -",
            "load q 1 9 0",
            "other default 0 - -",
            "pay money -3 - 2 once",
        ]
    );
    // A supervisor knows no types: the job has what its type says.
    assert_eq!(db.rows("ready_executions"), db.rows("jobs"));
}

fn a_waiting_job_of_an_internal_class_is_not_replaced(db: &TestDb) {
    let (_, mut worker) = work(db);
    worker.stop();
    assert!(worker.join(DEADLINE).is_some());
    let secret = NewJob::new(&Secret).unwrap().unique_id("payout");
    secret.enqueue(&mut db.connection()).unwrap();
    let replace = "INSERT INTO windlass_enqueue (class, unique_id, on_conflict) VALUES ('note', 'payout', 'replace')";
    let error = run(db, replace).unwrap_err();
    assert!(error.contains("internal"), "{error}");
    // Rust's own enqueue by name says that the unique id is held.
    let policy = Policy::new().on_conflict(OnConflict::Replace);
    let by_name = || {
        NewJob::of_class("note", "{}")
            .unique_id("payout")
            .policy(policy.clone())
    };
    let refused = by_name().enqueue(&mut db.connection());
    assert!(
        matches!(refused, Err(Error::UniqueIdTaken { .. })),
        "{refused:?}"
    );
    let list = windlass::enqueue_all(&mut db.connection(), [by_name()]).unwrap();
    assert_eq!(list[0].outcome, EnqueueOutcome::Refused);
    assert_eq!(
        db.texts("SELECT class_name AS t FROM solid_queue_jobs"),
        ["secret"]
    );
}

fn unknown_classes_are_refused_if_that_is_set(db: &TestDb) {
    let (log, _worker) = work(db);
    let conn = &mut db.connection();
    let note =
        "INSERT INTO windlass_enqueue (class, arguments) VALUES ('note', '{\"text\":\"a\"}')";
    let typo = "INSERT INTO windlass_enqueue (class) VALUES ('noet')";
    assert!(Actor::default().set_strict_classes(conn, true).unwrap());
    assert!(windlass::classes::strict(conn).unwrap());
    run(db, note).unwrap();
    for error in [run(db, typo), enqueue_many(db, "noet")] {
        let error = error.unwrap_err();
        assert!(error.contains("no worker has stored"), "{error}");
    }
    let by_rust = NewJob::of_class("noet", "{}").enqueue(conn);
    assert!(matches!(by_rust, Err(Error::UnknownClass { class }) if class == "noet"));
    until("the job has run", || log.lines() == ["a"]);
    assert!(Actor::default().set_strict_classes(conn, false).unwrap());
    run(db, typo).unwrap();
    enqueue_many(db, "noet").unwrap();
}

fn what_strict_means_is_in_the_audit(db: &TestDb) {
    let conn = &mut db.connection();
    let ada = Actor::named("ada");
    assert!(ada.set_strict_classes(conn, true).unwrap());
    assert!(!ada.set_strict_classes(conn, true).unwrap());
    let found =
        db.texts("SELECT action || ' ' || target AS t FROM windlass_audit WHERE actor = 'ada'");
    assert_eq!(found, ["classes.strict on"]);
}
