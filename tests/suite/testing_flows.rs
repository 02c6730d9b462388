//! Flows, batches, joins, undone steps and waits in the tests of an application, on both databases.

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::jobs::Log;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use windlass::flows::On;
use windlass::testing::{self, Drain, RunOutcome, TestDatabase};
use windlass::{Batch, BatchId, Context, Flow, Job, JobError, JobResult, NewJob, Policy, Registry};

on_each_database!(
    a_drain_performs_a_flow_in_its_order,
    a_drain_ends_batches_and_performs_what_follows,
    a_batch_in_a_batch_ends_in_a_drain,
    what_is_not_wanted_is_discarded_in_a_drain,
    a_drain_performs_the_children_of_a_join,
    a_drain_goes_on_with_a_join_after_retries,
    a_drain_undoes_steps,
    a_drain_deletes_undos_that_are_not_needed,
    time_and_events_end_waits,
    waits_time_out_when_time_passes,
    inline_mode_performs_flows,
);

const HOUR: Duration = Duration::from_secs(3_600);

/// Notes its name, and does what is asked for.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Task {
    name: String,
    does: Does,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
enum Does {
    Finish,
    Fail,
    /// Fails the first time, and is retried after an hour.
    Retry,
    /// Adds up what it waited for.
    Sum,
    /// Enqueues children that do this, and waits for them.
    Join(Child),
    /// Joins a batch.
    JoinBatch,
    /// Does two steps, and fails if asked to.
    Trip(bool),
    /// Waits for an hour, and for an event.
    Wait,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
enum Child {
    Finishes,
    Fails,
    Retries,
}

impl Job for Task {
    const NAME: &'static str = "task";
    type State = Log;
    type Output = i64;

    fn policy() -> Policy {
        Policy::new().max_attempts(2)
    }

    fn retry_in(_: u32, _: &JobError) -> Option<Duration> {
        Some(HOUR)
    }

    fn perform(self, cx: &Context<'_, Log>) -> JobResult<i64> {
        cx.add(&*self.name);
        match self.does {
            Does::Finish => Ok(1),
            Does::Fail => Err(JobError::from("as told").fail()),
            Does::Retry if cx.attempt() == 1 => Err("not yet".into()),
            Does::Retry => Ok(1),
            Does::Sum => sum(cx),
            Does::Join(child) => join(cx, child),
            Does::JoinBatch => join_batch(cx),
            Does::Trip(fails) => trip(cx, fails),
            Does::Wait => wait(cx),
        }
    }
}

fn sum(cx: &Context<'_, Log>) -> JobResult<i64> {
    let values = cx.inputs::<i64>().map(|input| Ok(input?.value));
    Ok(values.collect::<JobResult<Vec<_>>>()?.iter().sum())
}

fn join(cx: &Context<'_, Log>, child: Child) -> JobResult<i64> {
    let does = match child {
        Child::Finishes => Does::Finish,
        Child::Fails => Does::Fail,
        Child::Retries => Does::Retry,
    };
    let children: Vec<windlass::JobId> = cx.step(&mut cx.connection()?, "split", |conn| {
        let children = ["child 1", "child 2"].map(|name| task(name, does));
        let children = windlass::enqueue_all(conn, children)?;
        Ok(children.iter().map(|child| child.id).collect())
    })?;
    let ended = cx.join("children", &children[..])?;
    cx.add(format!("{} and {}", ended.succeeded, ended.failed));
    sum(cx)
}

fn join_batch(cx: &Context<'_, Log>) -> JobResult<i64> {
    let batch: BatchId = cx.step(&mut cx.connection()?, "split", |conn| {
        let parts = ["part 1", "part 2"].map(|name| task(name, Does::Finish));
        Ok(Batch::new("parts").add(parts).enqueue(conn)?.id)
    })?;
    let ended = cx.join("parts", batch)?;
    cx.add(format!("{} and {}", ended.succeeded, ended.failed));
    sum(cx)
}

fn trip(cx: &Context<'_, Log>, fails: bool) -> JobResult<i64> {
    let cancel = |name: &String| task(&format!("cancel {name}"), Does::Finish);
    for step in ["hotel", "flight"] {
        cx.undo(cancel).memo(step, || Ok(step.to_owned()))?;
    }
    match fails {
        true => Err(JobError::from("no seat").fail()),
        false => Ok(1),
    }
}

fn wait(cx: &Context<'_, Log>) -> JobResult<i64> {
    cx.pause_for("pause", HOUR)?;
    let paid = cx.wait_event::<i64>("paid", "paid/7", HOUR)?;
    cx.add(format!("{paid:?}"));
    Ok(paid.unwrap_or_default())
}

fn task(name: &str, does: Does) -> NewJob {
    let name = name.to_owned();
    NewJob::new(&Task { name, does }).unwrap()
}

/// A database of the kind that the test runs on, and what its jobs do.
struct Desk {
    db: TestDatabase,
    registry: Registry,
    log: Arc<Log>,
}

impl Desk {
    fn new(db: &TestDb) -> Self {
        let log = Arc::new(Log::default());
        Desk {
            db: TestDatabase::open(&db.url).unwrap(),
            registry: Registry::new().register::<Task>(Arc::clone(&log)),
            log,
        }
    }

    /// Drains, and returns how the runs ended, in words.
    fn drain(&mut self) -> Vec<String> {
        let drained = self.db.drain(&self.registry).unwrap();
        let outcome = |run: &testing::Performed| match &run.outcome {
            RunOutcome::Waits(step) => format!("waits at {step}"),
            RunOutcome::Finished => "finished".to_owned(),
            RunOutcome::Failed(..) => "failed".to_owned(),
            RunOutcome::Retried(..) => "retried".to_owned(),
            other => format!("{other:?}"),
        };
        drained.runs.iter().map(outcome).collect()
    }

    fn status(&mut self, job: windlass::JobId) -> Option<windlass::jobs::TaskInfo> {
        windlass::jobs::status(&mut self.db, job).unwrap()
    }
}

fn a_drain_performs_a_flow_in_its_order(db: &TestDb) {
    let mut desk = Desk::new(db);
    let flow = Flow::new()
        .job("last", task("last", Does::Sum))
        .and_then(|flow| flow.job("a", task("a", Does::Finish)))
        .and_then(|flow| flow.job("b", task("b", Does::Finish)))
        .and_then(|flow| flow.after("last", ["a", "b"]))
        .and_then(|flow| flow.enqueue(&mut desk.db))
        .unwrap();
    desk.db
        .drain(&desk.registry)
        .unwrap()
        .assert_all_finished(3);
    assert_eq!(desk.log.lines(), ["a", "b", "last"]);
    let last = desk.status(flow.jobs["last"].id).unwrap();
    assert_eq!(last.result_as::<i64>().unwrap(), Some(2));
}

fn a_drain_ends_batches_and_performs_what_follows(db: &TestDb) {
    let mut desk = Desk::new(db);
    for (name, does) in [("good", Does::Finish), ("bad", Does::Fail)] {
        let parts = [task("part", Does::Finish), task("part", does)];
        let batch = Batch::new(name).add(parts);
        let batch = batch.on_success(task("success", Does::Sum));
        let batch = batch.on_failure(task("failure", Does::Finish));
        let batch = batch.on_finish(task("finish", Does::Finish));
        let batch = batch.enqueue(&mut desk.db).unwrap().id;
        desk.drain();
        assert!(batch.status(&mut desk.db).unwrap().finished_at.is_some());
    }
    let mut lines = desk.log.lines();
    lines[2..4].sort_unstable();
    lines[6..].sort_unstable();
    assert_eq!(
        lines,
        [
            "part", "part", "finish", "success", "part", "part", "failure", "finish"
        ]
    );
}

fn a_batch_in_a_batch_ends_in_a_drain(db: &TestDb) {
    let mut desk = Desk::new(db);
    let inner = Batch::new("inner").add([task("inner", Does::Finish)]);
    let batch = Batch::new("outer").add([task("outer", Does::Finish)]);
    let batch = batch
        .add_batch(inner)
        .on_success(task("report", Does::Finish));
    batch.enqueue(&mut desk.db).unwrap();
    Batch::new("empty")
        .on_success(task("after none", Does::Finish))
        .enqueue(&mut desk.db)
        .unwrap();
    desk.db
        .drain(&desk.registry)
        .unwrap()
        .assert_all_finished(4);
    let mut lines = desk.log.lines();
    lines.sort_unstable();
    assert_eq!(lines, ["after none", "inner", "outer", "report"]);
}

fn what_is_not_wanted_is_discarded_in_a_drain(db: &TestDb) {
    let mut desk = Desk::new(db);
    let first = task("first", Does::Fail).enqueue(&mut desk.db).unwrap().id;
    let next = task("next", Does::Finish).after(first);
    let next = next.enqueue(&mut desk.db).unwrap().id;
    let last = task("last", Does::Finish).after(next);
    let last = last.enqueue(&mut desk.db).unwrap().id;
    let alarm = task("alarm", Does::Finish).after(last).when(On::Failure);
    alarm.enqueue(&mut desk.db).unwrap();
    assert_eq!(desk.drain(), ["failed", "finished"]);
    assert_eq!(desk.log.lines(), ["first", "alarm"]);
    for job in [next, last] {
        let status = desk.status(job).unwrap().status;
        assert_eq!(status, windlass::jobs::TaskStatus::Discarded);
    }
}

fn a_drain_performs_the_children_of_a_join(db: &TestDb) {
    let mut desk = Desk::new(db);
    let join = task("join", Does::Join(Child::Finishes));
    let join = join.enqueue(&mut desk.db).unwrap().id;
    assert_eq!(
        desk.drain(),
        ["waits at children", "finished", "finished", "finished"]
    );
    assert_eq!(
        desk.log.lines(),
        ["join", "child 1", "child 2", "join", "2 and 0"]
    );
    let result = desk.status(join).unwrap().result_as::<i64>().unwrap();
    assert_eq!(result, Some(2));
    task("join", Does::JoinBatch).enqueue(&mut desk.db).unwrap();
    assert_eq!(desk.drain().len(), 4);
    assert_eq!(
        desk.log.lines()[5..],
        ["join", "part 1", "part 2", "join", "1 and 0"],
        "the batch counts as one"
    );
    task("join", Does::Join(Child::Fails))
        .enqueue(&mut desk.db)
        .unwrap();
    assert_eq!(
        desk.drain(),
        ["waits at children", "failed", "failed", "finished"]
    );
    assert_eq!(desk.log.lines()[14..], ["0 and 2"]);
}

fn a_drain_goes_on_with_a_join_after_retries(db: &TestDb) {
    let mut desk = Desk::new(db);
    task("join", Does::Join(Child::Retries))
        .enqueue(&mut desk.db)
        .unwrap();
    assert_eq!(desk.drain(), ["waits at children", "retried", "retried"]);
    testing::travel(&mut desk.db, HOUR).unwrap();
    assert_eq!(desk.drain(), ["finished"; 3]);
    assert_eq!(desk.log.lines()[6..], ["2 and 0"]);
}

fn a_drain_undoes_steps(db: &TestDb) {
    let mut desk = Desk::new(db);
    task("trip", Does::Trip(true))
        .enqueue(&mut desk.db)
        .unwrap();
    assert_eq!(desk.drain(), ["failed", "finished", "finished"]);
    assert_eq!(desk.log.lines(), ["trip", "cancel flight", "cancel hotel"]);
}

fn a_drain_deletes_undos_that_are_not_needed(db: &TestDb) {
    let mut desk = Desk::new(db);
    task("trip", Does::Trip(false))
        .enqueue(&mut desk.db)
        .unwrap();
    desk.db
        .drain(&desk.registry)
        .unwrap()
        .assert_all_finished(1);
    assert_eq!(desk.log.lines(), ["trip"]);
    assert_eq!(testing::enqueued_any(&mut desk.db).unwrap().len(), 0);
}

fn time_and_events_end_waits(db: &TestDb) {
    let mut desk = Desk::new(db);
    task("wait", Does::Wait).enqueue(&mut desk.db).unwrap();
    assert_eq!(desk.drain(), ["waits at pause"]);
    assert!(desk.drain().is_empty());
    testing::travel(&mut desk.db, HOUR).unwrap();
    assert_eq!(desk.drain(), ["waits at paid"]);
    windlass::events::emit(&mut desk.db, "paid/7", &990).unwrap();
    assert_eq!(desk.drain(), ["finished"]);
    // An event that comes first is not lost.
    task("wait", Does::Wait).enqueue(&mut desk.db).unwrap();
    let drained = Drain::new(&desk.registry).scheduled().run(&mut desk.db);
    assert_eq!(drained.unwrap().runs.len(), 3);
    let lines = desk.log.lines();
    assert_eq!(
        lines[3..],
        ["Some(990)", "wait", "wait", "wait", "Some(990)"]
    );
}

fn waits_time_out_when_time_passes(db: &TestDb) {
    let mut desk = Desk::new(db);
    let wait = task("wait", Does::Wait).enqueue(&mut desk.db).unwrap().id;
    let after = task("after", Does::Finish).after(wait);
    after.enqueue(&mut desk.db).unwrap();
    desk.drain();
    testing::travel(&mut desk.db, HOUR).unwrap();
    assert_eq!(desk.drain(), ["waits at paid"]);
    testing::travel(&mut desk.db, HOUR / 2).unwrap();
    assert!(desk.drain().is_empty());
    testing::travel(&mut desk.db, HOUR / 2).unwrap();
    assert_eq!(desk.drain(), ["finished", "finished"]);
    assert_eq!(desk.log.lines(), ["wait", "wait", "wait", "None", "after"]);
}

fn inline_mode_performs_flows(db: &TestDb) {
    let mut desk = Desk::new(db);
    let mut inline = desk.db.inline(&desk.registry);
    let first = task("first", Does::Finish).enqueue(&mut inline).unwrap();
    let after = task("after", Does::Sum).after(first);
    after.enqueue(&mut inline).unwrap();
    let batch = Batch::new("batch").add([task("part", Does::Finish)]);
    let batch = batch.on_success(task("report", Does::Sum));
    batch.enqueue(&mut inline).unwrap();
    inline.drained().assert_all_finished(4);
    assert_eq!(desk.log.lines(), ["first", "after", "part", "report"]);
}
