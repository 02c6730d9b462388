//! The rows beside those of jobs: processes with claims, classes, and recurring tasks with their runs.

use crate::db::table::classes::{self, NewClass};
use crate::db::table::processes::{self, NewProcess};
use crate::db::{AsConn as _, Conn, DbConnection};
use crate::error::{ErrorContext as _, Result};
use crate::laboratory::filled::sizes::{self, CLASSES, QUEUES, Sizes};
use crate::laboratory::filled::text::{CLASS, MIXED};
use crate::laboratory::sql::{execute, render};
use crate::recurring::task::RecurringTask;
use crate::recurring::tasks;
use diesel::prelude::*;

/// Each has a dispatcher, a scheduler and workers.
const SUPERVISORS: i32 = 10;

/// Of each supervisor.
const WORKERS: i32 = 16;

const TASKS: i64 = 50;

/// The operations that are kept.
pub(crate) const OPERATIONS: i64 = 1_000;

/// Inserts processes, and jobs that they run, whose ids follow those that have ended. Returns the
/// last id.
pub(crate) fn running(conn: &mut Conn<'_>, sizes: Sizes) -> QueryResult<i64> {
    for host in 0..SUPERVISORS {
        let supervisor = register(conn, ("Supervisor", host, 0), None)?;
        register(conn, ("Dispatcher", host, 1), Some(supervisor))?;
        register(conn, ("Scheduler", host, 2), Some(supervisor))?;
        for number in 0..WORKERS {
            register(conn, ("Worker", host, 3 + number), Some(supervisor))?;
        }
    }
    let (first, count) = (sizes.ended() + 1, SUPERVISORS * WORKERS);
    let last = first + sizes.claimed() - 1;
    let jobs = format!(
        "INSERT INTO solid_queue_jobs (id, queue_name, class_name, arguments, priority, created_at, updated_at) \
         SELECT i, 'queue_' || c % {QUEUES}, 'class_' || c, '{{\"number\":' || i || '}}', 0, {{ago 60.0}}, {{ago 20.0}} \
         FROM (SELECT i, {CLASS} AS c FROM (SELECT n.i, {MIXED} AS m FROM {{numbers}}) AS mixed) AS job"
    );
    let claims = format!(
        "INSERT INTO solid_queue_claimed_executions (job_id, process_id, created_at, started_at) \
         SELECT n.i, p.id, {{ago n.i % 50}}, {{ago n.i % 50}} FROM {{numbers}} JOIN \
           (SELECT id, row_number() OVER (ORDER BY id) - 1 AS place FROM solid_queue_processes \
            WHERE kind = 'Worker') AS p ON p.place = n.i % {count}"
    );
    for text in [jobs, claims] {
        let text = render(conn, (first, last), &text);
        execute(conn, &text)?;
    }
    Ok(last)
}

fn register(
    conn: &mut Conn<'_>,
    (kind, host, number): (&str, i32, i32),
    supervisor_id: Option<i64>,
) -> QueryResult<i64> {
    let queues: Vec<String> = (0..QUEUES).map(sizes::queue).collect();
    let metadata = serde_json::json!({
        "queues": queues.join(","),
        "thread_pool_size": 5,
        "polling_interval": 5.0,
        "windlass": env!("CARGO_PKG_VERSION"),
    });
    processes::register(
        conn,
        &NewProcess {
            name: &format!("{}-{host}.{number}", kind.to_lowercase()),
            kind,
            pid: 1_000 + number,
            hostname: &format!("host-{host}"),
            supervisor_id,
            metadata: &metadata.to_string(),
            channel: None,
        },
    )
}

/// Makes the heartbeats of the processes new.
pub(crate) fn heartbeat(conn: &mut Conn<'_>) -> QueryResult<()> {
    let text =
        "UPDATE solid_queue_processes SET last_heartbeat_at = {ago 0} WHERE hostname LIKE 'host-%'";
    let text = render(conn, (0, 0), text);
    execute(conn, &text)
}

/// Stores the classes, of which every tenth has a secret field.
pub(crate) fn classes(conn: &mut Conn<'_>) -> QueryResult<()> {
    let class = |number: i64| {
        let redact = if number % 10 == 0 {
            r#"["customer"]"#
        } else {
            "[]"
        };
        let (name, queue) = (sizes::class_name(number), sizes::queue(number));
        NewClass {
            class_name: name,
            queue_name: queue,
            redact: redact.to_owned(),
            ..NewClass::default()
        }
    };
    classes::see(conn, &(0..CLASSES).map(class).collect::<Vec<_>>())
}

/// Stores recurring tasks, and the runs of each, whose jobs have ended.
pub(crate) fn recurring(connection: &mut DbConnection, sizes: Sizes) -> Result<()> {
    for number in 0..TASKS {
        let schedule = format!("{} {} * * *", number % 60, number % 24);
        let class = sizes::class_name(number);
        let task = RecurringTask::of_class(format!("task-{number}"), &schedule, class, "{}")?;
        tasks::schedule(connection, &task.queue(sizes::queue(number)))?;
    }
    let runs = (sizes.ended() / 100).min(50_000);
    let text = format!(
        "INSERT INTO solid_queue_recurring_executions (job_id, task_key, run_at, created_at) \
         SELECT {last} - {runs} + n.i, 'task-' || n.i % {TASKS}, {{ago ({runs} - n.i) * 60}}, {{ago ({runs} - n.i) * 60}} \
         FROM {{numbers}}",
        last = sizes.ended(),
    );
    let mut conn = connection.as_conn();
    let text = render(&conn, (1, runs), &text);
    execute(&mut conn, &text).during("insert the runs of recurring tasks")
}

/// Stores operations that have ended, with ids from 1 on.
pub(crate) fn operations(conn: &mut Conn<'_>) -> QueryResult<()> {
    let text = "INSERT INTO windlass_operations (action, parameters, filter, bounds, place, counts, total, total_is_exact, \
           looked_at, changed, state, actor, via, origin, created_at, started_at, moved_at, ended_at) \
         SELECT 'jobs.discard', '{}', '{}', '[]', '{}', '{}', 5000, true, 5000, 5000, 'done', 'user-' || n.i % 20, 'page', \
           'host-1', {ago (1000 - n.i) * 600}, {ago (1000 - n.i) * 600}, {ago (1000 - n.i) * 600}, {ago (1000 - n.i) * 600} \
         FROM {numbers}";
    let text = render(conn, (1, OPERATIONS), text);
    execute(conn, &text)
}

/// Stores what operators have changed.
pub(crate) fn audit(conn: &mut Conn<'_>) -> QueryResult<()> {
    let text = "INSERT INTO windlass_audit (created_at, actor, via, origin, action, target, jobs, total, reason) \
         SELECT {ago (20000 - n.i) * 60}, 'user-' || n.i % 20, CASE n.i % 3 WHEN 0 THEN 'cli' ELSE 'page' END, 'host-' || n.i % 10, \
           CASE n.i % 4 WHEN 0 THEN 'queues.pause' WHEN 1 THEN 'queues.resume' WHEN 2 THEN 'jobs.retry' ELSE 'jobs.discard' END, \
           CASE WHEN n.i % 4 < 2 THEN 'queue_' || n.i % 20 END, \
           CASE WHEN n.i % 4 > 1 THEN n.i % 700 END, CASE WHEN n.i % 4 > 1 THEN n.i % 700 END, 'ticket ' || n.i \
         FROM {numbers}";
    let text = render(conn, (1, 20_000), text);
    execute(conn, &text)
}
