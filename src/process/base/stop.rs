//! The signal that every loop waits on.

use crate::clock;
use crate::error::{Error, Result};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use rustix::process::{Pid, getppid};
use std::fs::File;
use std::io;
use std::os::unix::net::UnixListener;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Requests a stop of loops, gracefully or now. Clones share the signal.
#[derive(Debug, Clone)]
pub struct Stop {
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
    /// True if a supervisor must replace its children.
    rollout: Arc<AtomicBool>,
    /// The times at which the stop was requested: gracefully, and now.
    asked: Arc<[OnceLock<Instant>; 2]>,
}

impl Stop {
    #[doc(hidden)]
    pub fn new() -> Self {
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

    #[doc(hidden)]
    pub fn is_stopped(&self) -> bool {
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
pub fn spawn<T: Send + 'static>(
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

fn refused(source: io::Error) -> Error {
    Error::Io {
        action: "start a thread of",
        path: PathBuf::from("windlass"),
        source,
    }
}

/// Waits for a thread to end. Its panic was reported by the panic hook.
pub fn join(handle: JoinHandle<()>) {
    let _ = handle.join();
}

/// Waits up to `patience` for threads to end. Returns `false` if some continue; they end when what
/// they wait for does.
pub fn join_within(mut handles: Vec<JoinHandle<()>>, patience: Duration) -> bool {
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

// --- The environment that a supervisor gives to its programs ---

/// The token of a child, held as long as the child lives. A program that a job of the child starts
/// inherits the variable, and finds that the token is taken.
struct Held {
    token: String,
    /// The supervisor, or the wrapper that it started.
    parent: Option<Pid>,
    /// No other process can listen under this name.
    _name: Option<UnixListener>,
}

impl Held {
    fn take(token: String) -> Option<Self> {
        let name = match listen(&format!("windlass-child-{token}")) {
            Ok(name) => name,
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => return None,
            // Such names do not exist on this system: then the two cannot be distinguished.
            Err(_) => None,
        };
        Some(Held {
            token,
            parent: getppid(),
            _name: name,
        })
    }
}

#[cfg(target_os = "linux")]
fn listen(name: &str) -> io::Result<Option<UnixListener>> {
    use std::os::linux::net::SocketAddrExt as _;
    let address = std::os::unix::net::SocketAddr::from_abstract_name(name)?;
    UnixListener::bind_addr(&address).map(Some)
}

#[cfg(not(target_os = "linux"))]
fn listen(_name: &str) -> io::Result<Option<UnixListener>> {
    Ok(None)
}

fn held() -> Option<&'static Held> {
    static HELD: OnceLock<Option<Held>> = OnceLock::new();
    let held = HELD.get_or_init(|| variable(TOKEN).and_then(Held::take));
    held.as_ref()
}

/// Returns whether this program is a supervisor's child.
pub(crate) fn is_supervised() -> bool {
    held().is_some()
}

/// Returns whether the supervisor that started this program is still there to see it end.
pub(crate) fn is_watched() -> bool {
    held().is_some_and(|held| held.parent == getppid())
}

/// Takes the pipe of the supervisor from the standard input, which becomes empty. Otherwise a program
/// that a job starts would inherit the pipe, and read what the supervisor writes.
///
/// # Errors
/// Returns an error if the standard input is closed, or there is no `/dev/null`.
pub(crate) fn take_pipe() -> io::Result<File> {
    let pipe = rustix::io::fcntl_dupfd_cloexec(io::stdin(), LEAST_DESCRIPTOR)?;
    rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
    Ok(pipe.into())
}

/// Above those of the standard input and outputs.
const LEAST_DESCRIPTOR: i32 = 3;

/// Returns whether it starts without claiming.
pub(crate) fn begins_quiet() -> bool {
    is_supervised() && variable(BEGIN_QUIET).is_some()
}

/// Returns the supervisor's id in the process table, for display.
pub(crate) fn supervisor_id() -> Option<i64> {
    variable(SUPERVISOR)
        .filter(|_| is_supervised())?
        .parse()
        .ok()
}

/// Returns the token that all names of this program's processes contain. The supervisor chooses it,
/// and finds the rows by it when the program has died.
pub(crate) fn token() -> &'static str {
    static OWN: OnceLock<String> = OnceLock::new();
    held().map_or_else(|| OWN.get_or_init(new_token), |held| &held.token)
}

// --- The environment variables and bytes that a supervisor passes to its children ---

/// The byte that a supervisor writes to the standard input of its children. A signal is not used,
/// because it would suspend a program that has not installed its handlers yet, or that is not a
/// Windlass worker.
pub(crate) const QUIET: u8 = b'q';

pub(crate) const RESUME: u8 = b'r';

/// Holds a child's token, which the names of its processes contain.
pub(crate) const TOKEN: &str = "WINDLASS_CHILD_TOKEN";

pub(crate) const SUPERVISOR: &str = "WINDLASS_SUPERVISOR_ID";

/// Set for a child that must not claim before the supervisor resumes it.
pub(crate) const BEGIN_QUIET: &str = "WINDLASS_BEGIN_QUIET";

/// The name of the deployment, for schedulers that are given none.
pub const REVISION: &str = "WINDLASS_REVISION";

/// The variables of the service manager, which are for one process only.
pub(crate) const OF_THE_MANAGER: [&str; 3] = ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"];

#[expect(
    clippy::disallowed_methods,
    reason = "variables are how a supervisor configures its child"
)]
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Returns whether a service manager expects notifications from this program.
pub(crate) fn has_manager() -> bool {
    variable(OF_THE_MANAGER[0]).is_some()
}

pub(crate) fn new_token() -> String {
    format!("{:016x}{:016x}", fastrand::u64(..), fastrand::u64(..))
}

// --- The exit codes of processes ---

/// The time that a supervisor may take to end after the shutdown timeout.
pub(crate) const KILL_GRACE: Duration = Duration::from_secs(5);

/// The exit code of a program that ended because a job overran its timeout, as with `timeout(1)`.
pub(crate) const TIMED_OUT: u8 = 124;

/// `EX_SOFTWARE` of `sysexits.h`.
pub const BROKEN: u8 = 70;

/// `EX_TEMPFAIL` of `sysexits.h`.
pub(crate) const CUT_SHORT: u8 = 75;

/// The first code that `sysexits.h` leaves free.
pub(crate) const RECYCLED: u8 = 79;

/// Ends the program at once, without running the exit functions that a library may have registered:
/// they could wait for the very job that does not end.
pub(crate) fn end_program(code: u8) -> ! {
    signal_hook::low_level::exit(i32::from(code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn a_token_belongs_to_the_first_that_takes_it() {
        let token = new_token();
        let first = Held::take(token.clone());
        assert!(first.is_some());
        assert!(Held::take(token.clone()).is_none());
        drop(first);
        assert!(Held::take(token).is_some());
    }
}
