//! Types of arguments that a worker shares with programs which enqueue through a driver.

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::enqueue_by_sql::run;
use crate::support::enqueue_rows::{compare, rows};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};
use windlass::{AsConn, Conn, Function, JobError, Registry, limits};
use windlass_enqueue::{
    Backoff, Concurrency, Delivery, JobArgs, LimitConflict, NewJob, On, OnConflict, Policy, Rate,
    UniqueScope, diesel as driver,
};

on_each_database!(
    a_type_leaves_the_same_rows_by_a_driver_as_by_rust,
    a_worker_performs_what_a_driver_enqueued,
    each_option_leaves_the_same_rows,
    a_list_returns_the_ids_in_order,
    a_refused_job_is_an_error_of_the_driver,
    the_text_of_arguments_stays,
    a_job_joins_a_batch_and_another_waits_for_it,
);

#[derive(Serialize, Deserialize)]
struct Plain {
    n: i64,
}

impl JobArgs for Plain {
    const NAME: &'static str = "plain";
}

#[derive(Serialize, Deserialize)]
struct Rich {
    account: String,
}

impl JobArgs for Rich {
    const NAME: &'static str = "rich";
    const QUEUE: &'static str = "slow";
    const PRIORITY: i32 = -5;
    const MAX_ARGUMENTS: usize = 200;
    const REDACT: &'static [&'static str] = &["account"];
    const VERSION: u32 = 2;

    fn policy() -> Policy {
        Policy::new()
            .max_attempts(4)
            .max_crashes(1)
            .delivery(Delivery::AtLeastOnce)
            .backoff(Backoff::Exponential {
                first: Duration::from_millis(1_500),
                cap: Duration::from_secs(60),
            })
            .timeout(Duration::from_secs(30))
            .expires_in(Duration::from_secs(3_600))
            .retry_for(Duration::from_secs(7_200))
            .keep_result(Duration::from_secs(60))
            .unique_scope(UniqueScope::WhileWaiting)
            .on_conflict(OnConflict::Replace)
    }

    fn unique_id(&self) -> Option<String> {
        Some(format!("rich/{}", self.account))
    }

    fn concurrency(&self) -> Option<Concurrency> {
        let limit = Concurrency::new(&self.account).limit(3).group("accounts");
        Some(limit.on_conflict(LimitConflict::Discard))
    }
}

#[derive(Serialize, Deserialize)]
struct Rated {
    tenant: String,
}

impl JobArgs for Rated {
    const NAME: &'static str = "rated";

    fn rates(&self) -> Vec<Rate> {
        let day = Rate::per_day(1_000).key(format!("day/{}", self.tenant));
        vec![Rate::per_second(5_000).cost(3), day.burst(9)]
    }
}

#[derive(Serialize, Deserialize)]
struct Once;

impl JobArgs for Once {
    const NAME: &'static str = "once";

    fn policy() -> Policy {
        Policy::new().delivery(Delivery::AtMostOnce)
    }

    fn concurrency(&self) -> Option<Concurrency> {
        Some(Concurrency::new("one").ordered())
    }
}

const PLAIN: Function<Plain> = Function::of_args();
const RICH: Function<Rich> = Function::of_args();
const ONCE: Function<Once> = Function::of_args();
const RATED: Function<Rated> = Function::of_args();

fn rich(account: &str) -> Rich {
    Rich {
        account: account.to_owned(),
    }
}

/// Enqueues jobs through the driver for Diesel, and returns their ids.
fn by_driver(db: &TestDb, jobs: &[NewJob]) -> Result<Vec<i64>, String> {
    let mut conn = db.connect();
    let done = match conn.as_conn() {
        Conn::Sqlite(conn) => {
            diesel::Connection::transaction(conn, |conn| driver::enqueue_all(conn, jobs))
        }
        #[cfg(feature = "postgres")]
        Conn::Postgres(conn) => {
            diesel::Connection::transaction(conn, |conn| driver::enqueue_all(conn, jobs))
        }
        _ => unreachable!(),
    };
    done.map_err(|error: diesel::result::Error| error.to_string())
}

fn another(db: &TestDb) -> TestDb {
    if db.is_postgres() {
        TestDb::postgres()
    } else {
        TestDb::sqlite()
    }
}

fn a_type_leaves_the_same_rows_by_a_driver_as_by_rust(db: &TestDb) {
    let other = another(db);
    let conn = &mut db.connection();
    PLAIN.enqueue(conn, &Plain { n: 7 }).unwrap();
    for account in ["a", "b", "a"] {
        RICH.enqueue(conn, &rich(account)).unwrap();
    }
    ONCE.enqueue(conn, &Once).unwrap();
    let rated = || Rated {
        tenant: "acme".to_owned(),
    };
    RATED.enqueue(conn, &rated()).unwrap();
    let jobs = [
        NewJob::new(&Plain { n: 7 }),
        NewJob::new(&rich("a")),
        NewJob::new(&rich("b")),
        NewJob::new(&rich("a")),
        NewJob::new(&Once),
        NewJob::new(&rated()),
    ]
    .map(Result::unwrap);
    let ids = by_driver(&other, &jobs).unwrap();
    assert_eq!(ids[1], ids[3], "it was replaced");
    compare("types", rows(db), rows(&other));
    assert_eq!(db.rows("jobs"), 5);
}

fn a_worker_performs_what_a_driver_enqueued(db: &TestDb) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (of_plain, of_rich) = (Arc::clone(&seen), Arc::clone(&seen));
    let note = |seen: &Mutex<Vec<String>>, text: String| {
        seen.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(text);
    };
    // Version 1 had a number.
    let upcast = |version: u32, old: serde_json::Value| {
        assert_eq!(version, 1);
        Ok::<_, JobError>(json!({ "account": old["id"].to_string() }))
    };
    let registry = Registry::new()
        .function(PLAIN, move |args, _| {
            note(&of_plain, format!("plain {}", args.n));
            Ok(())
        })
        .function(RICH.upcast(upcast), move |args, cx| {
            note(&of_rich, format!("{} {}", args.account, cx.attempt()));
            Ok(())
        });
    let old = NewJob::of_class("rich", r#"{"id":7}"#);
    let jobs = [
        NewJob::new(&Plain { n: 1 }).unwrap(),
        NewJob::new(&rich("a")).unwrap(),
        old,
    ];
    by_driver(db, &jobs).unwrap();
    let drained = windlass::testing::drain(&mut db.connection(), &registry).unwrap();
    drained.assert_all_finished(3);
    let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner).clone();
    seen.sort();
    assert_eq!(seen, ["7 1", "a 1", "plain 1"]);
}

fn each_option_leaves_the_same_rows(db: &TestDb) {
    let other = another(db);
    let time = SystemTime::UNIX_EPOCH + Duration::from_micros(32_502_988_800_250_000);
    let header = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let mine = NewJob::new(&Plain { n: 1 }).unwrap();
    let jobs = [
        mine.clone()
            .queue("other")
            .priority(9)
            .tag("a")
            .tags(["b", "a"]),
        mine.clone()
            .after(Duration::from_millis(90_500))
            .meta("k", "v")
            .meta("a", 1),
        mine.clone().at(time).idempotency_key("key").tenant("acme"),
        mine.clone()
            .unique_id("id")
            .traceparent(header)
            .arguments_version(3),
        mine.clone()
            .concurrency(Concurrency::new(1))
            .not_after(time),
        mine.clone()
            .rate(Rate::per_minute(6).key("api"))
            .after(Duration::from_secs(90)),
        mine.clone().rate(Rate::per_hour(1)).without_rates(),
        mine.unlimited().expires_in(Duration::from_secs(60)),
    ];
    by_driver(&other, &jobs).unwrap();
    let rust = PLAIN.job(&Plain { n: 1 }).unwrap();
    let at = chrono::DateTime::from(time);
    let same = [
        rust.clone()
            .queue("other")
            .priority(9)
            .tag("a")
            .tags(["b", "a"]),
        rust.clone()
            .after(Duration::from_millis(90_500))
            .meta("k", "v")
            .meta("a", 1),
        rust.clone().at(at).idempotency_key("key").tenant("acme"),
        rust.clone()
            .unique_id("id")
            .traceparent(header)
            .arguments_version(3),
        rust.clone()
            .concurrency(windlass::Concurrency::new(1))
            .not_after(at),
        rust.clone()
            .rate(limits::Rate::per_minute(6).key("api"))
            .after(Duration::from_secs(90)),
        rust.clone().rate(limits::Rate::per_hour(1)).without_rates(),
        rust.unlimited().expires_in(Duration::from_secs(60)),
    ];
    for job in same {
        job.enqueue(&mut db.connection()).unwrap();
    }
    compare("options", rows(db), rows(&other));
}

fn a_list_returns_the_ids_in_order(db: &TestDb) {
    let job = |n: i64| NewJob::new(&Plain { n }).unwrap();
    let mut jobs: Vec<NewJob> = (0..1_203).map(job).collect();
    jobs[5] = NewJob::new(&rich("x")).unwrap();
    jobs[700] = job(700).idempotency_key("seven");
    let ids = by_driver(db, &jobs).unwrap();
    assert_eq!(ids.len(), 1_203);
    let mut conn = db.connection();
    for place in [0, 4, 6, 499, 500, 699, 700, 701, 1_202] {
        let id = ids[usize::try_from(place).unwrap()];
        let text = format!("SELECT arguments AS t FROM solid_queue_jobs WHERE id = {id}");
        let found = crate::support::db::texts(&mut conn, &text);
        assert_eq!(found, [format!("{{\"n\":{place}}}")]);
    }
    assert_eq!(
        by_driver(db, &[job(7).idempotency_key("seven")]).unwrap(),
        [ids[700]]
    );
}

fn a_job_joins_a_batch_and_another_waits_for_it(db: &TestDb) {
    let conn = &mut db.connection();
    let first = NewJob::new(&Plain { n: 1 }).unwrap();
    let batch = windlass::Batch::new("import").add([PLAIN.job(&Plain { n: 0 })]);
    let batch = batch.enqueue(conn).unwrap().id;
    let jobs = [
        first.clone().batch(batch.0),
        first.clone().batch(batch.0),
        first.after_batch(batch.0, On::Finish),
    ];
    by_driver(db, &jobs).unwrap();
    assert_eq!(batch.status(conn).unwrap().open, 3);
    let edges = "SELECT runs_on || ' ' || parent_batch_id AS t FROM windlass_edges";
    assert_eq!(db.texts(edges), [format!("finish {}", batch.0)]);
    let registry = Registry::new().function(PLAIN, |_, _| Ok(()));
    let drained = windlass::testing::drain(conn, &registry).unwrap();
    drained.assert_all_finished(4);
    let late = by_driver(db, &[NewJob::new(&Plain { n: 9 }).unwrap().batch(batch.0)]);
    assert!(late.unwrap_err().contains("over"));
}

fn the_text_of_arguments_stays(db: &TestDb) {
    let texts = [
        "\"a\u{7f}b\"",
        "\"\u{85}\u{2028}\"",
        r#""\\ \" \u00e9""#,
        "{\"$1\":\"?2 ' } , {\"}",
        "\"é\"",
        "[1.0,1e2]",
    ];
    let jobs = texts.map(|text| NewJob::of_class("note", text));
    by_driver(db, &jobs).unwrap();
    let stored = db.texts("SELECT arguments AS t FROM solid_queue_jobs ORDER BY id");
    assert_eq!(stored, texts);
    by_driver(
        db,
        &["[1,\n\t2]", "{ }"].map(|text| NewJob::of_class("note", text)),
    )
    .unwrap();
    let stored = db.texts("SELECT arguments AS t FROM solid_queue_jobs ORDER BY id");
    assert_eq!(stored[6..], ["[1,  2]", "{ }"]);
}

fn a_refused_job_is_an_error_of_the_driver(db: &TestDb) {
    let job = NewJob::new(&Plain { n: 1 }).unwrap();
    for (job, says) in [
        (job.clone().queue("a b"), "its queue must have"),
        (job.clone().tag(""), "its tags must be"),
        (job.clone().rate(Rate::per_day(0)), "the number, the burst"),
        (
            job.expires_in(Duration::ZERO),
            "its expires_in_seconds must be above 0",
        ),
    ] {
        let error = by_driver(db, &[job]).unwrap_err();
        assert!(error.contains(says), "{error}");
    }
    assert_eq!(db.rows("jobs"), 0);
    let error = NewJob::new(&rich(&"x".repeat(200))).unwrap_err();
    assert!(error.to_string().contains("the maximum is 200"), "{error}");
    run(db, "SELECT 1").unwrap();
}
