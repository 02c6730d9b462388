//! Sagas: steps that are undone when the job fails.

use super::*;
use crate::on_each_database;
use crate::support::enqueue_by_sql::run;
use windlass::OnConflict;
use windlass::jobs::{Change, EnqueueOutcome, Jobs};

on_each_database!(
    the_steps_of_a_failed_job_are_undone_in_reverse,
    nothing_is_undone_after_a_success,
    the_steps_of_a_discarded_job_are_undone,
    the_steps_of_a_cancelled_job_are_undone,
    an_undo_that_fails_holds_up_the_others_until_it_is_retried,
    the_others_go_on_when_a_failed_undo_is_discarded,
    the_others_go_on_after_an_undo_that_is_not_needed,
    a_retry_does_again_what_was_undone,
    a_retry_keeps_what_was_not_undone,
    a_second_retry_keeps_what_was_not_undone,
    a_retry_does_again_what_was_undone_by_jobs_that_were_deleted,
    the_steps_of_a_replaced_job_are_undone,
    the_steps_of_a_job_that_is_replaced_by_sql_are_undone,
    a_job_that_replaces_another_undoes_its_own_steps_only,
    a_step_that_fails_leaves_no_undo,
    wrong_undos_are_refused,
);

/// Does steps, each undone by a part, and ends.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Trip {
    /// The names, and how their undoing ends.
    steps: Vec<(String, End)>,
    end: End,
}

impl Job for Trip {
    const NAME: &'static str = "trip";
    type State = Place;
    type Output = ();

    fn policy() -> Policy {
        Part::policy()
    }

    fn perform(self, cx: &Context<'_, Place>) -> JobResult {
        for (number, (step, end)) in self.steps.iter().enumerate() {
            let work = || {
                cx.state().log.add(format!("do {step}"));
                Ok(format!("undo {step}"))
            };
            let undo = cx.undo(|name: &String| part(name, *end));
            let name = match number.is_multiple_of(2) {
                true => undo.memo(step, work)?,
                false => undo.step(&mut cx.connection()?, step, |_| work())?,
            };
            assert_eq!(name, format!("undo {step}"));
        }
        match self.end {
            End::Fail => Err(JobError::from("as told").fail()),
            End::Discard => Err(JobError::from("no need").discard()),
            End::RetryOnce if cx.attempt() == 1 => Err("not yet".into()),
            End::StopWhenTold => {
                cx.state().log.add("waits");
                until("it is told to stop", || cx.check().is_err());
                cx.check().map_err(JobError::from)
            }
            _ => Ok(()),
        }
    }
}

fn trip(steps: &[(&str, End)], end: End) -> NewJob {
    let steps = steps.iter().map(|(step, end)| ((*step).to_owned(), *end));
    let steps = steps.collect();
    NewJob::new(&Trip { steps, end }).unwrap()
}

const ABC: [(&str, End); 3] = [("a", End::Finish), ("b", End::Finish), ("c", End::Finish)];

const DONE: [&str; 3] = ["do a", "do b", "do c"];

impl Scene<'_> {
    /// Runs until this was logged, and nothing is left to do.
    fn travels<L: AsRef<str>>(&self, expected: &[L]) {
        let before = self.ran().len();
        let registry = self.registry().register::<Trip>(Arc::clone(&self.place));
        let worker = Worker::new(&self.db.database, registry)
            .threads(2)
            .polling_interval(Duration::from_millis(100))
            .start()
            .unwrap();
        until("it is done", || {
            // One statement: between two, a job that is retried could move from one table to another.
            let left = "SELECT (SELECT count(*) FROM solid_queue_scheduled_executions) \
                 + (SELECT count(*) FROM solid_queue_ready_executions) + (SELECT count(*) FROM solid_queue_claimed_executions) \
                 + (SELECT count(*) FROM windlass_wanted_keys) AS n";
            self.ran().len() >= before + expected.len() && self.db.count(left) == 0
        });
        worker.stop();
        let expected: Vec<&str> = expected.iter().map(AsRef::as_ref).collect();
        assert_eq!(self.ran().split_off(before), expected);
    }

    /// Retries failed jobs of a class, which end otherwise this time.
    fn retry_as(&self, class: &str, from: End, to: End) {
        self.db.execute(&format!(
            "UPDATE solid_queue_jobs SET arguments = replace(arguments, '{from:?}', '{to:?}') WHERE class_name = '{class}' \
             AND id IN (SELECT job_id FROM solid_queue_failed_executions)"
        ));
        let retry = Change::Retry {
            even_at_most_once: false,
        };
        let retried = Jobs::failed()
            .class(class)
            .change(&mut self.db.connection(), retry)
            .unwrap();
        assert_eq!(retried.changed, 1);
    }

    fn parts(&self) -> i64 {
        self.db
            .count("SELECT count(*) AS n FROM solid_queue_jobs WHERE class_name = 'part'")
    }
}

const UNDONE: [&str; 3] = ["undo c", "undo b", "undo a"];

fn the_steps_of_a_failed_job_are_undone_in_reverse(db: &TestDb) {
    let scene = Scene::new(db);
    scene.enqueue(trip(&ABC, End::Fail));
    scene.travels(&[&DONE[..], &UNDONE].concat());
}

fn nothing_is_undone_after_a_success(db: &TestDb) {
    let scene = Scene::new(db);
    scene.enqueue(trip(&ABC, End::RetryOnce));
    scene.travels(&DONE);
    assert_eq!(scene.parts(), 0);
}

fn the_steps_of_a_discarded_job_are_undone(db: &TestDb) {
    let scene = Scene::new(db);
    scene.enqueue(trip(&ABC, End::Discard));
    scene.travels(&[&DONE[..], &UNDONE].concat());
}

fn the_steps_of_a_cancelled_job_are_undone(db: &TestDb) {
    let scene = Scene::new(db);
    let job = scene.enqueue(trip(&ABC, End::StopWhenTold)).id;
    std::thread::scope(|threads| {
        let expected = [&DONE[..], &["waits"], &UNDONE].concat();
        let scene = &scene;
        let ran = threads.spawn(move || scene.travels(&expected));
        until("it waits", || scene.ran().len() == 4);
        windlass::jobs::cancel(&mut db.connection(), job).unwrap();
        ran.join().unwrap();
    });
}

const B_FAILS: [(&str, End); 3] = [("a", End::Finish), ("b", End::Fail), ("c", End::Finish)];

fn an_undo_that_fails_holds_up_the_others_until_it_is_retried(db: &TestDb) {
    let scene = Scene::new(db);
    scene.enqueue(trip(&B_FAILS, End::Fail));
    scene.travels(&[&DONE[..], &["undo c", "undo b"]].concat());
    scene.retry_as("part", End::Fail, End::Finish);
    scene.travels(&["undo b", "undo a"]);
}

fn the_others_go_on_when_a_failed_undo_is_discarded(db: &TestDb) {
    let scene = Scene::new(db);
    scene.enqueue(trip(&B_FAILS, End::Fail));
    scene.travels(&[&DONE[..], &["undo c", "undo b"]].concat());
    let parts = Jobs::failed().class("part");
    let discarded = parts.change(&mut db.connection(), Change::Discard).unwrap();
    assert_eq!(discarded.changed, 1);
    scene.travels(&["undo a"]);
}

fn the_others_go_on_after_an_undo_that_is_not_needed(db: &TestDb) {
    let scene = Scene::new(db);
    let steps = [("a", End::Finish), ("b", End::Discard), ("c", End::Finish)];
    scene.enqueue(trip(&steps, End::Fail));
    scene.travels(&[&DONE[..], &UNDONE].concat());
}

fn a_retry_does_again_what_was_undone(db: &TestDb) {
    let scene = Scene::new(db);
    scene.enqueue(trip(&ABC, End::Fail));
    scene.travels(&[&DONE[..], &UNDONE].concat());
    scene.retry_as("trip", End::Fail, End::Discard);
    scene.travels(&[&DONE[..], &UNDONE].concat());
}

fn a_retry_keeps_what_was_not_undone(db: &TestDb) {
    let scene = Scene::new(db);
    let steps = [("a", End::Finish), ("b", End::Finish), ("c", End::Fail)];
    scene.enqueue(trip(&steps, End::Fail));
    scene.travels(&[&DONE[..], &["undo c"]].concat());
    // Its first part fails for good, and both others wait for that.
    scene.db.execute(
        "UPDATE solid_queue_jobs SET arguments = replace(arguments, '\"c\",\"Fail\"', '\"c\",\"Finish\"') WHERE class_name = 'trip'",
    );
    scene.retry_as("trip", End::Discard, End::Discard);
    scene.travels(&[&["do c"][..], &UNDONE].concat());
}

/// Makes the job that undoes the step of a failed trip end otherwise from now on.
fn undo_otherwise(db: &TestDb, step: &str, from: End, to: End) {
    db.execute(&format!(
        "UPDATE solid_queue_jobs SET arguments = replace(arguments, '\"{step}\",\"{from:?}\"', '\"{step}\",\"{to:?}\"') \
         WHERE class_name = 'trip'"
    ));
}

fn a_second_retry_keeps_what_was_not_undone(db: &TestDb) {
    let scene = Scene::new(db);
    let steps = [("a", End::Finish), ("b", End::Finish)];
    scene.enqueue(trip(&steps, End::Fail));
    scene.travels(&["do a", "do b", "undo b", "undo a"]);
    // The second undo of `a` never starts.
    undo_otherwise(db, "b", End::Finish, End::Fail);
    scene.retry_as("trip", End::Discard, End::Discard);
    scene.travels(&["do a", "do b", "undo b"]);
    undo_otherwise(db, "b", End::Fail, End::Finish);
    scene.retry_as("trip", End::Discard, End::Discard);
    scene.travels(&["do b", "undo b", "undo a"]);
    // Nor does it for the third time, when the trip succeeds: then nothing is left to undo.
    scene.retry_as("trip", End::Fail, End::Finish);
    scene.travels(&["do a", "do b"]);
    let blocked = db.rows_of("solid_queue_blocked_executions");
    assert_eq!(blocked, 0);
}

fn a_retry_does_again_what_was_undone_by_jobs_that_were_deleted(db: &TestDb) {
    let scene = Scene::new(db);
    scene.enqueue(trip(&ABC, End::Fail));
    scene.travels(&[&DONE[..], &UNDONE].concat());
    // A supervisor deletes what belonged to them, too.
    db.execute("DELETE FROM solid_queue_jobs WHERE class_name = 'part'");
    db.execute("DELETE FROM windlass_edges");
    scene.retry_as("trip", End::Fail, End::Discard);
    scene.travels(&[&DONE[..], &UNDONE].concat());
}

/// A trip that was made, and waits for its retry, for a day.
fn waiting_trip(scene: &Scene<'_>, steps: &[(&str, End)]) -> JobId {
    let policy = Part::policy().backoff(Backoff::Fixed(Duration::from_secs(86_400)));
    let job = scene.enqueue(trip(steps, End::RetryOnce).policy(policy).unique_id("trip"));
    let registry = scene.registry().register::<Trip>(Arc::clone(&scene.place));
    let worker = Worker::new(&scene.db.database, registry).start().unwrap();
    until("it waits for its retry", || {
        scene.db.rows_of("solid_queue_scheduled_executions") == 1
    });
    worker.stop();
    job.id
}

/// A trip that takes the place of a waiting one.
fn other_trip(steps: &[(&str, End)], end: End) -> NewJob {
    let policy = Part::policy().on_conflict(OnConflict::Replace);
    trip(steps, end).policy(policy).unique_id("trip")
}

fn the_steps_of_a_replaced_job_are_undone(db: &TestDb) {
    let scene = Scene::new(db);
    let job = waiting_trip(&scene, &B_FAILS);
    // It finishes before all is undone.
    let other = scene.enqueue(other_trip(&[], End::Finish));
    assert_eq!((other.id, other.outcome), (job, EnqueueOutcome::Replaced));
    scene.travels(&["undo c", "undo b"]);
    until("it has finished", || {
        db.count("SELECT count(*) AS n FROM solid_queue_jobs WHERE class_name = 'trip' AND finished_at IS NOT NULL") == 1
    });
    scene.retry_as("part", End::Fail, End::Finish);
    scene.travels(&["undo b", "undo a"]);
}

fn the_steps_of_a_job_that_is_replaced_by_sql_are_undone(db: &TestDb) {
    let scene = Scene::new(db);
    let job = waiting_trip(&scene, &B_FAILS);
    let arguments = r#"{"steps":[],"end":"Finish"}"#;
    let enqueue = format!(
        "INSERT INTO windlass_enqueue (class, arguments, unique_id, on_conflict) VALUES ('trip', '{arguments}', 'trip', 'replace')"
    );
    run(db, &enqueue).unwrap();
    assert_eq!(
        db.count("SELECT max(id) AS n FROM solid_queue_jobs WHERE class_name = 'trip'"),
        job.0
    );
    scene.travels(&["undo c", "undo b"]);
    scene.retry_as("part", End::Fail, End::Finish);
    scene.travels(&["undo b", "undo a"]);
}

fn a_job_that_replaces_another_undoes_its_own_steps_only(db: &TestDb) {
    let scene = Scene::new(db);
    // The undo of `b` fails, so `a` of the first waits while the second does both, fails, and is retried.
    waiting_trip(&scene, &B_FAILS[..2]);
    scene.enqueue(other_trip(&[], End::Fail));
    scene.travels(&["undo b"]);
    let steps = r#"[["a","Finish"],["b","Finish"]]"#;
    db.execute(&format!(
        "UPDATE solid_queue_jobs SET arguments = replace(arguments, '[]', '{steps}') WHERE class_name = 'trip'"
    ));
    scene.retry_as("trip", End::Discard, End::Discard);
    scene.travels(&["do a", "do b", "undo b", "undo a"]);
    scene.retry_as("part", End::Fail, End::Finish);
    scene.travels(&["undo b", "undo a"]);
    scene.retry_as("trip", End::Fail, End::Finish);
    scene.travels(&["do a", "do b"]);
}

fn a_step_that_fails_leaves_no_undo(db: &TestDb) {
    let scene = Scene::new(db);
    let bench = crate::policies::Bench::with(db, |registry, log| {
        let log = Arc::clone(log);
        registry.register::<crate::policies::Call>(crate::policies::Doing::new(move |cx| {
            let failed = cx.undo(|_: &()| part("undo", End::Finish)).step(
                &mut cx.connection()?,
                "a",
                |_| Err("no".into()),
            );
            log.add(failed.unwrap_err().message());
            let failed = cx.step(&mut cx.connection()?, "outer", |conn| -> JobResult {
                cx.undo(|_: &()| part("undo", End::Finish))
                    .step(conn, "inner", |_| Ok(()))?;
                Err("outer".into())
            });
            log.add(failed.unwrap_err().message());
            Err(JobError::from("as told").fail())
        }))
    });
    crate::policies::call(db, Policy::new());
    until("it has failed", || {
        crate::policies::executions(db, "failed") == 1
    });
    assert_eq!(bench.log.lines(), ["no", "outer"]);
    assert_eq!(scene.parts(), 0);
}

fn wrong_undos_are_refused(db: &TestDb) {
    let bench = crate::policies::Bench::with(db, |registry, log| {
        let log = Arc::clone(log);
        registry.register::<crate::policies::Call>(crate::policies::Doing::new(move |cx| {
            let refused = |step: &str, job: NewJob| {
                let undo = cx.undo(|_: &()| job.clone());
                undo.memo(step, || Ok(())).unwrap_err().kind().to_owned()
            };
            log.add(refused("a", part("a", End::Finish).after(JobId(1))));
            log.add(refused(
                "b",
                part("a", End::Finish).idempotency_key("taken"),
            ));
            let named = part("a", End::Finish).unique_id("a");
            log.add(refused("c", named));
            Ok(())
        }))
    });
    let taken = part("a", End::Finish).idempotency_key("taken");
    taken.enqueue(&mut db.connection()).unwrap();
    crate::policies::call(db, Policy::new());
    until("it has finished", || crate::policies::finished(db) == 1);
    assert_eq!(bench.log.lines()[..2], ["wrong_undo"; 2]);
    assert!(
        bench.log.lines()[2].contains("Error"),
        "{:?}",
        bench.log.lines()
    );
}
