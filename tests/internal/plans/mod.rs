//! The plans of the statements that workers, dispatchers and supervisors run
//! all day, with 100,000 rows: none may read a large table from end to end.
//!
//! The statements are those that the functions of `db` really send, heard by
//! Diesel's instrumentation while each function runs once; a child of `db`,
//! because nobody else may call them.

use super::attempts::{self, Ending};
use super::claimed::{Fence, Finished, FinishedJob};
use super::clear::Old;
use super::failed::Failure;
use super::jobs::{NewLimit, NewRow};
use super::notes::Note;
use super::processes::NewProcess;
use super::ready::{Claims, Mark, Queues, Want};
use super::recovery::Death;
use super::results::{NewResult, ResultOutcome};
use super::ticks::{Firing, Overlap};
use super::unique::{self, OnConflict};
use super::{
    AsConn, Conn, Database, DbConnection, blocked, claimed, classes, clear, details, jobs, moves,
    names, notes, pauses, processes, ready, recovery, recurring, scheduled, semaphores, steps,
    task, ticks, wakeup,
};
use diesel::connection::{Connection as _, InstrumentationEvent};
use diesel::prelude::*;
use diesel::result::Error::RollbackTransaction;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "sqlite")]
mod sqlite;

const LARGE: [&str; 11] = [
    "solid_queue_jobs",
    "solid_queue_recurring_executions",
    "solid_queue_ready_executions",
    "solid_queue_scheduled_executions",
    "solid_queue_claimed_executions",
    "solid_queue_blocked_executions",
    "solid_queue_failed_executions",
    "windlass_attempts",
    "windlass_steps",
    "windlass_unique_jobs",
    "windlass_results",
];

/// The rows that both databases fill in alike, once there are jobs.
const FILL_BESIDE: &str = "INSERT INTO solid_queue_blocked_executions (job_id, queue_name, priority, concurrency_key, expires_at, created_at) \
       SELECT id, queue_name, id % 5, 'plan/' || (id % 10000), '9999-12-31 23:59:59.000000', created_at FROM solid_queue_jobs; \
     INSERT INTO solid_queue_failed_executions (job_id, error, created_at) \
       SELECT id, '{}', created_at FROM solid_queue_jobs; \
     INSERT INTO windlass_attempts (job_id, claim_id, attempt, outcome, kind, message, ended_at) \
       SELECT id, 1, 1, 'retried', 'kind', 'message', created_at FROM solid_queue_jobs; \
     INSERT INTO windlass_steps (job_id, name, value, created_at) SELECT id, 'a', 'null', created_at FROM solid_queue_jobs; \
     INSERT INTO windlass_unique_jobs (unique_id, job_id, scope) SELECT 'unique-' || id, id, 'until_finished' FROM solid_queue_jobs; \
     INSERT INTO windlass_results (job_id, unique_id, class_name, outcome, attempt, finished_at, expires_at) \
       SELECT id, 'unique-' || id, class_name, 'succeeded', 1, created_at, '2030-01-01' FROM solid_queue_jobs;";

/// A connection and the statements that it has been asked since.
struct Heard {
    connection: DbConnection,
    statements: Arc<Mutex<BTreeSet<String>>>,
}

impl Heard {
    fn new(database: &Database) -> Self {
        let mut connection = database.connect().unwrap();
        let statements = Arc::new(Mutex::new(BTreeSet::new()));
        let heard = Arc::clone(&statements);
        let hear = move |event: InstrumentationEvent<'_>| {
            if let InstrumentationEvent::StartQuery { query, .. } = event {
                let text = query.to_string();
                let text = text.split(" -- binds").next().unwrap_or_default();
                heard.lock().unwrap().insert(text.trim().to_owned());
            }
        };
        match connection.as_conn() {
            #[cfg(feature = "postgres")]
            Conn::Postgres(conn) => conn.set_instrumentation(hear),
            #[cfg(feature = "sqlite")]
            Conn::Sqlite(conn) => conn.set_instrumentation(hear),
        }
        Heard {
            connection,
            statements,
        }
    }

    /// Runs `work` on some rows of its own, takes them back, and returns the
    /// statements that `work` sent.
    fn statements_of(&mut self, work: fn(&mut Conn<'_>, &Rows) -> QueryResult<()>) -> Vec<String> {
        let mut sent = Vec::new();
        let result = self.connection.as_conn().transaction(|conn| {
            let rows = Rows::insert(conn)?;
            self.statements.lock().unwrap().clear();
            work(conn, &rows)?;
            sent.extend(std::mem::take(&mut *self.statements.lock().unwrap()));
            Err::<(), _>(RollbackTransaction)
        });
        assert_eq!(result, Err(RollbackTransaction));
        sent.retain(|text| !text.contains("SAVEPOINT"));
        assert!(!sent.is_empty());
        sent
    }
}

/// A process that holds claims, and jobs that wait.
struct Rows {
    process: i64,
    claims: Vec<i64>,
    jobs: Vec<i64>,
}

const CLASS: &str = "plan";

fn job(key: Option<&str>) -> NewRow {
    NewRow {
        idempotency_key: key.map(str::to_owned),
        ..NewRow::new(CLASS.to_owned(), "{}".to_owned(), "q1".to_owned(), -1)
    }
}

fn limited() -> NewRow {
    NewRow {
        limit: Some(NewLimit {
            key: "plan/k".to_owned(),
            slots: 1,
            discards: false,
        }),
        ..job(None)
    }
}

fn register(conn: &mut Conn<'_>) -> QueryResult<i64> {
    let name = format!("worker-{:016x}.1", fastrand::u64(..));
    processes::register(
        conn,
        &NewProcess {
            name: &name,
            kind: "Worker",
            pid: 1,
            hostname: "here",
            supervisor_id: None,
            metadata: "{}",
            channel: None,
        },
    )
}

fn claim(conn: &mut Conn<'_>, process_id: i64, queues: &Queues) -> QueryResult<Claims> {
    let classes = [CLASS.to_owned()];
    ready::claim(
        conn,
        &Want {
            process_id,
            queues,
            classes: &classes,
            limit: 3,
            ahead: false,
            from: &[],
            wanted_after: 0,
        },
    )
}

fn named() -> Queues {
    Queues::Named(vec!["q1".to_owned(), "q2".to_owned()])
}

impl Rows {
    fn insert(conn: &mut Conn<'_>) -> QueryResult<Self> {
        let process = register(conn)?;
        let lot = jobs::insert_all(conn, &vec![job(None); 6])?;
        let claims = match claim(conn, process, &named())? {
            Claims::Held { jobs, .. } => jobs.iter().map(|held| held.claim_id).collect(),
            Claims::Unregistered => Vec::new(),
        };
        assert_eq!(claims.len(), 3);
        Ok(Rows {
            process,
            claims,
            jobs: lot.iter().map(|job| job.id).collect(),
        })
    }
}

fn death() -> Death {
    Death {
        is_crash: true,
        how: "was killed".to_owned(),
    }
}

fn fence(rows: &Rows) -> Fence {
    Fence {
        process_id: rows.process,
        claim_id: rows.claims[0],
    }
}

fn with_steps(rows: &Rows) -> FinishedJob<'static> {
    FinishedJob {
        claim_id: rows.claims[0],
        result: None,
        named: None,
        steps: Some(rows.jobs[0]),
    }
}

fn finish_and_tell(conn: &mut Conn<'_>, rows: &Rows) -> QueryResult<()> {
    let jobs = rows.claims.iter().zip(&rows.jobs);
    let jobs = jobs.map(|(claim, job)| FinishedJob {
        claim_id: *claim,
        result: Some(NewResult(
            *job,
            Some("u"),
            CLASS,
            ResultOutcome::Succeeded,
            Some("1"),
            None,
            1,
            1,
        )),
        named: Some(*job),
        steps: None,
    });
    let how = (Finished::Keep, true);
    claimed::finish_and_keep_free(conn, rows.process, jobs.collect(), how).map(drop)
}

type Work = fn(&mut Conn<'_>, &Rows) -> QueryResult<()>;

/// What the loops of a process do, on connections of their own.
const LOOPS: [(&str, Work); 35] = [
    ("promote and discard", |conn, _| {
        let mut row = limited();
        row.limit.as_mut().unwrap().discards = true;
        jobs::insert_all(conn, &vec![row; 3])?;
        assert_eq!(blocked::promote(conn, 10)?.discarded.len(), 2);
        Ok(())
    }),
    ("clear", |conn, rows| {
        finish_and_tell(conn, rows)?;
        let old = Old {
            age: Duration::ZERO,
            up_to: 0,
            of_ruby: true,
        };
        assert_eq!(clear::finished(conn, old, 0, 10)?.cleared, 3);
        for table in clear::EXPIRING {
            clear::expired(conn, table, 10)?;
        }
        for table in clear::BESIDE {
            clear::orphans(conn, table, 0, 10)?;
        }
        Ok(())
    }),
    ("name the classes", |conn, _| {
        let class = classes::NewClass("plan".into(), "q1".into(), "[]".into());
        classes::see(conn, &[class])?;
        assert_eq!(classes::redact(conn, "plan")?, Some(Vec::new()));
        classes::forget(conn, Duration::ZERO).map(drop)
    }),
    ("clear failed jobs", |conn, rows| {
        let ending = Ending::Fail(Failure::new("kind", "message"));
        attempts::end(conn, fence(rows), &ending, Duration::ZERO, Finished::Keep)?;
        assert_eq!(clear::failed(conn, Duration::ZERO, 0, 10)?.cleared, 1);
        Ok(())
    }),
    ("recover claim by claim", |conn, rows| {
        processes::without_row(conn)?;
        processes::prune_piecemeal(conn, rows.process, None, &death()).map(drop)
    }),
    ("promote", |conn, _| {
        jobs::insert_all(conn, &vec![limited(); 3])?;
        semaphores::last_id(conn)?;
        assert_eq!(blocked::promote(conn, 10)?.ready.len(), 1);
        Ok(())
    }),
    ("look for free slots", |conn, _| {
        jobs::insert(conn, &limited())?;
        semaphores::sweep(conn, "", 10).map(drop)
    }),
    ("claim from all queues", |conn, rows| {
        claim(conn, rows.process, &Queues::All).map(drop)
    }),
    ("claim from named queues", |conn, rows| {
        claim(conn, rows.process, &named()).map(drop)
    }),
    ("list the queues", |conn, _| {
        names::queue_names(conn, "q").map(drop)
    }),
    ("list the foremost queues", |conn, _| {
        names::foremost(conn).map(drop)
    }),
    ("look at the paused queues", |conn, _| {
        pauses::pause(conn, "q1", None, None)?;
        names::are_pauses_crowded(conn).map(drop)
    }),
    ("finish and keep", |conn, rows| {
        claimed::finish_free(conn, rows.process, &rows.claims, (Finished::Keep, false)).map(drop)
    }),
    ("finish and delete", |conn, rows| {
        claimed::finish_free(conn, rows.process, &rows.claims, (Finished::Delete, true)).map(drop)
    }),
    ("finish and tell", |conn, rows| finish_and_tell(conn, rows)),
    ("look for jobs whose turn has come", |conn, rows| {
        ready_again(conn, &rows.jobs[3..4])?;
        run(conn, &waits_for_another(rows.jobs[3]))?;
        assert_eq!(unique::sweep(conn, Mark::BEGINNING, 10)?.1, 1);
        Ok(())
    }),
    ("finish a job with steps", |conn, rows| {
        let jobs = vec![with_steps(rows)];
        claimed::finish_and_keep(conn, rows.process, jobs, (Finished::Keep, false)).map(drop)
    }),
    ("note the progress", |conn, rows| {
        let note = Note::default();
        let told: Vec<_> = rows.claims.iter().map(|claim| (*claim, &note)).collect();
        notes::write(conn, rows.process, &told).map(drop)
    }),
    ("condemn", |conn, rows| {
        let ending = Ending::Fail(Failure::new("kind", "message"));
        recovery::condemn(conn, fence(rows), &ending, true).map(drop)
    }),
    ("fail", |conn, rows| {
        let ending = Ending::Fail(Failure::new("kind", "message"));
        attempts::end(conn, fence(rows), &ending, Duration::ZERO, Finished::Keep).map(drop)
    }),
    ("release", |conn, rows| {
        claimed::release(conn, rows.process, &rows.claims, None).map(drop)
    }),
    ("release for later", |conn, rows| {
        let delay = Some(Duration::from_secs(1));
        claimed::release(conn, rows.process, &rows.claims, delay).map(drop)
    }),
    ("ask what has ended", |conn, rows| {
        jobs::ended_claims(conn, &[(rows.claims[0], rows.jobs[0])]).map(drop)
    }),
    ("read the claims", |conn, rows| {
        claimed::held_by(conn, rows.process).map(drop)
    }),
    ("beat", |conn, rows| {
        processes::heartbeat(conn, rows.process, "x").map(drop)
    }),
    ("drain", |conn, rows| processes::drain(conn, rows.process)),
    ("say who listens", |conn, rows| {
        processes::listen(conn, rows.process, true)?;
        wakeup::pass_on(conn, rows.process)
    }),
    ("deregister", |conn, _| {
        let process = register(conn)?;
        processes::deregister(conn, process).map(drop)
    }),
    ("dispatch", |conn, rows| {
        scheduled::insert(conn, &rows.jobs[3..4], Duration::ZERO)?;
        ready_again(conn, &rows.jobs[3..4])?;
        scheduled::dispatch(conn, 10).map(drop)
    }),
    ("fire recurring tasks", |conn, rows| {
        fire(conn, rows, Overlap::QueueOne)?;
        run(conn, "DELETE FROM solid_queue_recurring_tasks")?;
        fire(conn, rows, Overlap::Allow)?;
        recurring::next_tick(conn, r#"["t1"]"#).map(drop)
    }),
    ("look for due jobs", |conn, _| {
        scheduled::next_due(conn).map(drop)
    }),
    ("watch", |conn, _| processes::observe(conn).map(drop)),
    ("find a child's processes", |conn, _| {
        processes::of_child(conn, "x").map(drop)
    }),
    ("prune", |conn, rows| {
        processes::prune(conn, rows.process, None, &death()).map(drop)
    }),
    ("prune again and again", |conn, rows| {
        let text = format!(
            "UPDATE solid_queue_jobs SET crash_count = 2 + id % 3 WHERE id >= {}",
            rows.jobs[0]
        );
        run(conn, &text)?;
        processes::prune(conn, rows.process, Some(0), &death()).map(drop)
    }),
];

/// What a program does on connections of its own.
const CALLERS: [(&str, Work); 14] = [
    ("cancel", |conn, rows| {
        moves::cancel(conn, &rows.jobs).map(drop)
    }),
    ("discard", |conn, rows| {
        moves::discard(conn, &rows.jobs).map(drop)
    }),
    ("retry", |conn, rows| {
        let ending = Ending::Fail(Failure::new("kind", "message"));
        attempts::end(conn, fence(rows), &ending, Duration::ZERO, Finished::Keep)?;
        moves::retry(conn, &rows.jobs, false).map(drop)
    }),
    ("move", |conn, rows| {
        moves::reschedule(conn, &rows.jobs, moves::When::In(1_000_000))?;
        moves::change_priority(conn, &rows.jobs, 7)?;
        moves::open(conn, &rows.jobs).map(drop)
    }),
    ("do a step", |conn, rows| {
        steps::begin(conn, fence(rows), "a")?;
        steps::record(conn, rows.jobs[0], "a", "null")
    }),
    ("show a job", |conn, rows| {
        details::job(conn, rows.jobs[0])?;
        details::steps(conn, rows.jobs[0], 10).map(drop)
    }),
    ("read the steps", |conn, rows| {
        steps::of_job(conn, rows.jobs[0], 10).map(drop)
    }),
    ("finish in a transaction of the job", |conn, rows| {
        let claim = (rows.claims[0], rows.jobs[0]);
        claimed::finish_and_keep(
            conn,
            rows.process,
            vec![with_steps(rows)],
            (Finished::Keep, false),
        )?;
        jobs::ended_by_owner(conn, claim).map(drop)
    }),
    ("enqueue", |conn, _| {
        jobs::insert(conn, &job(None)).map(drop)
    }),
    ("enqueue with a key", |conn, _| {
        jobs::insert(conn, &job(Some("k")))?;
        jobs::insert(conn, &job(Some("k"))).map(drop)
    }),
    ("enqueue many", |conn, _| {
        jobs::insert_all(conn, &vec![job(None); 3]).map(drop)
    }),
    ("enqueue many with keys", |conn, _| {
        let rows = [job(Some("k")), job(None), job(Some("l")), job(Some("k"))];
        jobs::insert_all(conn, &rows).map(drop)
    }),
    ("enqueue with a unique id", |conn, rows| {
        for on_conflict in [OnConflict::Existing, OnConflict::Replace] {
            let row = NewRow {
                unique_id: Some("u".to_owned()),
                on_conflict,
                ..job(None)
            };
            jobs::insert(conn, &row)?;
            jobs::insert(conn, &row)?;
        }
        unique::retake(conn, &rows.jobs).map(drop)
    }),
    ("look a job up", |conn, rows| {
        task::with_unique_id(conn, "u")?;
        task::job(conn, rows.jobs[0])?;
        task::kept(conn, rows.jobs[0]).map(drop)
    }),
];

/// Schedules a task, with two jobs that may not have ended, and fires its tick.
fn fire(conn: &mut Conn<'_>, rows: &Rows, overlap: Overlap) -> QueryResult<()> {
    let text = format!(
        "INSERT INTO solid_queue_recurring_tasks \
           (key, schedule, class_name, static, next_run_at, open_jobs, created_at, updated_at) \
         VALUES ('t1', '@hourly', '{CLASS}', FALSE, '2026-01-01 00:00:00.000000', '[7,{}]', '2026-01-01', '2026-01-01')",
        rows.jobs[5]
    );
    run(conn, &text)?;
    let due = recurring::due(conn, r#"["t1"]"#, 0)?;
    let tick = due[0].next_run_at.unwrap();
    let firing = Firing {
        task: &due[0],
        ticks: &[(tick, job(None))],
        next_run_at: tick + Duration::from_secs(3600),
        overlap,
    };
    let fired = ticks::fire(conn, &firing)?.unwrap();
    assert_eq!(fired.jobs.is_empty(), overlap == Overlap::QueueOne);
    Ok(())
}

/// Makes room for a dispatch of jobs that are ready.
fn ready_again(conn: &mut Conn<'_>, jobs: &[i64]) -> QueryResult<()> {
    run(
        conn,
        &format!(
            "DELETE FROM solid_queue_ready_executions WHERE job_id = {}",
            jobs[0]
        ),
    )
}

/// Has a job wait for another, which is gone.
fn waits_for_another(job: i64) -> String {
    format!(
        "INSERT INTO solid_queue_blocked_executions (job_id, queue_name, concurrency_key, expires_at, created_at) \
         VALUES ({job}, 'q1', '{}', '9999-12-31 23:59:59.000000', '2026-01-01')",
        unique::AGAIN
    )
}

fn run(conn: &mut Conn<'_>, text: &str) -> QueryResult<()> {
    super::on!(conn, |c| diesel::sql_query(text).execute(c)).map(drop)
}
