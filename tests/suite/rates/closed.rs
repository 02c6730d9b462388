//! Keys that are closed, as the other side asked to wait.

use super::{Push, drained, is_finished, note};
use crate::on_each_database;
use crate::support::TestDb;
use crate::support::db::execute;
use crate::support::program::windlass;
use crate::support::wait::DEADLINE;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use windlass::jobs::{self, Reason};
use windlass::limits::{self, Rate};
use windlass::testing::{self, TestDatabase};
use windlass::{Context, Job, JobResult, NewJob, Registry, Worker};

/// Learns from a response that the next one of a key will be refused.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Learn {
    key: String,
    seconds: u64,
}

impl Learn {
    fn new(key: &str, seconds: u64) -> Self {
        Learn {
            key: key.to_owned(),
            seconds,
        }
    }
}

impl Job for Learn {
    const NAME: &'static str = "learn";
    type State = ();
    type Output = ();

    fn perform(self, cx: &Context<'_, ()>) -> JobResult {
        cx.rate_limit(&self.key, Duration::from_secs(self.seconds))?;
        Ok(())
    }
}

/// Performs such a job in a worker. Returns whether it finished.
fn learn(db: &TestDb, key: &str, seconds: u64) -> bool {
    let job = NewJob::new(&Learn::new(key, seconds)).unwrap();
    let job = job.enqueue(&mut db.connection()).unwrap().id;
    let registry = Registry::new().register::<Learn>(());
    let mut worker = Worker::new(&db.database, registry)
        .until_idle()
        .start()
        .unwrap();
    worker.join(DEADLINE).unwrap();
    is_finished(db, job)
}

fn a_body_closes_a_key(db: &TestDb) {
    let mut conn = db.connection();
    // No job has had the key.
    assert!(learn(db, "api/acme", 600));
    for tenant in ["acme", "other"] {
        for _ in 0..4 {
            Push::new(tenant, 1).enqueue(&mut conn).unwrap();
        }
    }
    assert_eq!(drained(db), 4);
    // A shorter time opens nothing.
    assert!(learn(db, "api/acme", 1));
    testing::travel(&mut conn, Duration::from_secs(590)).unwrap();
    assert_eq!(drained(db), 0);
    testing::travel(&mut conn, Duration::from_secs(20)).unwrap();
    // The bucket was full.
    assert_eq!(drained(db), 4);
}

fn a_closed_key_is_explained_and_opened(db: &TestDb) {
    let mut conn = db.connection();
    assert!(learn(db, "api/acme", 7_200));
    let job = Push::new("acme", 1).enqueue(&mut conn).unwrap().id;
    assert_eq!(drained(db), 0);
    let reason = jobs::explain(&mut conn, job).unwrap().unwrap().reason;
    assert!(
        matches!(&reason, Reason::Rate { closed_seconds: Some(closed), .. } if *closed > 7_000.0),
        "{reason:?}"
    );
    let said = windlass(&db.url, &["explain", &job.to_string()]);
    assert!(
        said.out.contains("It waits for a token of api/acme: first in line, about 1h 59m; closed for another 1h 59m, as the \
                           other side asked to wait."),
        "{said:?}"
    );
    let key = &limits::rates(&mut conn, "").unwrap()[0];
    assert!(
        key.closed_seconds.is_some_and(|closed| closed > 7_000.0),
        "{key:?}"
    );
    assert_eq!(key.waiting, 1);
    let listed = windlass(&db.url, &["limits", "list"]);
    assert!(listed.out.contains("1h 59m"), "{listed:?}");
    let doctor = windlass(&db.url, &["doctor"]);
    assert!(
        doctor
            .out
            .contains("`windlass limits reopen api/acme` opens one"),
        "{doctor:?}"
    );
    let opened = windlass(&db.url, &["limits", "reopen", "api/acme"]);
    assert!(opened.out.contains("api/acme is open"), "{opened:?}");
    let opened = windlass(&db.url, &["limits", "reopen", "api/acme"]);
    assert!(opened.out.contains("was not closed"), "{opened:?}");
    assert_eq!(drained(db), 1);
}

fn a_key_that_is_none_is_refused(db: &TestDb) {
    for key in ["", "a\nb", "\u{1f}", &"x".repeat(256)] {
        assert!(!learn(db, key, 1), "{key:?}");
    }
    assert_eq!(db.rows_of("windlass_rates"), 0);
    // The longest time is one with which can be computed.
    assert!(learn(db, "api", u64::MAX));
    let mut conn = db.connection();
    note("a", Rate::per_second(1).key("api"))
        .enqueue(&mut conn)
        .unwrap();
    assert_eq!(drained(db), 0);
}

/// Within the transaction of a test, too.
fn a_body_closes_a_key_in_a_test(db: &TestDb) {
    let mut bench = TestDatabase::open(&db.url).unwrap();
    let registry = Registry::new().register::<Learn>(()).register::<Push>(());
    Learn::new("api/acme", 60).enqueue(&mut bench).unwrap();
    bench.drain(&registry).unwrap().assert_all_finished(1);
    Push::new("acme", 1).enqueue(&mut bench).unwrap();
    assert_eq!(bench.drain(&registry).unwrap().finished(), 0);
    testing::travel(&mut bench, Duration::from_secs(61)).unwrap();
    bench.drain(&registry).unwrap().assert_all_finished(1);
}

/// The transaction of a frozen process has locked the row of a key.
fn a_frozen_process_holds_up_no_other_key(db: &TestDb) {
    if !db.is_postgres() {
        return; // No other connection writes there.
    }
    let mut conn = db.connection();
    let rate = |key: &str| Rate::per_hour(100).burst(100).key(key);
    note("a", rate("held")).enqueue(&mut conn).unwrap();
    assert_eq!(drained(db), 1);
    note("a", rate("held")).enqueue(&mut conn).unwrap();
    let mut frozen = db.connection();
    execute(&mut frozen, "BEGIN");
    execute(&mut frozen, "UPDATE windlass_rates SET closed_until = 1");
    for key in ["held", "free"] {
        note("a", rate(key)).enqueue(&mut conn).unwrap();
    }
    assert_eq!(drained(db), 1);
    execute(&mut frozen, "ROLLBACK");
    assert_eq!(drained(db), 2);
}

on_each_database!(
    a_frozen_process_holds_up_no_other_key,
    a_body_closes_a_key_in_a_test,
    a_body_closes_a_key,
    a_closed_key_is_explained_and_opened,
    a_key_that_is_none_is_refused,
);
