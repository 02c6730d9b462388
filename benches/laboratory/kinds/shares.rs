//! Shares: draining jobs of few and of many tenants, the turn of another tenant, and how even the shares are.

use crate::admin::tenants::{set_weight, share};
use crate::bench::figures::quantile;
use crate::clock;
use crate::db::conn::statement::Statement;
use crate::db::table::shares::ShareBy;
use crate::db::{AsConn as _, Database};
use crate::error::{ErrorContext as _, Result};
use crate::job::new_job::NewJob;
use crate::laboratory::comparison::{Comparison, FigureValue};
use crate::laboratory::drains;
use crate::laboratory::jobs::{Sleep, Stamp, nothing};
use crate::laboratory::program::{Program, until_idle};
use crate::laboratory::run::BenchRun;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Text};
use std::time::Duration;

const QUEUE: &str = "bench";

fn of(tenant: String, job: NewJob) -> NewJob {
    job.queue(QUEUE).tenant(tenant)
}

pub(crate) fn comparisons(run: &BenchRun) -> Vec<Comparison> {
    let jobs = run.jobs(50_000);
    let mut all: Vec<Comparison> = [1, 100, 10_000, 100_000]
        .into_iter()
        .map(|tenants: u64| {
            let windlass = move |run: &BenchRun| {
                drain(run, jobs, move |number| {
                    Ok(of(format!("tenant {}", number % tenants), nothing(number)?))
                })
            };
            Comparison::new(format!("{tenants} tenants"), windlass).beside(drains::no_op())
        })
        .collect();
    for millis in [10, 100] {
        let sleep = Duration::from_millis(millis);
        let figure = format!("another's turn, jobs of {millis} ms");
        all.push(Comparison::new(figure, move |run| turns(run, sleep, 0)));
    }
    let backlog = run.settings.backlog;
    all.push(Comparison::new(
        format!("another's turn, {backlog} wait"),
        move |run| turns(run, Duration::from_millis(100), backlog),
    ));
    all.push(Comparison::new("by jobs", |run| {
        evenness(run, ShareBy::Jobs)
    }));
    all.push(Comparison::new("by time", |run| {
        evenness(run, ShareBy::Time)
    }));
    all
}

fn drain(
    run: &BenchRun,
    jobs: u32,
    make: impl Fn(u64) -> Result<NewJob>,
) -> Result<Vec<FigureValue>> {
    let cost = drains::drain(
        run,
        drains::beside_dispatcher(run, jobs.into()),
        |database: &Database| {
            share(&mut database.connect()?, QUEUE, ShareBy::Jobs)?;
            drains::fill(&mut database.connect()?, jobs, &make)
        },
    )?;
    Ok(drains::rate(&cost))
}

/// The time from the enqueue of a tenant's only job to its start, while very many jobs of another wait, `least` or more: in
/// times that a job takes.
fn turns(run: &BenchRun, sleep: Duration, least: u32) -> Result<Vec<FigureValue>> {
    let place = run.place()?;
    let database = place.migrated()?;
    let mut connection = database.connect()?;
    share(&mut connection, QUEUE, ShareBy::Jobs)?;
    let samples = run.settings.samples;
    let pause = Duration::from_millis(80) + 3 * sleep;
    let depth = (pause * (samples + 2)).as_secs_f64() * f64::from(run.settings.threads);
    let micros = sleep.as_micros() as u64;
    let flood = |_| Ok(of("flood".into(), NewJob::new(&Sleep { micros })?));
    drains::fill(
        &mut connection,
        ((depth / sleep.as_secs_f64()) as u32).max(least),
        &flood,
    )?;
    let mut program = Program::start(place.url(), drains::beside_dispatcher(run, u64::MAX))?;
    program.nudge()?;
    let mut times = Vec::new();
    for sample in 0..=samples {
        until_idle();
        let called = clock::since_boot();
        let job = NewJob::new(&Stamp {})?.priority(0);
        of(format!("tenant {sample}"), job).enqueue(&mut connection)?;
        let time = program.began()?.started.saturating_sub(called);
        // The first one may meet a program that has only just started.
        if sample > 0 {
            times.push(time.as_secs_f64() / sleep.as_secs_f64());
        }
    }
    program.stop();
    let of = |name, part| FigureValue::new(name, "times", quantile(times.clone(), part));
    Ok(vec![of("turn p50", 0.5), of("turn p99", 0.99)])
}

#[derive(QueryableByName)]
struct FinishedJobs {
    #[diesel(sql_type = Text)]
    tenant: String,
    #[diesel(sql_type = BigInt)]
    jobs: i64,
}

/// The weights of the tenants, and the time that each job of theirs takes, in milliseconds: so long that a sleep takes hardly
/// more.
const TENANTS: [(&str, u32, u64); 5] = [
    ("one", 1, 10),
    ("two", 1, 20),
    ("four", 1, 40),
    ("eight", 1, 80),
    ("three times two", 3, 20),
];

/// Jain's index of what tenants have used, divided by their weights, and the largest difference from a fair share.
fn evenness(run: &BenchRun, by: ShareBy) -> Result<Vec<FigureValue>> {
    let mut kept = None;
    let jobs = run.jobs(20_000);
    drains::drain(
        run,
        drains::beside_dispatcher(run, u64::from(jobs / 4)),
        |database: &Database| {
            let mut connection = database.connect()?;
            share(&mut connection, QUEUE, by)?;
            for (tenant, weight, millis) in TENANTS {
                set_weight(&mut connection, QUEUE, tenant, weight)?;
                let micros = millis * 1_000;
                let make = |_| Ok(of(tenant.to_owned(), NewJob::new(&Sleep { micros })?));
                drains::fill(&mut connection, jobs / 4, &make)?;
            }
            kept = Some(database.clone());
            Ok(())
        },
    )?;
    let mut used = Vec::new();
    if let Some(database) = kept {
        let text = "SELECT tenant, count(*) AS jobs FROM solid_queue_jobs WHERE finished_at IS NOT NULL GROUP BY tenant";
        let mut connection = database.connect()?;
        let rows = Statement::new(text).load(&mut connection.as_conn());
        let rows: Vec<FinishedJobs> = rows.during("count the jobs of tenants")?;
        for (tenant, weight, millis) in TENANTS {
            let jobs = rows.iter().find(|row| row.tenant == tenant);
            let jobs = jobs.map_or(0.0, |row| row.jobs as f64);
            let cost = if by == ShareBy::Time { millis } else { 1 };
            used.push(jobs * cost as f64 / f64::from(weight));
        }
    }
    let sum: f64 = used.iter().sum();
    let squares: f64 = used.iter().map(|used| used * used).sum();
    let fair = sum / used.len() as f64;
    let off = used.iter().map(|used| (used / fair - 1.0).abs());
    let off = off.fold(0.0, f64::max) * 100.0;
    Ok(vec![
        FigureValue::new(
            "Jain's index",
            "",
            sum * sum / (used.len() as f64 * squares),
        ),
        FigureValue::new("largest difference", "%", off),
    ])
}
