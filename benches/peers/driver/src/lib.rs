//! The common part of the processes that each drive one job framework: they read commands, a line
//! each, from standard input, and answer on standard output.

mod command;
mod job;
mod run;

pub use command::{Answer, Command, Work};
pub use job::{Failed, perform, perform_blocking};
pub use run::{DATABASE, now, run};

use anyhow::{Result, anyhow};
use std::any::Any;
use std::time::{Duration, Instant};

/// Jobs of one call, where they are enqueued in bulk.
pub const BULK: usize = 1_000;

/// Starts a worker that has connected.
pub type Start = Box<dyn FnOnce() -> Result<Running>>;

/// Enqueues one job at each call.
pub type Enqueuer = Box<dyn FnMut() -> Result<()>>;

/// A worker at work.
pub struct Running {
    /// Keeps it at work for as long as the process lives.
    pub alive: Box<dyn Any>,
    /// For a framework that wakes only the workers of the process that enqueues.
    pub enqueuer: Option<Enqueuer>,
}

impl Running {
    /// A worker that jobs of other processes wake, too.
    pub fn new(alive: impl Any) -> Running {
        Running {
            alive: Box::new(alive),
            enqueuer: None,
        }
    }
}

/// A job framework with its settings. `url` is the address of a database that it has for itself.
///
/// It has one type of job with a number, which calls [`perform`] or [`perform_blocking`].
pub trait System {
    /// Creates its tables.
    ///
    /// # Errors
    /// If the framework or the database fails; the same holds for all that follows.
    fn migrate(&self, url: &str) -> Result<()>;

    /// Returns how long so many callers take to enqueue so many jobs each, one at a time.
    /// Connecting does not count.
    fn enqueue_singly(&self, url: &str, callers: u32, each: u32) -> Result<Duration>;

    /// Returns how long one caller takes to enqueue so many jobs, [`BULK`] a call. Returns `None`
    /// if there is no such call.
    fn enqueue_in_bulk(&self, url: &str, jobs: u32) -> Result<Option<Duration>>;

    /// Enqueues so many jobs, numbered from 0, however it goes fastest.
    fn fill(&self, url: &str, jobs: u32) -> Result<()> {
        self.enqueue_in_bulk(url, jobs).map(drop)
    }

    /// Enqueues so many jobs with one key, of which one may run at a time. Returns `None` if there is
    /// no such limit, as is the default.
    ///
    /// # Errors
    /// As the others.
    fn fill_limited(&self, _url: &str, _jobs: u32) -> Result<Option<()>> {
        Ok(None)
    }

    /// Returns a connected enqueuer.
    fn enqueuer(&self, url: &str) -> Result<Enqueuer>;

    /// Returns a connected worker that performs so many jobs at once.
    fn worker(&self, url: &str, work: Work, workers: u32) -> Result<Start>;
}

/// Does the same on one thread for each of `own`, and returns how long it took them all.
///
/// # Errors
/// The first error of a thread.
pub fn at_once<T: Send>(own: Vec<T>, work: impl Fn(T) -> Result<()> + Sync) -> Result<Duration> {
    let work = &work;
    let start = Instant::now();
    std::thread::scope(|scope| {
        let threads = own.into_iter().map(|own| scope.spawn(move || work(own)));
        let threads: Vec<_> = threads.collect();
        threads.into_iter().try_for_each(|thread| {
            let result = thread.join();
            result.unwrap_or_else(|_| Err(anyhow!("a thread that enqueues panicked")))
        })
    })?;
    Ok(start.elapsed())
}
