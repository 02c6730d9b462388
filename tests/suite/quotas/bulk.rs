//! Many jobs at once.

use super::{in_one_minute, note};
use crate::on_each_database;
use crate::support::TestDb;
use windlass::jobs::EnqueueOutcome;
use windlass::{Error, NewJob, Quota, enqueue_all, quotas};

on_each_database!(
    all_or_none_are_enqueued,
    those_that_fit_are_enqueued,
    what_one_limit_refuses_does_not_count_for_another,
    named_jobs_are_counted_if_they_are_new,
    one_with_the_name_of_a_shed_job_counts,
);

fn notes(quota: &Quota, count: usize) -> Vec<NewJob> {
    (0..count).map(|at| note(&at.to_string(), quota)).collect()
}

fn all_or_none_are_enqueued(db: &TestDb) {
    let (enqueued, refused, others) = in_one_minute(db, |quota| {
        let (mut conn, quota) = (db.connect(), quota.per_minute(1500));
        let enqueued = enqueue_all(&mut conn, notes(&quota, 1400)).unwrap().len();
        let before = db.rows("jobs");
        let mut jobs = notes(&quota, 101);
        jobs.push(NewJob::of_class("other", "{}"));
        let refused = enqueue_all(&mut conn, jobs).map(|jobs| jobs.len());
        let added = db.rows("jobs") - before;
        let exactly = enqueue_all(&mut conn, notes(&quota, 100));
        let never = enqueue_all(&mut conn, notes(&quota, 1501)).unwrap_err();
        let others = (exactly.map(|jobs| jobs.len()), never);
        (enqueued, (refused, added), others)
    });
    assert_eq!((enqueued, refused.1), (1400, 0));
    let refused = refused.0.unwrap_err();
    let is_so = |error: &Error, jobs: u64, has_time: bool| {
        matches!(error, Error::QuotaExceeded { limit: 1500, wanted, retry_after, .. }
            if *wanted == jobs && retry_after.is_some() == has_time)
    };
    assert!(is_so(&refused, 101, true), "{refused:?}");
    let (exactly, never) = others;
    assert_eq!(exactly.unwrap(), 100);
    assert!(is_so(&never, 1501, false), "{never:?}");
    let text = never.to_string();
    assert!(
        text.ends_with("1501 jobs at once never fit: enqueue fewer"),
        "{text}"
    );
}

fn those_that_fit_are_enqueued(db: &TestDb) {
    use EnqueueOutcome::{New, Shed};
    let (mut conn, quota) = (db.connect(), Quota::named("some").waiting(3).shed());
    let mut jobs = notes(&quota, 4);
    jobs.insert(0, NewJob::of_class("other", "{}"));
    jobs.push(NewJob::of_class("other", "{}"));
    let enqueued = enqueue_all(&mut conn, jobs).unwrap();
    let outcomes: Vec<EnqueueOutcome> = enqueued.iter().map(|one| one.outcome).collect();
    assert_eq!(outcomes, [New, New, New, New, Shed, New]);
    assert_eq!((db.rows("jobs"), db.rows("ready_executions")), (6, 5));
}

fn what_one_limit_refuses_does_not_count_for_another(db: &TestDb) {
    let used = in_one_minute(db, |quota| {
        let mut conn = db.connect();
        let quota = quota.per_day(7).per_minute(6).waiting(3).shed();
        enqueue_all(&mut conn, notes(&quota, 12)).unwrap();
        let status = quotas::list(&mut conn).unwrap().pop().unwrap();
        (status.this_day, status.this_minute, status.waiting)
    });
    assert_eq!(used, (3, 3, 3));
}

fn named_jobs_are_counted_if_they_are_new(db: &TestDb) {
    use EnqueueOutcome::{Existing, New, Shed};
    let (mut conn, quota) = (db.connect(), Quota::named("some").waiting(2));
    let job = |id: &str, quota: &Quota| note(id, quota).unique_id(id).idempotency_key(id);
    let jobs = |quota: &Quota, ids: &[&str]| -> Vec<NewJob> {
        ids.iter().map(|id| job(id, quota)).collect()
    };
    let outcomes = |jobs: Vec<windlass::Enqueued>| -> Vec<EnqueueOutcome> {
        jobs.into_iter().map(|one| one.outcome).collect()
    };
    let first = enqueue_all(&mut conn, jobs(&quota, &["a", "a"])).unwrap();
    assert_eq!(outcomes(first), [New, Existing]);
    let refused = enqueue_all(&mut conn, jobs(&quota, &["a", "b", "c"]));
    assert!(
        matches!(refused, Err(Error::QuotaExceeded { wanted: 2, .. })),
        "{refused:?}"
    );
    assert_eq!(db.rows("jobs"), 1);
    let shed = enqueue_all(&mut conn, jobs(&quota.clone().shed(), &["a", "b", "c"])).unwrap();
    assert_eq!(outcomes(shed), [Existing, New, Shed]);
    assert_eq!(db.rows_of("windlass_unique_jobs"), 2);
    let free = job("c", &quota).without_quota().enqueue(&mut conn);
    assert_eq!(free.unwrap().outcome, New);
}

/// While the first of them is new, the others are not. If the first is discarded, the next is new.
fn one_with_the_name_of_a_shed_job_counts(db: &TestDb) {
    use EnqueueOutcome::{New, Shed};
    let (mut conn, quota) = (db.connect(), Quota::named("some").waiting(1).shed());
    let by_id = |text: &str| note(text, &quota).unique_id(text);
    let by_key = |text: &str| note(text, &quota).idempotency_key(text);
    let jobs = [
        by_id("a"),
        by_id("b"),
        by_id("b"),
        by_key("c"),
        by_key("c"),
        by_key("c"),
    ];
    let enqueued = enqueue_all(&mut conn, jobs).unwrap();
    let outcomes: Vec<EnqueueOutcome> = enqueued.iter().map(|one| one.outcome).collect();
    assert_eq!(outcomes, [New, Shed, Shed, Shed, Shed, Shed]);
    assert_eq!(db.rows("ready_executions"), 1);
    assert_eq!(db.rows_of("windlass_quota_jobs"), 1);
    assert_eq!(quotas::list(&mut conn).unwrap()[0].waiting, 1);
}
