//! Many queues and very many waiting jobs: what a claim costs then.
//!
//! ```sh
//! cargo run --release -p windlass-tests --bin soak
//! cargo run --release -p windlass-tests --bin soak -- --database "$URL" --queues 10000 --jobs 1000000
//! ```
//!
//! Fills an empty database, lets workers of different selectors take jobs
//! from it, and prints how long their statements took. The database must have
//! no jobs yet; what is enqueued stays in it.
//!
//! With `--paused`, the waiting jobs are of one class instead, which is paused,
//! and the jobs of another class come after them.

#![allow(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a program that measures and tells"
)]

use clap::Parser;
use diesel::connection::{Instrumentation, InstrumentationEvent, set_default_instrumentation};
use indicatif::ProgressBar;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use windlass::{Context, Database, Job, JobResult, NewJob, Registry, Worker, enqueue_all};

/// Fill a database and measure claims.
#[derive(Parser)]
struct Options {
    /// The database, empty [default: a SQLite file that is removed afterwards]
    #[arg(long)]
    database: Option<String>,

    /// The number of queues
    #[arg(long, default_value_t = 10_000)]
    queues: usize,

    /// The number of waiting jobs in them
    #[arg(long, default_value_t = 1_000_000)]
    jobs: usize,

    /// The number of jobs that each kind of worker takes
    #[arg(long, default_value_t = 2_000)]
    take: usize,

    /// Measure claims behind jobs of a paused class
    #[arg(long)]
    paused: bool,
}

/// Does nothing, and counts it.
#[derive(Serialize, Deserialize)]
struct Nothing;

impl Job for Nothing {
    const NAME: &'static str = "nothing";
    type State = AtomicUsize;
    type Output = ();

    fn perform(self, cx: &Context<'_, AtomicUsize>) -> JobResult {
        cx.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

/// The same, of the class that is paused.
#[derive(Serialize, Deserialize)]
struct Held;

impl Job for Held {
    const NAME: &'static str = "held";
    type State = AtomicUsize;
    type Output = ();

    fn perform(self, cx: &Context<'_, AtomicUsize>) -> JobResult {
        cx.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

/// The durations of the statements, by their kind.
static TOOK: Mutex<BTreeMap<&'static str, Vec<Duration>>> = Mutex::new(BTreeMap::new());

/// Hears one connection.
#[derive(Default)]
struct Watch(Option<(&'static str, Instant)>);

impl Instrumentation for Watch {
    fn on_connection_event(&mut self, event: InstrumentationEvent<'_>) {
        match event {
            InstrumentationEvent::StartQuery { query, .. } => {
                self.0 = kind(&query.to_string()).map(|kind| (kind, Instant::now()));
            }
            InstrumentationEvent::FinishQuery { .. } => {
                if let Some((kind, begun)) = self.0.take() {
                    let mut took = TOOK.lock().unwrap_or_else(PoisonError::into_inner);
                    took.entry(kind).or_default().push(begun.elapsed());
                }
            }
            _ => {}
        }
    }
}

/// Returns the part of a claim that a statement is. On Postgres the claim is one statement; on SQLite it looks first
/// and then takes.
fn kind(text: &str) -> Option<&'static str> {
    if text.contains("WITH RECURSIVE walk") {
        Some("names of queues")
    } else if text.contains("WITH me AS MATERIALIZED") {
        Some("claim")
    } else if text.contains("AND queue_name NOT IN (SELECT queue_name FROM solid_queue_pauses)") {
        Some("look")
    } else if text.contains("INSERT INTO solid_queue_claimed_executions") {
        Some("take")
    } else {
        None
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse();
    let directory = tempfile::tempdir()?;
    let file = format!("sqlite://{}/soak.db", directory.path().display());
    let database = Database::open(options.database.as_deref().unwrap_or(&file))?;
    database.migrate()?;
    set_default_instrumentation(|| Some(Box::new(Watch::default())))?;
    if options.paused {
        return behind_paused(&database, &options);
    }
    fill(&database, &options)?;
    let one = queue(options.queues / 2);
    let last = format!("{}*", queue(options.queues.saturating_sub(1)));
    for selectors in [
        vec!["*"],
        vec!["soak*"],
        vec![one.as_str(), last.as_str(), "soak*"],
        vec!["none", "*"],
    ] {
        measure(&database, &selectors, options.take)?;
    }
    // All queues but one, which is the most important and very full.
    let mut connection = database.connect()?;
    let full = (0..options.jobs / 10).map(|_| job("full").map(|job| job.priority(-1)));
    for chunk in full.collect::<Result<Vec<_>, _>>()?.chunks(10_000) {
        enqueue_all(&mut connection, chunk.to_vec())?;
    }
    windlass::queues::pause(&mut connection, "full", "soak", "to be in the way")?;
    println!("one more queue, of {} jobs, is paused", options.jobs / 10);
    measure(&database, &["*"], options.take)
}

/// Measures claims behind many jobs of a paused class, and how soon an urgent job starts then.
fn behind_paused(database: &Database, options: &Options) -> Result<(), Box<dyn Error>> {
    let mut connection = database.connect()?;
    for chunk in (0..options.jobs).collect::<Vec<_>>().chunks(10_000) {
        let held = chunk
            .iter()
            .map(|_| NewJob::new(&Held).map(|job| job.queue("soak")));
        enqueue_all(&mut connection, held.collect::<Result<Vec<_>, _>>()?)?;
    }
    let behind = |connection: &mut _| -> Result<(), Box<dyn Error>> {
        let jobs = (0..options.take).map(|_| job("soak"));
        enqueue_all(connection, jobs.collect::<Result<Vec<_>, _>>()?)?;
        Ok(())
    };
    println!("{} jobs in {}, not paused", options.jobs, database.target());
    measure(database, &["*"], options.take)?;
    windlass::classes::pause(&mut connection, "held", "soak", "to be in the way")?;
    println!("their class is paused, {} jobs behind", options.take);
    for queues in ["*", "soak"] {
        behind(&mut connection)?;
        measure(database, &[queues], options.take)?;
        urgent(database, queues)?;
    }
    Ok(())
}

/// Enqueues urgent jobs for an idle worker one by one, and prints how soon they start.
fn urgent(database: &Database, queues: &str) -> Result<(), Box<dyn Error>> {
    TOOK.lock().unwrap_or_else(PoisonError::into_inner).clear();
    let mut connection = database.connect()?;
    let performed = Arc::new(AtomicUsize::new(0));
    let registry = Registry::new()
        .register::<Nothing>(Arc::clone(&performed))
        .register::<Held>(Arc::clone(&performed));
    let _worker = Worker::new(database, registry).queues([queues])?.start()?;
    std::thread::sleep(Duration::from_secs(3));
    let mut waited = Vec::new();
    for number in 1..=100 {
        let begun = Instant::now();
        job("soak")?.priority(-1).enqueue(&mut connection)?;
        while performed.load(Ordering::SeqCst) < number {
            if begun.elapsed() > Duration::from_secs(60) {
                return Err("an urgent job does not start".into());
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        waited.push(begun.elapsed());
        std::thread::sleep(Duration::from_millis(50));
    }
    println!("  {:<16} {}", "urgent job", summary(waited));
    Ok(())
}

fn queue(number: usize) -> String {
    format!("soak{number:06}")
}

fn job(queue: &str) -> windlass::Result<NewJob> {
    NewJob::new(&Nothing).map(|job| job.queue(queue))
}

fn fill(database: &Database, options: &Options) -> Result<(), Box<dyn Error>> {
    let mut connection = database.connect()?;
    let begun = Instant::now();
    let bar = ProgressBar::new(options.jobs as u64);
    let mut number = 0;
    while number < options.jobs {
        let until = (number + 10_000).min(options.jobs);
        let jobs = (number..until).map(|n| job(&queue(n % options.queues)));
        enqueue_all(&mut connection, jobs.collect::<Result<Vec<_>, _>>()?)?;
        bar.set_position(until as u64);
        number = until;
    }
    bar.finish_and_clear();
    let seconds = begun.elapsed().as_secs_f64();
    println!(
        "{} jobs in {} queues of {}, enqueued in {seconds:.1} s: {:.0} a second",
        options.jobs,
        options.queues,
        database.target(),
        options.jobs as f64 / seconds
    );
    Ok(())
}

/// Lets a worker take some jobs, and tells how long that took.
fn measure(database: &Database, queues: &[&str], jobs: usize) -> Result<(), Box<dyn Error>> {
    TOOK.lock().unwrap_or_else(PoisonError::into_inner).clear();
    let performed = Arc::new(AtomicUsize::new(0));
    let registry = Registry::new()
        .register::<Nothing>(Arc::clone(&performed))
        .register::<Held>(Arc::clone(&performed));
    let begun = Instant::now();
    let worker = Worker::new(database, registry).queues(queues)?.start()?;
    while performed.load(Ordering::SeqCst) < jobs {
        if begun.elapsed() > Duration::from_secs(600) {
            return Err("the worker takes too long".into());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let rate = performed.load(Ordering::SeqCst) as f64 / begun.elapsed().as_secs_f64();
    drop(worker);
    println!("worker of {}: {rate:.0} jobs a second", queues.join(","));
    let mut took = TOOK.lock().unwrap_or_else(PoisonError::into_inner);
    for (kind, times) in std::mem::take(&mut *took) {
        println!("  {kind:<16} {}", summary(times));
    }
    Ok(())
}

fn summary(mut times: Vec<Duration>) -> String {
    times.sort_unstable();
    let at = |share: usize| times[(times.len() - 1) * share / 100];
    format!(
        "{:>6} times, median {:>9.1?}, 99 of 100 {:>9.1?}, longest {:>9.1?}",
        times.len(),
        at(50),
        at(99),
        at(100)
    )
}
