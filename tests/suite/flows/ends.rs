//! The ends of a parent, and the jobs that wait for it.

use super::*;
use crate::on_each_database;
use windlass::flows::{FlowGraph, On};
use windlass::jobs::{Change, EnqueueOutcome, Jobs};

on_each_database!(
    each_end_counts_as_it_should,
    each_end_counts_where_finished_jobs_are_not_kept,
    discards_go_down_a_chain,
    a_failure_of_one_discards_at_once,
    what_waits_for_retries_runs_after_one,
    what_waits_for_a_retry_is_discarded_with_the_failed_job,
    a_child_of_two_failures_runs_once,
    many_wait_for_one,
    names_of_users_mean_nothing,
    other_programs_end_parents_too,
);

/// The cause of the parent's end: its own run, or something else.
#[derive(Debug, Clone, Copy)]
enum By {
    Itself(End),
    Cancelled,
    CancelledRunning,
    Deleted,
    Expired,
}

const SUCCESSES: [By; 3] = [
    By::Itself(End::Finish),
    By::Itself(End::RetryOnce),
    By::Itself(End::FinishIn),
];

const FAILURES: [By; 6] = [
    By::Itself(End::Fail),
    By::Itself(End::Discard),
    By::Cancelled,
    By::CancelledRunning,
    By::Deleted,
    By::Expired,
];

fn each_end_counts_as_it_should(db: &TestDb) {
    each_end(db, true);
}

fn each_end_counts_where_finished_jobs_are_not_kept(db: &TestDb) {
    each_end(db, false);
}

fn each_end(db: &TestDb, keep_finished: bool) {
    for by in SUCCESSES {
        assert_eq!(
            follow_ups(db, by, keep_finished),
            ["finish", "success"],
            "{by:?}"
        );
    }
    for by in FAILURES {
        assert_eq!(
            follow_ups(db, by, keep_finished),
            ["failure", "finish"],
            "{by:?}"
        );
    }
}

/// Returns what has run after a parent that ended so.
fn follow_ups(db: &TestDb, by: By, keep_finished: bool) -> Vec<String> {
    let scene = Scene::new(db);
    let mut conn = db.connect();
    let end = match by {
        By::Itself(end) => end,
        By::CancelledRunning => End::StopWhenTold,
        By::Cancelled | By::Deleted | By::Expired => End::Finish,
    };
    let parent = part("parent", end);
    let parent = match by {
        By::Expired => parent.not_after(chrono::Utc::now() - chrono::TimeDelta::days(1)),
        _ => parent,
    };
    let parent = conn
        .transaction::<_, windlass::Error>(|conn| {
            let parent = parent.enqueue(conn)?;
            for (name, on) in [
                ("success", On::Success),
                ("failure", On::Failure),
                ("finish", On::Finish),
            ] {
                part(name, End::Finish)
                    .after(parent)
                    .when(on)
                    .enqueue(conn)?;
            }
            Ok(parent.id)
        })
        .unwrap();
    let jobs = || Jobs::waiting_or_running().ids([parent]);
    let change = |change| jobs().change(&mut db.connection(), change).unwrap().changed;
    match by {
        By::Cancelled => assert_eq!(change(Change::Cancel), 1),
        By::Deleted => assert_eq!(change(Change::Discard), 1),
        By::Itself(_) | By::Expired | By::CancelledRunning => {}
    }
    let worker = scene.worker(keep_finished);
    if matches!(by, By::CancelledRunning) {
        until("it runs", || scene.ran() == ["parent"]);
        change(Change::Cancel);
    }
    until("nothing is left to do", || scene.open() == 0);
    worker.stop();
    let mut ran = scene.ran();
    ran.retain(|name| name != "parent");
    ran.sort();
    ran
}

fn discards_go_down_a_chain(db: &TestDb) {
    let scene = Scene::new(db);
    let a = scene.enqueue(part("a", End::Fail));
    let b = scene.enqueue(part("b", End::Finish).after(a));
    let c = scene.enqueue(part("c", End::Finish).after(b));
    scene.enqueue(part("d", End::Finish).after(c).when(On::Failure));
    assert_eq!(scene.run(), ["a", "d"]);
    for (job, parent) in [(b, a), (c, b)] {
        let why = scene.discarded(job.id).unwrap();
        assert!(
            why.contains(&format!("job {}, for which it waited", parent.id)),
            "{why}"
        );
    }
}

fn a_failure_of_one_discards_at_once(db: &TestDb) {
    let scene = Scene::new(db);
    let late = scene.enqueue(part("late", End::Finish).after(Duration::from_secs(3600)));
    let a = scene.enqueue(part("a", End::Fail));
    let b = scene.enqueue(part("b", End::Finish).after([late, a]));
    let c = scene.enqueue(part("c", End::Finish).after([late, a]).when(On::Failure));
    let worker = scene.worker(true);
    until("it is discarded", || scene.discarded(b.id).is_some());
    worker.stop();
    assert_eq!(scene.discarded(c.id), None);
    assert_eq!(db.rows_of("solid_queue_blocked_executions"), 1);
}

fn retry(db: &TestDb, job: JobId, end: End) {
    let text = serde_json::to_string(&end).unwrap();
    db.execute(&format!(
        "UPDATE solid_queue_jobs SET arguments = replace(arguments, '\"Fail\"', '{text}') WHERE id = {job}"
    ));
    let retry = Change::Retry {
        even_at_most_once: false,
    };
    let retried = Jobs::failed()
        .ids([job])
        .change(&mut db.connection(), retry);
    assert_eq!(retried.unwrap().changed, 1);
}

fn what_waits_for_retries_runs_after_one(db: &TestDb) {
    let scene = Scene::new(db);
    let a = scene.enqueue(part("a", End::Fail));
    let b = scene.enqueue(part("b", End::Finish).after(a).wait_for_retries());
    scene.enqueue(part("c", End::Finish).after(a));
    scene.enqueue(part("d", End::Finish).after(a).when(On::Failure));
    assert_eq!(scene.run(), ["a", "d"]);
    let said = windlass::jobs::explain(&mut db.connection(), b.id)
        .unwrap()
        .unwrap();
    let failed = Some(a.id);
    assert!(
        matches!(said.reason, windlass::jobs::Reason::Jobs { open: 0, failed: found, .. } if found == failed),
        "{said:?}"
    );
    // It fails once more, and then succeeds.
    retry(db, a.id, End::Fail);
    assert_eq!(scene.run(), ["a", "d", "a"]);
    retry(db, a.id, End::Finish);
    let worker = scene.worker(true);
    until("it has run", || scene.ran().contains(&"b".to_owned()));
    worker.stop();
    assert_eq!(scene.ran(), ["a", "d", "a", "a", "b"]);
}

fn what_waits_for_a_retry_is_discarded_with_the_failed_job(db: &TestDb) {
    let scene = Scene::new(db);
    let a = scene.enqueue(part("a", End::Fail));
    let b = scene.enqueue(part("b", End::Finish).after(a).wait_for_retries());
    scene.run();
    assert_eq!(scene.discarded(b.id), None);
    let deleted = Jobs::failed().change(&mut db.connection(), Change::Discard);
    assert_eq!(deleted.unwrap().changed, 1);
    let worker = scene.worker(true);
    until("it is discarded", || scene.discarded(b.id).is_some());
    worker.stop();
    assert_eq!(scene.ran(), ["a"]);
}

fn a_child_of_two_failures_runs_once(db: &TestDb) {
    let scene = Scene::new(db);
    let a = scene.enqueue(part("a", End::Fail));
    let b = scene.enqueue(part("b", End::Fail));
    scene.enqueue(part("c", End::Finish).after([a, b]).when(On::Failure));
    let ran = scene.run();
    assert_eq!(ran[2..], ["c"]);
    retry(db, a.id, End::Finish);
    let ran = scene.run();
    assert_eq!(ran[2..], ["c", "a"]);
}

/// A name that undos of steps had once.
fn names_of_users_mean_nothing(db: &TestDb) {
    let scene = Scene::new(db);
    let a = scene.enqueue(part("a", End::Fail));
    let after_a = |name: &str, what: &str| part(name, End::Finish).after([(what, a)]);
    let b = scene.enqueue(after_a("b", "windlass/undo").wait_for_retries());
    let c = scene.enqueue(after_a("c", "windlass/undo/b").when(On::Failure));
    scene.run();
    let graph = FlowGraph::around(&mut db.connection(), a.id).unwrap();
    let edges = graph.edges.iter();
    let shown: Vec<_> = edges
        .map(|edge| (edge.kind, edge.name.as_deref()))
        .collect();
    let expected = [
        ("success", Some("windlass/undo")),
        ("failure", Some("windlass/undo/b")),
    ];
    assert_eq!(shown, expected);
    // No retry can bring what `b` waits for any more.
    let deleted = Jobs::failed()
        .ids([a.id])
        .change(&mut db.connection(), Change::Discard);
    assert_eq!(deleted.unwrap().changed, 1);
    let worker = scene.worker(true);
    until("it is discarded", || scene.discarded(b.id).is_some());
    worker.stop();
    assert_eq!(
        (scene.discarded(c.id), scene.ran()),
        (None, vec!["a".to_owned(), "c".to_owned()])
    );
}

fn many_wait_for_one(db: &TestDb) {
    let scene = Scene::new(db);
    let parent = scene.enqueue(part("parent", End::Fail));
    let child = |n: usize| {
        let on = if n.is_multiple_of(100) {
            On::Failure
        } else {
            On::Success
        };
        part("child", End::Finish).after(parent).when(on)
    };
    let jobs = windlass::enqueue_all(&mut db.connection(), (0..1_200).map(child)).unwrap();
    assert!(jobs.iter().all(|job| job.outcome == EnqueueOutcome::New));
    assert_eq!(scene.run().len(), 1 + 12);
    let discarded = "SELECT count(*) AS n FROM windlass_attempts WHERE outcome = 'discarded'";
    assert_eq!(db.count(discarded), 1_188);
}

fn other_programs_end_parents_too(db: &TestDb) {
    let scene = Scene::new(db);
    let [a, b, c] = ["a", "b", "c"].map(|name| scene.enqueue(part(name, End::Finish)));
    for (name, parent) in [("after a", a), ("after b", b), ("after c", c)] {
        scene.enqueue(part(name, End::Finish).after(parent).when(On::Success));
        let name = format!("{name} failed");
        scene.enqueue(part(&name, End::Finish).after(parent).when(On::Failure));
    }
    // As Ruby finishes a job, fails one, and deletes one: it deletes finished ones if it keeps none.
    let (now, error) = match db.is_postgres() {
        true => ("statement_timestamp() AT TIME ZONE 'UTC'", "'{}'"),
        false => ("strftime('%Y-%m-%d %H:%M:%f000', 'now')", "'{}'"),
    };
    let (a, b, c) = (a.id, b.id, c.id);
    db.in_transaction(&[
        &format!("UPDATE solid_queue_jobs SET finished_at = {now} WHERE id = {a}"),
        &format!("DELETE FROM solid_queue_ready_executions WHERE job_id = {a}"),
    ]);
    db.in_transaction(&[
        &format!("DELETE FROM solid_queue_ready_executions WHERE job_id = {b}"),
        &format!("INSERT INTO solid_queue_failed_executions (job_id, error, created_at) VALUES ({b}, {error}, {now})"),
    ]);
    db.in_transaction(&[
        &format!("DELETE FROM solid_queue_jobs WHERE id = {c}"),
        &format!("DELETE FROM solid_queue_ready_executions WHERE job_id = {c}"),
    ]);
    let mut ran = scene.run();
    ran.sort();
    assert_eq!(ran, ["after a", "after b failed", "after c"]);
}
