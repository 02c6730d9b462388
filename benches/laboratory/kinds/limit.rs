//! Concurrency limits: draining and enqueueing.

use crate::clock;
use crate::db::transition::promote::promote;
use crate::db::{AsConn as _, Database};
use crate::error::{ErrorContext as _, Result};
use crate::job::concurrency::Concurrency;
use crate::job::new_job::NewJob;
use crate::job::policy::quota::Quota;
use crate::laboratory::ceilings::{self, ACTION, Plain, some};
use crate::laboratory::comparison::{Ceiling, Comparison, FigureValue};
use crate::laboratory::drains;
use crate::laboratory::jobs::nothing;
use crate::laboratory::kinds::enqueue;
use crate::laboratory::plain::enqueue::READY;
use crate::laboratory::plain::statement::PlainChange;
use crate::laboratory::plain::{claim, outcome};
use crate::laboratory::role::Setup;
use crate::laboratory::run::BenchRun;

/// Makes a job whose key is its number modulo `keys`.
fn limited(number: u64, keys: u64, limit: u32) -> Result<NewJob> {
    let limit = Concurrency::new(number % keys).limit(limit);
    Ok(nothing(number)?.concurrency(limit))
}

pub(crate) fn hundred_keys(run: &BenchRun) -> Vec<Comparison> {
    let jobs = run.jobs(10_000);
    let windlass = move |run: &BenchRun| drain(run, jobs, (100, 5), |_| Ok(()));
    let plain = Plain::of(run, jobs).ceiling();
    vec![
        Comparison::new("", windlass)
            .beside(plain)
            .beside(drains::no_op()),
    ]
}

pub(crate) fn one_key(run: &BenchRun) -> Vec<Comparison> {
    let jobs = run.jobs(2_000);
    let windlass = move |run: &BenchRun| drain(run, jobs, (1, 1), |_| Ok(()));
    vec![Comparison::new("", windlass).beside(in_turn(jobs))]
}

pub(crate) fn among_others(run: &BenchRun) -> Vec<Comparison> {
    let jobs = run.jobs(2_000);
    let blocked = run.settings.blocked;
    let windlass = move |run: &BenchRun| {
        drain(run, jobs, (1, 1), |database| {
            block_others(database, blocked)
        })
    };
    let figure = format!("{blocked} blocked");
    let alone = move |run: &BenchRun| drain(run, jobs, (1, 1), |_| Ok(()));
    vec![
        Comparison::new(figure, windlass)
            .beside(in_turn(jobs))
            .beside(Ceiling::one("limit-1", alone)),
    ]
}

pub(crate) fn enqueue(run: &BenchRun) -> Vec<Comparison> {
    enqueue::beside_plain(run, READY, |number| limited(number, 100, 5))
}

pub(crate) fn with_quota(run: &BenchRun) -> Vec<Comparison> {
    let quota = Quota::named("bench").per_minute(1_000_000_000);
    let make = move |number| Ok(nothing(number)?.quota(quota.clone()));
    enqueue::beside_plain(run, READY, make)
}

/// Drains jobs with a limit. Besides the worker there is a dispatcher, as in every installation.
fn drain(
    run: &BenchRun,
    jobs: u32,
    (keys, limit): (u64, u32),
    prepare: impl FnOnce(&Database) -> Result<()>,
) -> Result<Vec<FigureValue>> {
    let setup = Setup {
        threads: run.settings.threads,
        runs: u64::from(jobs),
        delete: false,
        dispatcher: true,
        queue: "*",
    };
    let cost = drains::drain(run, setup, |database| {
        prepare(database)?;
        let make = |number| limited(number, keys, limit);
        drains::fill(&mut database.connect()?, jobs, &make)
    })?;
    Ok(drains::rate(&cost))
}

/// The keys of the blocked jobs.
const OTHER_KEYS: u64 = 100;

/// Blocks jobs behind one of each key that no worker here can perform.
fn block_others(database: &Database, blocked: u32) -> Result<()> {
    let mut connection = database.connect()?;
    let make = |number: u64| {
        let job = NewJob::of_class("windlass_bench_elsewhere", "{}");
        Ok(job
            .priority(1)
            .concurrency(Concurrency::new(number % OTHER_KEYS)))
    };
    drains::fill(&mut connection, blocked, &make)?;
    loop {
        let promoted = connection.with_write_lock(|conn| promote(conn, 1_000));
        if !promoted.during("promote blocked jobs")?.is_progress(1_000) {
            return Ok(());
        }
    }
}

/// One thread that ends a job and claims the next in one transaction.
fn in_turn(jobs: u32) -> Ceiling {
    Ceiling::one("plain SQL, one after the other", move |run| {
        let place = run.place()?;
        let database = ceilings::database(place.url())?;
        let jobs = some(jobs, 10);
        ceilings::fill(&mut database.connect()?, jobs, READY)?;
        let deadline = clock::deadline(run.settings.limit);
        let done = std::sync::atomic::AtomicU64::new(0);
        let took = ceilings::at_once(&database, 1, |connection| {
            let end = PlainChange::new(&connection.as_conn(), outcome::KEEP);
            let mut last: Vec<i64> = Vec::new();
            while clock::instant() < deadline {
                let next = connection.with_write_lock(|conn| {
                    conn.transaction(|conn| {
                        if !last.is_empty() {
                            end.apply(conn, &last)?;
                        }
                        claim::claim(conn, 1)
                    })
                });
                last = next.during(ACTION)?.iter().map(|claim| claim.id).collect();
                if last.is_empty() {
                    break;
                }
                done.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }
            Ok(())
        })?;
        Ok(FigureValue::rate("runs/s", done.into_inner(), took))
    })
}
