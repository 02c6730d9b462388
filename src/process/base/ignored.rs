//! Signals that were ignored when the program started, as `nohup` and shells
//! that start something in the background have it.
#![allow(
    unsafe_code,
    reason = "the handling of a signal is the operating system's; each call says why it is sound"
)]

use libc::{SIG_DFL, SIG_IGN, SIGCHLD, SIGHUP, SIGINT, SIGTERM, c_int};

/// What was ignored of the signals that end a program in good order.
#[derive(Debug)]
pub(crate) struct Ignored {
    hangup: bool,
}

impl Ignored {
    /// Ends that they are ignored, which would look as if somebody handled
    /// them: who sends one of them by name means it. With SIGCHLD ignored, the
    /// system would not keep how a child ended.
    pub(crate) fn lift() -> Self {
        let hangup = is_ignored(SIGHUP);
        for signal in [SIGINT, SIGTERM, SIGHUP, SIGCHLD] {
            if is_ignored(signal) {
                set(signal, SIG_DFL);
            }
        }
        Ignored { hangup }
    }

    /// Under `nohup`, a program outlives its terminal.
    pub(crate) fn restore(&self) {
        if self.hangup {
            set(SIGHUP, SIG_IGN);
        }
    }
}

fn is_ignored(signal: c_int) -> bool {
    // SAFETY: all zeroes are a valid `sigaction`, which the call fills in; a
    // null pointer means that nothing is to be changed.
    unsafe {
        let mut action = std::mem::zeroed::<libc::sigaction>();
        libc::sigaction(signal, std::ptr::null(), &raw mut action) == 0
            && action.sa_sigaction == SIG_IGN
    }
}

fn set(signal: c_int, how: libc::sighandler_t) {
    // SAFETY: both ways to handle a signal that are passed here run no code
    // of ours.
    unsafe {
        libc::signal(signal, how);
    }
}
