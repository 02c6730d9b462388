//! Adding jobs, and batches in batches.

use super::*;
use crate::on_each_database;
use windlass::DbConnection;
use windlass::{Error, OnConflict};

on_each_database!(
    a_job_adds_others_to_its_batch,
    jobs_can_be_added_in_the_transaction_that_enqueues_it,
    nothing_is_added_to_a_batch_that_is_over,
    a_batch_does_not_end_while_a_transaction_adds_jobs,
    a_batch_in_a_batch_holds_it_open,
    a_failed_batch_in_a_batch_makes_it_fail,
    a_rollback_leaves_nothing,
    what_exists_already_does_not_join,
    a_job_without_a_batch_has_none,
    bad_batches_are_refused_before_any_sql,
);

fn a_job_adds_others_to_its_batch(db: &TestDb) {
    let (batch, follow_ups) = run(db, followed([Member::AddOne; 5]));
    assert_eq!(follow_ups, ["finish", "success"]);
    assert_eq!(counts(db, batch), "10 10 0");
}

fn jobs_can_be_added_in_the_transaction_that_enqueues_it(db: &TestDb) {
    let mut conn = db.connect();
    let batch = conn
        .transaction(|conn: &mut DbConnection| {
            let batch = followed([]).enqueue(conn)?.id;
            for _ in 0..3 {
                batch.add(conn, [&Member::Finish, &Member::Finish])?;
            }
            Ok::<_, Error>(batch)
        })
        .unwrap();
    assert_eq!(batch.status(&mut conn).unwrap().open, 6);
    assert_eq!(run_on(db, batch), ["finish", "success"]);
    assert_eq!(counts(db, batch), "6 6 0");
}

fn nothing_is_added_to_a_batch_that_is_over(db: &TestDb) {
    let (batch, _) = run(db, followed([Member::Finish]));
    let mut conn = db.connect();
    let refused = batch.add(&mut conn, [&Member::Finish]).unwrap_err();
    assert!(
        matches!(refused, Error::BatchOver { id } if id == batch.0),
        "{refused}"
    );
    let unknown = BatchId(batch.0 + 1_000);
    let refused = unknown.add(&mut conn, [&Member::Finish]).unwrap_err();
    assert!(matches!(refused, Error::NoSuchBatch { .. }), "{refused}");
    let refused = unknown.status(&mut conn).unwrap_err();
    assert!(matches!(refused, Error::NoSuchBatch { .. }), "{refused}");
    let members = "SELECT count(*) AS n FROM solid_queue_jobs WHERE class_name = 'member'";
    assert_eq!(db.count(members), 1, "nothing was enqueued");
}

fn a_batch_does_not_end_while_a_transaction_adds_jobs(db: &TestDb) {
    let mut conn = db.connect();
    let batch = followed([Member::Finish]).enqueue(&mut conn).unwrap().id;
    let log = Arc::new(Log::default());
    let worker = worker(db, &log, &Events::default());
    let added = conn.transaction(|conn: &mut DbConnection| {
        let added = match batch.add(conn, [&Member::Finish]) {
            // The first job was faster.
            Err(Error::BatchOver { .. }) => return Ok(false),
            added => added?,
        };
        assert_eq!(added.len(), 1);
        if db.is_postgres() {
            until("the first job has ended", || open_jobs(db) <= 3);
            assert!(!is_over(db, batch), "a transaction adds jobs");
        }
        Ok::<_, Error>(true)
    });
    let members = 1 + i64::from(added.unwrap());
    until("the batch is over", || is_over(db, batch));
    until("what follows has run", || follow_ups(&log).len() == 2);
    worker.stop();
    until("the total is right", || {
        counts(db, batch) == format!("{members} {members} 0")
    });
    assert_eq!(follow_ups(&log), ["finish", "success"]);
}

fn nested(members: impl IntoIterator<Item = Member>) -> Batch {
    let inner = |note: &str, members: Vec<Member>| {
        Batch::new("inner")
            .add(members.iter().map(NewJob::new))
            .on_finish(&Note::new(note))
    };
    followed([Member::Finish])
        .add_batch(inner("inner 1", members.into_iter().collect()))
        .add_batch(inner("inner 2", Vec::new()).add_batch(inner("innermost", vec![Member::Finish])))
}

fn a_batch_in_a_batch_holds_it_open(db: &TestDb) {
    let (batch, follow_ups) = run(db, nested([Member::Finish; 4]));
    let all = ["finish", "inner 1", "inner 2", "innermost", "success"];
    assert_eq!(follow_ups, all);
    assert_eq!(counts(db, batch), "3 3 0");
}

fn a_failed_batch_in_a_batch_makes_it_fail(db: &TestDb) {
    let (batch, follow_ups) = run(db, nested([Member::Fail]));
    let all = ["failure", "finish", "inner 1", "inner 2", "innermost"];
    assert_eq!(follow_ups, all);
    assert_eq!(counts(db, batch), "3 2 1");
}

fn a_rollback_leaves_nothing(db: &TestDb) {
    let mut conn = db.connect();
    let undone = conn.transaction(|conn: &mut DbConnection| {
        nested([Member::Finish]).enqueue(conn)?;
        Err::<(), _>(Error::Settings("undo".to_owned()))
    });
    assert_eq!(undone.unwrap_err().to_string(), "undo");
    for table in [
        "solid_queue_jobs",
        "solid_queue_batches",
        "solid_queue_batch_executions",
        "solid_queue_blocked_executions",
        "windlass_edges",
        "windlass_wanted_keys",
    ] {
        let rows = db.count(&format!("SELECT count(*) AS n FROM {table}"));
        assert_eq!(rows, 0, "{table}");
    }
}

fn what_exists_already_does_not_join(db: &TestDb) {
    let mut conn = db.connect();
    let far = Duration::from_secs(3600);
    let named = |on_conflict| {
        let job = NewJob::new(&Note::new("named")).unwrap().unique_id("u");
        job.policy(Policy::new().on_conflict(on_conflict))
            .after(far)
    };
    named(OnConflict::Existing).enqueue(&mut conn).unwrap();
    let existing = followed([Member::Finish]).add([named(OnConflict::Existing)]);
    let batch = existing.enqueue(&mut conn).unwrap().id;
    assert_eq!(batch.status(&mut conn).unwrap().open, 1);
    let replacing = followed([Member::Finish]).add([named(OnConflict::Replace)]);
    let batch = replacing.enqueue(&mut conn).unwrap().id;
    assert_eq!(batch.status(&mut conn).unwrap().open, 1);
    let in_batches =
        "SELECT count(*) AS n FROM solid_queue_jobs WHERE unique_id = 'u' AND batch_id IS NULL";
    assert_eq!(db.count(in_batches), 1, "it stays outside");
}

fn a_job_without_a_batch_has_none(db: &TestDb) {
    let mut conn = db.connect();
    let job = NewJob::new(&Member::AddOne).unwrap();
    job.enqueue(&mut conn).unwrap();
    let log = Arc::new(Log::default());
    let worker = worker(db, &log, &Events::default());
    until("it has failed", || {
        db.count("SELECT count(*) AS n FROM solid_queue_failed_executions") == 1
    });
    worker.stop();
    let error = "SELECT error AS t FROM solid_queue_failed_executions";
    let error = db.texts(error).join("");
    assert!(error.contains("no_batch"), "{error}");
}

fn bad_batches_are_refused_before_any_sql(db: &TestDb) {
    let mut conn = db.connect();
    let note = || NewJob::new(&Note::new("n")).unwrap();
    for (batch, part) in [
        (Batch::new(""), "batch name"),
        (Batch::new("a\0b"), "batch name"),
        (Batch::new("n").metadata(&"x".repeat(70_000)), "metadata"),
        (
            Batch::new("n").metadata(&"x".repeat(99)).max_metadata(100),
            "at most 100 are stored",
        ),
        (
            Batch::new("n").on_success(note().unique_id("u")),
            "cannot have a unique id",
        ),
        (
            Batch::new("n").on_finish(note().idempotency_key("k")),
            "cannot have an idempotency key",
        ),
        (
            Batch::new("n").on_finish(note().batch(BatchId(77))),
            "cannot have a batch of its own",
        ),
        (
            Batch::new("n").add([note().batch(BatchId(77))]),
            "it names the batch 77, and is added to another",
        ),
        (Batch::new("n").add_batch(Batch::new("")), "batch name"),
        (
            Batch::new("n").add([NewJob::of_class("note", "no JSON")]),
            "JSON",
        ),
    ] {
        let refused = batch.enqueue(&mut conn).unwrap_err().to_string();
        assert!(refused.contains(part), "{refused}");
    }
    assert_eq!(db.count("SELECT count(*) AS n FROM solid_queue_batches"), 0);
    let large = Batch::new("n")
        .metadata(&"x".repeat(70_000))
        .max_metadata(70_002);
    large.enqueue(&mut conn).unwrap();
    let size = "SELECT CAST(length(metadata) AS bigint) AS n FROM solid_queue_batches";
    assert_eq!(db.count(size), 70_002);
}
