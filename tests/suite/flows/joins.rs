//! Jobs that wait for others in the middle of their work.

use super::*;
use crate::on_each_database;
use crate::policies::{Bench, Call, Doing, call, executions, finished};
use crate::support::enqueue_by_sql::run;
use windlass::jobs::{self, EnqueueOutcome, Jobs, Reason};
use windlass::testing::{RunOutcome, TestDatabase};
use windlass::{Batch, BatchId, OnConflict};

on_each_database!(
    a_job_waits_for_its_children,
    children_that_have_ended_are_not_waited_for,
    a_job_waits_for_a_batch,
    a_job_joins_several_times,
    a_job_that_waited_before_it_ran_joins,
    retries_of_children_are_waited_for,
    a_joining_job_is_cancelled,
    a_replaced_job_has_joined_nothing,
    a_job_that_is_replaced_by_sql_has_joined_nothing,
    wrong_joins_are_refused,
);

/// A worker whose jobs of class `call` do this, and that performs parts.
fn joining(
    scene: &Scene<'_>,
    body: impl Fn(&Context<'_, Doing>, &Log) -> JobResult + Send + Sync + 'static,
) -> Bench {
    let place = Arc::clone(&scene.place);
    Bench::with(scene.db, |registry, log| {
        let log = Arc::clone(log);
        registry
            .register::<Part>(place)
            .register::<Call>(Doing::new(move |cx| {
                log.add(format!("run {}", cx.attempt()));
                body(cx, &log)
            }))
    })
}

/// Enqueues parts that end so, once, in a step.
fn split(cx: &Context<'_, Doing>, step: &str, ends: &[End]) -> JobResult<Vec<JobId>> {
    cx.step(&mut cx.connection()?, step, |conn| {
        let parts = ends.iter().enumerate();
        let parts = parts.map(|(number, end)| part(&format!("{step}{number}"), *end));
        let parts = windlass::enqueue_all(conn, parts)?;
        Ok(parts.iter().map(|part| part.id).collect())
    })
}

fn inputs(cx: &Context<'_, Doing>) -> JobResult<String> {
    let values = cx.inputs::<String>().map(|input| Ok(input?.value));
    Ok(values.collect::<JobResult<Vec<_>>>()?.join(","))
}

fn a_job_waits_for_its_children(db: &TestDb) {
    let scene = Scene::new(db);
    let bench = joining(&scene, |cx, log| {
        let parts = split(cx, "p", &[End::Finish, End::FinishLater, End::Fail])?;
        let ended = cx.join("parts", &parts[..])?;
        log.add(format!(
            "{} {} {}",
            ended.succeeded,
            ended.failed,
            inputs(cx)?
        ));
        Ok(())
    });
    let job = call(db, Policy::new());
    until("all others have ended", || {
        executions(db, "blocked") == 1 && executions(db, "claimed") == 1 && scene.ran().len() == 3
    });
    until("it is explained", || {
        let why = jobs::explain(&mut db.connection(), job).unwrap().unwrap();
        matches!(why.reason, Reason::Jobs { open: 1, .. })
    });
    scene.place.gate.open();
    until("it has finished", || finished(db) == 3);
    assert_eq!(bench.log.lines(), ["run 1", "run 1", "2 1 p0,p1"]);
    assert_eq!(db.count("SELECT count(*) AS n FROM windlass_steps"), 0);
}

fn children_that_have_ended_are_not_waited_for(db: &TestDb) {
    let scene = Scene::new(db);
    let first = scene.enqueue(part("first", End::Finish)).id;
    let second = scene.enqueue(part("second", End::Fail)).id;
    scene.run();
    let bench = joining(&scene, move |cx, log| {
        let ended = cx.join("parts", [("one", first), ("other", second)])?;
        log.add(format!("{} {}", ended.succeeded, ended.failed));
        log.add(cx.input::<String>("one")?);
        let none = cx.join("none", Vec::<JobId>::new())?;
        log.add(format!("{} {}", none.succeeded, none.failed));
        Ok(())
    });
    call(db, Policy::new());
    until("it has finished", || finished(db) == 2);
    assert_eq!(bench.log.lines(), ["run 1", "run 1", "1 1", "first", "0 0"]);
}

fn a_job_waits_for_a_batch(db: &TestDb) {
    let scene = Scene::new(db);
    let bench = joining(&scene, |cx, log| {
        let batch: BatchId = cx.step(&mut cx.connection()?, "split", |conn| {
            let parts = [part("a", End::Finish), part("b", End::RetryOnce)];
            Ok(Batch::new("parts").add(parts).enqueue(conn)?.id)
        })?;
        let ended = cx.join("parts", batch)?;
        log.add(format!(
            "{} {} {}",
            ended.succeeded,
            ended.failed,
            inputs(cx)?
        ));
        Ok(())
    });
    call(db, Policy::new());
    until("it has finished", || finished(db) == 3);
    assert_eq!(bench.log.lines().last().unwrap(), "1 0 a,b");
}

fn a_job_joins_several_times(db: &TestDb) {
    let scene = Scene::new(db);
    let bench = joining(&scene, |cx, log| {
        for round in ["x", "y"] {
            let parts = split(cx, round, &[End::Finish, End::Finish])?;
            let ended = cx.join(&format!("{round} end"), &parts[..])?;
            log.add(format!("{round} {}", ended.succeeded));
        }
        log.add(inputs(cx)?);
        Ok(())
    });
    call(db, Policy::new());
    until("it has finished", || finished(db) == 5);
    let lines = bench.log.lines();
    assert_eq!(lines[2..], ["x 2", "run 1", "x 2", "y 2", "x0,x1,y0,y1"]);
}

/// A job that ran since a parent had failed is not discarded when that parent has been retried and has succeeded.
fn a_job_that_waited_before_it_ran_joins(db: &TestDb) {
    let scene = Scene::new(db);
    let parent = scene.enqueue(part("parent", End::Fail)).id;
    let bench = joining(&scene, |cx, log| {
        let parts = split(cx, "p", &[End::FinishLater])?;
        let ended = cx.join("parts", &parts[..])?;
        log.add(format!("{}", ended.succeeded));
        Ok(())
    });
    let call = NewJob::new(&Call).unwrap();
    scene.enqueue(call.after(parent).when(windlass::flows::On::Failure));
    until("the parent has failed, and it waits", || {
        let waits = executions(db, "blocked") == 1 && executions(db, "claimed") == 1;
        executions(db, "failed") == 1 && waits
    });
    db.execute("UPDATE solid_queue_jobs SET arguments = replace(arguments, 'Fail', 'Finish') WHERE class_name = 'part'");
    let retry = jobs::Change::Retry {
        even_at_most_once: false,
    };
    Jobs::failed().change(&mut db.connection(), retry).unwrap();
    until("the parent has succeeded", || {
        db.count("SELECT count(*) AS n FROM windlass_edges WHERE outcome = 'succeeded'") == 1
    });
    scene.place.gate.open();
    until("it has finished", || finished(db) == 3);
    assert_eq!(bench.log.lines().last().unwrap(), "1");
}

fn retries_of_children_are_waited_for(db: &TestDb) {
    let scene = Scene::new(db);
    let bench = joining(&scene, |cx, log| {
        let parts = split(cx, "p", &[End::RetryOnce, End::Discard])?;
        let ended = cx.join("parts", &parts[..])?;
        log.add(format!("{} {}", ended.succeeded, ended.failed));
        Ok(())
    });
    call(db, Policy::new());
    until("it has finished", || finished(db) == 3);
    assert_eq!(bench.log.lines().last().unwrap(), "1 1");
}

fn a_joining_job_is_cancelled(db: &TestDb) {
    let scene = Scene::new(db);
    let _bench = joining(&scene, |cx, _| {
        let parts = split(cx, "p", &[End::FinishLater])?;
        cx.join("parts", &parts[..]).map(drop)
    });
    let job = call(db, Policy::new());
    until("it waits", || executions(db, "blocked") == 1);
    jobs::cancel(&mut db.connection(), job).unwrap();
    scene.place.gate.open();
    until("all have ended", || {
        finished(db) == 2 && executions(db, "blocked") == 0
    });
    assert_eq!(db.count("SELECT count(*) AS n FROM windlass_steps"), 0);
}

fn wrong_joins_are_refused(db: &TestDb) {
    let scene = Scene::new(db);
    let other = scene
        .enqueue(part("other", End::Finish).after(Duration::from_secs(3600)))
        .id;
    let bench = joining(&scene, move |cx, log| {
        let refused = |children: &[JobId]| cx.join("a", children).unwrap_err().kind().to_owned();
        let later = part("later", End::Finish).after(cx.job_id());
        let later = later.enqueue(&mut cx.connection()?)?.id;
        log.add(refused(&[cx.job_id()]));
        log.add(refused(&[later]));
        log.add(refused(&[other, other]));
        log.add(cx.join("b", Duration::ZERO).unwrap_err().kind().to_owned());
        log.add(cx.join("b", cx.batch()?).unwrap_err().kind().to_owned());
        log.add(cx.join("", other).unwrap_err().kind().to_owned());
        let unknown = cx.join("c", JobId(4_711)).unwrap_err();
        log.add(unknown.message());
        Ok(())
    });
    let call = NewJob::new(&Call).unwrap();
    Batch::new("b")
        .add([call])
        .enqueue(&mut db.connection())
        .unwrap();
    until("it has finished", || bench.log.lines().len() == 8);
    let lines = bench.log.lines();
    assert_eq!(lines[1..6], ["wrong_join"; 5]);
    assert_eq!(lines[6], "step_name");
    assert!(lines[7].contains("4711"), "{}", lines[7]);
}

/// Returns the sum of what its children return.
#[derive(Serialize, Deserialize)]
struct Total;

#[derive(Serialize, Deserialize)]
struct One;

impl Job for One {
    const NAME: &'static str = "one";
    type State = ();
    type Output = u32;

    fn perform(self, _: &Context<'_, ()>) -> JobResult<u32> {
        Ok(1)
    }
}

impl Job for Total {
    const NAME: &'static str = "total";
    type State = ();
    type Output = u32;

    fn perform(self, cx: &Context<'_, ()>) -> JobResult<u32> {
        let parts: Vec<JobId> = cx.step(&mut cx.connection()?, "split", |conn| {
            let parts = windlass::enqueue_all(conn, [NewJob::new(&One)?, NewJob::new(&One)?])?;
            Ok(parts.iter().map(|part| part.id).collect())
        })?;
        cx.join("parts", &parts[..])?;
        let ones = cx.inputs::<u32>().map(|input| Ok(input?.value));
        Ok(ones.collect::<JobResult<Vec<u32>>>()?.iter().sum())
    }
}

#[test]
fn a_drain_follows_joins() {
    let db = &mut TestDatabase::in_memory().unwrap();
    let registry = Registry::new().register::<Total>(()).register::<One>(());
    Total.enqueue(db).unwrap();
    let drained = db.drain(&registry).unwrap();
    let waits = RunOutcome::Waits("parts".to_owned());
    let outcomes: Vec<&RunOutcome> = drained.runs.iter().map(|run| &run.outcome).collect();
    assert_eq!(
        outcomes
            .iter()
            .filter(|outcome| ***outcome == waits)
            .count(),
        1,
        "{outcomes:?}"
    );
    assert_eq!(drained.finished(), 3);
}

/// A job waits for one that runs tomorrow, is replaced, and then waits for one that has ended.
fn join_after_a_replacement(db: &TestDb, replace: impl Fn(NewJob)) {
    let scene = Scene::new(db);
    let now = scene.enqueue(part("now", End::Finish)).id;
    scene.run();
    let later = part("later", End::Finish).after(Duration::from_secs(86_400));
    let later = scene.enqueue(later).id;
    let bench = joining(&scene, move |cx, log| {
        let is_first = log.lines().len() == 1;
        cx.join("parts", if is_first { later } else { now })?;
        log.add("joined");
        Ok(())
    });
    let policy = Policy::new().on_conflict(OnConflict::Replace);
    let job = NewJob::new(&Call)
        .unwrap()
        .policy(policy)
        .unique_id("joins");
    scene.enqueue(job.clone());
    until("it waits", || {
        executions(db, "blocked") == 1 && executions(db, "claimed") == 0
    });
    replace(job);
    until("it has finished", || finished(db) == 2);
    assert_eq!(bench.log.lines().last().unwrap(), "joined");
}

fn a_replaced_job_has_joined_nothing(db: &TestDb) {
    join_after_a_replacement(db, |job| {
        let replaced = job.enqueue(&mut db.connection()).unwrap();
        assert_eq!(replaced.outcome, EnqueueOutcome::Replaced);
    });
}

fn a_job_that_is_replaced_by_sql_has_joined_nothing(db: &TestDb) {
    join_after_a_replacement(db, |_| {
        let enqueue = "INSERT INTO windlass_enqueue (class, arguments, unique_id, on_conflict) \
             VALUES ('call', 'null', 'joins', 'replace')";
        run(db, enqueue).unwrap();
    });
}
