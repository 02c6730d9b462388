//! Signals that were ignored when the program started, as under `nohup` and for background commands
//! of some shells.
#![allow(
    unsafe_code,
    reason = "the handling of a signal is the operating system's; each call says why it is sound"
)]

use libc::{SIG_DFL, SIG_IGN, SIGCHLD, SIGHUP, SIGINT, SIGTERM, c_int};

/// Which of the signals that stop a program gracefully were ignored.
#[derive(Debug)]
pub(crate) struct IgnoredSignals {
    hangup: bool,
}

impl IgnoredSignals {
    /// Restores the default of ignored signals. A signal that is sent by name is meant for this
    /// program, and an ignored one would look as if it were handled. With SIGCHLD ignored, the
    /// system would not keep the exit status of children.
    pub(crate) fn lift() -> Self {
        let hangup = is_ignored(SIGHUP);
        for signal in [SIGINT, SIGTERM, SIGHUP, SIGCHLD] {
            if is_ignored(signal) {
                set(signal, SIG_DFL);
            }
        }
        IgnoredSignals { hangup }
    }

    /// Ignores them again.
    pub(crate) fn restore(&self) {
        if self.hangup {
            set(SIGHUP, SIG_IGN);
        }
    }

    /// Ignores SIGHUP again if it was ignored: under `nohup`, a program outlives its terminal.
    /// Otherwise takes its handler away, and returns `true`: the caller installs another one.
    pub(crate) fn release_hangup(&self) -> bool {
        set(SIGHUP, if self.hangup { SIG_IGN } else { SIG_DFL });
        !self.hangup
    }
}

fn is_ignored(signal: c_int) -> bool {
    // SAFETY: all zeroes are a valid `sigaction`, which the call fills in; a null pointer means
    // that nothing is changed.
    unsafe {
        let mut action = std::mem::zeroed::<libc::sigaction>();
        libc::sigaction(signal, std::ptr::null(), &raw mut action) == 0
            && action.sa_sigaction == SIG_IGN
    }
}

fn set(signal: c_int, how: libc::sighandler_t) {
    // SAFETY: both handlers that are passed here run no code of this program.
    unsafe {
        libc::signal(signal, how);
    }
}
