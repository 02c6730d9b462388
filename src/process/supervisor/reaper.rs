//! Reaps processes that others have left behind, as the first process of a container, or any that
//! adopts orphans, must do.

use rustix::process::{WaitOptions, wait};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// Returns whether the system makes this process the parent of orphans.
pub(crate) fn are_adopted() -> bool {
    std::process::id() == 1 || is_subreaper()
}

#[cfg(target_os = "linux")]
fn is_subreaper() -> bool {
    matches!(rustix::process::child_subreaper(), Ok(Some(_)))
}

#[cfg(not(target_os = "linux"))]
fn is_subreaper() -> bool {
    false
}

/// Reaps a child that has ended, whichever code has started it. The caller must compare the process
/// id with those of its own children, because no other code can wait for this one any more.
pub(crate) fn reap() -> Option<(u32, ExitStatus)> {
    let (pid, status) = wait(WaitOptions::NOHANG).ok().flatten()?;
    let pid = u32::try_from(pid.as_raw_nonzero().get()).ok()?;
    Some((pid, ExitStatus::from_raw(status.as_raw())))
}
