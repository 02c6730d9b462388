//! The ceilings: the same rows moved by plain SQL, by one or more clients.

use crate::bench::plain_sql::{self, Shape};
use crate::bench::program::{self, CLASS};
use crate::bench::run::{BULK, Run, rate};
use crate::clock;
use crate::db::conn::connection::AsConn as _;
use crate::db::{Database, DbConnection, prefer_indexes};
use crate::error::{Doing as _, Error, Result};
use crossbeam_channel::{Receiver, unbounded};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The action of every client.
const ACTION: &str = "move the rows of the ceiling";

/// Returns the arguments of one job.
pub(crate) fn arguments(number: u64) -> String {
    format!("{{\"number\":{number}}}")
}

/// Enqueues one job at a time, with one connection per client. Returns jobs per second.
pub(crate) fn enqueues(run: &Run, clients: u32) -> Result<f64> {
    let place = run.place()?;
    let database = plain(place.url())?;
    let each = u64::from(run.settings.singles);
    let took = at_once(&database, clients, |connection| {
        for number in 0..each {
            let arguments = arguments(number);
            connection
                .with_write_lock(|conn| plain_sql::enqueue(conn, CLASS, &arguments))
                .doing(ACTION)?;
        }
        Ok(())
    })?;
    Ok(rate(each * u64::from(clients), took))
}

/// Enqueues in bulk. Returns jobs per second.
pub(crate) fn bulk(run: &Run) -> Result<f64> {
    let place = run.place()?;
    let database = plain(place.url())?;
    let jobs = run.settings.jobs;
    let took = at_once(&database, 1, |connection| fill(connection, jobs))?;
    Ok(rate(u64::from(jobs), took))
}

/// Enqueues in bulk into tables with all of Solid Queue's indexes. Returns jobs per second.
pub(crate) fn bulk_with_indexes(run: &Run) -> Result<f64> {
    let place = run.place()?;
    let database = plain(place.url())?;
    plain_sql::add_indexes(&mut database.connect()?.as_conn()).doing("add indexes")?;
    let jobs = run.settings.jobs;
    let took = at_once(&database, 1, |connection| fill(connection, jobs))?;
    Ok(rate(u64::from(jobs), took))
}

/// Measures the minimum pick-up time: a thread is notified of a commit and claims the row, nothing
/// else.
///
/// Returns the sorted times from the answer to the enqueue until the answer to the claim.
pub(crate) fn pick_ups(run: &Run) -> Result<Vec<Duration>> {
    let place = run.place()?;
    let database = plain(place.url())?;
    let mut listener = database.listen(None)?;
    let mut claimer = database.connect()?;
    let mut enqueuer = database.connect()?;
    let (claimed, claims) = unbounded();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) && listener.wait(TURN).is_ok() {
                while matches!(claimer.with_write_lock(|conn| plain_sql::claim(conn, 1)), Ok(jobs) if !jobs.is_empty())
                {
                    let _ = claimed.send(clock::since_boot());
                }
            }
        });
        let times = enqueue_in_turn(run.settings.samples, &mut enqueuer, &claims);
        is_over.store(true, Ordering::Relaxed);
        times
    })
}

/// How often the listening thread checks whether it is over.
const TURN: Duration = Duration::from_millis(100);

/// If there is no notification for this long, none will come.
const PATIENCE: Duration = Duration::from_secs(10);

fn enqueue_in_turn(
    samples: u32,
    connection: &mut DbConnection,
    claims: &Receiver<Duration>,
) -> Result<Vec<Duration>> {
    let mut times = Vec::new();
    // The first one wakes up everything and is not counted.
    for sample in 0..=samples {
        program::until_idle();
        let arguments = arguments(u64::from(sample));
        connection
            .with_write_lock(|conn| plain_sql::enqueue_and_tell(conn, CLASS, &arguments))
            .doing(ACTION)?;
        let answered = clock::since_boot();
        let claimed = claims.recv_timeout(PATIENCE).map_err(|_| Error::Io {
            action: "hear from",
            path: "the listener of the ceiling".into(),
            source: std::io::ErrorKind::TimedOut.into(),
        })?;
        if sample > 0 {
            times.push(claimed.saturating_sub(answered));
        }
    }
    times.sort_unstable();
    Ok(times)
}

/// Claims and finishes jobs in batches. Returns jobs per second.
pub(crate) fn drain(run: &Run, clients: u32, shape: Shape) -> Result<f64> {
    let place = run.place()?;
    let database = plain(place.url())?;
    let jobs = run.settings.jobs;
    fill(&mut database.connect()?, jobs)?;
    let took = at_once(&database, clients, |connection| {
        loop {
            let claims = connection
                .with_write_lock(|conn| plain_sql::claim(conn, shape.batch))
                .doing(ACTION)?;
            if claims.is_empty() {
                return Ok(());
            }
            connection
                .with_write_lock(|conn| plain_sql::finish(conn, &claims, shape.finished))
                .doing(ACTION)?;
        }
    })?;
    Ok(rate(u64::from(jobs), took))
}

/// Creates the plain tables in an empty database.
fn plain(url: &str) -> Result<Database> {
    let database = Database::open(url)?;
    if !database.listens_by_notification() {
        // Creates the file; the Windlass tables beside the plain ones do not matter.
        database.migrate()?;
    }
    plain_sql::create(&mut database.connect()?.as_conn()).doing("create the plain tables")?;
    Ok(database)
}

fn fill(connection: &mut DbConnection, jobs: u32) -> Result<()> {
    let numbers: Vec<u64> = (0..u64::from(jobs)).collect();
    for chunk in numbers.chunks(BULK) {
        let arguments: Vec<String> = chunk.iter().copied().map(arguments).collect();
        connection
            .with_write_lock(|conn| plain_sql::enqueue_all(conn, CLASS, &arguments))
            .doing(ACTION)?;
    }
    Ok(())
}

/// Does the same on several connections, which are opened before the time is taken.
pub(crate) fn at_once(
    database: &Database,
    clients: u32,
    work: impl Fn(&mut DbConnection) -> Result<()> + Sync,
) -> Result<Duration> {
    let mut connections = Vec::new();
    for _ in 0..clients {
        let mut connection = database.connect()?;
        connection.with_write_lock(prefer_indexes).doing(ACTION)?;
        connections.push(connection);
    }
    let work = &work;
    let begun = clock::instant();
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
