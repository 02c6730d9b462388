//! The signal that every loop waits on.

use crate::clock;
use crate::error::{Error, Result};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Requests a stop of loops, gracefully or now. Clones share the signal.
#[derive(Debug, Clone)]
pub(crate) struct Stop {
    /// Dropping the sender wakes all waiting threads, however many and whenever.
    sender: Arc<Mutex<Option<Sender<()>>>>,
    receiver: Receiver<()>,
    now: Arc<AtomicBool>,
    /// For jobs, which only check it.
    flag: Arc<AtomicBool>,
    broken: Arc<AtomicBool>,
    quiet: Arc<AtomicBool>,
    /// Notified of changes of the quiet mode: the claiming loop, and the heartbeat.
    turned: [(Sender<()>, Receiver<()>); 2],
    recycled: Arc<AtomicBool>,
    /// Whether a supervisor must replace its children.
    rollout: Arc<AtomicBool>,
    /// When the stop was requested: gracefully, and now.
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
            rollout: Arc::default(),
            asked: Arc::default(),
        }
    }

    /// Stops claiming until [`resume`](Self::resume); everything else continues.
    pub(crate) fn quiet(&self) {
        self.set_quiet(true);
    }

    pub(crate) fn resume(&self) {
        self.set_quiet(false);
    }

    pub(crate) fn set_quiet(&self, is_quiet: bool) {
        if self.quiet.swap(is_quiet, Ordering::Relaxed) != is_quiet {
            self.signal_turn();
        }
    }

    /// Signals the claiming loop and the heartbeat that something about the process has changed.
    pub(crate) fn signal_turn(&self) {
        for (sender, _) in &self.turned {
            // A full channel means that a change is already signalled.
            let _ = sender.try_send(());
        }
    }

    /// Requests that a supervisor replaces its children one by one.
    pub(crate) fn request_rollout(&self) {
        self.rollout.store(true, Ordering::SeqCst);
    }

    /// Returns whether that was requested, and forgets it.
    pub(crate) fn take_rollout(&self) -> bool {
        self.rollout.swap(false, Ordering::SeqCst)
    }

    pub(crate) fn is_quiet(&self) -> bool {
        self.quiet.load(Ordering::Relaxed)
    }

    /// Returns a channel for `select!` in one thread, signalled when the quiet mode changes.
    pub(crate) fn turned(&self) -> &Receiver<()> {
        &self.turned[0].1
    }

    /// Returns the same for the heartbeat.
    pub(crate) fn turned_for_heartbeat(&self) -> &Receiver<()> {
        &self.turned[1].1
    }

    /// Stops gracefully, because a new process replaces this one.
    pub(crate) fn recycle(&self) {
        self.recycled.store(true, Ordering::Relaxed);
        self.stop();
    }

    pub(crate) fn is_recycled(&self) -> bool {
        self.recycled.load(Ordering::Relaxed)
    }

    /// Stops gracefully. A second call has no effect.
    pub(crate) fn stop(&self) {
        self.asked[0].get_or_init(clock::instant);
        self.flag.store(true, Ordering::Relaxed);
        let mut sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner);
        *sender = None;
    }

    /// Stops without waiting for running jobs.
    pub(crate) fn stop_now(&self) {
        self.asked[1].get_or_init(clock::instant);
        self.now.store(true, Ordering::Relaxed);
        self.stop();
    }

    /// Stops gracefully, because a thread of the framework panicked.
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

    /// Returns when a stop was requested, if it was.
    pub(crate) fn asked_at(&self) -> Option<Instant> {
        self.asked[0].get().copied()
    }

    /// Returns when an immediate stop was requested, if it was.
    pub(crate) fn asked_now_at(&self) -> Option<Instant> {
        self.asked[1].get().copied()
    }

    /// Waits for the signal. Returns `false` if `timeout` passed first.
    pub(crate) fn wait(&self, timeout: Duration) -> bool {
        self.receiver.recv_timeout(timeout) == Err(RecvTimeoutError::Disconnected)
    }

    /// Returns a channel for `select!` that is disconnected by the stop.
    pub(crate) fn channel(&self) -> &Receiver<()> {
        &self.receiver
    }

    pub(crate) fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.flag)
    }
}

// --- Starting and joining the named threads of a process ---

/// Starts a thread with the name `windlass-<name>`.
pub(crate) fn spawn<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>> {
    std::thread::Builder::new()
        .name(format!("windlass-{name}"))
        .spawn(work)
        .map_err(refused)
}

/// Starts a thread without which the process is only half alive: when it panics, the process stops
/// gracefully and reports the panic at its end.
pub(crate) fn spawn_vital(
    name: &str,
    stop: &Stop,
    work: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>> {
    let stop = stop.clone();
    let thread = name.to_owned();
    spawn(name, move || {
        guard(&thread, &stop, work);
    })
}

/// Runs the work of such a thread. Returns `None` if it panicked.
pub(crate) fn guard<T>(thread: &str, stop: &Stop, work: impl FnOnce() -> T) -> Option<T> {
    let result = catch_unwind(AssertUnwindSafe(work)).ok();
    if result.is_none() {
        log::error!(thread; "the thread windlass-{thread} panicked: this process stops");
        stop.break_down();
    }
    result
}

fn refused(source: std::io::Error) -> Error {
    Error::Io {
        action: "start a thread of",
        path: PathBuf::from("windlass"),
        source,
    }
}

/// Waits for a thread to end. Its panic was reported by the panic hook.
pub(crate) fn join(handle: JoinHandle<()>) {
    let _ = handle.join();
}

/// Waits up to `patience` for threads to end. Returns `false` if some continue; they end when what
/// they wait for does.
pub(crate) fn join_within(mut handles: Vec<JoinHandle<()>>, patience: Duration) -> bool {
    let deadline = clock::deadline(patience);
    join_until(&mut handles, deadline, &Stop::new(), || false)
}

/// Waits for threads to end, until the deadline, `give_up`, or `is_vain`; those that still run stay
/// in `handles`. The standard library has no join with a deadline, so this checks every few
/// milliseconds, only while stopping.
pub(crate) fn join_until(
    handles: &mut Vec<JoinHandle<()>>,
    deadline: Instant,
    give_up: &Stop,
    is_vain: impl Fn() -> bool,
) -> bool {
    while let Some(handle) = handles.last() {
        if handle.is_finished() {
            handles.pop().into_iter().for_each(join);
        } else if give_up.is_now() || clock::instant() >= deadline || is_vain() {
            return false;
        } else {
            clock::nap(Duration::from_millis(2));
        }
    }
    true
}
