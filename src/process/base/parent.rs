//! What this program knows of the supervisor that started it.

use crate::process::base::environment::{BEGIN_QUIET, SUPERVISOR, TOKEN, new_token, variable};
use std::os::unix::net::UnixListener;
use std::sync::OnceLock;

/// The token of a child, for as long as the child lives. A program that a job
/// of the child starts inherits the variable, and finds the token taken.
struct Held {
    token: String,
    /// No other process can listen under this name.
    _name: Option<UnixListener>,
}

impl Held {
    fn take(token: String) -> Option<Self> {
        match listen(&format!("windlass-child-{token}")) {
            Ok(name) => Some(Held { token, _name: name }),
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => None,
            // No such names here: then nothing tells the two from each other.
            Err(_) => Some(Held { token, _name: None }),
        }
    }
}

#[cfg(target_os = "linux")]
fn listen(name: &str) -> std::io::Result<Option<UnixListener>> {
    use std::os::linux::net::SocketAddrExt as _;
    let address = std::os::unix::net::SocketAddr::from_abstract_name(name)?;
    UnixListener::bind_addr(&address).map(Some)
}

#[cfg(not(target_os = "linux"))]
fn listen(_name: &str) -> std::io::Result<Option<UnixListener>> {
    Ok(None)
}

fn held() -> Option<&'static str> {
    static HELD: OnceLock<Option<Held>> = OnceLock::new();
    let held = HELD.get_or_init(|| variable(TOKEN).and_then(Held::take));
    held.as_ref().map(|held| held.token.as_str())
}

/// Whether this program is a supervisor's child.
pub(crate) fn is_supervised() -> bool {
    held().is_some()
}

/// Whether it begins without claiming.
pub(crate) fn begins_quiet() -> bool {
    is_supervised() && variable(BEGIN_QUIET).is_some()
}

/// The supervisor's id in the process table, for people.
pub(crate) fn supervisor_id() -> Option<i64> {
    variable(SUPERVISOR)
        .filter(|_| is_supervised())?
        .parse()
        .ok()
}

/// What all names of this program's processes contain: given by the
/// supervisor, which finds them by it when the program has died.
pub(crate) fn token() -> &'static str {
    static OWN: OnceLock<String> = OnceLock::new();
    held().unwrap_or_else(|| OWN.get_or_init(new_token))
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
