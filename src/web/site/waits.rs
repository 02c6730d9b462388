//! Requests that wait for the end of a job.

use crossbeam_channel::{Receiver, Sender, bounded};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// The most requests that wait at once: they hold connections that the pages need.
const MOST: usize = 256;

/// A job of one of the databases.
type WaitedJob = (usize, i64);

#[derive(Debug, Default)]
struct Waiting {
    senders: HashMap<WaitedJob, Vec<oneshot::Sender<()>>>,
    is_stopped: bool,
}

/// Which requests wait for which job.
#[derive(Debug)]
pub(crate) struct Waits {
    waiting: Mutex<Waiting>,
    wake: Sender<()>,
    pub(crate) woken: Receiver<()>,
}

impl Default for Waits {
    fn default() -> Self {
        // One that is not yet received is as good as many.
        let (wake, woken) = bounded(1);
        Waits {
            waiting: Mutex::default(),
            wake,
            woken,
        }
    }
}

impl Waits {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns what is completed when the job has ended, or the server stops. `None`: too many wait,
    /// or the server stops.
    pub(crate) fn of(&self, database: usize, job: i64) -> Option<oneshot::Receiver<()>> {
        let mut waiting = self.waiting();
        let count: usize = waiting.senders.values().map(Vec::len).sum();
        if count >= MOST || waiting.is_stopped {
            return None;
        }
        let (sender, receiver) = oneshot::channel();
        let senders = waiting.senders.entry((database, job)).or_default();
        senders.push(sender);
        let _ = self.wake.try_send(());
        Some(receiver)
    }

    /// Ends all waits, and the thread.
    pub(crate) fn stop(&self) {
        let mut waiting = self.waiting();
        waiting.is_stopped = true;
        waiting.senders.clear();
        let _ = self.wake.try_send(());
    }

    /// Returns the jobs of each database, without those for which nothing waits any more. `None` after
    /// the stop.
    pub(crate) fn jobs(&self) -> Option<HashMap<usize, Vec<i64>>> {
        let mut waiting = self.waiting();
        waiting.senders.retain(|_, senders| {
            senders.retain(|sender| !sender.is_closed());
            !senders.is_empty()
        });
        let mut jobs: HashMap<usize, Vec<i64>> = HashMap::new();
        for (database, job) in waiting.senders.keys() {
            jobs.entry(*database).or_default().push(*job);
        }
        (!waiting.is_stopped).then_some(jobs)
    }

    pub(crate) fn ended(&self, database: usize, jobs: impl Iterator<Item = i64>) {
        let mut waiting = self.waiting();
        for job in jobs {
            for sender in waiting.senders.remove(&(database, job)).unwrap_or_default() {
                let _ = sender.send(());
            }
        }
    }
}
