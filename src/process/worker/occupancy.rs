//! How many jobs are with the threads of a worker.

use crossbeam_channel::Sender;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Counts the jobs that are with a thread, or on their way to one.
#[derive(Debug)]
pub(crate) struct Occupancy {
    threads: AtomicUsize,
    /// How many threads run: more than `threads` while some finish their last job.
    running: AtomicUsize,
    busy: AtomicUsize,
    /// When this few jobs are left, the poller is notified.
    low: AtomicUsize,
    /// Notified when so few are left.
    rested: Sender<()>,
}

impl Occupancy {
    pub(crate) fn new(rested: Sender<()>) -> Self {
        Occupancy {
            threads: AtomicUsize::new(1),
            running: AtomicUsize::new(0),
            busy: AtomicUsize::new(0),
            low: AtomicUsize::new(0),
            rested,
        }
    }

    /// Returns how many jobs are with a thread, or on their way to one.
    pub(crate) fn busy(&self) -> usize {
        self.busy.load(Ordering::SeqCst)
    }

    /// Returns how many threads have no job and none on its way to them.
    pub(crate) fn idle(&self) -> usize {
        self.threads().saturating_sub(self.busy())
    }

    /// Returns for how many threads to claim.
    pub(crate) fn threads(&self) -> usize {
        self.threads.load(Ordering::SeqCst)
    }

    /// Sets for how many threads to claim, at least 1, and notifies the poller.
    pub(crate) fn set_threads(&self, threads: usize) {
        self.threads.store(threads, Ordering::SeqCst);
        self.tell_at(threads.saturating_sub(1));
        self.tell();
    }

    /// Returns how many threads there are, with those that end after their job.
    pub(crate) fn running(&self) -> usize {
        self.running.load(Ordering::SeqCst).max(self.threads())
    }

    /// Counts a thread that starts.
    pub(crate) fn arrive(&self) {
        self.running.fetch_add(1, Ordering::SeqCst);
    }

    /// Counts a thread that has ended.
    pub(crate) fn leave(&self) {
        self.running.fetch_sub(1, Ordering::SeqCst);
    }

    /// Requests a notification when `low` jobs are left. The caller checks once more after that, in
    /// case that is so already.
    pub(crate) fn tell_at(&self, low: usize) {
        self.low.store(low, Ordering::SeqCst);
    }

    /// Counts jobs before they are sent to the threads.
    pub(crate) fn occupy(&self, jobs: usize) {
        self.busy.fetch_add(jobs, Ordering::SeqCst);
    }

    /// Notes that a thread has finished a job.
    pub(crate) fn rest(&self) {
        let left = self.busy.fetch_sub(1, Ordering::SeqCst) - 1;
        if left <= self.low.load(Ordering::SeqCst) {
            self.tell();
        }
    }

    /// Notifies the poller that it may claim more.
    pub(crate) fn tell(&self) {
        // A full channel holds a notification that the poller has yet to read.
        let _ = self.rested.try_send(());
    }
}

/// The thread of a limited job, kept free for the next job of its key until the outcome is written.
///
/// Without it, the poller would claim another job for the thread meanwhile, and one of the two
/// would wait behind the other.
#[derive(Debug)]
pub(crate) struct KeptThread {
    occupancy: Arc<Occupancy>,
    is_kept: AtomicBool,
}

impl KeptThread {
    /// Keeps a thread that is counted as busy.
    pub(crate) fn new(occupancy: &Arc<Occupancy>) -> Self {
        KeptThread {
            occupancy: Arc::clone(occupancy),
            is_kept: AtomicBool::new(true),
        }
    }

    /// Frees the thread, if it is still kept.
    pub(crate) fn free(&self) {
        if self.is_kept.swap(false, Ordering::SeqCst) {
            self.occupancy.rest();
        }
    }

    /// Leaves the thread to a job that is sent to it. Returns `false` if it is free already.
    pub(crate) fn pass_on(&self) -> bool {
        self.is_kept.swap(false, Ordering::SeqCst)
    }
}

impl Drop for KeptThread {
    fn drop(&mut self) {
        self.free();
    }
}
