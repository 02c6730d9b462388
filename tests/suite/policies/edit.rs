//! New arguments for jobs that wait or have failed.

use super::{Bench, Scripted, Turn, finished};
use crate::on_each_database;
use crate::support::TestDb;
use crate::support::program::windlass;
use crate::support::wait::until;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use windlass::errors::EditRefusal;
use windlass::jobs::{self, TaskStatus};
use windlass::limits::LimitConflict;
use windlass::{Concurrency, Context, Dispatcher, Error, Job, JobId, JobResult, NewJob, Registry};

on_each_database!(
    waiting_and_failed_jobs_are_edited,
    claimed_and_ended_jobs_are_not_edited,
    the_type_checks_the_arguments,
    secrets_are_neither_printed_nor_replaced_by_accident,
    a_job_of_ruby_is_not_edited,
    an_edited_job_keeps_its_slot,
    an_edited_job_runs_with_its_new_arguments,
);

#[derive(Debug, Serialize, Deserialize)]
struct Charge {
    order: u64,
    pin: String,
}

impl Job for Charge {
    const NAME: &'static str = "charge";
    const REDACT: &'static [&'static str] = &["pin"];
    const MAX_ARGUMENTS: usize = 100;
    type State = ();
    type Output = ();

    fn perform(self, _cx: &Context<'_, ()>) -> JobResult {
        Ok(())
    }
}

fn arguments(db: &TestDb, job: JobId) -> String {
    let text = format!("SELECT arguments AS t FROM solid_queue_jobs WHERE id = {job}");
    db.texts(&text).remove(0)
}

fn edit(db: &TestDb, job: JobId, arguments: &str) -> Result<(), Error> {
    jobs::edit_arguments(&mut db.connection(), job, arguments, None)
}

fn refusal(result: Result<(), Error>) -> EditRefusal {
    match result.unwrap_err() {
        Error::Edit { reason, .. } => reason,
        other => panic!("{other}"),
    }
}

fn job() -> NewJob {
    NewJob::of_class("charge", r#"{"order":1,"pin":"4711"}"#)
}

fn enqueue(db: &TestDb, job: NewJob) -> JobId {
    job.enqueue(&mut db.connection()).unwrap().id
}

fn waiting_and_failed_jobs_are_edited(db: &TestDb) {
    let limited = || job().concurrency(Concurrency::new("key"));
    let hour = Duration::from_secs(3600);
    let all = [
        enqueue(db, job().unique_id("one")),
        enqueue(db, job().after(hour)),
        enqueue(db, limited()),
        enqueue(db, limited()),
        enqueue(db, job()),
    ];
    let failed = all[4];
    db.execute(&format!(
        "INSERT INTO solid_queue_failed_executions (job_id, error, created_at) \
         SELECT id, '{{}}', created_at FROM solid_queue_jobs WHERE id = {failed}"
    ));
    db.execute(&format!(
        "DELETE FROM solid_queue_ready_executions WHERE job_id = {failed}"
    ));
    let rows = |table: &str| db.rows(table);
    let before = (rows("scheduled_executions"), rows("failed_executions"));
    for job in all {
        edit(db, job, r#"{"order":2,"pin":"1"}"#).unwrap();
        assert_eq!(arguments(db, job), r#"{"order":2,"pin":"1"}"#);
    }
    assert_eq!(
        (rows("scheduled_executions"), rows("failed_executions")),
        before
    );
    let waiting = rows("ready_executions") + rows("blocked_executions");
    assert_eq!(waiting, 3);
    let kept = "SELECT count(*) AS n FROM windlass_unique_jobs WHERE unique_id = 'one'";
    assert_eq!(db.count(kept), 1);
}

/// A job that holds a slot would otherwise be discarded, because another one takes the slot.
fn claimed_and_ended_jobs_are_not_edited(db: &TestDb) {
    let (claimed, ended) = (enqueue(db, job()), enqueue(db, job()));
    db.execute("DELETE FROM solid_queue_ready_executions");
    db.execute(&format!(
        "INSERT INTO solid_queue_claimed_executions (job_id, created_at) \
         SELECT id, created_at FROM solid_queue_jobs WHERE id = {claimed}"
    ));
    db.execute(&format!(
        "UPDATE solid_queue_jobs SET finished_at = created_at WHERE id = {ended}"
    ));
    assert_eq!(refusal(edit(db, claimed, "{}")), EditRefusal::Running);
    assert_eq!(refusal(edit(db, ended, "{}")), EditRefusal::Ended);
    let error = edit(db, claimed, "{}").unwrap_err().to_string();
    assert!(
        error.starts_with(&format!("cannot edit job {claimed}: it is running")),
        "{error}"
    );
    let missing = edit(db, JobId(4711), "{}").unwrap_err();
    assert!(matches!(missing, Error::NoSuchJob { .. }), "{missing}");
    assert_eq!(arguments(db, claimed), r#"{"order":1,"pin":"4711"}"#);
}

fn the_type_checks_the_arguments(db: &TestDb) {
    let id = enqueue(db, job());
    let registry = Registry::new().register::<Charge>(());
    let edit = |arguments: &str| {
        jobs::edit_arguments(&mut db.connection(), id, arguments, Some(&registry))
    };
    edit(r#"{ "order": 3, "pin": "0815" }"#).unwrap();
    assert_eq!(arguments(db, id), r#"{"order":3,"pin":"0815"}"#);
    for (new, expected) in [
        (
            r#"{"order":"three","pin":"1"}"#,
            "the arguments do not match its type",
        ),
        (
            &format!(r#"{{"order":3,"pin":"{}"}}"#, "x".repeat(200)),
            "more than the 100 allowed",
        ),
        ("{", "the arguments do not match its type"),
    ] {
        let error = edit(new).unwrap_err().to_string();
        assert!(
            error.starts_with(&format!("cannot edit job {id}: ")),
            "{error}"
        );
        assert!(
            error.contains(expected) && !error.contains("enqueue"),
            "{error}"
        );
    }
    // Another program has the class.
    let other = enqueue(db, NewJob::of_class("other", "{}"));
    jobs::edit_arguments(&mut db.connection(), other, "[1]", Some(&registry)).unwrap();
    let error =
        jobs::edit_arguments(&mut db.connection(), other, "[1", Some(&registry)).unwrap_err();
    assert!(
        error.to_string().contains("its arguments are not JSON"),
        "{error}"
    );
}

fn secrets_are_neither_printed_nor_replaced_by_accident(db: &TestDb) {
    let id = enqueue(db, job());
    let registry = Registry::new().register::<Charge>(());
    let edit = |arguments: &str| {
        jobs::edit_arguments(&mut db.connection(), id, arguments, Some(&registry))
    };
    assert_eq!(
        refusal(edit(r#"{"order":2,"pin":"[hidden]"}"#)),
        EditRefusal::Hidden
    );
    let error = edit(r#"{"order":2,"pin":[815123]}"#)
        .unwrap_err()
        .to_string();
    assert!(
        !error.contains("815123") && !error.contains("4711"),
        "{error}"
    );
    assert_eq!(arguments(db, id), r#"{"order":1,"pin":"4711"}"#);
}

fn a_job_of_ruby_is_not_edited(db: &TestDb) {
    let ruby = r#"{"job_class":"Charge","arguments":[{"order":1}],"executions":0}"#;
    let id = enqueue(db, NewJob::of_class("charge", ruby));
    assert_eq!(refusal(edit(db, id, "{}")), EditRefusal::OfRuby);
}

fn an_edited_job_runs_with_its_new_arguments(db: &TestDb) {
    let script = |name: &str| serde_json::to_string(&Scripted::new(name, [Turn::Succeed])).unwrap();
    let id = enqueue(db, NewJob::of_class(Scripted::NAME, script("old")));
    edit(db, id, &script("new")).unwrap();
    let bench = Bench::start(db);
    until("it is done", || bench.log.len() == 1);
    assert_eq!(bench.log.lines(), ["new 1"]);
}

/// A more urgent one of its key does not end it.
fn an_edited_job_keeps_its_slot(db: &TestDb) {
    let discards = Concurrency::new("k").on_conflict(LimitConflict::Discard);
    let id = enqueue(db, job().concurrency(discards.clone()).priority(5));
    let dispatcher = Dispatcher::new(&db.database).start().unwrap();
    until("it is ready", || db.rows("ready_executions") == 1);
    dispatcher.stop();
    edit(db, id, r#"{"order":2}"#).unwrap();
    let urgent = enqueue(db, job().concurrency(discards));
    let _dispatcher = Dispatcher::new(&db.database).start().unwrap();
    until("one is discarded", || finished(db) == 1);
    let status = |job| {
        let info = jobs::status(&mut db.connection(), job).unwrap();
        info.unwrap().status
    };
    assert_eq!(
        (status(id), status(urgent)),
        (TaskStatus::Queued, TaskStatus::Discarded)
    );
    assert_eq!(arguments(db, id), r#"{"order":2}"#);
    assert_eq!(db.rows("ready_executions"), 1);
    let wrong = windlass::limits::check_semaphores(&mut db.connection()).unwrap();
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn the_program_edits_a_job() {
    let db = TestDb::sqlite();
    let id = enqueue(&db, job()).to_string();
    let said = windlass(
        &db.url,
        &["jobs", "edit", &id, "--arguments", r#"{"order":5}"#],
    );
    assert_eq!(
        said.out,
        format!("Job {id} has new arguments.\n"),
        "{said:?}"
    );
    assert_eq!(arguments(&db, JobId(1)), r#"{"order":5}"#);
    let said = windlass(&db.url, &["jobs", "edit", "99", "--arguments", "{}"]);
    assert_eq!(said.code, Some(1), "{said:?}");
}
