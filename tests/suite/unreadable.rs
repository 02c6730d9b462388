//! Arguments that no worker could read again are refused where they are enqueued, and the error names the field.

use crate::on_each_database;
use crate::support::TestDb;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use windlass::{Context, Function, Job, JobResult, NewJob, RecurringTask, Registry, jobs};

on_each_database!(
    values_that_come_back_changed_or_not_at_all_are_refused,
    texts_that_no_type_can_read_are_refused,
    what_a_type_reads_is_enqueued,
);

#[derive(Debug, Default, Serialize, Deserialize)]
struct Price {
    amount: f64,
    discount: Option<f32>,
    #[serde(default)]
    kind: Kind,
    #[serde(flatten)]
    by_id: BTreeMap<u32, i32>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(tag = "type")]
enum Kind {
    #[default]
    Plain,
    Large {
        number: u128,
    },
}

impl Job for Price {
    const NAME: &'static str = "price";
    type State = ();
    type Output = ();

    fn perform(self, _cx: &Context<'_, ()>) -> JobResult {
        Ok(())
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Plain {
    id: u128,
    rest: BTreeMap<u32, f64>,
    none: Option<f64>,
}

const KINDS: Function<BTreeMap<String, Kind>> = Function::new("kinds");
const PLAIN: Function<Plain> = Function::new("plain");

fn jobs(db: &TestDb) -> i64 {
    db.count("SELECT count(*) AS n FROM solid_queue_jobs")
}

fn refusal<T>(result: windlass::Result<T>, says: &str) {
    let error = result.err().expect(says).to_string();
    assert!(error.contains(says), "{error}, not {says}");
}

fn values_that_come_back_changed_or_not_at_all_are_refused(db: &TestDb) {
    let conn = &mut db.connection();
    let wrong = [
        (
            Price {
                amount: f64::NAN,
                ..Price::default()
            },
            "`amount` is NaN",
        ),
        (
            Price {
                discount: Some(f32::INFINITY),
                ..Price::default()
            },
            "`discount` is inf",
        ),
        (
            Price {
                kind: Kind::Large { number: u128::MAX },
                ..Price::default()
            },
            "could not be read again: u128 is not supported",
        ),
        (
            Price {
                by_id: BTreeMap::from([(7, 7)]),
                ..Price::default()
            },
            "could not be read again",
        ),
    ];
    for (job, says) in wrong {
        refusal(NewJob::new(&job), says);
        refusal(RecurringTask::new("prices", "@hourly", &job), says);
        refusal(job.enqueue(conn), says);
    }
    let large = Kind::Large { number: 7 };
    let kinds = BTreeMap::from([
        ("plain".to_owned(), Kind::Plain),
        ("large".to_owned(), large),
    ]);
    refusal(
        KINDS.enqueue(conn, &kinds),
        "could not be read again, at `large`",
    );
    let plain = Plain {
        id: 1,
        rest: BTreeMap::from([(1, 1.0), (2, f64::NEG_INFINITY)]),
        none: None,
    };
    refusal(PLAIN.enqueue(conn, &plain), "`rest.2` is -inf");
    assert_eq!(jobs(db), 0);
}

fn texts_that_no_type_can_read_are_refused(db: &TestDb) {
    let conn = &mut db.connection();
    let job = NewJob::of_class("any", "{}").enqueue(conn).unwrap().id;
    for (text, says) in [
        (r#"{"name":"\ud800"}"#, "at `name`"),
        (r#"{"a":{"price":1e999}}"#, "at `a.price`"),
        (
            r#"{"ids":[1,18446744073709551616]}"#,
            "`ids[1]` is an integer",
        ),
    ] {
        refusal(NewJob::of_class("any", text).enqueue(conn), says);
        refusal(jobs::edit_arguments(conn, job, text, None), says);
        refusal(
            Registry::new().register::<Price>(()).new_job("price", text),
            "",
        );
    }
    assert_eq!(jobs(db), 1);
}

fn what_a_type_reads_is_enqueued(db: &TestDb) {
    let conn = &mut db.connection();
    let plain = Plain {
        id: u128::MAX,
        rest: BTreeMap::from([(1, 1e300)]),
        none: None,
    };
    PLAIN.enqueue(conn, &plain).unwrap();
    Price::default().enqueue(conn).unwrap();
    let emoji = r#"{"a":"\ud83d\ude00","n":18446744073709551615}"#;
    NewJob::of_class("any", emoji).enqueue(conn).unwrap();
    assert_eq!(jobs(db), 3);
}
