//! The faults that a test lets happen.

use crate::on_each_database;
use crate::support::TestDb;
use serde::{Deserialize, Serialize};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use windlass::jobs::TaskStatus;
use windlass::testing::{
    self, Drain, Drained, Fault, FaultPoint, Inline, RunOutcome, TestDatabase, for_each_fault,
};
use windlass::{Context, Delivery, Job, JobResult, NewJob, Policy, Registry};

on_each_database!(
    a_killed_run_is_recovered_and_repeated,
    a_frozen_run_is_overtaken_and_its_end_refused,
    a_frozen_run_sees_that_its_claim_is_lost,
    an_unreachable_database_gives_the_job_back,
    a_lost_commit_changes_nothing,
    a_job_that_runs_at_most_once_is_not_repeated,
    a_job_that_ends_itself_is_not_repeated,
    a_fault_happens_once,
    a_fault_that_no_run_reaches_changes_nothing,
    each_fault_is_tried_with_a_new_database,
    what_a_fault_breaks_is_told,
);

/// The log of a job's runs.
#[derive(Debug, Default)]
struct Trace(Mutex<Vec<String>>);

impl Trace {
    fn add(&self, line: impl Into<String>) {
        self.0.lock().unwrap().push(line.into());
    }

    fn lines(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

/// Has its effect between two connections.
#[derive(Serialize, Deserialize)]
struct Effect;

impl Job for Effect {
    const NAME: &'static str = "effect";
    type State = Trace;
    type Output = ();

    fn policy() -> Policy {
        Policy::new().max_attempts(2)
    }

    fn perform(self, cx: &Context<'_, Trace>) -> JobResult {
        cx.add("start");
        drop(cx.connection()?);
        cx.add("effect");
        drop(cx.connection()?);
        cx.add("end");
        Ok(())
    }
}

/// Stops when it sees that its claim is lost.
#[derive(Serialize, Deserialize)]
struct Checking;

impl Job for Checking {
    const NAME: &'static str = "checking";
    type State = Trace;
    type Output = ();

    fn perform(self, cx: &Context<'_, Trace>) -> JobResult {
        drop(cx.connection()?);
        cx.check()?;
        cx.add("effect");
        Ok(())
    }
}

/// Ends itself, with its effect.
#[derive(Serialize, Deserialize)]
struct Finishing;

impl Job for Finishing {
    const NAME: &'static str = "finishing";
    type State = Trace;
    type Output = ();

    fn perform(self, cx: &Context<'_, Trace>) -> JobResult {
        let mut conn = cx.connection()?;
        // The other job is its effect.
        let done = conn.transaction(|conn| {
            NewJob::of_class("effect_of_it", "{}").enqueue(conn)?;
            cx.finish_in(conn)
        });
        cx.add(if done.is_ok() { "done" } else { "refused" });
        done
    }
}

fn open(db: &TestDb) -> TestDatabase {
    TestDatabase::open(&db.url).unwrap()
}

fn registry() -> (Registry, Arc<Trace>) {
    let trace = Arc::new(Trace::default());
    let registry = Registry::new()
        .register::<Effect>(Arc::clone(&trace))
        .register::<Checking>(Arc::clone(&trace))
        .register::<Finishing>(Arc::clone(&trace));
    (registry, trace)
}

/// Performs a new job with a fault, and gives what its runs did.
fn effects(db: &mut TestDatabase, fault: Fault) -> (Drained, String) {
    let (registry, trace) = registry();
    Effect.enqueue(db).unwrap();
    let drain = Drain::new(&registry).retries().fault(fault);
    let drained = drain.run(db).unwrap();
    drained.assert_all_finished_in_the_end(1);
    assert_eq!(windlass::processes::list(db).unwrap(), []);
    testing::assert_not_enqueued::<Effect>(db);
    (drained, trace.lines().join(" "))
}

const FULL: &str = "start effect end";

fn a_killed_run_is_recovered_and_repeated(db: &TestDb) {
    let db = &mut open(db);
    for (point, cut) in [
        (FaultPoint::Start, ""),
        (FaultPoint::Connection(1), "start "),
        (FaultPoint::Connection(2), "start effect "),
        (FaultPoint::End, "start effect end "),
    ] {
        let (drained, done) = effects(db, Fault::Killed(point));
        assert_eq!(done, format!("{cut}{FULL}"), "{point}");
        let outcomes: Vec<_> = drained.runs.iter().map(|run| &run.outcome).collect();
        assert_eq!(outcomes, [&RunOutcome::Crashed, &RunOutcome::Finished]);
        let id = drained.runs[0].id;
        let attempts = crate::support::jobs::attempts(db, id).unwrap();
        assert_eq!(attempts.len(), 1, "{attempts:?}");
        assert!(
            format!("{attempts:?}").contains("was killed by a fault"),
            "{attempts:?}"
        );
    }
}

fn a_frozen_run_is_overtaken_and_its_end_refused(db: &TestDb) {
    let db = &mut open(db);
    for (point, order) in [
        (FaultPoint::Start, "start effect end start effect end"),
        (
            FaultPoint::Connection(1),
            "start start effect end effect end",
        ),
        (
            FaultPoint::Connection(2),
            "start effect start effect end end",
        ),
        (FaultPoint::End, "start effect end start effect end"),
    ] {
        let (drained, done) = effects(db, Fault::Frozen(point));
        assert_eq!(done, order, "{point}");
        let outcomes: Vec<_> = drained.runs.iter().map(|run| &run.outcome).collect();
        assert_eq!(outcomes, [&RunOutcome::Finished, &RunOutcome::Lost]);
        assert_eq!(drained.runs[0].id, drained.runs[1].id);
    }
}

fn a_frozen_run_sees_that_its_claim_is_lost(db: &TestDb) {
    let (db, (registry, trace)) = (&mut open(db), registry());
    for point in [FaultPoint::Start, FaultPoint::Connection(1)] {
        Checking.enqueue(db).unwrap();
        let drain = Drain::new(&registry).fault(Fault::Frozen(point));
        let drained = drain.run(db).unwrap();
        assert_eq!(trace.lines(), ["effect"], "{point}");
        drained.assert_all_finished_in_the_end(1);
        assert_eq!(drained.runs[1].outcome, RunOutcome::Lost);
    }
}

fn an_unreachable_database_gives_the_job_back(db: &TestDb) {
    let db = &mut open(db);
    for (number, cut) in [(1, "start "), (2, "start effect ")] {
        let (drained, done) = effects(db, Fault::DatabaseAway(number));
        assert_eq!(done, format!("{cut}{FULL}"));
        let RunOutcome::Interrupted(_, message, _) = &drained.runs[0].outcome else {
            panic!("{drained:?}");
        };
        assert!(message.contains("the database is away"), "{message}");
    }
}

fn a_lost_commit_changes_nothing(db: &TestDb) {
    let db = &mut open(db);
    let (drained, done) = effects(db, Fault::LostCommit);
    assert_eq!(done, FULL);
    drained.assert_all_finished(1);
    assert_eq!(
        crate::support::jobs::attempts(db, drained.runs[0].id).unwrap(),
        []
    );
}

fn a_job_that_runs_at_most_once_is_not_repeated(db: &TestDb) {
    let (db, (registry, trace)) = (&mut open(db), registry());
    for fault in [
        Fault::Killed(FaultPoint::Connection(2)),
        Fault::Frozen(FaultPoint::Connection(2)),
    ] {
        let policy = Policy::new().max_attempts(1).delivery(Delivery::AtMostOnce);
        let job = NewJob::new(&Effect).unwrap().policy(policy);
        let id = job.enqueue(db).unwrap().id;
        let drained = Drain::new(&registry).fault(fault).run(db).unwrap();
        assert_eq!(drained.runs.len(), 1, "{drained:?}");
        let started = trace.lines().iter().filter(|line| *line == "start").count();
        assert_eq!(started, 1);
        let info = windlass::jobs::status(db, id).unwrap().unwrap();
        assert_eq!(info.status, TaskStatus::Failed, "{fault}: {info:?}");
        assert!(format!("{info:?}").contains("outcome_unknown"), "{info:?}");
    }
}

fn a_job_that_ends_itself_is_not_repeated(db: &TestDb) {
    let (db, (registry, trace)) = (&mut open(db), registry());
    let mut effects = 0;
    for (fault, done) in [
        (Fault::Killed(FaultPoint::End), vec!["done"]),
        (Fault::Frozen(FaultPoint::End), vec!["done"]),
        (Fault::LostCommit, vec!["done"]),
        (Fault::Killed(FaultPoint::Connection(1)), vec!["done"]),
        (
            Fault::Frozen(FaultPoint::Connection(1)),
            vec!["done", "refused"],
        ),
    ] {
        Finishing.enqueue(db).unwrap();
        let drained = Drain::new(&registry).fault(fault).run(db).unwrap();
        drained.assert_all_finished_in_the_end(1);
        assert_eq!(trace.lines(), done, "{fault}");
        effects += 1;
        assert_eq!(testing::enqueued_any(db).unwrap().len(), effects, "{fault}");
    }
}

fn a_fault_happens_once(db: &TestDb) {
    let (db, (registry, trace)) = (&mut open(db), registry());
    let drain = Drain::new(&registry).fault(Fault::Killed(FaultPoint::End));
    let mut inline: Inline<'_> = drain.inline(db);
    for _ in 0..2 {
        Effect.enqueue(&mut inline).unwrap();
    }
    assert_eq!(inline.drained().runs.len(), 3);
    inline.drained().assert_all_finished_in_the_end(2);
    assert_eq!(trace.lines().len(), 9);
}

fn a_fault_that_no_run_reaches_changes_nothing(db: &TestDb) {
    let db = &mut open(db);
    let point = FaultPoint::Connection(3);
    for fault in [
        Fault::Killed(point),
        Fault::Frozen(point),
        Fault::DatabaseAway(3),
    ] {
        let (drained, done) = effects(db, fault);
        assert_eq!(done, FULL);
        drained.assert_all_finished(1);
    }
}

fn each_fault_is_tried_with_a_new_database(db: &TestDb) {
    let mut tried = Vec::new();
    for_each_fault(
        || TestDatabase::open(&db.url),
        |fault, db| {
            testing::assert_not_enqueued::<Effect>(db);
            drop(effects(db, fault));
            tried.push(fault);
            Ok(())
        },
    );
    // The third connection is not reached, so there is no fourth.
    assert_eq!(tried.len(), 5 + 3 * 3);
    assert!(tried.contains(&Fault::Frozen(FaultPoint::Connection(3))));
    assert!(!tried.contains(&Fault::DatabaseAway(4)));
}

fn what_a_fault_breaks_is_told(db: &TestDb) {
    let once = |fault: Fault, db: &mut TestDatabase| {
        let (_, done) = effects(db, fault);
        let times = done.split(' ').filter(|word| *word == "effect").count();
        if fault == Fault::Killed(FaultPoint::End) {
            return Err("as an error".into());
        }
        assert_eq!(times, 1, "effects");
        Ok(())
    };
    let open = || TestDatabase::open(&db.url);
    let message = caught(|| for_each_fault(open, once));
    assert!(message.starts_with("7 of 14 faults"), "{message}");
    for part in [
        "\n- killed after the job, before its outcome is saved: as an error",
        "\n- frozen before the job starts: ",
        "\n- frozen at connection 1: ",
        "\n- killed at connection 2: ",
        "\n- database away from connection 2: ",
    ] {
        assert!(message.contains(part), "{part:?}: {message}");
    }
    assert!(!message.contains("- killed at connection 1"), "{message}");
    let message = caught(|| for_each_fault(open, |_, _| Ok(())));
    assert!(message.contains("no fault has happened"), "{message}");
}

fn caught(work: impl FnOnce()) -> String {
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
    match result.unwrap_err().downcast::<String>() {
        Ok(text) => *text,
        Err(other) => (*other.downcast::<&str>().unwrap()).to_owned(),
    }
}

#[test]
fn the_example_finds_the_double_charges() {
    let run = Command::new(env!("CARGO_BIN_EXE_faults"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8(run.stdout).unwrap();
    assert!(run.status.success(), "{said}");
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines[0].contains("charged twice with"), "{said}");
    assert!(lines[1].contains("charged twice with"), "{said}");
    assert!(lines[2].contains("charged once with each"), "{said}");
    assert!(lines[3].contains("charged once with each"), "{said}");
}
