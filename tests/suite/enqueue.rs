//! Enqueueing one job: on whose connection, in whose transaction, for when.

use crate::support::TestDb;
use crate::support::db::{count, execute};
use crate::support::jobs::Note;
use crate::{on_each_database, with_own_connection};
use chrono::{DateTime, Utc};
use diesel::r2d2::{ConnectionManager, Pool};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use windlass::{AsConn, Context, Delivery, Error, Job, JobResult, NewJob, Policy};

/// A type with defaults of its own.
#[derive(Debug, Serialize, Deserialize)]
struct Special;

impl Job for Special {
    const NAME: &'static str = "My::Special";
    const QUEUE: &'static str = "special";
    const PRIORITY: i32 = -5;
    type State = ();
    type Output = ();

    fn policy() -> Policy {
        Policy::new().max_crashes(7).delivery(Delivery::AtMostOnce)
    }

    fn perform(self, _cx: &Context<'_, ()>) -> JobResult {
        Ok(())
    }
}

fn note(text: &str) -> NewJob {
    NewJob::new(&Note::new(text)).unwrap()
}

/// The texts of the notes that may be claimed, in the order of their ids.
fn ready(db: &TestDb) -> Vec<String> {
    let arguments = db.texts(
        "SELECT j.arguments AS t FROM solid_queue_ready_executions r \
         JOIN solid_queue_jobs j ON j.id = r.job_id ORDER BY j.id",
    );
    let text = |json: &String| serde_json::from_str::<Note>(json).unwrap().text;
    arguments.iter().map(text).collect()
}

fn time(text: &str) -> DateTime<Utc> {
    text.parse().unwrap()
}

fn any_connection_of_the_caller_will_do(db: &TestDb) {
    with_own_connection!(db, |conn| {
        Note::new("own").enqueue(&mut conn).unwrap();
        Note::new("lent").enqueue(&mut conn.as_conn()).unwrap();
    });
    let mut connection = db.connect();
    Note::new("ours").enqueue(&mut connection).unwrap();
    let unsized_one: &mut dyn AsConn = &mut connection;
    Note::new("unsized").enqueue(unsized_one).unwrap();
    Note::new("our pool")
        .enqueue(&mut db.database.get().unwrap())
        .unwrap();
    if db.is_postgres() {
        #[cfg(feature = "postgres")]
        {
            let manager = ConnectionManager::<diesel::PgConnection>::new(db.address());
            let pool = Pool::builder().max_size(2).build(manager).unwrap();
            Note::new("their pool")
                .enqueue(&mut pool.get().unwrap())
                .unwrap();
        }
    } else {
        let manager = ConnectionManager::<diesel::SqliteConnection>::new(db.address());
        let pool = Pool::builder().max_size(2).build(manager).unwrap();
        Note::new("their pool")
            .enqueue(&mut pool.get().unwrap())
            .unwrap();
    }
    assert_eq!(
        ready(db),
        ["own", "lent", "ours", "unsized", "our pool", "their pool"]
    );
    assert_eq!(db.rows("jobs"), 6);
}

fn the_type_says_the_defaults_and_the_call_may_say_otherwise(db: &TestDb) {
    let mut conn = db.connect();
    Special.enqueue(&mut conn).unwrap();
    NewJob::new(&Special)
        .unwrap()
        .queue("other")
        .priority(9)
        .enqueue(&mut conn)
        .unwrap();
    NewJob::of_class("elsewhere", r#"{"a":1}"#)
        .enqueue(&mut conn)
        .unwrap();
    for table in ["jobs", "ready_executions"] {
        assert_eq!(
            db.texts(&format!(
                "SELECT queue_name || ' ' || priority || ' ' || class_name AS t FROM solid_queue_{table} ORDER BY id"
            )),
            ["special -5 My::Special", "other 9 My::Special", "default 0 elsewhere"],
            "{table}"
        );
    }
    assert_eq!(
        db.texts("SELECT arguments || ' ' || coalesce(max_crashes, -1) AS t FROM solid_queue_jobs ORDER BY id"),
        ["null 7", "null 7", r#"{"a":1} -1"#]
    );
    assert_eq!(
        db.count("SELECT count(*) AS n FROM solid_queue_jobs WHERE at_most_once"),
        2
    );
}

fn a_rollback_takes_the_job_along(db: &TestDb) {
    db.execute("CREATE TABLE orders (id integer)");
    with_own_connection!(db, |conn| {
        let result = conn.transaction::<(), Error, _>(|conn| {
            execute(conn, "INSERT INTO orders (id) VALUES (1)");
            Note::new("rolled back").enqueue(conn)?;
            note("later").after(Duration::from_secs(60)).enqueue(conn)?;
            windlass::enqueue_all(conn, [note("one"), note("two").idempotency_key("k")])?;
            Err(diesel::result::Error::RollbackTransaction.into())
        });
        assert!(result.is_err());
        for table in ["jobs", "ready_executions", "scheduled_executions"] {
            assert_eq!(db.rows(table), 0, "{table}");
        }
        conn.transaction::<_, Error, _>(|conn| {
            execute(conn, "INSERT INTO orders (id) VALUES (2)");
            Note::new("committed").enqueue(conn)?;
            assert_eq!(ready(db), [""; 0], "nobody sees it before the commit");
            Ok(())
        })
        .unwrap();
        assert_eq!(count(&mut conn, "SELECT sum(id) AS n FROM orders"), 2);
    });
    assert_eq!(ready(db), ["committed"]);
}

fn a_savepoint_takes_its_own_jobs_along(db: &TestDb) {
    with_own_connection!(db, |conn| {
        conn.transaction::<_, Error, _>(|conn| {
            Note::new("outer").enqueue(conn)?;
            let inner = conn.transaction::<(), Error, _>(|conn| {
                Note::new("inner, rolled back").enqueue(conn)?;
                windlass::enqueue_all(conn, [note("so is this").idempotency_key("again")])?;
                Err(diesel::result::Error::RollbackTransaction.into())
            });
            assert!(inner.is_err());
            conn.transaction::<_, Error, _>(|conn| Note::new("inner, kept").enqueue(conn))?;
            let again = note("again").idempotency_key("again").enqueue(conn)?;
            assert!(again.is_new, "its first owner was rolled back");
            Ok(())
        })
        .unwrap();
    });
    assert_eq!(ready(db), ["outer", "inner, kept", "again"]);
}

/// A limit that is broken leaves the caller's transaction usable.
fn a_refused_job_does_not_spoil_the_transaction(db: &TestDb) {
    with_own_connection!(db, |conn| {
        conn.transaction::<_, Error, _>(|conn| {
            assert!(note("x").queue("no such name!").enqueue(conn).is_err());
            Note::new("fine").enqueue(conn)
        })
        .unwrap();
    });
    assert_eq!(ready(db), ["fine"]);
}

/// Milliseconds from the database's now to the only scheduled execution.
fn milliseconds_left(db: &TestDb) -> i64 {
    db.count(if db.is_postgres() {
        "SELECT CAST(extract(epoch FROM scheduled_at - (clock_timestamp() AT TIME ZONE 'UTC')) * 1000 AS bigint) AS n \
         FROM solid_queue_scheduled_executions"
    } else {
        "SELECT CAST((julianday(scheduled_at) - julianday('now')) * 86400000 AS integer) AS n \
         FROM solid_queue_scheduled_executions"
    })
}

fn a_delay_is_counted_by_the_clock_of_the_database(db: &TestDb) {
    let mut conn = db.connect();
    for (delay, at_least, at_most) in [
        (Duration::from_secs(3600), 3_590_000, 3_600_001),
        (Duration::from_millis(90_500), 80_500, 90_501),
        (
            Duration::from_secs(10 * 365 * 86_400),
            315_359_990_000,
            315_360_000_001,
        ),
    ] {
        note("later").after(delay).enqueue(&mut conn).unwrap();
        let left = milliseconds_left(db);
        assert!((at_least..=at_most).contains(&left), "{delay:?}: {left} ms");
        db.execute("DELETE FROM solid_queue_scheduled_executions");
    }
    assert_eq!(db.rows("ready_executions"), 0);
    note("now")
        .after(Duration::ZERO)
        .enqueue(&mut conn)
        .unwrap();
    assert_eq!(ready(db), ["now"]);
}

fn a_time_is_kept_to_the_microsecond(db: &TestDb) {
    let mut conn = db.connect();
    note("later")
        .at(time("2999-01-02T03:04:05.678901+02:00"))
        .enqueue(&mut conn)
        .unwrap();
    for table in ["jobs", "scheduled_executions"] {
        assert_eq!(
            db.texts(&format!(
                "SELECT CAST(scheduled_at AS text) AS t FROM solid_queue_{table}"
            )),
            ["2999-01-02 01:04:05.678901"]
        );
    }
    assert_eq!(db.rows("ready_executions"), 0);
}

fn what_is_due_already_is_ready_at_once(db: &TestDb) {
    let mut conn = db.connect();
    for past in [
        "1970-01-01T00:00:00Z",
        "2026-01-01T00:00:00Z",
        "0001-01-01T00:00:00Z",
    ] {
        note(past).at(time(past)).enqueue(&mut conn).unwrap();
    }
    assert_eq!(ready(db).len(), 3);
    assert_eq!(db.rows("scheduled_executions"), 0);
    // The last word counts.
    note("after")
        .at(time("2026-01-01T00:00:00Z"))
        .after(Duration::from_secs(60))
        .enqueue(&mut conn)
        .unwrap();
    note("at")
        .after(Duration::from_secs(60))
        .at(time("2026-01-01T00:00:00Z"))
        .enqueue(&mut conn)
        .unwrap();
    assert_eq!(db.rows("scheduled_executions"), 1);
    assert_eq!(ready(db)[3..], ["at"]);
}

/// Beyond what a database can write down, a time would be taken for none.
fn a_time_that_cannot_be_kept_is_refused(db: &TestDb) {
    let mut conn = db.connect();
    for job in [
        note("x").after(Duration::MAX),
        note("x").after(Duration::from_secs(100_000 * 365 * 86_400)),
        note("x").at(DateTime::<Utc>::MAX_UTC),
        note("x").at(DateTime::<Utc>::MIN_UTC),
        note("x").at(time("+10000-01-01T00:00:00Z")),
    ] {
        let error = job.clone().enqueue(&mut conn).unwrap_err();
        assert!(matches!(error, Error::InvalidJob { .. }), "{error:?}");
        assert!(windlass::enqueue_all(&mut conn, [note("y"), job]).is_err());
    }
    assert_eq!(db.rows("jobs"), 0);
    note("the last moment")
        .at(time("9999-12-31T23:59:59.999999Z"))
        .enqueue(&mut conn)
        .unwrap();
    assert_eq!(db.rows("scheduled_executions"), 1);
}

on_each_database!(
    any_connection_of_the_caller_will_do,
    the_type_says_the_defaults_and_the_call_may_say_otherwise,
    a_rollback_takes_the_job_along,
    a_savepoint_takes_its_own_jobs_along,
    a_refused_job_does_not_spoil_the_transaction,
    a_delay_is_counted_by_the_clock_of_the_database,
    a_time_is_kept_to_the_microsecond,
    what_is_due_already_is_ready_at_once,
    a_time_that_cannot_be_kept_is_refused,
);

crate::through_a_pooler!(
    any_connection_of_the_caller_will_do,
    the_type_says_the_defaults_and_the_call_may_say_otherwise,
    a_rollback_takes_the_job_along,
    a_savepoint_takes_its_own_jobs_along,
    a_refused_job_does_not_spoil_the_transaction,
    a_delay_is_counted_by_the_clock_of_the_database,
    a_time_is_kept_to_the_microsecond,
    what_is_due_already_is_ready_at_once,
    a_time_that_cannot_be_kept_is_refused,
);
