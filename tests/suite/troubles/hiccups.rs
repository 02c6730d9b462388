//! A database that is busy, or cuts a connection, while a job is in a call of its context: the job
//! is given back, and no attempt is counted.

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::db::{count, execute, try_execute};
use crate::support::jobs::Log;
use crate::support::server::Server;
use crate::support::wait::{DEADLINE, until};
use diesel::QueryResult;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use windlass::jobs::AttemptOutcome;
use windlass::{
    Context, DbConnection, Delivery, Dispatcher, Handle, Job, JobId, JobResult, Policy, Registry,
    Worker,
};

on_each_database!(
    a_busy_database_gives_jobs_back,
    what_is_given_back_too_often_fails,
    a_lost_connection_gives_jobs_back,
);

#[derive(Debug, Default)]
struct Stage {
    log: Log,
    /// The database is busy.
    is_busy: AtomicBool,
}

/// The call that a job makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Call {
    Step,
    Memo,
    Join(JobId),
    FinishIn,
    PauseFor,
    WaitEvent,
    /// A step on a connection whose session has ended.
    Lost,
    /// The same, in the job's own statement.
    LostWithin,
    /// The same, before the job's own transaction.
    LostBefore,
    /// Two steps, with the trouble in between.
    Across,
}

impl Call {
    fn run(self, cx: &Context<'_, Stage>) -> JobResult {
        match self {
            Call::Step => cx.step(&mut cx.connection()?, "a", |_| Ok(())),
            Call::Memo => cx.memo("a", || Ok(())),
            Call::Join(job) => cx.join("a", job).map(drop),
            Call::FinishIn => {
                let conn = &mut cx.connection()?;
                conn.transaction(|conn| cx.finish_in(conn))
            }
            Call::PauseFor => cx.pause_for("a", Duration::ZERO),
            Call::WaitEvent => cx.wait_event::<()>("a", "none", Duration::ZERO).map(drop),
            Call::Lost => {
                let conn = &mut cx.connection()?;
                if cx.log.count("error") == 0 {
                    let _ = end_session(conn);
                }
                cx.step(conn, "a", |_| Ok(()))
            }
            Call::LostWithin => cx.step(&mut cx.connection()?, "a", |conn| {
                if cx.log.count("error") == 0 {
                    end_session(conn)?;
                }
                Ok(())
            }),
            Call::LostBefore => {
                let conn = &mut cx.connection()?;
                if cx.log.count("error") == 0 {
                    let _ = end_session(conn);
                }
                conn.transaction(|conn| cx.finish_in(conn))
            }
            Call::Across => {
                let conn = &mut cx.connection()?;
                cx.step(conn, "a", |_| {
                    cx.log.add("first");
                    Ok(())
                })?;
                cx.is_awaited();
                cx.step(conn, "b", |_| Ok(()))
            }
        }
    }

    /// Returns whether it waits for the trouble before it calls anything.
    fn waits(self) -> bool {
        !matches!(
            self,
            Call::Lost | Call::LostWithin | Call::LostBefore | Call::Across
        )
    }
}

impl Stage {
    fn is_awaited(&self) {
        until("the database is busy", || {
            self.is_busy.load(Ordering::SeqCst)
        });
    }
}

fn end_session(conn: &mut DbConnection) -> QueryResult<usize> {
    try_execute(conn, "SELECT pg_terminate_backend(pg_backend_pid())")
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Hiccup(Call);

impl Job for Hiccup {
    const NAME: &'static str = "hiccup";
    type State = Stage;
    type Output = ();

    fn perform(self, cx: &Context<'_, Stage>) -> JobResult {
        cx.log.add("start");
        if self.0.waits() {
            cx.is_awaited();
        }
        let done = self.0.run(cx);
        if let Err(error) = &done
            && error.kind() != "waits"
        {
            cx.log.add(format!("error {:?}: {error}", self.0));
        }
        done
    }
}

/// The same, at most once.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Once(Hiccup);

impl Job for Once {
    const NAME: &'static str = "hiccup_once";
    type State = Stage;
    type Output = ();

    fn policy() -> Policy {
        Policy::new().delivery(Delivery::AtMostOnce)
    }

    fn perform(self, cx: &Context<'_, Stage>) -> JobResult {
        self.0.perform(cx)
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Child;

impl Job for Child {
    const NAME: &'static str = "hiccup_child";
    type State = ();
    type Output = ();

    fn perform(self, _: &Context<'_, ()>) -> JobResult {
        Ok(())
    }
}

fn start(db: &TestDb) -> (Arc<Stage>, [Handle; 2]) {
    let stage = Arc::new(Stage::default());
    let registry = Registry::new()
        .register::<Hiccup>(Arc::clone(&stage))
        .register::<Once>(Arc::clone(&stage))
        .register::<Child>(Arc::default());
    let worker = Worker::new(&db.database, registry)
        .threads(10)
        .polling_interval(Duration::from_millis(200))
        .alive_threshold(DEADLINE * 5)
        .start()
        .unwrap();
    let dispatcher = Dispatcher::new(&db.database)
        .alive_threshold(DEADLINE * 5)
        .start()
        .unwrap();
    (stage, [worker, dispatcher])
}

/// Keeps the database busy until so many calls have failed.
fn is_busy_until(db: &TestDb, stage: &Stage, jobs: usize) {
    until("all jobs run", || stage.log.count("start") == jobs);
    let mut lock = db.connect();
    if db.is_postgres() {
        execute(&mut lock, "BEGIN");
        execute(
            &mut lock,
            "LOCK TABLE windlass_steps IN ACCESS EXCLUSIVE MODE",
        );
        execute(
            &mut lock,
            "SELECT id FROM solid_queue_jobs WHERE arguments LIKE '%FinishIn%' FOR UPDATE",
        );
    } else {
        until("the lock is free", || {
            try_execute(&mut lock, "BEGIN IMMEDIATE").is_ok()
        });
    }
    stage.is_busy.store(true, Ordering::SeqCst);
    until("all calls have failed", || stage.log.count("error") == jobs);
    execute(&mut lock, "ROLLBACK");
}

fn outcomes(db: &TestDb, job: JobId) -> Vec<AttemptOutcome> {
    let attempts = crate::support::jobs::attempts(&mut db.connection(), job).unwrap();
    attempts.into_iter().map(|one| one.outcome).collect()
}

fn finished(db: &TestDb) -> i64 {
    db.count("SELECT count(*) AS n FROM solid_queue_jobs WHERE finished_at IS NOT NULL")
}

fn a_busy_database_gives_jobs_back(db: &TestDb) {
    let mut conn = db.connect();
    let child = Child.enqueue(&mut conn).unwrap().id;
    let mut calls = vec![Call::Step, Call::Memo, Call::Join(child), Call::FinishIn];
    // On SQLite, a reader waits for no writer.
    if db.is_postgres() {
        calls.extend([Call::PauseFor, Call::WaitEvent]);
    }
    let enqueue = |call: &Call| Hiccup(*call).enqueue(&mut db.connection()).unwrap().id;
    let jobs: Vec<JobId> = calls.iter().map(enqueue).collect();
    let once = Once(Hiccup(Call::Step)).enqueue(&mut conn).unwrap().id;
    let (stage, processes) = start(db);
    is_busy_until(db, &stage, jobs.len() + 1);
    until("all but one are finished", || {
        finished(db) == i64::try_from(jobs.len()).unwrap() + 1
    });
    for (job, call) in jobs.iter().zip(&calls) {
        let all = outcomes(db, *job);
        assert!(
            !all.is_empty() && all.iter().all(|one| *one == AttemptOutcome::Interrupted),
            "{call:?}: {all:?}"
        );
    }
    let counted = "SELECT CAST(sum(attempts + crash_count) AS bigint) AS n FROM solid_queue_jobs";
    assert_eq!(
        db.count(&format!("{counted} WHERE class_name = 'hiccup'")),
        0
    );
    assert_eq!(outcomes(db, once), [AttemptOutcome::Failed]);
    assert_eq!(db.rows("failed_executions"), 1);
    drop(processes);
}

fn what_is_given_back_too_often_fails(db: &TestDb) {
    let mut conn = db.connect();
    let job = Hiccup(Call::Step).enqueue(&mut conn).unwrap().id;
    let old = Hiccup(Call::Memo).enqueue(&mut conn).unwrap().id;
    for (job, ended) in [(job, "2099-01-01"), (old, "2020-01-01")] {
        for _ in 0..10 {
            db.execute(&format!(
                "INSERT INTO windlass_attempts (job_id, claim_id, attempt, outcome, kind, message, ended_at) \
                 VALUES ({job}, 0, 1, 'interrupted', 'kind', 'message', '{ended} 00:00:00.000000')"
            ));
        }
    }
    let (stage, processes) = start(db);
    is_busy_until(db, &stage, 2);
    until("one fails, the other is finished", || {
        (db.rows("failed_executions"), finished(db)) == (1, 1)
    });
    assert_eq!(outcomes(db, job)[0], AttemptOutcome::Failed);
    assert_eq!(outcomes(db, old)[0], AttemptOutcome::Interrupted);
    drop(processes);
}

fn a_lost_connection_gives_jobs_back(db: &TestDb) {
    if !db.is_postgres() {
        return;
    }
    for call in [Call::Lost, Call::LostWithin, Call::LostBefore] {
        let job = Hiccup(call).enqueue(&mut db.connection()).unwrap().id;
        let before = finished(db);
        let (stage, processes) = start(db);
        until("it is finished", || finished(db) == before + 1);
        assert_eq!(stage.log.count("error"), 1, "{:?}", stage.log.lines());
        assert_eq!(outcomes(db, job), [AttemptOutcome::Interrupted]);
        drop(processes);
    }
}

/// As in an upgrade of the server, or after a crash of it.
#[test]
fn a_restarted_server_gives_jobs_back() {
    for mode in ["fast", "immediate"] {
        let Some(server) = Server::start() else {
            return;
        };
        let db = server.database();
        let calls = [
            Call::Step,
            Call::Memo,
            Call::FinishIn,
            Call::PauseFor,
            Call::WaitEvent,
            Call::Across,
        ];
        let enqueue = |call: Call| Hiccup(call).enqueue(&mut db.connection()).unwrap().id;
        let jobs = calls.map(enqueue);
        let (stage, processes) = start(&db);
        let across = jobs[calls.len() - 1];
        // The line in the log is written before the commit.
        let first = format!(
            "SELECT count(*) AS n FROM windlass_steps WHERE job_id = {}",
            across.0
        );
        until("all jobs run", || {
            (stage.log.count("start"), stage.log.count("first")) == (calls.len(), 1)
                && count(&mut db.connection(), &first) == 1
        });
        server.restart(mode);
        stage.is_busy.store(true, Ordering::SeqCst);
        until("all are finished", || {
            let left = "SELECT count(*) AS n FROM solid_queue_jobs WHERE finished_at IS NULL";
            count(&mut db.connection(), left) == 0
        });
        let cut = outcomes(&db, across);
        assert!(!cut.is_empty(), "its connection was lost");
        for (job, call) in jobs.iter().zip(&calls) {
            let all = outcomes(&db, *job);
            let is_given_back = |one: &AttemptOutcome| *one == AttemptOutcome::Interrupted;
            assert!(all.iter().all(is_given_back), "{call:?}: {all:?}");
        }
        assert_eq!(stage.log.count("first"), 1, "{:?}", stage.log.lines());
        let counted =
            "SELECT CAST(sum(attempts + crash_count) AS bigint) AS n FROM solid_queue_jobs";
        assert_eq!(count(&mut db.connection(), counted), 0);
        drop(processes);
    }
}
