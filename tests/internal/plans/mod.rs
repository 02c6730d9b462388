//! The plans of the statements of `src/db`, with a million jobs: none may read
//! a large table from end to end.
//!
//! The statements are those that the functions of `db` really send, heard by
//! Diesel's instrumentation while each function runs once; a child of `db`,
//! because nobody else may call them.

mod flows;
mod job_pages;
mod looks;
mod operators;
mod pages;
#[cfg(feature = "postgres")]
mod postgres;
mod rates;
mod shares;
#[cfg(all(feature = "postgres", feature = "sqlite"))]
mod sites;
#[cfg(feature = "sqlite")]
mod sqlite;
mod waits;
mod web_pages;
mod works;

use crate::db::conn::connection::{AsConn, Conn};
use crate::db::conn::database::Database;
use crate::db::conn::owned::DbConnection;
use crate::db::model::claim::{
    Begins, ClaimOf, ClaimQueues, ClaimRequest, Claims, Cursor, EqualJobs, Fence, FinishedRow,
    NextJobs, PausedScan,
};
use crate::db::model::decision::{Death, FinishedJob, KeySlots};
use crate::db::model::history::cell::{GaugeSample, QueueGauge};
use crate::db::model::history::contribution::Contribution;
use crate::db::model::history::tally::CountedEnd;
use crate::db::model::new_row::{NewLimit, NewRow};
use crate::db::model::outcome::{NewResult, ResultOf, ResultOutcome};
use crate::db::table::history::deltas::{self, NumberedDelta};
use crate::db::table::processes::{self, NewProcess};
use crate::db::transition::fold::{self, FoldWhen, Folded};
use crate::db::transition::{claim, enqueue, finish, promote};
use diesel::connection::{Connection as _, InstrumentationEvent};
use diesel::prelude::*;
use diesel::result::Error::RollbackTransaction;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Everything that people ask of the tables.
fn all_looks() -> Vec<(&'static str, Work)> {
    let lists = [
        looks::LOOKS.as_slice(),
        pages::PAGES.as_slice(),
        job_pages::JOB_PAGES.as_slice(),
        operators::OPERATORS.as_slice(),
        flows::FLOWS.as_slice(),
        waits::WAITS.as_slice(),
        rates::RATES.as_slice(),
        shares::SHARES.as_slice(),
    ];
    lists.concat()
}

const LARGE: [&str; 23] = [
    "solid_queue_jobs",
    "solid_queue_recurring_executions",
    "solid_queue_ready_executions",
    "solid_queue_scheduled_executions",
    "solid_queue_claimed_executions",
    "solid_queue_blocked_executions",
    "solid_queue_failed_executions",
    "windlass_attempts",
    "windlass_job_logs",
    "windlass_steps",
    "windlass_unique_jobs",
    "windlass_results",
    "windlass_expiries",
    "windlass_audit",
    "windlass_operations",
    "windlass_stats",
    "windlass_stats_deltas",
    "solid_queue_batches",
    "solid_queue_batch_executions",
    "windlass_batch_failures",
    "windlass_edges",
    "windlass_events",
    "windlass_waits",
];

/// The number of rows of each kind.
struct Size {
    finished: u32,
    /// Jobs that have not finished, of which there are executions.
    live: u32,
    blocked: u32,
    unique: u32,
}

impl Size {
    /// Of a large installation.
    const LARGE: Size = Size {
        finished: 1_000_000,
        live: 300_000,
        blocked: 200_000,
        unique: 500_000,
    };

    /// The statements that fill the tables. The databases differ in how they
    /// count (`numbers`, which gives `id` up to the number in the place of `{N}`),
    /// and add (`time`, with a beginning, and a unit in which `id` counts).
    fn fill(&self, numbers: &str, time: fn(&str, &str) -> String) -> String {
        let numbers = numbers.replace("{N}", &(self.finished + self.live).to_string());
        let newest = |count: u32| {
            format!("(SELECT * FROM solid_queue_jobs ORDER BY id DESC LIMIT {count}) AS j")
        };
        let (some, live, blocked, unique) = (
            newest(100_000),
            newest(self.live),
            newest(self.blocked),
            newest(self.unique),
        );
        let (later, tick) = (time("2030-01-01", "second"), time("2020-01-01", "minute"));
        let end = time("2026-01-01", "second");
        let finished = self.finished;
        let fills = [
            format!(
                "solid_queue_jobs (queue_name, class_name, arguments, finished_at, created_at, updated_at) \
                 SELECT 'q' || (id % 10), 'note', '{{}}', CASE WHEN id <= {finished} THEN {end} END, \
                   '2026-01-01', '2026-01-01' FROM {numbers}"
            ),
            format!(
                "solid_queue_ready_executions (job_id, queue_name, priority, class_name, created_at) \
                 SELECT id, queue_name, id % 5, class_name, created_at FROM {some}"
            ),
            format!(
                "solid_queue_scheduled_executions (job_id, queue_name, scheduled_at, created_at) \
                 SELECT id, queue_name, {later}, created_at FROM {some}"
            ),
            format!(
                "solid_queue_claimed_executions (job_id, process_id, created_at) \
                 SELECT id, 1000000 + id % 1000, created_at FROM {some}"
            ),
            format!(
                "solid_queue_recurring_executions (job_id, task_key, run_at, created_at) \
                 SELECT id, 't' || (id % 10), {tick}, created_at FROM {some}"
            ),
            format!(
                "solid_queue_blocked_executions (job_id, queue_name, priority, concurrency_key, expires_at, created_at) \
                 SELECT id, queue_name, id % 5, 'plan/' || (id % 10000), '9999-12-31 23:59:59.000000', created_at FROM {blocked}"
            ),
            format!(
                "solid_queue_failed_executions (job_id, error, created_at, fingerprint) \
                 SELECT id, '{{}}', created_at, CASE WHEN id % 100 > 0 THEN 'fingerprint-' || (id % 100) END FROM {live}"
            ),
            format!(
                "windlass_attempts (job_id, claim_id, attempt, outcome, kind, message, ended_at) \
                 SELECT id, 1, 1, 'retried', 'kind', 'message', created_at FROM {live}"
            ),
            format!(
                "windlass_job_logs (job_id, claim_id, attempt, started_at, lines, total) \
                 SELECT id, 1, 1, created_at, '[]', 0 FROM {live}"
            ),
            format!(
                "windlass_steps (job_id, name, value, created_at) SELECT id, 'a', 'null', created_at FROM {live}"
            ),
            format!(
                "windlass_unique_jobs (unique_id, job_id, scope) SELECT 'unique-' || id, id, 'until_finished' FROM {unique}"
            ),
            format!(
                "windlass_results (job_id, unique_id, class_name, outcome, attempt, finished_at, expires_at) \
                 SELECT id, 'unique-' || id, class_name, 'succeeded', 1, created_at, '2030-01-01' FROM {unique}"
            ),
            format!("windlass_expiries (job_id, expires_at) SELECT id, {later} FROM {some}"),
            format!(
                "windlass_audit (created_at, actor, via, action, target, jobs, total, operation_id, part_of) \
                 SELECT {tick}, 'actor ' || (id % 10), 'cli', 'action ' || (id % 10), 't' || id, 1, id, id % 1000, \
                   CASE WHEN id % 10 > 0 THEN id - id % 10 END FROM {some}"
            ),
            format!(
                "windlass_operations (action, parameters, filter, bounds, place, counts, total_is_exact, state, actor, via, \
                   created_at, moved_at, ended_at) \
                 SELECT 'a', '{{}}', '{{}}', '[]', '{{}}', '{{}}', TRUE, 'done', 'b', 'cli', '2026-01-01', '2026-01-01', {tick} FROM {some}"
            ),
            format!(
                "windlass_stats (series_id, resolution, starts_at, data) \
                 SELECT id % 1000, 3600, id, CAST('a' AS bytea) FROM {live}"
            ),
            format!(
                "windlass_stats_deltas (source, seq, created_at, data) \
                 SELECT 'plan' || id, id, created_at, CAST(NULL AS bytea) FROM {live}"
            ),
            format!(
                "solid_queue_batches (active_job_batch_id, enqueued_at, created_at, updated_at) \
                 SELECT 'windlass-' || id, '2026-01-01', '2026-01-01', '2026-01-01' FROM {some}"
            ),
            format!(
                "solid_queue_batch_executions (job_id, batch_id, created_at) SELECT id, 1 + id % 1000, created_at FROM {live}"
            ),
            format!(
                "windlass_batch_failures (job_id, batch_id, created_at) SELECT id, 1 + id % 1000, created_at FROM {some}"
            ),
            format!(
                "windlass_edges (child_job_id, parent_batch_id, runs_on, otherwise, created_at) \
                 SELECT id, 1 + id % 1000, 'success', 'drop', created_at FROM {some}"
            ),
            format!(
                "windlass_events (name, payload, created_at) SELECT 'event-' || id, 'null', created_at FROM {some}"
            ),
            format!(
                "windlass_waits (job_id, claim_id, step, event_name, timeout_at, created_at) \
                 SELECT id, id, 'a', 'event-' || (id % 1000 - 1000), '2030-01-01', created_at FROM {some}"
            ),
        ];
        assert_eq!(fills.len(), LARGE.len());
        let fills = fills.map(|fill| format!("INSERT INTO {fill};"));
        fills.join(" ")
    }
}

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
        sent.retain(|text| !text.contains("SAVEPOINT") && !text.starts_with(SET_UP));
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
            ordered: false,
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

fn claim(conn: &mut Conn<'_>, process_id: i64, queues: &ClaimQueues) -> QueryResult<Claims> {
    claim::claim(conn, &of_three(process_id, queues, &[CLASS.to_owned()]))
}

fn claim_past_paused(
    conn: &mut Conn<'_>,
    process_id: i64,
    queues: &ClaimQueues,
    from: Cursor,
    scan: PausedScan,
) -> QueryResult<Claims> {
    let classes = [CLASS.to_owned()];
    let from = &vec![from; queues.names().len()];
    let want = of_three(process_id, queues, &classes);
    claim::claim_past_paused(conn, &ClaimRequest { from, ..want }, scan)
}

fn of_three<'a>(
    process_id: i64,
    queues: &'a ClaimQueues,
    classes: &'a [String],
) -> ClaimRequest<'a> {
    ClaimRequest {
        process_id,
        queues,
        classes,
        max_jobs: 3,
        begins: Begins::All,
        from: &[],
        wanted_after: 0,
    }
}

fn named() -> ClaimQueues {
    ClaimQueues::Named(vec!["q1".to_owned(), "q2".to_owned()])
}

impl Rows {
    fn insert(conn: &mut Conn<'_>) -> QueryResult<Self> {
        let process = register(conn)?;
        let lot = enqueue::insert_all(conn, &vec![job(None); 6])?;
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

fn claim_of(rows: &Rows) -> ClaimOf {
    ClaimOf {
        claim_id: rows.claims[0],
        job_id: rows.jobs[0],
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
        has_steps: true,
        has_batch: false,
    }
}

fn finish_and_tell(conn: &mut Conn<'_>, rows: &Rows) -> QueryResult<()> {
    let jobs = rows.claims.iter().zip(&rows.jobs);
    let jobs = jobs.map(|(claim, job)| FinishedJob {
        claim_id: *claim,
        result: Some(NewResult {
            of: ResultOf {
                job_id: *job,
                attempt: 1,
                class_name: CLASS,
                unique_id: Some("u"),
                batch_id: None,
            },
            outcome: ResultOutcome::Succeeded,
            text: Some("1"),
            error: None,
            keep: 1,
        }),
        named: Some(*job),
        has_steps: false,
        has_batch: false,
    });
    finish::finish_and_keep_free(
        conn,
        rows.process,
        jobs.collect(),
        FinishedRow::Keep,
        KeySlots::Free,
    )
    .map(drop)
}

/// Passes the slot of a key from each of two jobs to the next.
fn finish_and_claim_next(conn: &mut Conn<'_>, rows: &Rows) -> QueryResult<()> {
    let mut row = limited();
    row.priority = -2;
    enqueue::insert_all(conn, &vec![row; 3])?;
    assert_eq!(promote::promote(conn, 10)?.ready.len(), 1);
    let Claims::Held { mut jobs, .. } = claim(conn, rows.process, &named())? else {
        panic!("the process is not registered");
    };
    for queues in [ClaimQueues::All, named()] {
        let next = NextJobs {
            queues,
            classes: vec![CLASS.to_owned()],
        };
        let claims: Vec<i64> = jobs.iter().map(|job| job.claim_id).collect();
        let slots = KeySlots::PassOn(&next, EqualJobs::Wait);
        let done = finish::finish_free(conn, rows.process, &claims, FinishedRow::Keep, slots)?;
        jobs = done.next.jobs;
        assert_eq!(jobs.len(), 1);
    }
    Ok(())
}

type Work = fn(&mut Conn<'_>, &Rows) -> QueryResult<()>;

/// The start of the statements that are the tests' own.
const SET_UP: &str = "/* set up */ ";

fn run(conn: &mut Conn<'_>, text: &str) -> QueryResult<()> {
    let text = format!("{SET_UP}{text}");
    crate::with_conn!(conn, |c| diesel::sql_query(text).execute(c)).map(drop)
}

/// A contribution to a series of the queue `q1`.
fn contribution(class: &str) -> Contribution {
    let mut contribution = Contribution::default();
    contribution.tally("q1", class).add(CountedEnd::Finished);
    contribution
}

/// Stores contributions, and folds them: those of a first and of a second class.
fn store_and_fold(conn: &mut Conn<'_>) -> QueryResult<()> {
    let sample = GaugeSample {
        queues: vec![("q1".to_owned(), QueueGauge::default())],
        gates: [("rate/api".to_owned(), Duration::ZERO)].into(),
        ..GaugeSample::default()
    };
    for (seq, class) in [(1, "a"), (2, "b"), (3, "b")] {
        assert!(fold::is_due(conn, FoldWhen::OnceAMinute)? || seq > 1);
        let delta = NumberedDelta {
            source: "work".to_owned(),
            seq,
            data: contribution(class).pack(),
        };
        deltas::insert_delta(conn, &delta)?;
        deltas::insert_with(conn, &contribution(class))?;
        let sample = Some(&sample).filter(|_| seq == 3);
        let folded = fold::fold(conn, FoldWhen::Now, sample)?;
        assert!(matches!(folded, Folded::Done { count: 2, .. }));
    }
    Ok(())
}
