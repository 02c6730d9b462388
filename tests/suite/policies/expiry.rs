//! Jobs that must have started by a time, or else are discarded.

use super::{Bench, Scripted, Turn, executions, finished, stubborn};
use crate::batch::{accept, refuse};
use crate::on_each_database;
use crate::support::TestDb;
use crate::support::db::{count, execute};
use crate::support::jobs::Log;
use crate::support::wait::{DEADLINE, until};
use chrono::{DateTime, TimeDelta, Utc};
use std::sync::Arc;
use std::time::Duration;
use windlass::jobs::{AttemptOutcome, Change, EnqueueOutcome, JobState, Jobs, TaskStatus};
use windlass::{
    Concurrency, Dispatcher, JobId, NewJob, OnConflict, Policy, RecurringTask, Registry, Scheduler,
    Worker, testing,
};

on_each_database!(
    a_late_job_is_discarded_instead_of_started,
    a_job_in_time_runs,
    waiting_jobs_are_swept,
    what_cannot_be_discarded_holds_up_no_other,
    a_locked_job_holds_up_no_other,
    an_expiry_counts_from_when_the_job_is_due,
    a_job_that_has_started_does_not_expire,
    what_an_older_program_has_started_does_not_expire,
    a_claim_that_was_given_back_is_no_start,
    a_rescheduled_job_does_not_expire_before_its_time,
    an_existing_job_keeps_its_own,
    a_replaced_job_takes_the_new_one,
    the_job_behind_an_expired_one_runs,
    a_slot_of_an_expired_job_is_free,
    batches_have_them,
    the_end_of_time_is_no_trouble,
    what_cannot_be_is_refused,
    a_dispatcher_that_never_polls_sweeps,
    jobs_of_recurring_tasks_expire,
    tests_of_applications_let_them_expire,
    ended_jobs_leave_nothing,
    it_is_explained,
);

crate::through_a_pooler_in_all!(
    a_late_job_is_discarded_instead_of_started,
    a_job_in_time_runs,
    waiting_jobs_are_swept,
    what_cannot_be_discarded_holds_up_no_other,
    a_locked_job_holds_up_no_other,
    an_expiry_counts_from_when_the_job_is_due,
    a_job_that_has_started_does_not_expire,
    what_an_older_program_has_started_does_not_expire,
    a_claim_that_was_given_back_is_no_start,
    a_rescheduled_job_does_not_expire_before_its_time,
    an_existing_job_keeps_its_own,
    a_replaced_job_takes_the_new_one,
    the_job_behind_an_expired_one_runs,
    a_slot_of_an_expired_job_is_free,
    batches_have_them,
    the_end_of_time_is_no_trouble,
    what_cannot_be_is_refused,
    a_dispatcher_that_never_polls_sweeps,
    jobs_of_recurring_tasks_expire,
    tests_of_applications_let_them_expire,
    ended_jobs_leave_nothing,
    it_is_explained,
);

const HOUR: Duration = Duration::from_secs(3600);

fn job(name: &str, turns: impl Into<Vec<Turn>>) -> NewJob {
    NewJob::new(&Scripted::new(name, turns)).unwrap()
}

fn note(name: &str) -> NewJob {
    job(name, [Turn::Succeed])
}

fn enqueue(db: &TestDb, job: NewJob) -> JobId {
    job.enqueue(&mut db.connection()).unwrap().id
}

/// An hour passes, for everything that is stored.
fn wait_an_hour(db: &TestDb) {
    testing::travel(&mut db.connection(), HOUR).unwrap();
}

fn expiries(db: &TestDb) -> i64 {
    db.rows_of("windlass_expiries")
}

fn status(db: &TestDb, job: JobId) -> TaskStatus {
    let info = windlass::jobs::status(&mut db.connection(), job).unwrap();
    info.unwrap().status
}

fn is_expired(db: &TestDb, job: JobId) -> bool {
    let attempts = crate::support::jobs::attempts(&mut db.connection(), job).unwrap();
    let expired = |one: &windlass::jobs::Attempt| {
        one.outcome == AttemptOutcome::Discarded && one.kind == "expired"
    };
    status(db, job) == TaskStatus::Discarded && attempts.len() == 1 && attempts.iter().all(expired)
}

/// A worker alone, which claims but does not sweep.
fn worker(db: &TestDb) -> (windlass::Handle, Arc<Log>) {
    let log = Arc::new(Log::default());
    let registry = Registry::new().register::<Scripted>(Arc::clone(&log));
    let worker = Worker::new(&db.database, registry).threads(2);
    (worker.start().unwrap(), log)
}

fn stop(mut handle: windlass::Handle) {
    handle.stop();
    assert!(handle.join(DEADLINE).is_some());
}

fn sweeper(db: &TestDb) -> windlass::Handle {
    let dispatcher = Dispatcher::new(&db.database);
    let dispatcher = dispatcher.polling_interval(Duration::from_millis(20));
    dispatcher.start().unwrap()
}

fn a_late_job_is_discarded_instead_of_started(db: &TestDb) {
    let late = enqueue(db, note("late").expires_in(Duration::from_secs(60)));
    let yesterday = Utc::now() - TimeDelta::days(1);
    let past = enqueue(db, note("past").not_after(yesterday));
    wait_an_hour(db);
    let plain = enqueue(db, note("plain"));
    let (_worker, log) = worker(db);
    until("all have ended", || finished(db) == 3);
    assert_eq!(log.lines(), ["plain 1"]);
    assert!(is_expired(db, late) && is_expired(db, past));
    assert_eq!(status(db, plain), TaskStatus::Succeeded);
    let counts = "SELECT count(*) AS n FROM solid_queue_jobs WHERE attempts > 0";
    assert_eq!(db.count(counts), 0, "it never ran");
    assert_eq!(
        Jobs::in_state(JobState::Discarded)
            .count(&mut db.connection())
            .unwrap(),
        2
    );
    until("nothing is left of them", || expiries(db) == 0);
}

fn a_job_in_time_runs(db: &TestDb) {
    let job = enqueue(db, note("a").expires_in(HOUR));
    let (_worker, log) = worker(db);
    until("it has finished", || finished(db) == 1);
    assert_eq!(log.lines(), ["a 1"]);
    assert_eq!(status(db, job), TaskStatus::Succeeded);
    assert_eq!(expiries(db), 0);
}

fn waiting_jobs_are_swept(db: &TestDb) {
    let ready = enqueue(db, note("ready").expires_in(HOUR));
    let later = enqueue(db, note("later").after(4 * HOUR).expires_in(HOUR));
    let stays = enqueue(db, note("stays").expires_in(9 * HOUR));
    wait_an_hour(db);
    let _dispatcher = sweeper(db);
    until("one is discarded", || is_expired(db, ready));
    assert_eq!(status(db, later), TaskStatus::Queued);
    assert_eq!(
        (executions(db, "ready"), executions(db, "scheduled")),
        (1, 1)
    );
    assert_eq!(status(db, stays), TaskStatus::Queued);
    assert_eq!(expiries(db), 2);
}

fn what_cannot_be_discarded_holds_up_no_other(db: &TestDb) {
    let jobs = ["a", "b", "c"].map(|name| enqueue(db, note(name).expires_in(HOUR / 2)));
    enqueue(db, note("due").after(HOUR / 2));
    wait_an_hour(db);
    let when = format!("NEW.job_id = {}", jobs[1]);
    refuse(db, "windlass_attempts", "INSERT", &when);
    let _dispatcher = sweeper(db);
    until("the others are discarded", || {
        is_expired(db, jobs[0]) && is_expired(db, jobs[2])
    });
    until("what is due is ready", || executions(db, "scheduled") == 0);
    assert_eq!((executions(db, "ready"), expiries(db)), (2, 1));
    accept(db, "windlass_attempts");
    until("it is discarded", || is_expired(db, jobs[1]));
}

/// Only Postgres locks rows.
fn a_locked_job_holds_up_no_other(db: &TestDb) {
    let jobs = ["a", "b"].map(|name| enqueue(db, note(name).expires_in(HOUR / 2)));
    enqueue(db, note("due").after(HOUR / 2));
    wait_an_hour(db);
    let mut conn = db.connect();
    if db.is_postgres() {
        execute(&mut conn, "SET idle_in_transaction_session_timeout = 0");
        execute(&mut conn, "BEGIN");
        let lock = format!(
            "SELECT id AS n FROM solid_queue_jobs WHERE id = {} FOR UPDATE",
            jobs[0]
        );
        count(&mut conn, &lock);
    }
    let dispatcher = sweeper(db);
    until("the other is discarded", || is_expired(db, jobs[1]));
    until("what is due is ready", || executions(db, "scheduled") == 0);
    if db.is_postgres() {
        assert_eq!(status(db, jobs[0]), TaskStatus::Queued);
        execute(&mut conn, "COMMIT");
    }
    until("it is discarded", || is_expired(db, jobs[0]));
    stop(dispatcher);
}

fn an_expiry_counts_from_when_the_job_is_due(db: &TestDb) {
    let (now, at) = (Utc::now(), Utc::now() + TimeDelta::days(2));
    enqueue(db, note("a").expires_in(HOUR));
    enqueue(db, note("b").after(48 * HOUR).expires_in(HOUR));
    enqueue(db, note("c").at(at).expires_in(HOUR));
    enqueue(db, note("d").at(now - TimeDelta::days(2)).expires_in(HOUR));
    enqueue(db, note("e").not_after(at));
    let text = "SELECT CAST(expires_at AS text) AS t FROM windlass_expiries ORDER BY job_id";
    // In hours from now, rounded.
    let hours = |text: String| {
        let time: DateTime<Utc> = format!("{}Z", text.replace(' ', "T")).parse().unwrap();
        ((time - now).num_minutes() + 30) / 60
    };
    let found: Vec<i64> = db.texts(text).into_iter().map(hours).collect();
    assert_eq!(found, [1, 49, 49, 1, 48]);
}

fn a_job_that_has_started_does_not_expire(db: &TestDb) {
    let bench = Bench::start(db);
    for (name, turn) in [
        ("retried", Turn::RetryAfter(7_200_000)),
        ("snoozed", Turn::Snooze(7_200_000)),
    ] {
        let policy = stubborn(2).expires_in(HOUR);
        enqueue(db, job(name, [turn, Turn::Succeed]).policy(policy));
    }
    until("both wait for their next run", || {
        executions(db, "scheduled") == 2
    });
    assert_eq!(expiries(db), 0);
    wait_an_hour(db);
    wait_an_hour(db);
    until("both have finished", || finished(db) == 2);
    assert_eq!(bench.log.len(), 4);
    assert_eq!(
        (bench.log.count("retried"), bench.log.count("snoozed")),
        (2, 2)
    );
}

fn what_an_older_program_has_started_does_not_expire(db: &TestDb) {
    let jobs = ["attempts = 1", "crash_count = 1", "last_claim_id = 4711"].map(|change| {
        let job = enqueue(db, note("a").policy(stubborn(3)).expires_in(HOUR));
        db.execute(&format!(
            "UPDATE solid_queue_jobs SET {change} WHERE id = {job}"
        ));
        job
    });
    let plain = enqueue(db, note("plain").expires_in(HOUR));
    wait_an_hour(db);
    let dispatcher = sweeper(db);
    until("the others are no longer looked at", || expiries(db) == 0);
    assert!(is_expired(db, plain));
    for job in jobs {
        assert_eq!(status(db, job), TaskStatus::Queued);
    }
    stop(dispatcher);
    // The same at the claim.
    for job in jobs {
        db.execute(&format!(
            "INSERT INTO windlass_expiries (job_id, expires_at) VALUES ({job}, '2020-01-01 00:00:00.000000')"
        ));
    }
    let (_worker, log) = worker(db);
    until("they have run", || finished(db) == 4);
    assert_eq!(log.count("a"), 3);
}

fn a_claim_that_was_given_back_is_no_start(db: &TestDb) {
    let unknown = enqueue(db, NewJob::of_class("nobody", "{}").expires_in(HOUR));
    // A row of Rails names no class where workers look, so any of them takes it.
    db.execute("UPDATE solid_queue_ready_executions SET class_name = NULL");
    let (worker, _log) = worker(db);
    until("it was claimed and given back", || {
        executions(db, "scheduled") == 1
    });
    stop(worker);
    let named = "SELECT count(*) AS n FROM solid_queue_jobs WHERE last_claim_id IS NOT NULL";
    assert_eq!(db.count(named), 1);
    wait_an_hour(db);
    let _dispatcher = sweeper(db);
    until("it is discarded", || {
        status(db, unknown) == TaskStatus::Discarded
    });
}

fn a_rescheduled_job_does_not_expire_before_its_time(db: &TestDb) {
    let later = enqueue(db, note("later").expires_in(HOUR));
    let sooner = enqueue(db, note("sooner").after(HOUR).expires_in(HOUR));
    let change = |job, at: TimeDelta| {
        let change = Change::RunAt(Utc::now() + at);
        let changed = Jobs::waiting()
            .ids([job])
            .change(&mut db.connection(), change);
        assert_eq!(changed.unwrap().changed, 1);
    };
    change(later, TimeDelta::hours(3));
    change(sooner, TimeDelta::minutes(90));
    assert_eq!(expiries(db), 1, "one would have expired before its time");
    wait_an_hour(db);
    wait_an_hour(db);
    let _dispatcher = sweeper(db);
    until("the other has expired", || is_expired(db, sooner));
    assert_eq!(status(db, later), TaskStatus::Queued);
}

fn unique(policy: OnConflict) -> NewJob {
    let unique = note("a").unique_id("a");
    unique.policy(Policy::new().on_conflict(policy))
}

fn an_existing_job_keeps_its_own(db: &TestDb) {
    let mut conn = db.connect();
    let first = unique(OnConflict::Existing).enqueue(&mut conn).unwrap();
    let second = unique(OnConflict::Existing).expires_in(HOUR);
    let second = second.enqueue(&mut conn).unwrap();
    assert_eq!(
        (second.id, second.outcome),
        (first.id, EnqueueOutcome::Existing)
    );
    let keyed = || note("b").idempotency_key("b").expires_in(HOUR);
    let first = keyed().enqueue(&mut conn).unwrap();
    let second = keyed().not_after(Utc::now()).enqueue(&mut conn).unwrap();
    assert_eq!((second.id, second.is_new), (first.id, false));
    assert_eq!(expiries(db), 1);
    let refused = unique(OnConflict::Refuse)
        .expires_in(HOUR)
        .enqueue(&mut conn);
    assert!(matches!(
        refused,
        Err(windlass::Error::UniqueIdTaken { .. })
    ));
    assert_eq!(expiries(db), 1);
}

fn a_replaced_job_takes_the_new_one(db: &TestDb) {
    let mut conn = db.connect();
    let first = unique(OnConflict::Replace).enqueue(&mut conn).unwrap();
    let second = unique(OnConflict::Replace).expires_in(HOUR);
    let second = second.enqueue(&mut conn).unwrap();
    assert_eq!(
        (second.id, second.outcome),
        (first.id, EnqueueOutcome::Replaced)
    );
    assert_eq!(expiries(db), 1);
    unique(OnConflict::Replace).enqueue(&mut conn).unwrap();
    assert_eq!(expiries(db), 0);
    let jobs = [Some(HOUR), None, Some(HOUR)].map(|time| {
        let job = unique(OnConflict::Replace);
        time.into_iter().fold(job, NewJob::expires_in)
    });
    windlass::enqueue_all(&mut conn, jobs).unwrap();
    assert_eq!(expiries(db), 1);
}

fn the_job_behind_an_expired_one_runs(db: &TestDb) {
    let first = enqueue(db, unique(OnConflict::Existing).expires_in(HOUR));
    wait_an_hour(db);
    {
        let _dispatcher = sweeper(db);
        until("it has expired", || is_expired(db, first));
    }
    let next = unique(OnConflict::Existing)
        .enqueue(&mut db.connection())
        .unwrap();
    assert!(next.is_new, "the unique id is free");
    let (_worker, log) = worker(db);
    until("the next has finished", || finished(db) == 2);
    assert_eq!(log.len(), 1);
}

fn a_slot_of_an_expired_job_is_free(db: &TestDb) {
    let limited = |name: &str| note(name).concurrency(Concurrency::new("key").limit(1));
    let first = enqueue(db, limited("first").expires_in(HOUR));
    let blocked = enqueue(db, limited("blocked").expires_in(HOUR));
    enqueue(db, limited("last"));
    wait_an_hour(db);
    let _dispatcher = sweeper(db);
    until("two have expired", || {
        is_expired(db, first) && is_expired(db, blocked)
    });
    let (_worker, log) = worker(db);
    until("the last has finished", || finished(db) == 3);
    assert_eq!(log.lines(), ["last 1"]);
}

fn batches_have_them(db: &TestDb) {
    let jobs = (0..30).map(|n| {
        let job = note("a");
        if n % 3 == 0 {
            job.expires_in(HOUR)
        } else {
            job
        }
    });
    windlass::enqueue_all(&mut db.connection(), jobs).unwrap();
    assert_eq!(expiries(db), 10);
    wait_an_hour(db);
    let dispatcher = Dispatcher::new(&db.database).batch_size(3);
    let _dispatcher = dispatcher.start().unwrap();
    until("a third is discarded", || finished(db) == 10);
    assert_eq!(executions(db, "ready"), 20);
    assert_eq!(expiries(db), 0);
}

fn the_end_of_time_is_no_trouble(db: &TestDb) {
    let end = "9999-12-31T23:59:59Z".parse().unwrap();
    let almost = "9999-12-31T00:00:00Z".parse().unwrap();
    let jobs = [
        enqueue(db, note("a").not_after(end)),
        enqueue(db, note("b").expires_in(Duration::MAX)),
        enqueue(db, note("c").at(almost).expires_in(Duration::MAX)),
        enqueue(db, note("d").expires_in(Duration::from_nanos(1))),
    ];
    for job in jobs {
        let explanation = windlass::jobs::explain(&mut db.connection(), job)
            .unwrap()
            .unwrap();
        assert!(explanation.expires_at.is_some());
    }
    let _dispatcher = sweeper(db);
    until("one has expired", || is_expired(db, jobs[3]));
    assert_eq!(expiries(db), 3);
}

fn what_cannot_be_is_refused(db: &TestDb) {
    let mut conn = db.connect();
    let mut refused = |job: NewJob, why: &str| {
        let error = job.enqueue(&mut conn).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    };
    refused(
        note("a").expires_in(Duration::ZERO),
        "`expires_in` must be above zero",
    );
    let now = Utc::now();
    let late = note("a").at(now).not_after(now - TimeDelta::hours(1));
    refused(late, "before it is due");
    refused(
        note("a").policy(Policy::new().retry_for(Duration::ZERO)),
        "`retry_for` must be above zero",
    );
    assert_eq!(db.rows("jobs"), 0);
}

fn a_dispatcher_that_never_polls_sweeps(db: &TestDb) {
    let job = enqueue(db, note("a").expires_in(Duration::from_millis(1)));
    let dispatcher = Dispatcher::new(&db.database).polling_interval(Duration::MAX);
    let _dispatcher = dispatcher.start().unwrap();
    until("it is discarded", || is_expired(db, job));
}

fn jobs_of_recurring_tasks_expire(db: &TestDb) {
    let task = RecurringTask::new("t", "* * * * * *", &Scripted::new("a", [Turn::Succeed]));
    let task = task.unwrap().expires_in(HOUR);
    let scheduler = Scheduler::new(&db.database).task(task).start().unwrap();
    until("a job is enqueued", || expiries(db) > 0);
    stop(scheduler);
    wait_an_hour(db);
    let (_worker, log) = worker(db);
    until("all have ended", || finished(db) == db.rows("jobs"));
    assert_eq!(log.len(), 0);
}

fn tests_of_applications_let_them_expire(db: &TestDb) {
    let log = Arc::new(Log::default());
    let registry = Registry::new().register::<Scripted>(Arc::clone(&log));
    let late = enqueue(db, note("late").expires_in(Duration::from_secs(60)));
    enqueue(db, note("in-time").expires_in(3 * HOUR));
    wait_an_hour(db);
    let _ = testing::drain(&mut db.connection(), &registry).unwrap();
    assert_eq!(log.lines(), ["in-time 1"]);
    assert!(is_expired(db, late));
    assert_eq!(expiries(db), 0);
}

fn ended_jobs_leave_nothing(db: &TestDb) {
    let job = |_| enqueue(db, note("a").expires_in(HOUR));
    let [cancelled, discarded] = [0, 1].map(job);
    windlass::jobs::cancel(&mut db.connection(), cancelled).unwrap();
    let jobs = Jobs::waiting().ids([discarded]);
    jobs.change(&mut db.connection(), Change::Discard).unwrap();
    assert_eq!(expiries(db), 0);
    // By hand, or by another program.
    let deleted = job(2);
    for table in ["ready_executions", "jobs"] {
        let id = if table == "jobs" { "id" } else { "job_id" };
        db.execute(&format!(
            "DELETE FROM solid_queue_{table} WHERE {id} = {deleted}"
        ));
    }
    wait_an_hour(db);
    let _dispatcher = sweeper(db);
    until("nothing is left of it", || expiries(db) == 0);
}

fn it_is_explained(db: &TestDb) {
    let at = "2099-01-01T12:00:00Z".parse().unwrap();
    let until = "2099-01-02T12:00:00Z".parse().unwrap();
    let job = note("a")
        .policy(Policy::new().retry_until(until))
        .not_after(at);
    let job = enqueue(db, job);
    let explanation = windlass::jobs::explain(&mut db.connection(), job)
        .unwrap()
        .unwrap();
    assert_eq!(explanation.expires_at, Some(at));
    assert_eq!(explanation.retry_until, Some(until));
}
