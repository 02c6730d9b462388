//! The environment variables and bytes that a supervisor passes to its children.

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
