//! The jobs and batches that a job waits for, and its start after them.

use super::*;
use crate::on_each_database;
use crate::support::db::execute;
use crate::support::program::windlass;
use diesel::connection::InstrumentationEvent;
use windlass::flows::On;
use windlass::jobs::{self, Change, Jobs, Reason};
use windlass::{Batch, Concurrency, Dispatcher, Error, Flow, Supervisor, enqueue_all};

on_each_database!(
    a_job_runs_after_all_that_it_waits_for,
    what_has_ended_before_counts,
    a_parent_may_end_while_the_transaction_is_open,
    a_child_can_be_added_while_its_parent_runs,
    a_job_that_waits_takes_no_slot,
    a_job_of_a_batch_can_wait,
    a_job_can_wait_for_a_batch_that_runs_or_is_over,
    an_existing_job_keeps_what_it_waits_for,
    what_cannot_be_is_refused,
    a_parent_that_is_deleted_during_the_enqueue_is_named,
    a_parent_that_is_deleted_during_the_enqueue_of_a_flow_is_named,
    a_job_that_waits_is_never_ready,
    a_job_says_what_it_waits_for,
    a_drain_follows_jobs,
    a_dispatcher_finds_jobs_that_wait_in_vain,
    edges_go_with_their_job,
    a_class_of_users_is_no_batch_in_a_batch,
);

fn a_job_runs_after_all_that_it_waits_for(db: &TestDb) {
    let scene = Scene::new(db);
    let mut conn = db.connect();
    let last = conn.transaction::<_, Error>(|conn| {
        let a = part("a", End::Finish).enqueue(conn)?;
        let b = part("b", End::RetryOnce).after(a).enqueue(conn)?;
        let c = part("c", End::FinishIn).after(a).enqueue(conn)?;
        part("d", End::Finish).after([b, c]).enqueue(conn)
    });
    let last = last.unwrap();
    assert_eq!(db.rows_of("solid_queue_blocked_executions"), 3);
    let ran = scene.run();
    assert_eq!((&*ran[0], &*ran[ran.len() - 1]), ("a", "d"), "{ran:?}");
    assert_eq!(ran.len(), 5, "{ran:?}");
    assert_eq!(scene.discarded(last.id), None);
}

fn what_has_ended_before_counts(db: &TestDb) {
    let scene = Scene::new(db);
    let finished = scene.enqueue(part("finished", End::Finish));
    let failed = scene.enqueue(part("failed", End::Fail));
    scene.run();
    let after = |name, parent| scene.enqueue(part(name, End::Finish).after([parent]));
    after("after finished", finished);
    let unwanted = after("after failed", failed);
    scene.enqueue(
        part("on failure", End::Finish)
            .after(failed)
            .when(On::Failure),
    );
    let mut ran = scene.run().split_off(2);
    ran.sort();
    assert_eq!(ran, ["after finished", "on failure"]);
    let why = scene.discarded(unwanted.id).unwrap();
    let words = format!(
        "parents: job {}, for which it waited, has not succeeded",
        failed.id
    );
    assert_eq!(why, words);
}

fn a_parent_may_end_while_the_transaction_is_open(db: &TestDb) {
    let scene = Scene::new(db);
    let parent = scene.enqueue(part("parent", End::Finish));
    let mut conn = db.connect();
    let worker = conn.transaction::<_, Error>(|conn| {
        part("child", End::Finish).after(parent).enqueue(conn)?;
        // On SQLite, the worker waits for this transaction.
        let worker = scene.worker(true);
        if db.is_postgres() {
            scene.enqueue(part("other", End::Finish));
            until("the worker has passed the parent", || {
                let ended =
                    "SELECT count(*) AS n FROM solid_queue_jobs WHERE finished_at IS NOT NULL";
                db.count(ended) == 1
            });
        }
        Ok(worker)
    });
    until("nothing is left to do", || scene.open() == 0);
    worker.unwrap().stop();
    let ran = scene.ran();
    assert_eq!(ran[ran.len() - 2..], ["parent", "child"]);
}

fn a_child_can_be_added_while_its_parent_runs(db: &TestDb) {
    let scene = Scene::new(db);
    let parent = scene.enqueue(part("parent", End::FinishLater));
    let worker = scene.worker(true);
    until("it runs", || scene.ran() == ["parent"]);
    let mut conn = db.connect();
    conn.transaction::<_, Error>(|conn| {
        part("child", End::Finish).after(parent).enqueue(conn)?;
        scene.place.gate.open();
        until("its run has ended", || scene.place.gate.ended() == 1);
        Ok(())
    })
    .unwrap();
    scene.enqueue(part("other", End::Finish).after(parent));
    until("nothing is left to do", || scene.open() == 0);
    worker.stop();
    let mut ran = scene.ran();
    ran[1..].sort();
    assert_eq!(ran, ["parent", "child", "other"]);
}

fn a_job_that_waits_takes_no_slot(db: &TestDb) {
    let scene = Scene::new(db);
    let limited = |name, end| part(name, end).concurrency(Concurrency::new("k").limit(1));
    let parent = scene.enqueue(part("parent", End::FinishLater));
    scene.enqueue(limited("waits", End::Finish).after(parent));
    scene.enqueue(limited("free", End::Finish));
    let worker = scene.worker(true);
    until("the other one has the slot", || {
        scene.ran().contains(&"free".to_owned())
    });
    scene.place.gate.open();
    until("nothing is left to do", || scene.open() == 0);
    worker.stop();
    assert_eq!(scene.ran().last().unwrap(), "waits");
}

fn a_job_of_a_batch_can_wait(db: &TestDb) {
    let scene = Scene::new(db);
    let parent = scene.enqueue(part("parent", End::Finish));
    let members = [part("member", End::Finish).after(parent)];
    let batch = Batch::new("b").add(members);
    let batch = batch.on_success(part("follows", End::Finish));
    let batch = batch.enqueue(&mut db.connection()).unwrap().id;
    assert_eq!(scene.run(), ["parent", "member", "follows"]);
    assert!(batch.status(&mut db.connection()).unwrap().is_over());
}

fn a_job_can_wait_for_a_batch_that_runs_or_is_over(db: &TestDb) {
    let scene = Scene::new(db);
    let batch = Batch::new("b").add([part("member", End::Finish)]);
    let batch = batch.enqueue(&mut db.connection()).unwrap().id;
    scene.enqueue(part("first", End::Finish).after(batch));
    assert_eq!(scene.run(), ["member", "first"]);
    let unwanted = part("failure", End::Finish).after(batch).when(On::Failure);
    let unwanted = scene.enqueue(unwanted);
    scene.enqueue(part("second", End::Finish).after(batch));
    assert_eq!(scene.run(), ["member", "first", "second"]);
    let why = scene.discarded(unwanted.id).unwrap();
    assert!(why.contains("it runs after a failure only"), "{why}");
}

fn an_existing_job_keeps_what_it_waits_for(db: &TestDb) {
    let scene = Scene::new(db);
    let first = scene.enqueue(part("a", End::Finish).idempotency_key("a"));
    let parent = scene.enqueue(part("b", End::Finish));
    let again = part("c", End::Finish).after(parent).idempotency_key("a");
    let again = scene.enqueue(again);
    assert_eq!((again.id, again.is_new), (first.id, false));
    assert_eq!(db.rows_of("windlass_edges"), 0);
    let keyed = part("d", End::Finish).after(parent).idempotency_key("d");
    assert!(scene.enqueue(keyed).is_new);
    let ran = scene.run();
    assert_eq!(ran.len(), 3, "{ran:?}");
}

fn what_cannot_be_is_refused(db: &TestDb) {
    let mut conn = db.connect();
    let parent = part("a", End::Finish).enqueue(&mut conn).unwrap();
    let mut refused = |job: NewJob| job.enqueue(&mut conn).unwrap_err().to_string();
    let job = || part("b", End::Finish);
    let unknown = refused(job().after(JobId(4_711)));
    assert!(
        unknown.contains("`part`") && unknown.contains("waits for job 4711, which is not stored"),
        "{unknown}"
    );
    let unknown = refused(job().after(windlass::BatchId(4_711)));
    assert!(unknown.contains("no batch 4711"), "{unknown}");
    let twice = refused(job().after([parent, parent]));
    assert!(twice.contains("twice"), "{twice}");
    let named = refused(job().after([("x", parent.id), ("x", JobId(4_711))]));
    assert!(named.contains("two that have the name `x`"), "{named}");
    let unnamed = refused(job().after(("", parent)));
    assert!(unnamed.contains("1 to 255 bytes"), "{unnamed}");
    let alone = refused(job().when(On::Failure));
    assert!(alone.contains("waits for nothing"), "{alone}");
    let many: Vec<JobId> = (1..=1_001).map(JobId).collect();
    let many = refused(job().after(many));
    assert!(
        many.contains("1001 jobs") && many.contains("`Batch`"),
        "{many}"
    );
    let unique = refused(job().after(parent).unique_id("u"));
    assert!(unique.contains("cannot have a unique id"), "{unique}");
    assert_eq!(db.rows_of("solid_queue_jobs"), 1);
    assert_eq!(db.rows_of("windlass_edges"), 0);
}

/// It is there when the enqueue looks for it, and gone when its transaction begins.
fn a_parent_that_is_deleted_during_the_enqueue_is_named(db: &TestDb) {
    let parent = part("a", End::Finish)
        .enqueue(&mut db.connection())
        .unwrap();
    let refused = crate::with_own_connection!(db, |conn| {
        let mut other = db.connect();
        conn.set_instrumentation(move |event: InstrumentationEvent<'_>| {
            if let InstrumentationEvent::StartQuery { query, .. } = event
                && query.to_string().starts_with("BEGIN")
            {
                let gone = format!("DELETE FROM solid_queue_jobs WHERE id = {}", parent.id);
                execute(&mut other, &gone);
            }
        });
        let refused = part("b", End::Finish).after(parent).enqueue(&mut conn);
        (refused, enqueue_all(&mut conn, [part("c", End::Finish)]))
    });
    let (refused, works) = refused;
    assert!(
        matches!(&refused, Err(Error::NoSuchParent { parent: id, .. }) if *id == parent.id.0),
        "{refused:?}"
    );
    assert_eq!(works.unwrap().len(), 1);
}

/// It is there when the flow looks for it, and gone when its jobs are inserted. On SQLite, nothing comes between these.
fn a_parent_that_is_deleted_during_the_enqueue_of_a_flow_is_named(db: &TestDb) {
    let parent = part("a", End::Finish)
        .enqueue(&mut db.connection())
        .unwrap();
    let refused = crate::with_own_connection!(db, |conn| {
        let mut other = db.connect();
        let at = if db.is_postgres() {
            "INSERT INTO solid_queue_jobs"
        } else {
            "BEGIN"
        };
        conn.set_instrumentation(move |event: InstrumentationEvent<'_>| {
            if let InstrumentationEvent::StartQuery { query, .. } = event
                && query.to_string().contains(at)
            {
                let gone = format!("DELETE FROM solid_queue_jobs WHERE id = {}", parent.id);
                execute(&mut other, &gone);
            }
        });
        let flow = Flow::new().job("b", part("b", End::Finish).after(parent));
        flow.unwrap().enqueue(&mut conn).map(|_| ())
    });
    assert!(
        matches!(&refused, Err(Error::NoSuchParent { parent: id, .. }) if *id == parent.id.0),
        "{refused:?}"
    );
    assert_eq!(db.rows_of("solid_queue_jobs"), 0);
}

/// Not even within the transaction of its enqueue: workers would be woken in vain.
fn a_job_that_waits_is_never_ready(db: &TestDb) {
    let parent = part("a", End::Finish)
        .enqueue(&mut db.connection())
        .unwrap();
    let action = match db.is_postgres() {
        true => {
            db.execute("CREATE FUNCTION no_execution() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'an execution'; END $$");
            "FOR EACH ROW EXECUTE FUNCTION no_execution()"
        }
        false => "BEGIN SELECT RAISE(ABORT, 'an execution'); END",
    };
    for table in ["ready", "scheduled"] {
        db.execute(&format!(
            "CREATE TRIGGER no_{table} BEFORE INSERT ON solid_queue_{table}_executions {action}"
        ));
    }
    let mut conn = db.connect();
    let waits = |name| part(name, End::Finish).after(parent);
    waits("b").enqueue(&mut conn).unwrap();
    let limited = waits("c").concurrency(Concurrency::new("k").limit(1));
    let later = waits("d").after(Duration::from_secs(60));
    let known = waits("e").idempotency_key("e");
    enqueue_all(&mut conn, [limited, later, known]).unwrap();
    enqueue_all(&mut conn, (0..3).map(|_| waits("f"))).unwrap();
    let flow = Flow::new().job("g", waits("g")).unwrap();
    let flow = flow.job("h", part("h", End::Finish)).unwrap();
    let flow = flow.after("h", ["g"]).unwrap();
    flow.enqueue(&mut conn).unwrap();
    let batch = Batch::new("empty").on_finish(part("i", End::Finish));
    Batch::new("outer")
        .add_batch(batch)
        .enqueue(&mut conn)
        .unwrap();
    assert_eq!(db.rows_of("solid_queue_blocked_executions"), 11);
}

fn a_job_says_what_it_waits_for(db: &TestDb) {
    let scene = Scene::new(db);
    let (a, b) = (
        scene.enqueue(part("a", End::Finish)),
        scene.enqueue(part("b", End::Finish)),
    );
    let child = scene.enqueue(part("c", End::Finish).after([a, b])).id;
    let said = jobs::explain(&mut db.connection(), child).unwrap().unwrap();
    assert!(
        matches!(said.reason, Reason::Jobs { open: 2, total: 2, oldest: Some(id), failed: None } if id == a.id),
        "{said:?}"
    );
    assert!(said.is_on_its_way());
    let out = windlass(&db.url, &["explain", &child.to_string()]);
    let words = format!("It waits for 2 of 2 jobs; the oldest is {}", a.id);
    assert!(out.is_done() && out.out.contains(&words), "{out:?}");
}

fn a_drain_follows_jobs(db: &TestDb) {
    let scene = Scene::new(db);
    let a = scene.enqueue(part("a", End::Fail));
    let b = scene.enqueue(part("b", End::Finish).after(a).when(On::Finish));
    scene.enqueue(part("c", End::Finish).after(b));
    scene.enqueue(part("d", End::Finish).after(a));
    let _ = windlass::testing::drain(&mut db.connection(), &scene.registry()).unwrap();
    assert_eq!(scene.ran(), ["a", "b", "c"]);
    assert_eq!(scene.open(), 0);
}

fn a_dispatcher_finds_jobs_that_wait_in_vain(db: &TestDb) {
    let scene = Scene::new(db);
    let a = scene.enqueue(part("a", End::Finish));
    scene.enqueue(part("b", End::Finish).after(a));
    // As if another program had replaced the tables and their triggers.
    db.execute(&format!(
        "UPDATE solid_queue_jobs SET has_dependents = NULL WHERE id = {}",
        a.id
    ));
    assert_eq!(
        Jobs::waiting_or_running()
            .ids([a.id])
            .change(&mut db.connection(), Change::Cancel)
            .unwrap()
            .changed,
        1
    );
    db.execute("DELETE FROM windlass_wanted_keys");
    db.execute("UPDATE windlass_edges SET created_at = '2026-01-01 00:00:00.000000'");
    let dispatcher = Dispatcher::new(&db.database).start().unwrap();
    until("it waits no longer", || scene.open() == 0);
    dispatcher.stop();
    assert_eq!(db.rows_of("solid_queue_blocked_executions"), 0);
}

fn edges_go_with_their_job(db: &TestDb) {
    let scene = Scene::new(db);
    let a = scene.enqueue(part("a", End::Finish));
    let b = scene.enqueue(part("b", End::Finish).after(a));
    scene.run();
    assert_eq!(db.rows_of("windlass_edges"), 1);
    db.execute(&format!("DELETE FROM solid_queue_jobs WHERE id = {}", b.id));
    let supervisor = Supervisor::new(&db.database).start().unwrap();
    until("the edge is cleared", || db.rows_of("windlass_edges") == 0);
    supervisor.stop();
}

/// Has the name of the class that stands for batches in batches.
#[derive(Debug, Serialize, Deserialize)]
struct Named;

impl Job for Named {
    const NAME: &'static str = "windlass_batch";
    type State = Place;
    type Output = ();

    fn perform(self, cx: &Context<'_, Place>) -> JobResult {
        cx.state().log.add("named");
        Ok(())
    }
}

fn a_class_of_users_is_no_batch_in_a_batch(db: &TestDb) {
    let scene = Scene::new(db);
    let a = scene.enqueue(part("a", End::Finish));
    let named = || NewJob::new(&Named).unwrap();
    scene.enqueue(named().after(a));
    let batch = Batch::new("night").add([part("b", End::Finish)]);
    let batch = batch
        .on_finish(named())
        .enqueue(&mut db.connection())
        .unwrap();
    let last = Batch::new("last").add([named().after(batch.id)]);
    let last = last.enqueue(&mut db.connection()).unwrap();
    let said = windlass(&db.url, &["batches", "jobs", &last.id.to_string()]);
    assert!(!said.out.contains("batch 1"), "{said:?}");
    let worker = Worker::new(
        &db.database,
        scene.registry().register::<Named>(Arc::clone(&scene.place)),
    );
    let worker = worker
        .polling_interval(Duration::from_millis(100))
        .start()
        .unwrap();
    until("each has run", || scene.place.log.count("named") == 3);
    worker.stop();
}
