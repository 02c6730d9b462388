//! Enqueueing: one at a time, and in bulk.

use crate::db::{AsConn as _, DbConnection};
use crate::error::{ErrorContext as _, Result};
use crate::job::new_job::NewJob;
use crate::laboratory::ceilings::{self, ACTION, some};
use crate::laboratory::comparison::{Ceiling, Comparison, FigureValue};
use crate::laboratory::drains;
use crate::laboratory::jobs::nothing;
use crate::laboratory::plain::by_sql;
use crate::laboratory::plain::enqueue::{self, READY, Target};
use crate::laboratory::plain::tables;
use crate::laboratory::run::{BULK, BenchRun};

pub(crate) fn comparisons(run: &BenchRun) -> Vec<Comparison> {
    let mut all = beside_plain(run, READY, nothing);
    let jobs = run.jobs(50_000);
    if let Some(bulk) = all.pop() {
        let indexed = move |run: &BenchRun| plain_bulk(run, (jobs, READY), BULK, true);
        let name = "plain SQL with Solid Queue's indexes";
        all.push(bulk.beside(Ceiling::one(name, indexed)));
    }
    let each = run.jobs(2_000);
    let texts = by_sql::TEXTS
        .iter()
        .filter(|text| run.is_postgres || text.on_sqlite);
    for (text, callers) in texts.flat_map(|text| [(text, 1), (text, 8)]) {
        let windlass = move |run: &BenchRun| {
            singles(run, callers, each, &|connection, number| {
                by_sql::enqueue(connection, text, number).during(ACTION)
            })
        };
        let from_rust = move |run: &BenchRun| singles(run, callers, each, &from_rust(nothing));
        let figure = format!("{}, {callers} callers", text.name);
        let ceiling = Ceiling::one("enqueue from Rust", from_rust);
        all.push(Comparison::new(figure, windlass).beside(ceiling));
    }
    all
}

/// Returns how a job that is made so is enqueued.
fn from_rust(
    make: impl Fn(u64) -> Result<NewJob> + Sync,
) -> impl Fn(&mut DbConnection, u64) -> Result<()> + Sync {
    move |connection, number| make(number)?.enqueue(connection).map(drop)
}

/// Compares every way to enqueue such jobs with plain SQL; the last one is in bulk.
pub(crate) fn beside_plain(
    run: &BenchRun,
    target: Target,
    make: impl Fn(u64) -> Result<NewJob> + Clone + Sync + 'static,
) -> Vec<Comparison> {
    let mut all = Vec::new();
    let each = run.jobs(2_000);
    for callers in [1, 8] {
        let make = make.clone();
        let windlass = move |run: &BenchRun| singles(run, callers, each, &from_rust(&make));
        let plain = move |run: &BenchRun| plain_singles(run, callers, each, target);
        let figure = format!("enqueue 1 a call, {callers} callers");
        let ceiling = Ceiling::one("plain SQL, batches of 1", plain);
        all.push(Comparison::new(figure, windlass).beside(ceiling));
    }
    let jobs = run.jobs(50_000);
    let windlass = move |run: &BenchRun| bulk(run, jobs, &make);
    let ceiling =
        Ceiling::over_batches(move |run, batch| plain_bulk(run, (jobs, target), batch, false));
    all.push(Comparison::new(format!("enqueue {BULK} a call"), windlass).beside(ceiling));
    all
}

const UNIT: &str = "jobs/s";

fn singles(
    run: &BenchRun,
    callers: u32,
    each: u32,
    enqueue: &(impl Fn(&mut DbConnection, u64) -> Result<()> + Sync),
) -> Result<Vec<FigureValue>> {
    let place = run.place()?;
    let database = place.migrated()?;
    let next = std::sync::atomic::AtomicU64::new(0);
    let took = ceilings::at_once(&database, callers, |connection| {
        (0..each).try_for_each(|_| {
            let number = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            enqueue(connection, number)
        })
    })?;
    Ok(FigureValue::rate(UNIT, u64::from(each * callers), took))
}

fn plain_singles(
    run: &BenchRun,
    callers: u32,
    each: u32,
    target: Target,
) -> Result<Vec<FigureValue>> {
    let place = run.place()?;
    let database = ceilings::database(place.url())?;
    let took = ceilings::at_once(&database, callers, |connection| {
        (0..u64::from(each)).try_for_each(|number| {
            let arguments = ceilings::arguments(number);
            let done = connection.with_write_lock(|conn| match target == READY {
                true => enqueue::one(conn, &arguments, 0),
                false => enqueue::all(conn, &[arguments], target).map(drop),
            });
            done.during(ACTION)
        })
    })?;
    Ok(FigureValue::rate(UNIT, u64::from(each * callers), took))
}

fn bulk(
    run: &BenchRun,
    jobs: u32,
    make: &(impl Fn(u64) -> Result<NewJob> + Sync),
) -> Result<Vec<FigureValue>> {
    let place = run.place()?;
    let database = place.migrated()?;
    let took = ceilings::at_once(&database, 1, |connection| {
        drains::fill(connection, jobs, &|number| make(number))
    })?;
    Ok(FigureValue::rate(UNIT, u64::from(jobs), took))
}

fn plain_bulk(
    run: &BenchRun,
    (jobs, target): (u32, Target),
    batch: usize,
    indexed: bool,
) -> Result<Vec<FigureValue>> {
    let place = run.place()?;
    let database = ceilings::database(place.url())?;
    if indexed {
        tables::add_indexes(&mut database.connect()?.as_conn()).during("add indexes")?;
    }
    let jobs = some(jobs, batch);
    let took = ceilings::at_once(&database, 1, |connection| {
        ceilings::fill_in(connection, jobs, target, batch).map(drop)
    })?;
    Ok(FigureValue::rate(UNIT, u64::from(jobs), took))
}
