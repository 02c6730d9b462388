//! What the first process of a container, or any that adopts, must do: reap
//! what others have left behind.

use rustix::process::{WaitOptions, wait};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// Whether the system makes this process the parent of orphans.
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

/// Reaps a child that has ended, whoever has started it. The caller must know
/// its own by their process id: nobody else can wait for this one any more.
pub(crate) fn reap() -> Option<(u32, ExitStatus)> {
    let (pid, status) = wait(WaitOptions::NOHANG).ok().flatten()?;
    let pid = u32::try_from(pid.as_raw_nonzero().get()).ok()?;
    Some((pid, ExitStatus::from_raw(status.as_raw())))
}
