//! The systems that are measured, each behind the same trait.

pub(crate) mod fang;
pub(crate) mod graphile;
pub(crate) mod windlass;

use crate::place::Address;
use anyhow::{Result, anyhow};
use std::any::Any;
use std::time::{Duration, Instant};

/// Jobs of one call, where they come in bulk.
pub(crate) const BULK: usize = 1_000;

/// What starts a worker that has connected.
pub(crate) type Start = Box<dyn FnOnce() -> Result<Running>>;

/// A worker at work, for as long as the process lives.
pub(crate) type Running = Box<dyn Any>;

/// What enqueues a stamp job at each call.
pub(crate) type Enqueuer = Box<dyn FnMut() -> Result<()>>;

/// A job framework with its settings.
///
/// There are two jobs: a no-op with a number, which calls
/// `worker::performed`, and a stamp, which calls `worker::began`.
pub(crate) trait System {
    /// Creates its tables.
    fn migrate(&self, address: &Address) -> Result<()>;

    /// How long it takes so many callers to enqueue so many no-ops each, one
    /// at a time. Connecting does not count.
    fn enqueue_singly(&self, address: &Address, callers: u32, each: u32) -> Result<Duration>;

    /// How long it takes to enqueue so many no-ops, [`BULK`] a call; `None`
    /// where there is no such call.
    fn enqueue_in_bulk(&self, address: &Address, jobs: u32) -> Result<Option<Duration>>;

    /// Puts so many no-ops there, however it goes fastest.
    fn fill(&self, address: &Address, jobs: u32) -> Result<()>;

    /// A connected enqueuer of stamps.
    fn enqueuer(&self, address: &Address) -> Result<Enqueuer>;

    /// A connected worker that performs so many jobs at once.
    fn worker(&self, address: &Address, workers: u32) -> Result<Start>;

    /// An SQL expression, true as long as a job has not ended.
    fn unfinished(&self) -> &'static str;
}

/// Does the same on so many threads with something of their own each, and
/// tells how long it took them.
fn at_once<T: Send>(own: Vec<T>, work: impl Fn(T) -> Result<()> + Sync) -> Result<Duration> {
    let work = &work;
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let threads = own.into_iter().map(|own| scope.spawn(move || work(own)));
        let threads: Vec<_> = threads.collect();
        threads.into_iter().try_for_each(|thread| {
            let result = thread.join();
            result.unwrap_or_else(|_| Err(anyhow!("a thread that enqueues panicked")))
        })
    })?;
    Ok(begun.elapsed())
}
