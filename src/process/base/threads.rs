//! Starting and joining the named threads of a process.

use crate::clock;
use crate::error::{Error, Result};
use crate::process::base::stop::Stop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

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
