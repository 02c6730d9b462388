//! The environment variables by which a supervisor and its children talk.

/// What a supervisor writes to the standard input of its children. A signal
/// would not do: a program that has not yet installed its handlers, or that
/// is none of ours, would be suspended by it.
pub(crate) const QUIET: u8 = b'q';

pub(crate) const RESUME: u8 = b'r';

/// Gives a child the token that the names of its processes contain.
pub(crate) const TOKEN: &str = "WINDLASS_CHILD_TOKEN";

pub(crate) const SUPERVISOR: &str = "WINDLASS_SUPERVISOR_ID";

/// Set for a child that must not claim before the supervisor resumes it.
pub(crate) const BEGIN_QUIET: &str = "WINDLASS_BEGIN_QUIET";

/// Variables of the service manager, for one process only.
pub(crate) const OF_THE_MANAGER: [&str; 3] = ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"];

#[expect(
    clippy::disallowed_methods,
    reason = "how a supervisor speaks to its child"
)]
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Whether a service manager wants to hear from this program.
pub(crate) fn has_manager() -> bool {
    variable(OF_THE_MANAGER[0]).is_some()
}

pub(crate) fn new_token() -> String {
    format!("{:016x}{:016x}", fastrand::u64(..), fastrand::u64(..))
}
