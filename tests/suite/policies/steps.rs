//! Work of a job in the database of the queue, exactly once.

use super::{Bench, Call, Doing, call, executions, finished, stubborn};
use crate::on_each_database;
use crate::support::TestDb;
use crate::support::db::execute;
use crate::support::process::{Effects, Scene, signal};
use crate::support::wait::until;
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use windlass::jobs::{Change, Jobs};
use windlass::{AsConn, Context, DbConnection, Job, JobError, JobResult, NewJob, Policy};

on_each_database!(
    a_killed_job_goes_on_where_it_was,
    a_later_run_gets_what_the_first_one_did,
    what_fails_leaves_nothing,
    a_step_without_its_claim_does_nothing,
    a_name_stands_for_one_step,
    a_name_stands_for_one_step_of_earlier_runs_too,
    steps_within_steps,
    steps_in_a_transaction_of_ones_own,
    large_values_and_wrong_names_are_refused,
    a_type_has_its_own_maximum_of_a_value,
    two_threads_do_steps,
    many_steps,
    a_retried_job_goes_on_where_it_was,
    finished_in_its_own_transaction,
    a_job_whose_row_goes_can_finish_itself,
    what_is_rolled_back_has_not_finished,
    what_cannot_be_finished_is_not_lost,
    finishing_needs_the_claim,
    finishing_needs_a_transaction,
    a_job_that_has_finished_itself_is_not_recovered,
);

crate::through_a_pooler_in_all!(
    a_killed_job_goes_on_where_it_was,
    a_later_run_gets_what_the_first_one_did,
    what_fails_leaves_nothing,
    a_step_without_its_claim_does_nothing,
    a_name_stands_for_one_step,
    a_name_stands_for_one_step_of_earlier_runs_too,
    steps_within_steps,
    steps_in_a_transaction_of_ones_own,
    large_values_and_wrong_names_are_refused,
    two_threads_do_steps,
    many_steps,
    a_retried_job_goes_on_where_it_was,
    finished_in_its_own_transaction,
    a_job_whose_row_goes_can_finish_itself,
    what_is_rolled_back_has_not_finished,
    what_cannot_be_finished_is_not_lost,
    finishing_needs_the_claim,
    finishing_needs_a_transaction,
    a_job_that_has_finished_itself_is_not_recovered,
);

/// Makes the table that the steps write to.
fn table(db: &TestDb) {
    db.execute("CREATE TABLE seen (what varchar NOT NULL)");
}

fn see<C: AsConn>(conn: &mut C, what: impl std::fmt::Display) {
    execute(conn, &format!("INSERT INTO seen (what) VALUES ('{what}')"));
}

fn seen(db: &TestDb) -> Vec<String> {
    db.texts("SELECT what AS t FROM seen ORDER BY what")
}

fn recorded(db: &TestDb) -> i64 {
    db.count("SELECT count(*) AS n FROM windlass_steps")
}

fn bench(
    db: &TestDb,
    body: impl Fn(&Context<'_, Doing>, &mut DbConnection) -> JobResult + Send + Sync + 'static,
) -> Bench {
    table(db);
    Bench::with(db, |registry, log| {
        let log = Arc::clone(log);
        registry.register::<Call>(Doing::new(move |cx| {
            log.add("run");
            let result = body(cx, &mut cx.connection()?);
            if let Err(error) = &result {
                log.add(error.kind());
            }
            result
        }))
    })
}

/// Ten steps; before the sixth it waits until the gate opens.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Walk {
    pub gate: String,
}

impl Job for Walk {
    const NAME: &'static str = "walk";
    type State = Effects;
    type Output = ();

    fn perform(self, cx: &Context<'_, Effects>) -> JobResult {
        let mut conn = cx.connection()?;
        cx.write("start", "walk", cx.claim_id());
        for step in 0..10 {
            if step == 6 {
                cx.write("start", "sixth", cx.claim_id());
                until("the gate opens", || Path::new(&self.gate).exists());
            }
            cx.step(&mut conn, &format!("step {step}"), |conn| {
                cx.write("end", "step", cx.claim_id());
                see(conn, step);
                Ok(())
            })?;
        }
        Ok(())
    }
}

fn a_killed_job_goes_on_where_it_was(db: &TestDb) {
    table(db);
    let scene = Scene::new(db);
    let _supervisor = scene.supervisor(1);
    let gate = scene.gate("go");
    Walk { gate }.enqueue(&mut db.connection()).unwrap();
    let first = scene.started("sixth", 1);
    assert_eq!(recorded(db), 6);
    signal(first.pid, Signal::KILL);
    let second = scene.started("sixth", 2);
    assert_ne!(first.pid, second.pid);
    scene.open("go");
    scene.drained();
    assert_eq!(seen(db).concat(), "0123456789");
    assert_eq!(scene.count("end", "step"), 10, "none was begun twice");
    assert_eq!(recorded(db), 0, "they go with the job");
}

fn a_later_run_gets_what_the_first_one_did(db: &TestDb) {
    let bench = bench(db, |cx, conn| {
        let attempt = cx.attempt();
        let first: (u32, String) = cx.step(conn, "first", |_| Ok((attempt, "ä".repeat(2))))?;
        assert_eq!(first, (1, "ää".to_owned()));
        let long = cx.step(conn, "long", |_| Ok("x".repeat(2000 + attempt as usize)))?;
        assert_eq!(long.len(), 2001);
        if attempt < 3 {
            return Err("once more".into());
        }
        Ok(())
    });
    call(db, stubborn(3));
    until("it has finished", || finished(db) == 1);
    assert_eq!(bench.log.count("run"), 3);
    assert_eq!(recorded(db), 0);
}

fn what_fails_leaves_nothing(db: &TestDb) {
    let bench = bench(db, |cx, conn| {
        if cx.attempt() == 1 {
            let failed = cx.step(conn, "a", |conn| -> JobResult {
                see(conn, "lost");
                Err("no".into())
            });
            assert_eq!(failed.unwrap_err().message(), "no");
            // The name is still free.
            cx.step(conn, "a", |conn| {
                see(conn, "kept");
                Ok(())
            })?;
            // A panic takes the connection along, and what it had begun.
            cx.step(conn, "b", |conn| -> JobResult {
                see(conn, "panicked");
                panic!("as told")
            })?;
        }
        cx.step(conn, "b", |conn| {
            see(conn, "later");
            Ok(())
        })
    });
    call(db, stubborn(2));
    until("it has finished", || finished(db) == 1);
    assert_eq!(seen(db), ["kept", "later"]);
    assert_eq!(bench.log.count("run"), 2);
}

/// As if the process had been taken for dead.
const RECOVERED: &str = "DELETE FROM solid_queue_claimed_executions";

fn a_step_without_its_claim_does_nothing(db: &TestDb) {
    let bench = bench(db, |cx, conn| {
        cx.step(conn, "a", |_| Ok(()))?;
        execute(conn, RECOVERED);
        cx.step(conn, "b", |conn| {
            see(conn, "b");
            Ok(())
        })
    });
    call(db, stubborn(2));
    until("its end is fenced", || bench.events.count("Fenced") == 1);
    assert_eq!(bench.log.lines(), ["run", "lost"]);
    assert!(seen(db).is_empty());
    assert_eq!(recorded(db), 1);
}

fn a_name_stands_for_one_step(db: &TestDb) {
    let bench = bench(db, |cx, conn| {
        cx.step(conn, "a", |_| Ok(()))?;
        if cx.attempt() == 1 {
            return Err("once more".into());
        }
        cx.step(conn, "a", |_| Ok(()))
    });
    call(db, stubborn(9));
    until("it has failed", || executions(db, "failed") == 1);
    let kinds = bench.log.lines();
    assert_eq!(kinds.last().unwrap(), "duplicate_step", "{kinds:?}");
    assert_eq!(bench.log.count("run"), 2, "no attempt would help");
}

/// The run that finds the step of an earlier one has the same attempt.
fn a_name_stands_for_one_step_of_earlier_runs_too(db: &TestDb) {
    let is_again = AtomicBool::new(false);
    let bench = bench(db, move |cx, conn| {
        cx.step(conn, "user", |_| Ok(1))?;
        if !is_again.swap(true, Ordering::SeqCst) {
            return Err(JobError::snooze(Duration::ZERO));
        }
        cx.step(conn, "user", |_| Ok(2)).map(drop)
    });
    call(db, stubborn(1));
    until("it has failed", || executions(db, "failed") == 1);
    let kinds = bench.log.lines();
    assert_eq!(kinds, ["run", "snoozed", "run", "duplicate_step"]);
}

fn steps_within_steps(db: &TestDb) {
    let _bench = bench(db, |cx, conn| {
        let outer = |conn: &mut DbConnection, fail: bool| {
            cx.step(conn, "outer", |conn| {
                let inner: u32 = cx.step(conn, "inner", |conn| {
                    see(conn, "inner");
                    Ok(7)
                })?;
                see(conn, "outer");
                if fail {
                    return Err(JobError::from("no"));
                }
                Ok(inner + 1)
            })
        };
        assert!(outer(conn, true).is_err());
        assert_eq!(outer(conn, false)?, 8);
        Ok(())
    });
    call(db, Policy::new());
    until("it has finished", || finished(db) == 1);
    assert_eq!(seen(db), ["inner", "outer"]);
}

fn steps_in_a_transaction_of_ones_own(db: &TestDb) {
    let _bench = bench(db, |cx, conn| {
        let twice = |conn: &mut DbConnection| -> JobResult {
            for name in ["a", "b"] {
                cx.step(conn, name, |conn| {
                    see(conn, name);
                    Ok(())
                })?;
            }
            Ok(())
        };
        begin(conn);
        twice(conn)?;
        roll_back(conn);
        begin(conn);
        twice(conn)?;
        commit(conn);
        Ok(())
    });
    call(db, Policy::new());
    until("it has finished", || finished(db) == 1);
    assert_eq!(seen(db), ["a", "b"]);
}

/// Diesel's own, which knows of savepoints. On SQLite it takes the write lock:
/// one that reads first may be refused when it writes.
fn begin(conn: &mut DbConnection) {
    use diesel::connection::{AnsiTransactionManager, TransactionManager};
    match conn.as_conn() {
        windlass::Conn::Sqlite(c) => {
            AnsiTransactionManager::begin_transaction_sql(c, "BEGIN IMMEDIATE")
        }
        #[cfg(feature = "postgres")]
        windlass::Conn::Postgres(c) => AnsiTransactionManager::begin_transaction(c),
        _ => unreachable!(),
    }
    .unwrap();
}

fn commit(conn: &mut DbConnection) {
    use diesel::connection::{AnsiTransactionManager, TransactionManager};
    match conn.as_conn() {
        windlass::Conn::Sqlite(c) => AnsiTransactionManager::commit_transaction(c),
        #[cfg(feature = "postgres")]
        windlass::Conn::Postgres(c) => AnsiTransactionManager::commit_transaction(c),
        _ => unreachable!(),
    }
    .unwrap();
}

fn roll_back(conn: &mut DbConnection) {
    use diesel::connection::{AnsiTransactionManager, TransactionManager};
    match conn.as_conn() {
        windlass::Conn::Sqlite(c) => AnsiTransactionManager::rollback_transaction(c),
        #[cfg(feature = "postgres")]
        windlass::Conn::Postgres(c) => AnsiTransactionManager::rollback_transaction(c),
        _ => unreachable!(),
    }
    .unwrap();
}

fn large_values_and_wrong_names_are_refused(db: &TestDb) {
    let _bench = bench(db, |cx, conn| {
        let kind = |result: JobResult| result.unwrap_err().kind().to_owned();
        for name in ["", "a\0b", &"x".repeat(256)] {
            assert_eq!(kind(cx.step(conn, name, |_| Ok(()))), "step_name");
        }
        let large = cx.step(conn, "large", |conn| {
            see(conn, "large");
            Ok("x".repeat(64 * 1024))
        });
        assert_eq!(kind(large.map(drop)), "step_too_large");
        cx.step(conn, &"x".repeat(255), |_| Ok("x".repeat(64 * 1024 - 2)))?;
        Ok(())
    });
    call(db, Policy::new());
    until("it has finished", || finished(db) == 1);
    assert!(seen(db).is_empty());
}

/// Keeps values of this size.
#[derive(Serialize, Deserialize)]
struct Wide(usize);

impl Job for Wide {
    const NAME: &'static str = "wide";
    const MAX_STEP: usize = 100_000;
    type State = ();
    type Output = ();

    fn perform(self, cx: &Context<'_, ()>) -> JobResult {
        let mut conn = cx.connection()?;
        cx.step(&mut conn, "wide", |_| Ok("x".repeat(self.0 - 2)))
            .map(drop)
    }
}

fn a_type_has_its_own_maximum_of_a_value(db: &TestDb) {
    for size in [100_000, 100_001] {
        Wide(size).enqueue(&mut db.connection()).unwrap();
    }
    let worker =
        windlass::Worker::new(&db.database, windlass::Registry::new().register::<Wide>(()));
    let worker = worker.start().unwrap();
    until("one has finished, and one has failed", || {
        finished(db) == 1 && executions(db, "failed") == 1
    });
    worker.stop();
    let error = db
        .texts("SELECT error AS t FROM solid_queue_failed_executions")
        .remove(0);
    assert!(error.contains("more than the maximum of 100000"), "{error}");
}

fn two_threads_do_steps(db: &TestDb) {
    let _bench = bench(db, |cx, _| {
        std::thread::scope(|scope| {
            for thread in 0..2 {
                scope.spawn(move || {
                    let mut conn = cx.connection().unwrap();
                    for step in 0..20 {
                        let name = format!("{thread} {step}");
                        let done = cx.step(&mut conn, &name, |conn| {
                            see(conn, &name);
                            Ok(())
                        });
                        done.unwrap();
                    }
                });
            }
        });
        Ok(())
    });
    call(db, Policy::new());
    until("it has finished", || finished(db) == 1);
    assert_eq!(seen(db).len(), 40);
}

fn many_steps(db: &TestDb) {
    let bench = bench(db, |cx, conn| {
        for step in 0..500 {
            cx.step(conn, &step.to_string(), |_| Ok(step))?;
        }
        if cx.attempt() == 1 {
            return Err("once more".into());
        }
        Ok(())
    });
    call(db, stubborn(2));
    until("it has failed once", || bench.log.count("run") == 2);
    until("it has finished", || finished(db) == 1);
    assert_eq!(recorded(db), 0);
}

fn a_retried_job_goes_on_where_it_was(db: &TestDb) {
    let bench = bench(db, |cx, conn| {
        cx.step(conn, "a", |conn| {
            see(conn, "a");
            Ok(())
        })?;
        Err("no".into())
    });
    let job = call(db, Policy::new());
    until("it has failed", || executions(db, "failed") == 1);
    let retry = Change::Retry {
        even_at_most_once: false,
    };
    let failed = Jobs::failed().ids([job]);
    failed.change(&mut db.connection(), retry).unwrap();
    until("it has failed again", || {
        bench.log.count("run") == 2 && executions(db, "failed") == 1
    });
    assert_eq!((seen(db).len(), recorded(db)), (1, 1));
    failed
        .change(&mut db.connection(), Change::Discard)
        .unwrap();
    assert_eq!(recorded(db), 0);
}

fn finished_in_its_own_transaction(db: &TestDb) {
    let bench = bench(db, |cx, conn| {
        cx.step(conn, "a", |_| Ok(()))?;
        begin(conn);
        see(conn, "effect");
        cx.finish_in(conn)?;
        cx.finish_in(conn)?;
        commit(conn);
        assert!(cx.step(conn, "b", |_| Ok(())).is_err());
        Err("what it says now does not count".into())
    });
    let job = call(db, stubborn(5));
    until("its end is told", || bench.events.count("Finished") == 1);
    assert_eq!((finished(db), seen(db).len()), (1, 1));
    assert_eq!((bench.log.count("run"), recorded(db)), (1, 0));
    assert!(
        crate::support::jobs::attempts(&mut db.connection(), job)
            .unwrap()
            .is_empty()
    );
    for table in ["ready", "claimed", "scheduled", "failed"] {
        assert_eq!(executions(db, table), 0, "{table}");
    }
    assert_eq!(bench.events.count("Fenced"), 0);
}

fn a_job_whose_row_goes_can_finish_itself(db: &TestDb) {
    let bench = bench(db, |cx, conn| {
        begin(conn);
        see(conn, "effect");
        cx.finish_in(conn)?;
        commit(conn);
        if seen_by(conn) == 1 {
            return Ok(());
        }
        Err("late".into())
    });
    call(db, stubborn(5).keep_finished(false));
    until("its end is told", || bench.events.count("Finished") == 1);
    call(db, stubborn(5).keep_finished(false));
    until("both ends are told", || bench.events.count("Finished") == 2);
    assert_eq!((db.rows("jobs"), seen(db).len()), (0, 2));
    assert_eq!(bench.events.count("Fenced"), 0);
}

fn seen_by(conn: &mut DbConnection) -> i64 {
    crate::support::db::count(conn, "SELECT count(*) AS n FROM seen")
}

fn what_is_rolled_back_has_not_finished(db: &TestDb) {
    let bench = bench(db, |cx, conn| {
        begin(conn);
        see(conn, "effect");
        cx.finish_in(conn)?;
        roll_back(conn);
        if cx.attempt() == 1 {
            return Err("no".into());
        }
        Ok(())
    });
    call(db, stubborn(2));
    until("it has finished", || bench.events.count("Finished") == 1);
    assert_eq!(bench.events.count("Retried"), 1);
    assert_eq!((finished(db), bench.log.count("run")), (1, 2));
    assert!(seen(db).is_empty());
}

/// The job commits although it could not be finished, which Postgres would refuse.
fn what_cannot_be_finished_is_not_lost(db: &TestDb) {
    db.execute(if db.is_postgres() {
        "ALTER TABLE solid_queue_jobs ADD CHECK (finished_at IS NULL)"
    } else {
        "CREATE TRIGGER refuses BEFORE UPDATE ON solid_queue_jobs WHEN NEW.finished_at IS NOT NULL \
         BEGIN SELECT RAISE(FAIL, 'refused'); END"
    });
    let db_is_sqlite = !db.is_postgres();
    let _bench = bench(db, move |cx, conn| {
        begin(conn);
        let done = cx.finish_in(conn);
        if db_is_sqlite {
            commit(conn);
        } else {
            roll_back(conn);
        }
        done
    });
    call(db, stubborn(1));
    until("it has failed", || executions(db, "failed") == 1);
}

fn finishing_needs_the_claim(db: &TestDb) {
    let bench = bench(db, |cx, conn| {
        execute(conn, RECOVERED);
        begin(conn);
        see(conn, "effect");
        let done = cx.finish_in(conn);
        roll_back(conn);
        done
    });
    call(db, stubborn(2));
    until("its end is fenced", || bench.events.count("Fenced") == 1);
    assert_eq!(bench.log.lines(), ["run", "lost"]);
    assert_eq!((finished(db), seen(db).len()), (0, 0));
}

fn finishing_needs_a_transaction(db: &TestDb) {
    let bench = bench(db, |cx, conn| cx.finish_in(conn));
    call(db, stubborn(2));
    until("it has failed", || executions(db, "failed") == 1);
    assert_eq!(bench.log.lines(), ["run", "no_transaction"]);
}

/// Never ends its step, unless somebody has opened the gate.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Hoard {
    pub gate: String,
}

impl Job for Hoard {
    const NAME: &'static str = "hoard";
    type State = Effects;
    type Output = ();

    fn perform(self, cx: &Context<'_, Effects>) -> JobResult {
        let mut conn = cx.connection()?;
        cx.step(&mut conn, "a", |_| {
            cx.write("start", "hoard", cx.claim_id());
            while !Path::new(&self.gate).exists() {
                std::hint::spin_loop();
            }
            Ok(())
        })
    }
}

/// Finishes itself, then waits.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FinishAndWait {
    gate: String,
}

impl Job for FinishAndWait {
    const NAME: &'static str = "finish_and_wait";
    type State = Effects;
    type Output = ();

    fn perform(self, cx: &Context<'_, Effects>) -> JobResult {
        let mut conn = cx.connection()?;
        begin(&mut conn);
        see(&mut conn, "effect");
        cx.finish_in(&mut conn)?;
        commit(&mut conn);
        cx.write("start", "waits", cx.claim_id());
        until("the gate opens", || Path::new(&self.gate).exists());
        Ok(())
    }
}

fn a_job_that_has_finished_itself_is_not_recovered(db: &TestDb) {
    table(db);
    let scene = Scene::new(db);
    let _supervisor = scene.supervisor(1);
    let gate = scene.gate("go");
    let job = NewJob::new(&FinishAndWait { gate }).unwrap();
    job.enqueue(&mut db.connection()).unwrap();
    let first = scene.started("waits", 1);
    assert_eq!(finished(db), 1);
    signal(first.pid, Signal::KILL);
    scene.open("go");
    let gate = scene.gate("go");
    Walk { gate }.enqueue(&mut db.connection()).unwrap();
    scene.drained();
    assert_eq!((scene.count("start", "waits"), seen(db).len()), (1, 11));
}
