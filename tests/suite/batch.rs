//! One bad row in a batch must not hold up the others.

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::jobs::{Log, Note};
use crate::support::wait::{DEADLINE, until};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use windlass::{Context, Job, JobResult, NewJob, Registry, Worker, enqueue_all};

on_each_database!(
    a_finish_that_the_database_refuses_holds_up_no_other,
    a_failure_whose_text_is_refused_is_recorded_without_it,
    a_failure_that_the_database_refuses_holds_up_no_other,
);

crate::through_a_pooler_in_all!(
    a_finish_that_the_database_refuses_holds_up_no_other,
    a_failure_whose_text_is_refused_is_recorded_without_it,
    a_failure_that_the_database_refuses_holds_up_no_other,
);

fn count(db: &TestDb, condition: &str) -> i64 {
    db.count(&format!(
        "SELECT count(*) AS n FROM solid_queue_jobs WHERE {condition}"
    ))
}

/// Has the database refuse to write `when` into a table.
pub fn refuse(db: &TestDb, table: &str, operation: &str, when: &str) {
    if db.is_postgres() {
        db.execute(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS \
             $$ BEGIN RAISE EXCEPTION 'refused by the test'; END $$",
        );
        db.execute(&format!(
            "CREATE TRIGGER refuse BEFORE {operation} ON {table} FOR EACH ROW WHEN ({when}) EXECUTE FUNCTION refuse()"
        ));
    } else {
        db.execute(&format!(
            "CREATE TRIGGER refuse BEFORE {operation} ON {table} WHEN {when} \
             BEGIN SELECT RAISE(ABORT, 'refused by the test'); END"
        ));
    }
}

pub fn accept(db: &TestDb, table: &str) {
    db.execute(&if db.is_postgres() {
        format!("DROP TRIGGER refuse ON {table}")
    } else {
        "DROP TRIGGER refuse".to_owned()
    });
}

fn a_finish_that_the_database_refuses_holds_up_no_other(db: &TestDb) {
    refuse(
        db,
        "solid_queue_jobs",
        "UPDATE",
        "NEW.finished_at IS NOT NULL AND NEW.priority = 7",
    );
    let log = Arc::new(Log::default());
    let registry = Registry::new().register::<Note>(Arc::clone(&log));
    let mut worker = Worker::new(&db.database, registry)
        .threads(4)
        .start()
        .unwrap();
    let jobs = (0..101).map(|n| {
        let job = NewJob::new(&Note::new(n.to_string())).unwrap();
        if n == 13 { job.priority(7) } else { job }
    });
    enqueue_all(&mut db.connection(), jobs).unwrap();
    until("all others have finished", || {
        count(db, "finished_at IS NOT NULL") == 100
    });
    until("the bad one has run", || log.len() == 101);
    assert_eq!(
        db.rows("claimed_executions"),
        1,
        "its end is kept, not dropped"
    );
    accept(db, "solid_queue_jobs");
    until("the bad one has finished too", || {
        count(db, "finished_at IS NOT NULL") == 101
    });
    worker.stop();
    assert!(worker.join(DEADLINE).unwrap().is_drained());
    assert_eq!(log.len(), 101, "each ran once");
}

fn a_failure_whose_text_is_refused_is_recorded_without_it(db: &TestDb) {
    refuse(
        db,
        "solid_queue_failed_executions",
        "INSERT",
        "NEW.error LIKE '%undecodable%'",
    );
    let registry = Registry::new().register::<Note>(Log::default());
    let _worker = Worker::new(&db.database, registry).start().unwrap();
    NewJob::of_class("note", "[1]")
        .enqueue(&mut db.connection())
        .unwrap();
    until("it has failed", || db.rows("failed_executions") == 1);
    let error = db
        .texts("SELECT error AS t FROM solid_queue_failed_executions")
        .remove(0);
    assert!(error.contains("unrecordable"), "{error}");
}

/// And costs none of them its text.
fn a_failure_that_the_database_refuses_holds_up_no_other(db: &TestDb) {
    refuse(
        db,
        "solid_queue_failed_executions",
        "INSERT",
        "NEW.error LIKE '%number 13;%'",
    );
    let registry = Registry::new().register::<Failing>(());
    let _worker = Worker::new(&db.database, registry)
        .threads(4)
        .start()
        .unwrap();
    let jobs = (0..120).map(|number| NewJob::new(&Failing { number }).unwrap());
    enqueue_all(&mut db.connection(), jobs).unwrap();
    until("all have failed", || db.rows("failed_executions") == 120);
    let errors = db.texts("SELECT error AS t FROM solid_queue_failed_executions");
    let without = errors.iter().filter(|error| error.contains("unrecordable"));
    assert_eq!(without.count(), 1);
    let with = errors.iter().filter(|error| error.contains("; no luck"));
    assert_eq!(with.count(), 119);
}

#[derive(Serialize, Deserialize)]
struct Failing {
    number: u32,
}

impl Job for Failing {
    const NAME: &'static str = "failing";
    type State = ();
    type Output = ();

    fn perform(self, _: &Context<'_, ()>) -> JobResult {
        Err(format!("number {}; no luck", self.number).into())
    }
}
