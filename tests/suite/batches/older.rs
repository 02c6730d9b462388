//! Jobs of batches that were ended by programs that do not take them out: a version of Windlass before batches, or
//! statements by hand. A dispatcher takes them out.

use super::*;
use crate::on_each_database;
use crate::support::db::execute;
use windlass::Dispatcher;

on_each_database!(
    a_job_that_finished_is_taken_out,
    a_job_that_failed_is_taken_out_as_a_failure,
    a_job_that_was_cancelled_is_taken_out_as_a_failure,
    a_job_that_is_gone_is_taken_out,
    only_ended_jobs_are_taken_out,
    more_than_a_stretch_is_taken_out,
);

const LONG_AGO: &str = "2026-11-25 05:00:00.000000";

/// Ends all jobs that are ready as a program does that does nothing about batches.
fn end(db: &TestDb, how: &str) {
    let jobs = "SELECT job_id FROM solid_queue_ready_executions";
    if how == "failed" {
        db.execute(&format!(
            "INSERT INTO solid_queue_failed_executions (job_id, error, created_at) SELECT job_id, '{{}}', '{LONG_AGO}' FROM ({jobs}) AS r"
        ));
    } else {
        db.execute(&format!(
            "UPDATE solid_queue_jobs SET finished_at = '{LONG_AGO}' WHERE id IN ({jobs})"
        ));
    }
    if how == "cancelled" {
        db.execute(&format!(
            "INSERT INTO windlass_attempts (job_id, claim_id, attempt, outcome, kind, message, ended_at) \
             SELECT job_id, 0, 1, 'cancelled', 'cancelled', '', '{LONG_AGO}' FROM ({jobs}) AS r"
        ));
    }
    db.execute("DELETE FROM solid_queue_ready_executions");
}

/// Lets all members be as old as those that a dispatcher looks at.
fn age(db: &TestDb) {
    db.execute(&format!(
        "UPDATE solid_queue_batch_executions SET created_at = '{LONG_AGO}'"
    ));
}

fn members(db: &TestDb) -> i64 {
    db.count("SELECT count(*) AS n FROM solid_queue_batch_executions")
}

fn dispatcher(db: &TestDb) -> Handle {
    Dispatcher::new(&db.database)
        .polling_interval(Duration::from_millis(50))
        .start()
        .unwrap()
}

/// Returns the follow-up jobs and the counts of a batch whose jobs have ended in this way.
fn follow_ups_of(db: &TestDb, how: &str) -> (Vec<String>, String) {
    let members = [Member::Finish, Member::Finish];
    let batch = followed(members).enqueue(&mut db.connection()).unwrap().id;
    end(db, how);
    age(db);
    let dispatcher = dispatcher(db);
    let follow_ups = run_on(db, batch);
    dispatcher.stop();
    (follow_ups, counts(db, batch))
}

fn a_job_that_finished_is_taken_out(db: &TestDb) {
    let (follow_ups, counts) = follow_ups_of(db, "finished");
    assert_eq!(follow_ups, ["finish", "success"]);
    assert_eq!(counts, "2 2 0");
}

fn a_job_that_failed_is_taken_out_as_a_failure(db: &TestDb) {
    let (follow_ups, counts) = follow_ups_of(db, "failed");
    assert_eq!(follow_ups, ["failure", "finish"]);
    assert_eq!(counts, "2 0 2");
}

fn a_job_that_was_cancelled_is_taken_out_as_a_failure(db: &TestDb) {
    let (follow_ups, counts) = follow_ups_of(db, "cancelled");
    assert_eq!(follow_ups, ["failure", "finish"]);
    assert_eq!(counts, "2 0 2");
}

fn a_job_that_is_gone_is_taken_out(db: &TestDb) {
    let batch = followed([]).enqueue(&mut db.connection()).unwrap().id;
    let orphan = format!(
        "INSERT INTO solid_queue_batch_executions (job_id, batch_id, created_at) VALUES (1000000, {batch}, '{LONG_AGO}')"
    );
    if db.is_postgres() {
        db.execute(&orphan);
    } else {
        let mut conn = db.connect();
        execute(&mut conn, "PRAGMA foreign_keys = OFF");
        execute(&mut conn, &orphan);
    }
    let dispatcher = dispatcher(db);
    assert_eq!(run_on(db, batch), ["finish", "success"]);
    dispatcher.stop();
}

fn only_ended_jobs_are_taken_out(db: &TestDb) {
    let mut conn = db.connect();
    let far = Duration::from_secs(3600);
    followed([Member::Finish, Member::Finish])
        .enqueue(&mut conn)
        .unwrap();
    end(db, "finished");
    age(db);
    let later = NewJob::new(&Member::Finish).unwrap().after(far);
    let open = followed([Member::Finish]).add([later]);
    let open = open.enqueue(&mut conn).unwrap().id;
    age(db);
    // One that ended just now may be in its batch: the program that ended it has a moment.
    let young = followed([Member::Finish]).enqueue(&mut conn).unwrap();
    db.execute(&format!(
        "UPDATE solid_queue_jobs SET finished_at = '{LONG_AGO}' WHERE id = {}",
        young.jobs[0].id
    ));
    let dispatcher = dispatcher(db);
    until("ended jobs were taken out", || members(db) == 3);
    dispatcher.stop();
    assert_eq!(members(db), 3);
    assert_eq!(open.status(&mut conn).unwrap().open, 2);
    assert_eq!(young.id.status(&mut conn).unwrap().open, 1);
}

fn more_than_a_stretch_is_taken_out(db: &TestDb) {
    let mut conn = db.connect();
    Batch::new("ended")
        .add([Member::Finish; 1_500].iter().map(NewJob::new))
        .enqueue(&mut conn)
        .unwrap();
    end(db, "finished");
    let far = Duration::from_secs(3600);
    let waiting = (0..700).map(|_| NewJob::new(&Member::Finish).unwrap().after(far));
    Batch::new("waits").add(waiting).enqueue(&mut conn).unwrap();
    age(db);
    let dispatcher = dispatcher(db);
    until("ended jobs were taken out", || members(db) == 700);
    dispatcher.stop();
}
