//! Fair shares: tenants take turns in a queue, however many jobs each has enqueued.

mod by_sql;
mod changed;
pub mod seen;
mod together;

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::jobs::{Log, Note};
use crate::support::wait::until;
use std::collections::BTreeMap;
use std::sync::Arc;
use windlass::tenants::{self, ShareBy};
use windlass::testing;
use windlass::{NewJob, Registry, Worker, enqueue_all};

/// Returns jobs of a tenant, which note its name.
fn jobs_of(tenant: &str, number: usize) -> impl Iterator<Item = NewJob> {
    let job = NewJob::new(&Note::new(tenant)).unwrap();
    std::iter::repeat_n(job.queue("mail").tenant(tenant), number)
}

fn registry(log: &Arc<Log>) -> Registry {
    Registry::new().register::<Note>(Arc::clone(log))
}

/// Performs all jobs in this thread, and returns the tenants in the order of their jobs.
fn drained(db: &TestDb) -> Vec<String> {
    let log = Arc::new(Log::default());
    let mut conn = db.connection();
    let drained = testing::drain(&mut conn, &registry(&log)).unwrap();
    assert_eq!(drained.finished(), log.len());
    log.lines()
}

/// Returns how many of the first jobs were of each tenant.
fn of_each(order: &[String], first: usize) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for tenant in order.iter().take(first) {
        *counts.entry(&**tenant).or_default() += 1;
    }
    counts
}

fn share(db: &TestDb) {
    tenants::share(&mut db.connection(), "mail", ShareBy::Jobs).unwrap();
}

fn tenants_take_turns(db: &TestDb) {
    share(db);
    let mut conn = db.connection();
    enqueue_all(&mut conn, jobs_of("acme", 60)).unwrap();
    enqueue_all(&mut conn, jobs_of("globex", 20)).unwrap();
    enqueue_all(&mut conn, jobs_of("initech", 20)).unwrap();
    assert_eq!(db.rows("ready_executions"), 0);
    let order = drained(db);
    assert_eq!(order.len(), 100);
    let counts = of_each(&order, 30);
    assert!(
        counts.values().all(|count| (8..13).contains(count)),
        "{order:?}"
    );
    assert_eq!(db.rows("blocked_executions"), 0);
    for table in ["windlass_lines", "windlass_shares"] {
        assert_eq!(db.rows_of(table), 0, "{table}");
    }
}

fn a_weight_is_a_larger_share(db: &TestDb) {
    share(db);
    let mut conn = db.connection();
    assert!(tenants::set_weight(&mut conn, "mail", "acme", 3).unwrap());
    for tenant in ["globex", "acme"] {
        enqueue_all(&mut conn, jobs_of(tenant, 100)).unwrap();
    }
    let order = drained(db);
    let counts = of_each(&order, 80);
    assert!((57..64).contains(&counts["acme"]), "{order:?}");
}

/// Runs jobs in a worker until all have finished, and returns the tenants in the order of their jobs.
fn worked(db: &TestDb, jobs: usize) -> Vec<String> {
    let log = Arc::new(Log::default());
    let worker = Worker::new(&db.database, registry(&log)).threads(3);
    let handle = worker.start().unwrap();
    until("all jobs have run", || log.len() >= jobs);
    handle.stop();
    log.lines()
}

fn a_worker_shares_its_threads(db: &TestDb) {
    share(db);
    let mut conn = db.connection();
    tenants::set_weight(&mut conn, "mail", "c", 3).unwrap();
    for tenant in ["a", "b", "c", "d", "e"] {
        enqueue_all(&mut conn, jobs_of(tenant, 1_500)).unwrap();
    }
    let order = worked(db, 7_500);
    let counts = of_each(&order, 3_000);
    // The jobs of two promotions may be ready, up to 500 each, and start by their age.
    for (tenant, count) in counts {
        let fair = if tenant == "c" { 1_285 } else { 428 };
        assert!(count.abs_diff(fair) <= 150, "{tenant}: {count} of {fair}");
    }
}

fn many_tenants_wait_for_each_other_once(db: &TestDb) {
    share(db);
    let mut conn = db.connection();
    enqueue_all(&mut conn, jobs_of("flood", 2_000)).unwrap();
    let others =
        (0..1_000).flat_map(|number| jobs_of(&format!("tenant {number}"), 1).collect::<Vec<_>>());
    enqueue_all(&mut conn, others).unwrap();
    let order = worked(db, 3_000);
    let of_flood = order.iter().take(1_200).filter(|tenant| *tenant == "flood");
    // Each of the others has its one turn meanwhile.
    assert!(of_flood.count() <= 300, "{order:?}");
    for table in ["windlass_lines", "windlass_shares"] {
        assert_eq!(db.rows_of(table), 0, "{table}");
    }
}

on_each_database!(
    tenants_take_turns,
    a_weight_is_a_larger_share,
    a_worker_shares_its_threads,
    many_tenants_wait_for_each_other_once,
);
