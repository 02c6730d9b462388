//! The outcome of a job, and the value that it returned.

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::jobs::{Gate, Log, Note, Wait};
use crate::support::wait::{DEADLINE, until};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use windlass::jobs::{self, TaskInfo, TaskStatus};
use windlass::policies::UniqueScope;
use windlass::{
    Backoff, Context, Enqueued, Handle, Job, JobError, JobId, JobResult, NewJob, Policy, Registry,
    Worker,
};

/// Returns its text so often.
#[derive(Debug, Serialize, Deserialize)]
struct Repeat {
    text: String,
    times: usize,
}

impl Job for Repeat {
    const NAME: &'static str = "repeat";
    const MAX_RESULT: usize = 1000;
    type State = ();
    type Output = Vec<String>;

    fn perform(self, _cx: &Context<'_, ()>) -> JobResult<Vec<String>> {
        Ok(vec![self.text; self.times])
    }
}

fn repeat(times: usize) -> NewJob {
    let text = "a \0 \\ ' \" ä".to_owned();
    // A NUL cannot be an argument, but it can be returned.
    let text = text.replace('\0', "-");
    NewJob::new(&Repeat { text, times }).unwrap()
}

/// Returns what no database keeps as a character.
#[derive(Debug, Serialize, Deserialize)]
struct Nul;

impl Job for Nul {
    const NAME: &'static str = "nul";
    type State = ();
    type Output = String;

    fn perform(self, _cx: &Context<'_, ()>) -> JobResult<String> {
        Ok("a\0b".to_owned())
    }
}

/// Returns a number that JSON does not have.
#[derive(Debug, Serialize, Deserialize)]
struct Unmeasured;

impl Job for Unmeasured {
    const NAME: &'static str = "unmeasured";
    type State = ();
    type Output = Vec<f64>;

    fn perform(self, _cx: &Context<'_, ()>) -> JobResult<Vec<f64>> {
        Ok(vec![1.5, f64::NAN])
    }
}

/// Ends in the way it is told to.
#[derive(Debug, Serialize, Deserialize)]
enum Ends {
    Failing,
    Discarded,
    RetriedLater,
}

impl Job for Ends {
    const NAME: &'static str = "ends";
    type State = ();
    type Output = ();

    fn perform(self, _cx: &Context<'_, ()>) -> JobResult {
        match self {
            Ends::Failing => Err("it went wrong".into()),
            Ends::Discarded => Err(JobError::from("no need").discard()),
            Ends::RetriedLater => {
                Err(JobError::from("later").retry_after(Duration::from_secs(3600)))
            }
        }
    }
}

struct Bench {
    gate: Arc<Gate>,
    _worker: Handle,
}

fn bench(db: &TestDb, keep_finished: bool) -> Bench {
    let gate = Arc::new(Gate::default());
    let registry = Registry::new()
        .register::<Repeat>(())
        .register::<Nul>(())
        .register::<Unmeasured>(())
        .register::<Ends>(())
        .register::<Note>(Arc::new(Log::default()))
        .register::<Wait>(Arc::clone(&gate));
    let worker = Worker::new(&db.database, registry).keep_finished(keep_finished);
    Bench {
        gate,
        _worker: worker.start().unwrap(),
    }
}

fn enqueue(db: &TestDb, job: NewJob) -> Enqueued {
    job.enqueue(&mut db.connection()).unwrap()
}

fn info(db: &TestDb, job: JobId) -> TaskInfo {
    jobs::status(&mut db.connection(), job).unwrap().unwrap()
}

fn ended(db: &TestDb, job: JobId) -> TaskInfo {
    let info = jobs::wait_for(&db.database, job, DEADLINE)
        .unwrap()
        .unwrap();
    assert!(info.status.has_ended(), "{info:?}");
    assert_eq!(db.rows_of("windlass_waiters"), 0);
    info
}

fn what_a_job_returned_can_be_asked_for(db: &TestDb) {
    let _bench = bench(db, true);
    let job = enqueue(db, repeat(2)).id;
    let info = ended(db, job);
    assert_eq!(info.status, TaskStatus::Succeeded);
    assert_eq!((info.attempt, &*info.class_name), (1, "repeat"));
    assert!(info.finished_at.is_some() && info.error.is_none());
    let texts: Vec<String> = info.result_as().unwrap().unwrap();
    assert_eq!(texts, ["a - \\ ' \" ä", "a - \\ ' \" ä"]);
    assert!(info.result_as::<u32>().is_err());
    let nul = ended(db, enqueue(db, NewJob::new(&Nul).unwrap()).id);
    assert_eq!(nul.result_as::<String>().unwrap().unwrap(), "a\0b");
}

fn a_result_outlives_the_row_of_its_job(db: &TestDb) {
    let _bench = bench(db, false);
    let job = enqueue(db, repeat(1).unique_id("r")).id;
    ended(db, job);
    until("the row is gone", || db.rows("jobs") == 0);
    assert_eq!(info(db, job).status, TaskStatus::Succeeded);
    let found = jobs::status(&mut db.connection(), "r").unwrap().unwrap();
    assert_eq!((found.job_id, found.result.is_some()), (job, true));
    assert_eq!(found.unique_id.as_deref(), Some("r"));
    db.execute("UPDATE windlass_results SET expires_at = '2020-01-01 00:00:00.000000'");
    assert_eq!(jobs::status(&mut db.connection(), job).unwrap(), None);
    assert_eq!(jobs::status(&mut db.connection(), "r").unwrap(), None);
}

fn jobs_that_return_nothing_leave_nothing(db: &TestDb) {
    let _bench = bench(db, true);
    let note = || NewJob::new(&Note::new("x")).unwrap();
    let job = enqueue(db, note()).id;
    let info = ended(db, job);
    assert_eq!((info.status, info.result), (TaskStatus::Succeeded, None));
    let unkept = repeat(1).policy(Policy::new().keep_result(Duration::ZERO));
    let info = ended(db, enqueue(db, unkept).id);
    assert_eq!((info.status, info.result), (TaskStatus::Succeeded, None));
    assert_eq!(db.rows_of("windlass_results"), 0);
    let kept = note().policy(Policy::new().keep_result(Duration::from_secs(5)));
    ended(db, enqueue(db, kept).id);
    assert_eq!(db.rows_of("windlass_results"), 1);
}

fn too_large_a_result_is_not_kept_and_says_so(db: &TestDb) {
    let _bench = bench(db, false);
    let job = enqueue(db, repeat(100)).id;
    let info = ended(db, job);
    assert_eq!((info.status, info.result), (TaskStatus::Succeeded, None));
    let error = info.error.unwrap();
    assert!(error.contains("more than the 1000 allowed"), "{error}");
}

fn a_result_that_json_cannot_hold_is_not_kept_and_says_so(db: &TestDb) {
    let _bench = bench(db, false);
    let job = enqueue(db, NewJob::new(&Unmeasured).unwrap()).id;
    let info = ended(db, job);
    assert_eq!((info.status, info.result), (TaskStatus::Succeeded, None));
    let error = info.error.unwrap();
    assert!(error.contains("`[1]` is NaN"), "{error}");
}

fn every_end_has_its_status(db: &TestDb) {
    let bench = bench(db, true);
    let of = |ends: Ends| NewJob::new(&ends).unwrap();
    let failed = ended(db, enqueue(db, of(Ends::Failing)).id);
    assert_eq!(failed.status, TaskStatus::Failed);
    assert!(failed.error.unwrap().ends_with(": it went wrong"));
    assert_eq!((failed.attempt, failed.finished_at.is_some()), (1, true));
    let discarded = ended(db, enqueue(db, of(Ends::Discarded)).id);
    assert_eq!(discarded.status, TaskStatus::Discarded);
    assert!(discarded.error.unwrap().ends_with(": no need"));
    let later = repeat(1).after(Duration::from_secs(3600));
    let cancelled = enqueue(db, later).id;
    assert_eq!(info(db, cancelled).status, TaskStatus::Queued);
    assert_eq!(
        info(db, cancelled).retry_at,
        None,
        "it has yet to be tried once"
    );
    jobs::cancel(&mut db.connection(), cancelled).unwrap();
    assert_eq!(ended(db, cancelled).status, TaskStatus::Cancelled);
    let policy = Policy::new()
        .max_attempts(2)
        .backoff(Backoff::Fixed(Duration::ZERO));
    let retried = enqueue(db, of(Ends::RetriedLater).policy(policy)).id;
    until("it waits for its second attempt", || {
        info(db, retried).retry_at.is_some()
    });
    let info_of = info(db, retried);
    assert_eq!((info_of.status, info_of.attempt), (TaskStatus::Queued, 1));
    assert!(info_of.error.unwrap().ends_with(": later"));
    let running = enqueue(db, NewJob::new(&Wait).unwrap()).id;
    until("it runs", || bench.gate.begun() == 1);
    assert_eq!(info(db, running).status, TaskStatus::Running);
    bench.gate.open();
    assert_eq!(ended(db, running).status, TaskStatus::Succeeded);
}

fn a_retry_forgets_the_old_end(db: &TestDb) {
    let worker = bench(db, true);
    let bad = NewJob::of_class("repeat", "\"nonsense\"").unique_id("r");
    let job = enqueue(db, bad).id;
    assert_eq!(ended(db, job).status, TaskStatus::Failed);
    drop(worker);
    let retry = jobs::Change::Retry {
        even_at_most_once: false,
    };
    let done = jobs::Jobs::failed().change(&mut db.connection(), retry);
    assert_eq!(done.unwrap().changed, 1);
    assert_eq!(db.rows_of("windlass_results"), 0);
    assert_eq!(info(db, job).status, TaskStatus::Queued);
}

fn waiting_ends_with_its_time(db: &TestDb) {
    let job = enqueue(db, repeat(1)).id;
    let info = jobs::wait_for(&db.database, job, Duration::from_millis(50)).unwrap();
    assert_eq!(info.unwrap().status, TaskStatus::Queued);
    assert_eq!(db.rows_of("windlass_waiters"), 0);
    let nobody = jobs::wait_for(&db.database, JobId(4711), DEADLINE).unwrap();
    assert_eq!(nobody, None);
}

/// The waiter is there before the job begins, so it is told.
fn a_waiter_is_woken(db: &TestDb) {
    let bench = bench(db, true);
    let jobs: Vec<JobId> = (0..4)
        .map(|_| enqueue(db, NewJob::new(&Wait).unwrap()).id)
        .collect();
    std::thread::scope(|scope| {
        let waiters: Vec<_> = jobs
            .iter()
            .map(|job| {
                scope.spawn(|| {
                    jobs::wait_for(&db.database, *job, DEADLINE)
                        .unwrap()
                        .unwrap()
                })
            })
            .collect();
        until("all wait", || db.rows_of("windlass_waiters") == 4);
        bench.gate.open();
        for waiter in waiters {
            assert_eq!(waiter.join().unwrap().status, TaskStatus::Succeeded);
        }
    });
    assert_eq!(db.rows_of("windlass_waiters"), 0);
}

/// Postgres: an end notifies exactly when somebody waits for that job.
#[cfg(feature = "postgres")]
fn only_waiters_are_notified(db: &TestDb) {
    use diesel::{Connection as _, PgConnection, RunQueryDsl as _};
    if !db.is_postgres() {
        return;
    }
    let worker = bench(db, true);
    worker.gate.open();
    let mut heard = PgConnection::establish(db.address()).unwrap();
    // Ids of other tests' schemas may be the same ones, so from far away.
    db.execute("ALTER TABLE solid_queue_jobs ALTER COLUMN id RESTART WITH 700000001");
    for n in 1..=4 {
        let listen = format!("LISTEN windlass_job_70000000{n}");
        diesel::sql_query(listen).execute(&mut heard).unwrap();
    }
    for id in [700_000_002, 700_000_004] {
        db.execute(&format!(
            "INSERT INTO windlass_waiters (job_id, expires_at) VALUES ({id}, '2999-01-01')"
        ));
    }
    // Two that return nothing, and two that fail.
    for _ in 0..2 {
        let job = enqueue(db, NewJob::new(&Wait).unwrap()).id;
        until("it has ended", || info(db, job).status.has_ended());
    }
    for _ in 0..2 {
        let job = enqueue(db, NewJob::new(&Ends::Failing).unwrap()).id;
        until("it has ended", || info(db, job).status.has_ended());
    }
    let mut channels = Vec::new();
    until("both are heard", || {
        diesel::sql_query("SELECT 1").execute(&mut heard).unwrap();
        let new = heard.notifications_iter();
        channels.extend(new.map(|notification| notification.unwrap().channel));
        channels.len() >= 2
    });
    assert_eq!(
        channels,
        ["windlass_job_700000002", "windlass_job_700000004"]
    );
}

fn a_unique_id_is_held_until_the_result_expires(db: &TestDb) {
    let _bench = bench(db, false);
    let job = || {
        let policy = Policy::new().unique_scope(UniqueScope::UntilResultExpires);
        repeat(1).unique_id("r").policy(policy)
    };
    let first = enqueue(db, job());
    ended(db, first.id);
    let second = enqueue(db, job());
    assert!(!second.is_new && second.id == first.id, "{second:?}");
    db.execute("UPDATE windlass_results SET expires_at = '2020-01-01 00:00:00.000000'");
    let third = enqueue(db, job());
    assert!(third.is_new, "{third:?}");
    ended(db, third.id);
}

#[cfg(feature = "postgres")]
on_each_database!(only_waiters_are_notified);

on_each_database!(
    what_a_job_returned_can_be_asked_for,
    a_result_outlives_the_row_of_its_job,
    jobs_that_return_nothing_leave_nothing,
    too_large_a_result_is_not_kept_and_says_so,
    a_result_that_json_cannot_hold_is_not_kept_and_says_so,
    every_end_has_its_status,
    a_retry_forgets_the_old_end,
    waiting_ends_with_its_time,
    a_waiter_is_woken,
    a_unique_id_is_held_until_the_result_expires,
);

crate::through_a_pooler!(
    only_waiters_are_notified,
    what_a_job_returned_can_be_asked_for,
    a_result_outlives_the_row_of_its_job,
    jobs_that_return_nothing_leave_nothing,
    too_large_a_result_is_not_kept_and_says_so,
    every_end_has_its_status,
    a_retry_forgets_the_old_end,
    waiting_ends_with_its_time,
    a_waiter_is_woken,
    a_unique_id_is_held_until_the_result_expires,
);
