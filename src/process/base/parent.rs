//! What the supervisor that started this program passed to it.

use crate::process::base::environment::{BEGIN_QUIET, SUPERVISOR, TOKEN, new_token, variable};
use rustix::process::{Pid, getppid};
use std::fs::File;
use std::io;
use std::os::unix::net::UnixListener;
use std::sync::OnceLock;

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
