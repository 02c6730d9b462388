//! Jobs that wait for events: what they cost an idle worker, and how soon one starts after its event.

use crate::bench::place::Place;
use crate::db::AsConn as _;
use crate::db::model::new_row::WAITS_FOR_EVENT;
use crate::db::table::semaphores::NEVER_EXPIRES;
use crate::error::{ErrorContext as _, Result};
use crate::flow::waits::emit;
use crate::job::class::Job as _;
use crate::laboratory::comparison::{Ceiling, Comparison, FigureValue};
use crate::laboratory::jobs::Stamp;
use crate::laboratory::kinds::{idle, pickup};
use crate::laboratory::run::BenchRun;
use crate::laboratory::sql::{count, execute, render};
use std::sync::Arc;

const ACTION: &str = "fill the benchmark's database";

/// Rows of one statement, so that no transaction becomes very large.
const CHUNK: i64 = 250_000;

/// The tables that are filled.
const TABLES: [&str; 3] = [
    "solid_queue_jobs",
    "solid_queue_blocked_executions",
    "windlass_waits",
];

pub(crate) fn comparisons(run: &BenchRun) -> Vec<Comparison> {
    let waiting = run.settings.waiting;
    let none = Ceiling::one("none waiting", |run| idle(run, 0));
    let few = Ceiling::one("no other waiting", |run| wakes(run, 0));
    vec![
        Comparison::new(format!("idle worker, {waiting} waiting"), move |run| {
            idle(run, waiting)
        })
        .beside(none),
        Comparison::new(format!("event to start, {waiting} waiting"), move |run| {
            wakes(run, waiting)
        })
        .beside(few),
    ]
}

/// Returns a database in which so many jobs wait, each for an event of its own.
fn filled(run: &BenchRun, waiting: u32) -> Result<Arc<Place>> {
    let place = run.place()?;
    let mut connection = place.migrated()?.connect()?;
    let texts = [
        format!(
            "INSERT INTO solid_queue_jobs (id, queue_name, class_name, arguments, priority, created_at, updated_at) \
             SELECT n.i, 'default', '{}', '{{}}', 0, {{ago 60}}, {{ago 60}} FROM {{numbers}}",
            Stamp::NAME
        ),
        format!(
            "INSERT INTO solid_queue_blocked_executions (job_id, queue_name, priority, concurrency_key, expires_at, created_at) \
             SELECT n.i, 'default', 0, '{WAITS_FOR_EVENT}', '{NEVER_EXPIRES}', {{ago 60}} FROM {{numbers}}"
        ),
        // A year from now on, a second after each other.
        "INSERT INTO windlass_waits (job_id, claim_id, step, event_name, timeout_at, created_at) \
         SELECT n.i, n.i, 'event', 'bench/' || n.i, {ago -31536000 - n.i}, {ago 60} FROM {numbers}"
            .to_owned(),
    ];
    let mut first = 1;
    while first <= i64::from(waiting) {
        let last = i64::from(waiting).min(first + CHUNK - 1);
        run.progress
            .say(format!("{last} of {waiting} waiting jobs"));
        let mut conn = connection.as_conn();
        for text in &texts {
            let text = render(&conn, (first, last), text);
            execute(&mut conn, &text).during(ACTION)?;
        }
        first = last + 1;
    }
    for table in TABLES {
        execute(&mut connection.as_conn(), &format!("ANALYZE {table}")).during(ACTION)?;
    }
    Ok(place)
}

/// Returns the cost of an idle worker, and how many claims the waiting jobs hold.
fn idle(run: &BenchRun, waiting: u32) -> Result<Vec<FigureValue>> {
    let place = filled(run, waiting)?;
    let mut values = idle::cost(run, &place)?;
    let mut connection = place.migrated()?.connect()?;
    let claims = "SELECT count(*) AS n FROM solid_queue_claimed_executions";
    let claims = count(&mut connection.as_conn(), claims).during("count the claims")?;
    values.push(FigureValue::new(
        "claims and threads held",
        "jobs",
        claims as f64,
    ));
    Ok(values)
}

/// Emits an event for each of some jobs, with `others` that wait before and behind them.
fn wakes(run: &BenchRun, others: u32) -> Result<Vec<FigureValue>> {
    // The first one is not counted.
    let wanted = run.settings.samples + 1;
    let place = filled(run, others.max(wanted))?;
    let step = (others / wanted).max(1);
    let mut job = 0;
    pickup::pick_ups_by(run, &place, |connection| {
        job += step;
        emit(connection, &format!("bench/{job}"), &job)
    })
}
