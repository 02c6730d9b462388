//! The signal that every loop waits on.

use crate::clock;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Asks loops to stop: in good order, or now. Clones share the signal.
#[derive(Debug, Clone)]
pub(crate) struct Stop {
    /// Dropping the sender wakes all who wait, however many and whenever.
    sender: Arc<Mutex<Option<Sender<()>>>>,
    receiver: Receiver<()>,
    now: Arc<AtomicBool>,
    /// For jobs, which only ask.
    flag: Arc<AtomicBool>,
    broken: Arc<AtomicBool>,
    quiet: Arc<AtomicBool>,
    /// Told when that changes: the loop that claims, and the heartbeat.
    turned: [(Sender<()>, Receiver<()>); 2],
    recycled: Arc<AtomicBool>,
    /// When it was asked for: in good order, and now.
    asked: Arc<[OnceLock<Instant>; 2]>,
}

impl Stop {
    pub(crate) fn new() -> Self {
        let (sender, receiver) = bounded(0);
        Stop {
            sender: Arc::new(Mutex::new(Some(sender))),
            receiver,
            now: Arc::default(),
            flag: Arc::default(),
            broken: Arc::default(),
            quiet: Arc::default(),
            turned: [bounded(1), bounded(1)],
            recycled: Arc::default(),
            asked: Arc::default(),
        }
    }

    /// Nothing more is claimed until [`resume`](Self::resume); all else goes
    /// on.
    pub(crate) fn quiet(&self) {
        self.turn(true);
    }

    pub(crate) fn resume(&self) {
        self.turn(false);
    }

    pub(crate) fn turn(&self, quiet: bool) {
        if self.quiet.swap(quiet, Ordering::Relaxed) != quiet {
            for (sender, _) in &self.turned {
                // Full: it is known that something changed.
                let _ = sender.try_send(());
            }
        }
    }

    pub(crate) fn is_quiet(&self) -> bool {
        self.quiet.load(Ordering::Relaxed)
    }

    /// For `select!`, by one thread: it became quiet, or no longer is.
    pub(crate) fn turned(&self) -> &Receiver<()> {
        &self.turned[0].1
    }

    /// The same, for the heartbeat.
    pub(crate) fn turned_for_heartbeat(&self) -> &Receiver<()> {
        &self.turned[1].1
    }

    /// In good order, to make room for a new process.
    pub(crate) fn recycle(&self) {
        self.recycled.store(true, Ordering::Relaxed);
        self.stop();
    }

    pub(crate) fn is_recycled(&self) -> bool {
        self.recycled.load(Ordering::Relaxed)
    }

    /// In good order. Asking twice is asking once.
    pub(crate) fn stop(&self) {
        self.asked[0].get_or_init(clock::instant);
        self.flag.store(true, Ordering::Relaxed);
        let mut sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner);
        *sender = None;
    }

    /// Without waiting for what runs.
    pub(crate) fn stop_now(&self) {
        self.asked[1].get_or_init(clock::instant);
        self.now.store(true, Ordering::Relaxed);
        self.stop();
    }

    /// In good order, because a thread of the framework panicked.
    pub(crate) fn break_down(&self) {
        self.broken.store(true, Ordering::Relaxed);
        self.stop();
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Relaxed)
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.flag.load(Ordering::Relaxed)
    }

    pub(crate) fn is_now(&self) -> bool {
        self.now.load(Ordering::Relaxed)
    }

    /// When it was asked for, if it was.
    pub(crate) fn asked_at(&self) -> Option<Instant> {
        self.asked[0].get().copied()
    }

    /// When it was asked for without waiting, if it was.
    pub(crate) fn asked_now_at(&self) -> Option<Instant> {
        self.asked[1].get().copied()
    }

    /// Waits for the signal. False: the time was up first.
    pub(crate) fn wait(&self, timeout: Duration) -> bool {
        self.receiver.recv_timeout(timeout) == Err(RecvTimeoutError::Disconnected)
    }

    /// For `select!`: disconnected when stopped.
    pub(crate) fn channel(&self) -> &Receiver<()> {
        &self.receiver
    }

    pub(crate) fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.flag)
    }
}
