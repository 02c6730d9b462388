//! What the supervisor that started this program passed to it.

use rustix::process::{Pid, getppid};
use std::fs::File;
use std::io;
use std::os::unix::net::UnixListener;
use std::sync::OnceLock;
use std::time::Duration;

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
pub(crate) const REVISION: &str = "WINDLASS_REVISION";

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

/// How long a supervisor may take to end after the shutdown timeout.
pub(crate) const KILL_GRACE: Duration = Duration::from_secs(5);

/// The exit code of a program that ended because a job overran its timeout, as with `timeout(1)`.
pub(crate) const TIMED_OUT: u8 = 124;

/// `EX_SOFTWARE` of `sysexits.h`.
pub(crate) const BROKEN: u8 = 70;

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
