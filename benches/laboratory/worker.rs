//! The other process of a benchmark: a worker that reports its progress.

use crate::db::Database;
use crate::error::Result;
use crate::event::Event;
use crate::event::logging::Subscriber;
use crate::job::class::Job as _;
use crate::laboratory::jobs::{self, Stamp};
use crate::laboratory::role::Setup;
use crate::laboratory::{allocations, counters};
use crate::process::dispatcher::Dispatcher;
use crate::process::worker::builder::Worker;
use crate::{clock, terminal};
use crossbeam_channel::{Receiver, Sender, never, select, unbounded};
use serde::{Deserialize, Serialize};
use std::io::{BufRead as _, BufReader};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A message that such a process prints, as one line of JSON. Times are since the host was started.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Told {
    /// It is ready to start its worker when requested.
    Ready,
    /// The requested number of runs has ended.
    Done,
    /// A [`Stamp`] started.
    Began(Began),
    /// The cost of its work so far, on request.
    Cost(Cost),
    /// The address at which it serves pages.
    Listening(std::net::SocketAddr),
}

/// The hops of a job that was picked up.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct Began {
    /// The outcome of the last run before it was stored.
    pub(crate) ended: Duration,
    /// The statement of the claim was sent.
    pub(crate) claiming: Duration,
    /// The claim was answered.
    pub(crate) claimed: Duration,
    /// The job's first line ran.
    pub(crate) started: Duration,
}

/// The work that a process has done and the resources that it has used.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct Cost {
    /// The runs that have ended.
    pub(crate) runs: u64,
    /// The time from the worker's registration to the end of the last requested run, or to now.
    pub(crate) took: Duration,
    pub(crate) statements: u64,
    pub(crate) transactions: u64,
    pub(crate) cpu: Duration,
    pub(crate) allocations: u64,
    /// The peak memory, if the system reports it.
    pub(crate) peak_kib: Option<u64>,
    /// Bytes written to files and sockets, if the system reports them.
    pub(crate) written: Option<u64>,
}

/// The notes of the worker's threads, in nanoseconds since the host was started.
#[derive(Debug, Default)]
struct Notes {
    registered: AtomicU64,
    runs: AtomicU64,
    /// The end of the last run.
    ended: AtomicU64,
    done: AtomicU64,
    /// The claim of the last stamp.
    claim: Mutex<Began>,
}

/// Starts working at the first line on standard input, reports its cost at each further line,
/// and stops when the input ends.
pub(crate) fn work(setup: Setup, url: &str) -> Result<ExitCode> {
    // As many connections for jobs as the program `windlass` gives such a worker.
    let database = &Database::open_with_pool(url, setup.threads.saturating_add(2).max(10))?;
    counters::count_statements();
    let lines = lines(std::io::stdin());
    tell(&Told::Ready);
    let Ok(_) = lines.recv() else {
        return Ok(ExitCode::SUCCESS);
    };
    let notes = Arc::new(Notes::default());
    let (stamps, began) = unbounded();
    let (done, is_done) = unbounded();
    let dispatcher = setup.dispatcher.then(|| Dispatcher::new(database).start());
    let dispatcher = dispatcher.transpose()?;
    let worker = Worker::new(database, jobs::registry(stamps))
        .queues([setup.queue])?
        .threads(setup.threads as usize)
        .keep_finished(!setup.delete)
        .subscriber(subscriber(Arc::clone(&notes), setup.runs, done))
        .start()?;
    report(&lines, &began, &is_done, &notes);
    worker.stop();
    if let Some(dispatcher) = dispatcher {
        dispatcher.stop();
        dispatcher.wait();
    }
    Ok(worker.wait().exit_code())
}

fn subscriber(notes: Arc<Notes>, runs: u64, done: Sender<()>) -> Subscriber {
    Subscriber::new(move |event| match event {
        Event::Registered { .. } => notes.registered.store(now(), Ordering::Relaxed),
        Event::Claimed { class, .. } if *class == Stamp::NAME => {
            let mut claim = notes.claim.lock().unwrap_or_else(PoisonError::into_inner);
            claim.ended = Duration::from_nanos(notes.ended.load(Ordering::Relaxed));
            claim.claiming = counters::sent_last();
            claim.claimed = clock::since_boot();
        }
        event if is_end(event) => {
            let now = now();
            notes.ended.store(now, Ordering::Relaxed);
            if notes.runs.fetch_add(1, Ordering::Relaxed) + 1 == runs {
                notes.done.store(now, Ordering::Relaxed);
                let _ = done.send(());
            }
        }
        _ => {}
    })
}

/// Returns true if a run has ended and its outcome is stored.
fn is_end(event: &Event<'_>) -> bool {
    matches!(
        event,
        Event::Finished { .. }
            | Event::Failed { .. }
            | Event::Retried { .. }
            | Event::Snoozed { .. }
            | Event::Parked { .. }
            | Event::Discarded { .. }
    )
}

fn now() -> u64 {
    u64::try_from(clock::since_boot().as_nanos()).unwrap_or(u64::MAX)
}

/// Reports until the lines end.
fn report(
    lines: &Receiver<String>,
    began: &Receiver<Duration>,
    is_done: &Receiver<()>,
    notes: &Notes,
) {
    loop {
        select! {
            recv(lines) -> line => {
                if line.is_err() {
                    return;
                }
                tell(&Told::Cost(cost(notes)));
            }
            recv(began) -> at => {
                let claim = *notes.claim.lock().unwrap_or_else(PoisonError::into_inner);
                if let Ok(started) = at {
                    tell(&Told::Began(Began { started, ..claim }));
                }
            }
            recv(is_done) -> _ => tell(&Told::Done),
        }
    }
}

pub(crate) fn tell(told: &Told) {
    if let Ok(line) = serde_json::to_string(told) {
        terminal::line(&line);
    }
}

fn cost(notes: &Notes) -> Cost {
    let until = match notes.done.load(Ordering::Relaxed) {
        0 => now(),
        done => done,
    };
    let took = until.saturating_sub(notes.registered.load(Ordering::Relaxed));
    Cost {
        runs: notes.runs.load(Ordering::Relaxed),
        took: Duration::from_nanos(took),
        ..Cost::of_process()
    }
}

impl Cost {
    /// Returns the cost of this process so far.
    pub(crate) fn of_process() -> Self {
        let counted = counters::counted();
        Cost {
            statements: counted.statements,
            transactions: counted.transactions,
            cpu: clock::cpu(),
            allocations: allocations::of_all_threads(),
            peak_kib: entry("/proc/self/status", "VmHWM:"),
            written: entry("/proc/self/io", "wchar:"),
            ..Cost::default()
        }
    }
}

/// Returns a number from a file of Linux about this process.
fn entry(file: &str, name: &str) -> Option<u64> {
    let text = std::fs::read_to_string(file).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Reads lines from elsewhere.
pub(crate) fn lines(from: impl std::io::Read + Send + 'static) -> Receiver<String> {
    each_line(from, Some)
}

/// Reads the reports of another process. A line that is none is skipped.
pub(crate) fn read(from: impl std::io::Read + Send + 'static) -> Receiver<Told> {
    each_line(from, |line| serde_json::from_str(&line).ok())
}

/// Reads lines on a thread of their own.
fn each_line<T: Send + 'static>(
    from: impl std::io::Read + Send + 'static,
    parse: impl Fn(String) -> Option<T> + Send + 'static,
) -> Receiver<T> {
    let (sender, receiver) = unbounded();
    let read = std::thread::Builder::new().spawn(move || {
        for line in BufReader::new(from).lines() {
            let Ok(line) = line else { return };
            if parse(line).is_some_and(|told| sender.send(told).is_err()) {
                return;
            }
        }
    });
    read.map_or_else(|_| never(), |_| receiver)
}
