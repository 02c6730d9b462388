//! Limits on the number of jobs that may be enqueued.

mod bulk;
mod by_name;
mod places;
mod shed;
#[cfg(feature = "postgres")]
mod together;

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::db::execute;
use crate::support::jobs::{Log, Note};
use crate::support::wait::{eventually, until};
use diesel::connection::InstrumentationEvent;
use serde::{Deserialize, Serialize};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use windlass::processes::Retention;
use windlass::recurring::{run_now, schedule};
use windlass::{
    Context, DbConnection, Enqueued, Error, Job, JobResult, NewJob, Quota, RecurringTask, Registry,
    Result, Supervisor, enqueue_all, quotas, testing,
};

on_each_database!(
    never_more_than_the_limit_with_many_writers,
    a_minute_has_an_end,
    a_day_has_an_end,
    jobs_that_wait_are_counted,
    a_rollback_gives_back,
    a_limit_may_change,
    a_token_and_a_quota,
    only_new_jobs_count,
    a_job_without_a_quota_sends_nothing_of_quotas,
    what_windlass_enqueues_is_neither_refused_nor_counted,
    a_name_has_limits,
    old_windows_are_cleared,
    tests_of_applications_have_quotas,
    the_program_lists_them,
);

crate::through_a_pooler_in_all!(
    never_more_than_the_limit_with_many_writers,
    a_minute_has_an_end,
    a_day_has_an_end,
    jobs_that_wait_are_counted,
    a_rollback_gives_back,
    a_limit_may_change,
    a_token_and_a_quota,
    only_new_jobs_count,
    a_job_without_a_quota_sends_nothing_of_quotas,
    what_windlass_enqueues_is_neither_refused_nor_counted,
    a_name_has_limits,
    old_windows_are_cleared,
    tests_of_applications_have_quotas,
    the_program_lists_them,
);

const HOUR: Duration = Duration::from_secs(3600);

fn note(text: &str, quota: &Quota) -> NewJob {
    NewJob::new(&Note::new(text)).unwrap().quota(quota.clone())
}

/// Does the work within one minute of the database's clock: see [`in_one_window`].
fn in_one_minute<T>(db: &TestDb, work: impl Fn(Quota) -> T) -> T {
    in_one_window(db, 60, work)
}

/// Does the work within one window of so many seconds of the database's clock: again, with another name for the
/// quota, if the next window has begun meanwhile, in which places are free.
fn in_one_window<T>(db: &TestDb, seconds: i64, work: impl Fn(Quota) -> T) -> T {
    let window = || {
        db.count(&match db.is_postgres() {
            true => format!(
                "SELECT CAST(floor(extract(epoch FROM statement_timestamp()) / {seconds}) AS bigint) AS n"
            ),
            false => format!("SELECT CAST(strftime('%s', 'now') AS bigint) / {seconds} AS n"),
        })
    };
    let mut attempt = 0;
    eventually("the work is done within one window", || {
        let before = window();
        let done = work(Quota::named(format!("test {attempt}")));
        attempt += 1;
        (window() == before).then_some(done)
    })
}

/// Returns whether a quota refused it. Another error is a defect.
fn is_refused(enqueued: &Result<Enqueued>) -> bool {
    match enqueued {
        Ok(_) => false,
        Err(Error::QuotaExceeded { .. }) => true,
        Err(error) => panic!("{error}"),
    }
}

/// Returns the number of enqueues that the quota admits, of `times`.
fn admitted(conn: &mut DbConnection, quota: &Quota, times: usize) -> usize {
    let enqueued = (0..times).map(|_| enqueue_in_turn(conn, quota));
    enqueued.filter(|enqueued| !is_refused(enqueued)).count()
}

/// Enqueues, again for as long as other writers get SQLite's lock first: it has no order, so one may miss it for more
/// than the 5 s that a statement waits.
fn enqueue_in_turn(conn: &mut DbConnection, quota: &Quota) -> Result<Enqueued> {
    for _ in 0..20 {
        let enqueued = note("a", quota).enqueue(conn);
        let text = enqueued.as_ref().err().map(|error| format!("{error:?}"));
        if !text.is_some_and(|text| text.contains("database is locked")) {
            return enqueued;
        }
    }
    panic!("the lock could not be had");
}

fn never_more_than_the_limit_with_many_writers(db: &TestDb) {
    let (at_once, in_all, jobs) = in_one_minute(db, |quota| {
        let (quota, before) = (quota.per_minute(60).per_day(1000), db.rows("jobs"));
        let writer = |_| {
            let quota = quota.clone();
            move || admitted(&mut db.connection(), &quota, 8)
        };
        let at_once: usize = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..16).map(|at| scope.spawn(writer(at))).collect();
            writers.into_iter().map(|one| one.join().unwrap()).sum()
        });
        let rest = admitted(&mut db.connection(), &quota, 10);
        (at_once, at_once + rest, db.rows("jobs") - before)
    });
    // Within 1 %, at least one job, on Postgres.
    assert!((59..=60).contains(&at_once), "{at_once}");
    assert!(db.is_postgres() || at_once == 60, "{at_once}");
    assert_eq!((in_all, jobs), (60, 60));
}

fn a_minute_has_an_end(db: &TestDb) {
    let (first, error, again) = in_one_minute(db, |quota| {
        let (quota, mut conn) = (quota.per_minute(2), db.connect());
        let first = admitted(&mut conn, &quota, 2);
        let error = note("a", &quota).enqueue(&mut conn);
        testing::travel(&mut conn, Duration::from_secs(61)).unwrap();
        (first, error, admitted(&mut conn, &quota, 3))
    });
    assert_eq!((first, again), (2, 2));
    let error = error.unwrap_err();
    let text = error.to_string();
    let Error::QuotaExceeded {
        quota,
        limit: 2,
        counts: "enqueues per minute",
        wanted: 1,
        retry_after: Some(after),
        ..
    } = error
    else {
        panic!("{error}");
    };
    assert!(quota.starts_with("test "), "{quota}");
    assert!((1..=61).contains(&after.as_secs()), "{after:?}");
    let expected = format!(
        "the quota `{quota}` allows 2 enqueues per minute; try again in {} s",
        after.as_secs()
    );
    assert!(text.ends_with(&expected), "{text}");
}

fn a_day_has_an_end(db: &TestDb) {
    let (first, error, again) = in_one_minute(db, |quota| {
        let (quota, mut conn) = (quota.per_minute(3).per_day(3), db.connect());
        let first = admitted(&mut conn, &quota, 4);
        let error = note("a", &quota).enqueue(&mut conn);
        testing::travel(&mut conn, 25 * HOUR).unwrap();
        (first, error, admitted(&mut conn, &quota, 4))
    });
    assert_eq!((first, again), (3, 3));
    let error = error.unwrap_err();
    let Error::QuotaExceeded { counts, .. } = error else {
        panic!("{error}");
    };
    // Of two that are exceeded, the one that refuses longer.
    assert_eq!(counts, "enqueues per day");
}

fn jobs_that_wait_are_counted(db: &TestDb) {
    let (mut conn, quota) = (db.connect(), Quota::of_queue("default").waiting(2));
    let first = note("a", &quota).enqueue(&mut conn).unwrap();
    note("b", &quota).after(HOUR).enqueue(&mut conn).unwrap();
    let error = note("c", &quota).enqueue(&mut conn).unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("the quota `queue default` allows 2 waiting jobs; try again when waiting"),
        "{text}"
    );
    assert!(matches!(
        error,
        Error::QuotaExceeded {
            retry_after: None,
            ..
        }
    ));
    let status = &quotas::list(&mut conn).unwrap()[0];
    assert_eq!((status.waiting, status.most_waiting), (2, Some(2)));
    // One of them starts: its place is free, and only that.
    execute(
        &mut conn,
        &format!(
            "DELETE FROM solid_queue_ready_executions WHERE job_id = {}",
            first.id
        ),
    );
    assert_eq!(admitted(&mut conn, &quota, 3), 1);
    assert_eq!(db.rows_of("windlass_quota_jobs"), 2);
}

fn a_rollback_gives_back(db: &TestDb) {
    let (inside, after) = in_one_minute(db, |quota| {
        let (quota, mut conn) = (quota.per_minute(2).waiting(2), db.connect());
        let mut inside = 0;
        let rolled_back = crate::with_own_connection!(db, |conn| {
            conn.transaction::<(), Error, _>(|conn| {
                for _ in 0..3 {
                    inside += usize::from(!is_refused(&note("a", &quota).enqueue(conn)));
                }
                Err(diesel::result::Error::RollbackTransaction.into())
            })
        });
        rolled_back.unwrap_err();
        (inside, admitted(&mut conn, &quota, 3))
    });
    // The refused one leaves the transaction usable.
    assert_eq!((inside, after), (2, 2));
}

fn only_new_jobs_count(db: &TestDb) {
    let (mut conn, quota) = (db.connect(), Quota::of_class("note").waiting(1));
    let conn = &mut conn;
    let first = note("a", &quota).unique_id("1").idempotency_key("1");
    let first = first.enqueue(conn).unwrap();
    let again = note("a", &quota).unique_id("1").enqueue(conn).unwrap();
    assert_eq!((again.id, again.is_new), (first.id, false));
    let again = note("a", &quota).idempotency_key("1").enqueue(conn);
    assert_eq!(again.unwrap().id, first.id);
    // A refused enqueue keeps neither its unique id nor its idempotency key.
    let other = |quota: &Quota| note("b", quota).unique_id("2").idempotency_key("2");
    assert!(is_refused(&other(&quota).enqueue(conn)));
    assert_eq!(db.rows("jobs"), 1);
    assert!(other(&quota).without_quota().enqueue(conn).unwrap().is_new);
}

fn a_job_without_a_quota_sends_nothing_of_quotas(db: &TestDb) {
    let heard = Arc::new(Mutex::new(Vec::new()));
    crate::with_own_connection!(db, |conn| {
        let heard = Arc::clone(&heard);
        conn.set_instrumentation(move |event: InstrumentationEvent<'_>| {
            if let InstrumentationEvent::StartQuery { query, .. } = event {
                heard.lock().unwrap().push(query.to_string());
            }
        });
        Note::new("a").enqueue(&mut conn).unwrap();
        let job = || NewJob::new(&Note::new("a")).unwrap();
        job().unique_id("1").enqueue(&mut conn).unwrap();
        job().idempotency_key("1").enqueue(&mut conn).unwrap();
        enqueue_all(&mut conn, [job(), job()]).unwrap();
    });
    let heard = heard.lock().unwrap();
    assert!(heard.len() >= 4, "{heard:?}");
    assert!(
        heard.iter().all(|text| !text.contains("quota")),
        "{heard:?}"
    );
}

fn a_limit_may_change(db: &TestDb) {
    let found = in_one_minute(db, |quota| {
        let mut conn = db.connect();
        let mut admitted_of = |limit: u64, times| {
            let quota = quota.clone().per_day(limit).waiting(limit);
            admitted(&mut conn, &quota, times)
        };
        [
            admitted_of(2, 3),
            admitted_of(5, 5),
            admitted_of(1500, 3),
            admitted_of(0, 2),
        ]
    });
    assert_eq!(found, [2, 3, 3, 0]);
}

fn a_token_and_a_quota(db: &TestDb) {
    let (mut conn, quota) = (db.connect(), Quota::named("tokens").waiting(1));
    let job = |quota: &Quota| note("a", quota).public_token();
    let first = job(&quota).enqueue(&mut conn).unwrap();
    assert!(first.public_token.is_some());
    assert!(is_refused(&job(&quota).enqueue(&mut conn)));
    let both = enqueue_all(&mut conn, [note("b", &quota), job(&quota)]).unwrap_err();
    assert!(
        matches!(both, Error::QuotaExceeded { wanted: 2, .. }),
        "{both}"
    );
    assert_eq!(db.rows_of("windlass_public_tokens"), 1);
    // A discarded job can be looked up as well.
    let shed = job(&quota.shed()).enqueue(&mut conn).unwrap();
    assert_eq!(shed.outcome, windlass::jobs::EnqueueOutcome::Shed);
    let token = shed.public_token.unwrap().to_string();
    let info = windlass::jobs::status_by_token(&mut conn, &token)
        .unwrap()
        .unwrap();
    assert_eq!(info.status, windlass::jobs::TaskStatus::Discarded);
}

/// No job of it may be enqueued.
#[derive(Debug, Serialize, Deserialize)]
struct Never;

impl Job for Never {
    const NAME: &'static str = "never";
    type State = Log;
    type Output = ();

    fn quota(&self) -> Option<Quota> {
        Some(Quota::of_class(Self::NAME).per_day(0))
    }

    fn perform(self, cx: &Context<'_, Log>) -> JobResult {
        cx.add("performed");
        Ok(())
    }
}

fn what_windlass_enqueues_is_neither_refused_nor_counted(db: &TestDb) {
    let mut conn = db.connect();
    assert!(is_refused(&Never.enqueue(&mut conn)));
    let task = RecurringTask::new("never", "@daily", &Never).unwrap();
    schedule(&mut conn, &task).unwrap();
    run_now(&mut conn, "never").unwrap();
    assert_eq!(db.rows("ready_executions"), 1);
    assert_eq!(quotas::list(&mut conn).unwrap()[0].this_day, 0);
}

fn a_name_has_limits(db: &TestDb) {
    let mut conn = db.connect();
    for name in ["", "a\0", &"x".repeat(256)] {
        let error = note("a", &Quota::named(name)).enqueue(&mut conn);
        assert!(matches!(error, Err(Error::InvalidJob { .. })), "{error:?}");
    }
    // Whatever else is in it.
    let quota = Quota::named("a 'b' \"c\" $1 {now} ä").per_minute(u64::MAX);
    assert_eq!(admitted(&mut conn, &quota, 1), 1);
}

fn old_windows_are_cleared(db: &TestDb) {
    let (mut conn, quota) = (db.connect(), Quota::named("old").waiting(5).per_day(5));
    assert_eq!(admitted(&mut conn, &quota, 2), 2);
    testing::travel(&mut conn, 8 * 24 * HOUR).unwrap();
    // One of them has ended.
    let first = "(SELECT min(id) FROM solid_queue_jobs)";
    for text in [
        format!("DELETE FROM solid_queue_ready_executions WHERE job_id = {first}"),
        format!("UPDATE solid_queue_jobs SET finished_at = created_at WHERE id = {first}"),
    ] {
        execute(&mut conn, &text);
    }
    let every = Retention::default().every(Duration::from_millis(50));
    let supervisor = Supervisor::new(&db.database).retention(every);
    let _supervisor = supervisor.start().unwrap();
    until("what is old is cleared", || {
        db.rows_of("windlass_quota_slots") == 1 && db.rows_of("windlass_quota_jobs") == 1
    });
}

fn tests_of_applications_have_quotas(db: &TestDb) {
    let db = &mut testing::TestDatabase::open(&db.url).unwrap();
    let quota = Quota::named("tests").waiting(1).per_day(5);
    note("a", &quota).enqueue(db).unwrap();
    assert!(is_refused(&note("b", &quota).enqueue(db)));
    let registry = Registry::new().register::<Note>(Arc::new(Log::default()));
    assert_eq!(db.drain(&registry).unwrap().finished(), 1);
    assert!(!is_refused(&note("b", &quota).enqueue(db)));
}

fn the_program_lists_them(db: &TestDb) {
    use crate::support::program::windlass;
    let said = windlass(&db.url, &["quotas"]);
    assert_eq!(said.out, "No quota was used in the last seven days.\n");
    let (out, json) = in_one_minute(db, |quota| {
        let quota = quota.per_minute(7).waiting(3).shed();
        assert_eq!(admitted(&mut db.connection(), &quota, 2), 2);
        let json = windlass(&db.url, &["quotas", "--json"]).json();
        (windlass(&db.url, &["quotas"]).out, json)
    });
    for text in ["QUOTA", "test ", "2/3", "2/7", "shed"] {
        assert!(out.contains(text), "{text}: {out}");
    }
    let last = json["quotas"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(last["waiting"], 2, "{last}");
    assert_eq!(
        (&last["this_minute"], &last["most_per_minute"]),
        (&2.into(), &7.into())
    );
    assert_eq!(
        (&last["this_day"], last["most_per_day"].is_null()),
        (&0.into(), true)
    );
}
