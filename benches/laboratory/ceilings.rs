//! The ceilings: the same rows moved by plain SQL, by one or more clients.

use crate::clock;
use crate::db::{AsConn as _, Database, DbConnection, prefer_indexes};
use crate::error::{ErrorContext as _, Result};
use crate::laboratory::comparison::{Ceiling, FigureValue};
use crate::laboratory::plain::claim::{self, Claim};
use crate::laboratory::plain::enqueue::{self, Target};
use crate::laboratory::plain::outcome::{self, PerJob, PlainOutcome};
use crate::laboratory::plain::statement::PlainChange;
use crate::laboratory::plain::tables;
use crate::laboratory::run::{BULK, BenchRun};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The action of every client.
pub(crate) const ACTION: &str = "move the rows of the ceiling";

/// Returns the arguments of one job.
pub(crate) fn arguments(number: u64) -> String {
    format!("{{\"number\":{number}}}")
}

/// The parameters of a plain program that drains a queue.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plain {
    pub(crate) jobs: u32,
    pub(crate) clients: u32,
    /// The place in which the jobs wait.
    pub(crate) target: Target,
    pub(crate) per_job: PerJob,
    /// The outcome of the first run, if the job has two.
    pub(crate) first: Option<PlainOutcome>,
    /// The outcome of the only or last run; empty if each job writes it by itself.
    pub(crate) last: PlainOutcome,
}

impl Plain {
    /// Ready jobs that do nothing and are kept. Two clients keep a server of two cores busy; on
    /// SQLite a second one would only wait.
    pub(crate) fn of(run: &BenchRun, jobs: u32) -> Self {
        Plain {
            jobs,
            clients: if run.is_postgres { 2 } else { 1 },
            target: enqueue::READY,
            per_job: PerJob::Nothing,
            first: None,
            last: outcome::KEEP,
        }
    }

    /// Returns the ceiling of such a drain in batches of 100, to which older figures were compared.
    pub(crate) fn by_the_hundred(self) -> Ceiling {
        Ceiling::one("plain SQL by the hundred", move |run| drain(run, self, 100))
    }

    /// Returns the ceiling of such a drain, over batches of every size.
    pub(crate) fn ceiling(self) -> Ceiling {
        Ceiling::over_batches(move |run, batch| drain(run, self, batch))
    }
}

/// As many jobs as small batches need to be measured in a moment.
pub(crate) fn some(jobs: u32, batch: usize) -> u32 {
    let most = u32::try_from(batch.saturating_mul(500)).unwrap_or(u32::MAX);
    jobs.min(most)
}

/// Claims jobs in batches, performs them and writes their outcomes in batches. Returns runs per
/// second.
pub(crate) fn drain(run: &BenchRun, plain: Plain, batch: usize) -> Result<Vec<FigureValue>> {
    let place = run.place()?;
    let database = database(place.url())?;
    fill(
        &mut database.connect()?,
        some(plain.jobs, batch),
        plain.target,
    )?;
    let (runs, deadline) = (AtomicU64::new(0), clock::deadline(run.settings.limit));
    let took = at_once(&database, plain.clients, |connection| {
        let first = plain.first.unwrap_or(plain.last);
        let first = PlainChange::new(&connection.as_conn(), first);
        let last = PlainChange::new(&connection.as_conn(), plain.last);
        while clock::instant() < deadline {
            if plain.target == enqueue::DUE {
                connection
                    .with_write_lock(|conn| claim::dispatch(conn, batch))
                    .during(ACTION)?;
            }
            let claims = connection
                .with_write_lock(|conn| claim::claim(conn, batch))
                .during(ACTION)?;
            if claims.is_empty() {
                return Ok(());
            }
            perform(connection, plain.per_job, &claims)?;
            let of = |wanted: fn(&Claim) -> bool| -> Vec<i64> {
                let claims = claims.iter().filter(|claim| wanted(claim));
                claims.map(|claim| claim.id).collect()
            };
            end(connection, &first, &of(|claim| claim.attempts == 0), plain)?;
            end(connection, &last, &of(|claim| claim.attempts > 0), plain)?;
            runs.fetch_add(claims.len() as u64, Ordering::Relaxed);
        }
        Ok(())
    })?;
    Ok(FigureValue::rate("runs/s", runs.into_inner(), took))
}

fn perform(connection: &mut DbConnection, per_job: PerJob, claims: &[Claim]) -> Result<()> {
    if per_job == PerJob::Nothing {
        return Ok(());
    }
    claims.iter().try_for_each(|claim| {
        connection
            .with_write_lock(|conn| per_job.perform(conn, claim.id))
            .during(ACTION)
    })
}

fn end(
    connection: &mut DbConnection,
    change: &PlainChange,
    jobs: &[i64],
    plain: Plain,
) -> Result<()> {
    if jobs.is_empty() || plain.last.is_empty() {
        return Ok(());
    }
    connection
        .with_write_lock(|conn| change.apply(conn, jobs))
        .during(ACTION)
}

/// Creates the plain tables in an empty database.
pub(crate) fn database(url: &str) -> Result<Database> {
    let database = Database::open(url)?;
    if !database.listens_by_notification() {
        // Creates the file; the Windlass tables beside the plain ones do not matter.
        database.migrate()?;
    }
    tables::create(&mut database.connect()?.as_conn()).during("create the plain tables")?;
    Ok(database)
}

/// Inserts as many jobs, and returns their ids.
pub(crate) fn fill(connection: &mut DbConnection, jobs: u32, target: Target) -> Result<Vec<i64>> {
    fill_in(connection, jobs, target, BULK)
}

/// Does the same in transactions of `batch` jobs.
pub(crate) fn fill_in(
    connection: &mut DbConnection,
    jobs: u32,
    target: Target,
    batch: usize,
) -> Result<Vec<i64>> {
    let numbers: Vec<u64> = (0..u64::from(jobs)).collect();
    let mut ids = Vec::with_capacity(numbers.len());
    for chunk in numbers.chunks(batch) {
        let arguments: Vec<String> = chunk.iter().copied().map(arguments).collect();
        let new = connection.with_write_lock(|conn| enqueue::all(conn, &arguments, target));
        ids.extend(new.during(ACTION)?);
    }
    Ok(ids)
}

/// Does the same work on several connections, which are opened before the time is taken.
pub(crate) fn at_once(
    database: &Database,
    clients: u32,
    work: impl Fn(&mut DbConnection) -> Result<()> + Sync,
) -> Result<Duration> {
    let mut connections = Vec::new();
    for _ in 0..clients {
        let mut connection = database.connect()?;
        connection.with_write_lock(prefer_indexes).during(ACTION)?;
        connections.push(connection);
    }
    let work = &work;
    let begun: Instant = clock::instant();
    std::thread::scope(|scope| {
        let threads: Vec<_> = connections
            .iter_mut()
            .map(|connection| scope.spawn(move || work(connection)))
            .collect();
        threads.into_iter().try_for_each(|thread| {
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    })?;
    Ok(begun.elapsed())
}
