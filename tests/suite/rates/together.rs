//! Rates beside everything else that decides when a job runs.

use super::{HOUR, drained, note, registry, tokens};
use crate::on_each_database;
use crate::support::TestDb;
use crate::support::jobs::Note;
use std::time::Duration;
use windlass::limits::{LimitConflict, Rate, check_semaphores};
use windlass::{Batch, Concurrency, JobId, NewJob, OnConflict, Policy, jobs, queues, testing};

fn an_hour(key: &str) -> Rate {
    Rate::per_hour(1).key(key)
}

/// A job holds a slot only when it has its token, and a token only when it has its slot.
fn a_limit_and_a_rate(db: &TestDb) {
    let mut conn = db.connection();
    let one = || Concurrency::new(7).group("import");
    let rate = || Rate::per_hour(2).burst(2).key("api");
    for text in ["a", "b", "c"] {
        note(text, rate())
            .concurrency(one())
            .enqueue(&mut conn)
            .unwrap();
    }
    assert_eq!(drained(db), 2);
    // The slot is free for a job without a rate.
    let free = note("free", rate()).without_rates().concurrency(one());
    free.enqueue(&mut conn).unwrap();
    assert_eq!(drained(db), 1);
    testing::travel(&mut conn, HOUR).unwrap();
    assert_eq!((drained(db), tokens(db, "api")), (1, 0));
    assert!(check_semaphores(&mut conn).unwrap().is_empty());
}

/// A customer's full key does not hold up another customer's jobs of the same rate.
fn a_full_key_holds_up_no_other(db: &TestDb) {
    let mut conn = db.connection();
    let one = |customer: u32| Concurrency::new(customer).group("import");
    let rate = || Rate::per_second(1_000).burst(1_000).key("api");
    // Holds the slot of the first customer.
    let holder = NewJob::of_class("unknown", "{}").concurrency(one(1));
    let holder = holder.enqueue(&mut conn).unwrap();
    for customer in [1, 1, 2, 2, 3] {
        let job = note("a", rate()).concurrency(one(customer));
        job.enqueue(&mut conn).unwrap();
    }
    assert_eq!(drained(db), 3);
    assert_eq!(db.rows("blocked_executions"), 2);
    jobs::cancel(&mut conn, holder.id).unwrap();
    assert_eq!(drained(db), 2);
}

fn a_job_that_does_not_wait_is_discarded(db: &TestDb) {
    let mut conn = db.connection();
    let one = || {
        Concurrency::new(1)
            .group("import")
            .on_conflict(LimitConflict::Discard)
    };
    let holder = NewJob::of_class("unknown", "{}").concurrency(one());
    holder.enqueue(&mut conn).unwrap();
    let waits = note("a", an_hour("api")).concurrency(one());
    let waits = waits.enqueue(&mut conn).unwrap();
    assert_eq!(drained(db), 0);
    let job = jobs::find(&mut conn, waits.id).unwrap().unwrap();
    assert_eq!(job.attempts.len(), 1, "{job:?}");
    assert_eq!((db.rows("blocked_executions"), tokens(db, "api")), (0, 0));
}

fn an_ordered_key_stays_in_order(db: &TestDb) {
    let mut conn = db.connection();
    let ordered = || Concurrency::new(1).group("ledger").ordered();
    let first = note("1", an_hour("slow")).concurrency(ordered());
    // A token of another rate is there, but it is not its turn.
    let second = note("2", an_hour("fast")).concurrency(ordered());
    note("0", an_hour("slow")).enqueue(&mut conn).unwrap();
    assert_eq!(drained(db), 1);
    let (first, second) = (
        first.enqueue(&mut conn).unwrap(),
        second.enqueue(&mut conn).unwrap(),
    );
    assert_eq!(drained(db), 0);
    testing::travel(&mut conn, HOUR).unwrap();
    assert_eq!(drained(db), 2);
    let (first, second) = (first.id, second.id);
    let in_order = format!(
        "SELECT count(*) AS n FROM solid_queue_jobs a JOIN solid_queue_jobs b ON a.finished_at <= b.finished_at \
         WHERE a.id = {first} AND b.id = {second}"
    );
    assert_eq!(db.count(&in_order), 1);
}

/// Jobs of an ordered key with and without a rate are in one order.
fn an_ordered_key_has_one_order(db: &TestDb) {
    let mut conn = db.connection();
    let ordered = || Concurrency::new(1).group("ledger").ordered();
    note("0", an_hour("slow")).enqueue(&mut conn).unwrap();
    assert_eq!(drained(db), 1);
    let rated = || note("rated", an_hour("slow")).concurrency(ordered());
    let plain = || NewJob::new(&Note::new("plain")).unwrap();
    let plain = || plain().concurrency(ordered());
    let jobs = [plain(), rated(), plain(), plain(), rated()];
    let jobs = jobs.map(|job| job.enqueue(&mut conn).unwrap().id.0);
    // The first has no rate, and the second waits for its token: the others wait behind it.
    assert_eq!((drained(db), finished(db)), (1, jobs[..1].to_vec()));
    assert_eq!(drained(db), 0);
    // The slot is free, and rightly so.
    assert_eq!(check_semaphores(&mut conn).unwrap(), [""; 0]);
    testing::travel(&mut conn, HOUR).unwrap();
    assert_eq!((drained(db), finished(db)), (3, jobs[..4].to_vec()));
    // One that is cancelled holds up none.
    let last = plain().enqueue(&mut conn).unwrap();
    assert_eq!(drained(db), 0);
    jobs::cancel(&mut conn, JobId(jobs[4])).unwrap();
    assert_eq!(drained(db), 1);
    assert!(finished(db).contains(&last.id.0));
}

/// A job that has its token and waits for a slot is not passed by younger ones that need no token.
fn jobs_without_a_rate_do_not_pass(db: &TestDb) {
    let mut conn = db.connection();
    let one = || Concurrency::new(1).group("import");
    let holder = NewJob::of_class("unknown", "{}").concurrency(one());
    let holder = holder.enqueue(&mut conn).unwrap();
    let rated = note("rated", Rate::per_hour(1).key("api")).concurrency(one());
    let rated = rated.enqueue(&mut conn).unwrap();
    assert_eq!(drained(db), 0);
    for _ in 0..3 {
        let plain = NewJob::new(&Note::new("plain")).unwrap();
        plain.concurrency(one()).enqueue(&mut conn).unwrap();
    }
    jobs::cancel(&mut conn, holder.id).unwrap();
    let registry = registry();
    let first = testing::Drain::new(&registry).at_most(1);
    first.run_on(&mut conn).unwrap().assert_all_finished(1);
    assert!(finished(db).contains(&rated.id.0), "{:?}", finished(db));
    assert_eq!(drained(db), 3);
}

/// Returns the jobs with a concurrency key that have finished, by their ids.
fn finished(db: &TestDb) -> Vec<i64> {
    let ids = "SELECT CAST(id AS text) AS t FROM solid_queue_jobs WHERE concurrency_key IS NOT NULL \
         AND finished_at IS NOT NULL ORDER BY id";
    let ids = db.texts(ids).into_iter();
    ids.map(|id| id.parse().unwrap()).collect()
}

fn a_job_waits_for_its_time_and_its_parents_first(db: &TestDb) {
    let mut conn = db.connection();
    let later = note("later", an_hour("api")).after(HOUR);
    later.enqueue(&mut conn).unwrap();
    let parent = NewJob::new(&Note::new("parent")).unwrap();
    let batch = Batch::new("all").add([parent]).enqueue(&mut conn).unwrap();
    let child = note("child", an_hour("api")).after(batch.id);
    child.enqueue(&mut conn).unwrap();
    assert_eq!(db.rows_of("windlass_rates"), 0);
    // The parent, and then the child.
    assert_eq!(drained(db), 2);
    testing::travel(&mut conn, HOUR).unwrap();
    assert_eq!(drained(db), 1);
}

fn what_waits_can_be_changed(db: &TestDb) {
    let mut conn = db.connection();
    note("0", an_hour("api")).enqueue(&mut conn).unwrap();
    assert_eq!(drained(db), 1);
    let replace = Policy::new().on_conflict(OnConflict::Replace);
    let unique = |text: &str| {
        note(text, an_hour("api"))
            .unique_id("u")
            .policy(replace.clone())
    };
    let job = unique("1").enqueue(&mut conn).unwrap();
    let again = unique("2")
        .rate(an_hour("other"))
        .enqueue(&mut conn)
        .unwrap();
    assert_eq!(again.id, job.id);
    assert_eq!(drained(db), 0);
    jobs::cancel(&mut conn, job.id).unwrap();
    assert_eq!(db.rows("blocked_executions"), 0);
    // A pause keeps the token of a job that is ready.
    let paused = note("3", an_hour("fresh")).enqueue(&mut conn).unwrap();
    queues::pause(&mut conn, "default", "ada", "a test").unwrap();
    assert_eq!((drained(db), tokens(db, "fresh")), (0, 1));
    testing::travel(&mut conn, HOUR).unwrap();
    queues::resume(&mut conn, "default").unwrap();
    assert_eq!(drained(db), 1);
    assert!(super::is_finished(db, paused.id));
}

/// A job that is tried again takes another token.
fn each_start_counts(db: &TestDb) {
    let mut conn = db.connection();
    let rate = Rate::per_hour(2).burst(2).key("api");
    let policy = Policy::new()
        .max_attempts(3)
        .backoff(windlass::Backoff::Fixed(Duration::ZERO));
    // The registry cannot read it.
    let job = NewJob::of_class("note", "7").rate(rate).policy(policy);
    let job = job.enqueue(&mut conn).unwrap();
    for (attempts, after) in [(2, Duration::ZERO), (3, HOUR)] {
        testing::travel(&mut conn, after).unwrap();
        drop(testing::drain(&mut conn, &registry()).unwrap());
        let found = jobs::find(&mut conn, job.id).unwrap().unwrap();
        assert_eq!(found.attempts.len(), attempts, "{found:?}");
    }
}

/// More lines wait for one rate than are looked at together, and the first of them are cancelled.
fn many_lines_wait_for_one_rate(db: &TestDb) {
    let mut conn = db.connection();
    let rate = || Rate::per_hour(1).burst(200).key("api");
    let one = |key: usize| Concurrency::new(key).group("import");
    note("all", rate().cost(200)).enqueue(&mut conn).unwrap();
    assert_eq!(drained(db), 1);
    let lines = (0..130).map(|key| note("a", rate()).concurrency(one(key)));
    let jobs = windlass::enqueue_all(&mut conn, lines).unwrap();
    assert_eq!(drained(db), 0);
    for job in &jobs[..60] {
        jobs::cancel(&mut conn, job.id).unwrap();
    }
    assert_eq!(drained(db), 0);
    testing::travel(&mut conn, 200 * HOUR).unwrap();
    assert_eq!(drained(db), 70);
    assert_eq!(db.rows_of("windlass_lines"), 0);
}

/// A limit that is lifted lets jobs with rates go on.
fn a_limit_that_is_set_and_cleared(db: &TestDb) {
    let mut conn = db.connection();
    let one = |key: u32| Concurrency::new(key).group("import");
    windlass::limits::set(&mut conn, "import/*", 0, "ada", "a test").unwrap();
    for key in [1, 2] {
        let job = note("a", Rate::per_second(100).key("api")).concurrency(one(key));
        job.enqueue(&mut conn).unwrap();
    }
    assert_eq!(drained(db), 0);
    windlass::limits::clear(&mut conn, "import/*").unwrap();
    assert!(drained(db) >= 1);
    testing::travel(&mut conn, HOUR).unwrap();
    drained(db);
    assert_eq!(db.rows("blocked_executions"), 0);
}

/// A job of another line does not take the tokens for which a costly one waits.
fn a_costly_job_is_not_passed(db: &TestDb) {
    let mut conn = db.connection();
    let rate = || Rate::per_hour(10).burst(10).key("api");
    note("all", rate().cost(10)).enqueue(&mut conn).unwrap();
    assert_eq!(drained(db), 1);
    let costly = note("costly", rate().cost(10)).enqueue(&mut conn).unwrap();
    let cheap = note("cheap", rate()).rate(Rate::per_hour(1).key("other"));
    cheap.enqueue(&mut conn).unwrap();
    testing::travel(&mut conn, HOUR / 2).unwrap();
    assert_eq!(drained(db), 0);
    testing::travel(&mut conn, HOUR).unwrap();
    drained(db);
    assert!(super::is_finished(db, costly.id));
}

on_each_database!(
    a_limit_and_a_rate,
    a_full_key_holds_up_no_other,
    a_job_that_does_not_wait_is_discarded,
    an_ordered_key_stays_in_order,
    an_ordered_key_has_one_order,
    jobs_without_a_rate_do_not_pass,
    a_job_waits_for_its_time_and_its_parents_first,
    what_waits_can_be_changed,
    each_start_counts,
    many_lines_wait_for_one_rate,
    a_limit_that_is_set_and_cleared,
    a_costly_job_is_not_passed,
);
