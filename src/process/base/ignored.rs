//! Signals that were ignored when the program started, as under `nohup` and for background commands
//! of some shells.
#![allow(
    unsafe_code,
    reason = "the handling of a signal is the operating system's; each call says why it is sound"
)]

use libc::{SIG_DFL, SIG_IGN, SIGCHLD, SIGINT, SIGTERM, c_int};

/// Restores the default of ignored signals. A signal that is sent by name is meant for this program,
/// and an ignored one would look as if it were handled. With SIGCHLD ignored, the system would not
/// keep the exit status of children. SIGHUP stays ignored: under `nohup`, a program outlives its
/// terminal.
pub(crate) fn lift() {
    for signal in [SIGINT, SIGTERM, SIGCHLD] {
        if is_ignored(signal) {
            reset(signal);
        }
    }
}

pub(crate) fn is_ignored(signal: c_int) -> bool {
    // SAFETY: all zeroes are a valid `sigaction`, which the call fills in; a null pointer means
    // that nothing is changed.
    unsafe {
        let mut action = std::mem::zeroed::<libc::sigaction>();
        libc::sigaction(signal, std::ptr::null(), &raw mut action) == 0
            && action.sa_sigaction == SIG_IGN
    }
}

fn reset(signal: c_int) {
    // SAFETY: the default runs no code of this program.
    unsafe {
        libc::signal(signal, SIG_DFL);
    }
}
