//! Flows: built and enqueued as a whole.

use super::*;
use crate::on_each_database;
use windlass::flows::On;
use windlass::jobs::EnqueueOutcome;
use windlass::{Batch, Error, Flow, Quota};

on_each_database!(
    a_flow_runs_in_its_order_and_passes_results_on,
    a_flow_is_enqueued_as_a_whole_or_not_at_all,
    a_flow_may_have_batches_and_failures,
    a_flow_may_wait_for_what_is_there_already,
    a_long_chain_is_run,
    what_waits_for_a_job_that_was_shed_is_discarded,
);

fn a_flow_runs_in_its_order_and_passes_results_on(db: &TestDb) {
    let scene = Scene::new(db);
    let flow = Flow::new().job("a", part("a", End::Finish)).unwrap();
    let flow = flow.job("b", reading("b", End::Finish, &["a"])).unwrap();
    let flow = flow.job("c", reading("c", End::RetryOnce, &["a"])).unwrap();
    let flow = flow
        .job("d", reading("d", End::Finish, &["b", "c"]))
        .unwrap();
    let flow = flow.after("b", ["a"]).unwrap().after("c", ["a"]).unwrap();
    let flow = flow.after("d", ["b", "c"]).unwrap();
    let flow = flow.enqueue(&mut db.connection()).unwrap();
    assert_eq!(flow.jobs.len(), 4);
    assert_eq!(db.rows_of("windlass_edges"), 4);
    let ran = scene.run();
    assert_eq!((&*ran[0], &*ran[ran.len() - 1]), ("a", "d"), "{ran:?}");
    let last = windlass::jobs::status(&mut db.connection(), flow.jobs["d"].id)
        .unwrap()
        .unwrap();
    assert_eq!(
        last.result_as::<String>().unwrap().as_deref(),
        Some("a+b+a+c+d")
    );
}

fn a_flow_is_enqueued_as_a_whole_or_not_at_all(db: &TestDb) {
    let mut conn = db.connect();
    let flow = Flow::new()
        .job("a", part("a", End::Finish))
        .and_then(|flow| flow.job("b", part("b", End::Finish).unique_id("u")))
        .and_then(|flow| flow.after("b", ["a"]))
        .unwrap();
    let error = flow.enqueue(&mut conn).unwrap_err().to_string();
    assert!(error.contains("cannot have a unique id"), "{error}");
    let flow = Flow::new()
        .job("a", part("a", End::Finish).when(On::Finish))
        .unwrap();
    let error = flow.enqueue(&mut conn).unwrap_err().to_string();
    assert!(error.contains("waits for nothing"), "{error}");
    let rolled_back = conn.transaction::<(), Error>(|conn| {
        let flow = Flow::new().job("a", part("a", End::Finish))?;
        let flow = flow.job("b", part("b", End::Finish))?.after("b", ["a"])?;
        flow.enqueue(conn)?;
        Err(Error::Flow("as told".to_owned()))
    });
    assert!(rolled_back.is_err());
    for table in [
        "solid_queue_jobs",
        "windlass_edges",
        "solid_queue_blocked_executions",
    ] {
        assert_eq!(db.rows_of(table), 0);
    }
}

fn a_flow_may_have_batches_and_failures(db: &TestDb) {
    let scene = Scene::new(db);
    let members = Batch::new("members").add([part("m", End::Finish), part("m", End::Fail)]);
    let flow = Flow::new().batch("members", members).unwrap();
    let flow = flow.job("merge", part("merge", End::Finish)).unwrap();
    let flow = flow.job("report", part("report", End::Finish)).unwrap();
    let cleanup = part("clean up", End::Finish).when(On::Failure);
    let flow = flow.job("clean up", cleanup).unwrap();
    let flow = flow.after("merge", ["members"]).unwrap();
    let flow = flow.after("report", ["merge"]).unwrap();
    let flow = flow.after("clean up", ["members", "report"]).unwrap();
    let flow = flow.enqueue(&mut db.connection()).unwrap();
    assert_eq!(flow.batches["members"].jobs.len(), 2);
    assert_eq!(scene.run(), ["m", "m", "clean up"]);
    let why = scene.discarded(flow.jobs["merge"].id).unwrap();
    assert!(
        why.contains("the batch for which it waited has failed"),
        "{why}"
    );
}

fn a_flow_may_wait_for_what_is_there_already(db: &TestDb) {
    let scene = Scene::new(db);
    let there = scene.enqueue(part("there", End::Finish).idempotency_key("there"));
    scene.run();
    let flow = Flow::new()
        .job("there", part("again", End::Finish).idempotency_key("there"))
        .and_then(|flow| flow.job("a", reading("a", End::Finish, &["there"])))
        .and_then(|flow| {
            flow.job(
                "b",
                reading("b", End::Finish, &["given"]).after(("given", there)),
            )
        })
        .and_then(|flow| flow.after("a", ["there"]))
        .and_then(|flow| flow.after("b", ["a"]))
        .unwrap();
    flow.enqueue(&mut db.connection()).unwrap();
    assert_eq!(scene.run(), ["there", "a", "b"]);
}

fn a_long_chain_is_run(db: &TestDb) {
    let scene = Scene::new(db);
    let mut flow = Flow::new();
    for n in 0..60 {
        flow = flow
            .job(format!("{n}"), part(&format!("{n}"), End::Finish))
            .unwrap();
        if n > 0 {
            flow = flow.after(&format!("{n}"), [format!("{}", n - 1)]).unwrap();
        }
    }
    flow.enqueue(&mut db.connection()).unwrap();
    let ran = scene.run();
    let order: Vec<String> = (0..60).map(|n| n.to_string()).collect();
    assert_eq!(ran, order);
}

/// It had ended before anything waited for it.
fn what_waits_for_a_job_that_was_shed_is_discarded(db: &TestDb) {
    let scene = Scene::new(db);
    let quota = || Quota::named("some").waiting(1).shed();
    let mut conn = db.connect();
    let first = part("first", End::Finish).quota(quota());
    first.enqueue(&mut conn).unwrap();
    let flow = Flow::new()
        .job("a", part("a", End::Finish).quota(quota()))
        .unwrap();
    let flow = flow.job("b", part("b", End::Finish)).unwrap();
    let flow = flow.after("b", ["a"]).unwrap().enqueue(&mut conn).unwrap();
    assert_eq!(flow.jobs["a"].outcome, EnqueueOutcome::Shed);
    assert_eq!(scene.run(), ["first"]);
    let why = scene.discarded(flow.jobs["b"].id).unwrap();
    assert!(why.contains("has not succeeded"), "{why}");
}
