//! Shares beside everything else that decides when a job runs.

use super::{drained, jobs_of, of_each, share, worked};
use crate::on_each_database;
use crate::support::TestDb;
use crate::support::jobs::{Log, Note};
use crate::support::wait::until;
use std::sync::Arc;
use std::time::Duration;
use windlass::limits::{LimitConflict, Rate, check_semaphores};
use windlass::tenants::{self, ShareBy};
use windlass::{
    Batch, Concurrency, Context, Job, JobResult, NewJob, Policy, Registry, Worker, enqueue_all,
    jobs, queues, testing,
};

/// The most important jobs come first, whatever their tenant has used.
fn priorities_lead(db: &TestDb) {
    share(db);
    let mut conn = db.connection();
    enqueue_all(&mut conn, jobs_of("a", 10)).unwrap();
    let urgent = |tenant, number| jobs_of(tenant, number).map(|job| job.priority(-1));
    enqueue_all(&mut conn, urgent("b", 20)).unwrap();
    enqueue_all(&mut conn, urgent("c", 10)).unwrap();
    let order = drained(db);
    let counts = of_each(&order, 30);
    assert_eq!((counts["b"], counts["c"]), (20, 10), "{order:?}");
    // Fair among those of one priority.
    let first = of_each(&order, 16);
    assert!(first["c"] >= 6, "{order:?}");
}

/// A job without a tenant, and one of another queue, starts as if nothing were shared.
fn only_tenants_of_the_queue_take_turns(db: &TestDb) {
    share(db);
    let mut conn = db.connection();
    enqueue_all(&mut conn, jobs_of("acme", 5)).unwrap();
    let note = || NewJob::new(&Note::new("free")).unwrap();
    note().queue("mail").enqueue(&mut conn).unwrap();
    note().tenant("acme").enqueue(&mut conn).unwrap();
    assert_eq!(db.rows("ready_executions"), 2);
    assert_eq!(db.rows("blocked_executions"), 5);
    assert_eq!(drained(db).len(), 7);
}

/// A tenant that waits for a token or a slot holds up no other, and holds nothing itself.
fn a_rate_and_a_limit_of_a_tenant(db: &TestDb) {
    share(db);
    let mut conn = db.connection();
    let rate = || Rate::per_hour(2).burst(2).key("acme");
    let rated = jobs_of("acme", 6).map(|job| job.rate(rate()));
    enqueue_all(&mut conn, rated).unwrap();
    let one = || Concurrency::new(1).group("import");
    let holder = NewJob::of_class("unknown", "{}").concurrency(one());
    let holder = holder.enqueue(&mut conn).unwrap();
    let limited = jobs_of("globex", 3).map(|job| job.concurrency(one()));
    enqueue_all(&mut conn, limited).unwrap();
    enqueue_all(&mut conn, jobs_of("initech", 3)).unwrap();
    let order = drained(db);
    assert_eq!(of_each(&order, 9).values().sum::<usize>(), 5, "{order:?}");
    jobs::cancel(&mut conn, holder.id).unwrap();
    assert_eq!(drained(db), ["globex"; 3]);
    testing::travel(&mut conn, Duration::from_secs(3_601)).unwrap();
    assert_eq!(drained(db), ["acme"; 2]);
    assert!(check_semaphores(&mut conn).unwrap().is_empty());
}

/// Tenants come in turns at a rate that all of them have.
fn a_rate_of_all_tenants(db: &TestDb) {
    share(db);
    let mut conn = db.connection();
    let rate = || Rate::per_hour(60).burst(6).key("api");
    for (tenant, number) in [("acme", 60), ("globex", 3), ("initech", 3)] {
        let jobs = jobs_of(tenant, number).map(|job| job.rate(rate()));
        enqueue_all(&mut conn, jobs).unwrap();
    }
    let mut order = drained(db);
    testing::travel(&mut conn, Duration::from_secs(301)).unwrap();
    order.extend(drained(db));
    let counts = of_each(&order, 11);
    assert!(counts["globex"] >= 2 && counts["initech"] >= 2, "{order:?}");
}

fn an_ordered_key_stays_in_order(db: &TestDb) {
    share(db);
    let mut conn = db.connection();
    let ordered = || Concurrency::new(1).group("ledger").ordered();
    let tenants = ["a", "b", "a", "", "b", "a"];
    let jobs = tenants.map(|tenant| {
        let job = NewJob::new(&Note::new(tenant)).unwrap().queue("mail");
        let job = job.concurrency(ordered());
        if tenant.is_empty() {
            job
        } else {
            job.tenant(tenant)
        }
    });
    enqueue_all(&mut conn, jobs).unwrap();
    enqueue_all(&mut conn, jobs_of("c", 3)).unwrap();
    let mut order = drained(db);
    order.retain(|tenant| tenant != "c");
    assert_eq!(order, tenants);
}

/// Among tenants, such a job has the priority that it names.
fn an_ordered_key_is_ahead_of_no_other_tenant(db: &TestDb) {
    share(db);
    let mut conn = db.connection();
    enqueue_all(&mut conn, jobs_of("globex", 20)).unwrap();
    let ordered = jobs_of("acme", 20).enumerate().map(|(number, job)| {
        let key = Concurrency::new(1).group(format!("ledger {number}"));
        job.concurrency(key.ordered())
    });
    enqueue_all(&mut conn, ordered).unwrap();
    let order = drained(db);
    let counts = of_each(&order, 20);
    assert!(
        counts.values().all(|count| (8..13).contains(count)),
        "{order:?}"
    );
}

/// A job that does not wait for a slot waits for its turn, and is discarded then.
fn a_job_that_does_not_wait_is_discarded(db: &TestDb) {
    share(db);
    let mut conn = db.connection();
    let one = || {
        Concurrency::new(1)
            .group("import")
            .on_conflict(LimitConflict::Discard)
    };
    let holder = NewJob::of_class("unknown", "{}").concurrency(one());
    holder.enqueue(&mut conn).unwrap();
    let discarded = jobs_of("acme", 2).map(|job| job.concurrency(one()));
    enqueue_all(&mut conn, discarded).unwrap();
    enqueue_all(&mut conn, jobs_of("acme", 1)).unwrap();
    assert_eq!(drained(db), ["acme"]);
    assert_eq!(db.rows("blocked_executions"), 0);
}

fn a_job_waits_for_its_time_and_its_parents_first(db: &TestDb) {
    share(db);
    let mut conn = db.connection();
    let hour = Duration::from_secs(3_600);
    let mut later = jobs_of("later", 1).map(|job| job.after(hour));
    later.next().unwrap().enqueue(&mut conn).unwrap();
    let parent = Batch::new("all").add(jobs_of("parent", 1));
    let parent = parent.enqueue(&mut conn).unwrap();
    let mut child = jobs_of("child", 1).map(|job| job.after(parent.id));
    child.next().unwrap().enqueue(&mut conn).unwrap();
    assert_eq!(drained(db), ["parent", "child"]);
    testing::travel(&mut conn, hour).unwrap();
    assert_eq!(drained(db), ["later"]);
}

/// Fails until its third attempt.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
struct Stumble;

impl Job for Stumble {
    const NAME: &'static str = "stumble";
    const QUEUE: &'static str = "mail";
    type State = ();
    type Output = ();

    fn tenant(&self) -> Option<String> {
        Some("acme".to_owned())
    }

    fn policy() -> Policy {
        Policy::new().max_attempts(3)
    }

    fn perform(self, cx: &Context<'_, ()>) -> JobResult {
        match cx.attempt() {
            3 => Ok(()),
            attempt => Err(format!("attempt {attempt}").into()),
        }
    }
}

/// Each attempt waits for its turn.
fn a_retry_waits_for_its_turn(db: &TestDb) {
    share(db);
    let mut conn = db.connection();
    Stumble.enqueue(&mut conn).unwrap();
    assert_eq!(db.rows("blocked_executions"), 1);
    let registry = Registry::new().register::<Stumble>(());
    for attempt in 1..=3 {
        let drained = testing::drain(&mut conn, &registry).unwrap();
        assert_eq!(drained.finished(), usize::from(attempt == 3));
        testing::travel(&mut conn, Duration::from_secs(100_000)).unwrap();
    }
}

/// Jobs that no worker starts hold up those of other classes for a moment only, however many they are.
fn a_class_without_a_worker_holds_up_no_other(db: &TestDb) {
    share(db);
    let mut conn = db.connection();
    let unknown = |tenant| {
        NewJob::of_class("unknown", "{}")
            .queue("mail")
            .tenant(tenant)
    };
    enqueue_all(&mut conn, (0..20).map(|_| unknown("acme"))).unwrap();
    enqueue_all(&mut conn, jobs_of("acme", 20)).unwrap();
    enqueue_all(&mut conn, (0..6_000).map(|_| unknown("flood"))).unwrap();
    enqueue_all(&mut conn, jobs_of("globex", 2_000)).unwrap();
    assert_eq!(worked(db, 2_020).len(), 2_020);
}

/// Jobs that are ready by a share and go elsewhere leave their places to others.
fn ready_jobs_that_go_leave_their_places(db: &TestDb) {
    share(db);
    let mut conn = db.connection();
    let acme = enqueue_all(&mut conn, jobs_of("acme", 5)).unwrap();
    let none = Registry::new();
    let none = testing::Drain::new(&none).run_on(&mut conn).unwrap();
    none.assert_all_finished(0);
    assert!(db.rows("ready_executions") > 0);
    queues::pause(&mut conn, "mail", "ada", "").unwrap();
    for job in &acme[..4] {
        jobs::cancel(&mut conn, job.id).unwrap();
    }
    queues::resume(&mut conn, "mail").unwrap();
    enqueue_all(&mut conn, jobs_of("globex", 2)).unwrap();
    let order = worked(db, 3);
    assert_eq!(of_each(&order, 3)["globex"], 2, "{order:?}");
}

/// Adds up the time of its runs by tenant, in microseconds.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
struct Nap {
    tenant: String,
    millis: u64,
}

impl Job for Nap {
    const NAME: &'static str = "nap";
    const QUEUE: &'static str = "mail";
    type State = Log;
    type Output = ();

    fn tenant(&self) -> Option<String> {
        Some(self.tenant.clone())
    }

    fn perform(self, cx: &Context<'_, Log>) -> JobResult {
        let begun = std::time::Instant::now();
        std::thread::sleep(Duration::from_millis(self.millis));
        let micros = begun.elapsed().as_micros();
        cx.add(format!("{} {micros}", self.tenant));
        Ok(())
    }
}

/// By time, a tenant with long jobs gets fewer of them.
fn time_is_shared(db: &TestDb) {
    let mut conn = db.connection();
    tenants::share(&mut conn, "mail", ShareBy::Time).unwrap();
    for (tenant, millis, number) in [("long", 12, 300), ("short", 2, 1_500)] {
        let jobs = (0..number).map(|_| {
            let tenant = tenant.to_owned();
            NewJob::new(&Nap { tenant, millis }).unwrap()
        });
        enqueue_all(&mut conn, jobs).unwrap();
    }
    let log = Arc::new(Log::default());
    let registry = Registry::new().register::<Nap>(Arc::clone(&log));
    let worker = Worker::new(&db.database, registry).threads(2);
    let handle = worker.start().unwrap();
    until("some jobs have run", || log.count("long") >= 60);
    handle.stop();
    let used = |tenant: &str| -> u64 {
        let lines = log.lines();
        let of_tenant = lines.iter().filter_map(|line| line.strip_prefix(tenant));
        of_tenant
            .map(|micros| micros.trim().parse::<u64>().unwrap())
            .sum()
    };
    let (long, short) = (used("long"), used("short"));
    let ratio = long as f64 / short as f64;
    assert!((0.6..1.7).contains(&ratio), "{long} and {short}");
}

/// Ready jobs start by their age, and a tenant that has enqueued many has the oldest.
fn a_young_job_is_not_passed_again_and_again(db: &TestDb) {
    share(db);
    let mut conn = db.connection();
    let none = Registry::new();
    let promote = || {
        let none = testing::Drain::new(&none).run_on(&mut db.connection());
        none.unwrap().assert_all_finished(0);
    };
    enqueue_all(&mut conn, jobs_of("flood", 100)).unwrap();
    promote();
    let young = jobs_of("young", 1).next().unwrap();
    let young = young.enqueue(&mut conn).unwrap().id.0;
    let oldest = "SELECT coalesce(min(job_id), 0) AS n FROM solid_queue_ready_executions";
    let passed_by = (0..100).take_while(|_| {
        promote();
        let oldest = db.count(oldest);
        assert!(oldest > 0);
        db.execute(&format!(
            "DELETE FROM solid_queue_ready_executions WHERE job_id = {oldest}"
        ));
        oldest != young
    });
    let passed_by = passed_by.count();
    assert!(passed_by < 30, "{passed_by}");
}

on_each_database!(
    priorities_lead,
    a_young_job_is_not_passed_again_and_again,
    only_tenants_of_the_queue_take_turns,
    a_rate_and_a_limit_of_a_tenant,
    a_rate_of_all_tenants,
    an_ordered_key_stays_in_order,
    an_ordered_key_is_ahead_of_no_other_tenant,
    a_job_that_does_not_wait_is_discarded,
    a_job_waits_for_its_time_and_its_parents_first,
    a_retry_waits_for_its_turn,
    a_class_without_a_worker_holds_up_no_other,
    ready_jobs_that_go_leave_their_places,
    time_is_shared,
);
