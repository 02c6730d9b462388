//! How a process ended.

use crate::job::id::JobId;
use crate::process::base::exit_codes::{BROKEN, CUT_SHORT, RECYCLED};
use crate::process::base::parent;
use std::process::ExitCode;

/// How the threads of a process ended.
#[derive(Debug, Default)]
pub(crate) struct ProcessEnd {
    pub(crate) unfinished: Vec<JobId>,
    /// A child had to be killed, or left jobs behind.
    pub(crate) cut_short: bool,
}

/// What a stop left behind.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stopped {
    /// The jobs that were still running at the deadline, or ended with the stop. They were
    /// released, or failed if they may run at most once. A supervisor lists the jobs of its own
    /// threads, not those of its children.
    pub unfinished: Vec<JobId>,
    pub(super) cut_short: bool,
    pub(super) broken: bool,
    pub(super) recycled: bool,
    pub(super) overdue: bool,
}

impl Stopped {
    /// Returns whether every running job finished, including those of child processes.
    pub fn is_drained(&self) -> bool {
        self.unfinished.is_empty() && !self.cut_short
    }

    /// Returns whether the stop took too long, for example because the database gave no answer, and
    /// was not waited for. Threads of the process may still run. Its claims are recovered like
    /// those of a process that died.
    pub fn is_overdue(&self) -> bool {
        self.overdue
    }

    /// Returns whether the process ended because a thread of the framework panicked or the database
    /// was permanently lost.
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// Returns whether the worker ended to be replaced by a new one; see
    /// [`Recycle`](crate::Recycle).
    pub fn is_recycled(&self) -> bool {
        self.recycled
    }

    /// Returns the exit code: 0 when drained, 75 (try again) when cut short, 70 when broken. A
    /// recycled child of a supervisor returns 79, so that its replacement starts without a delay.
    pub fn exit_code(&self) -> ExitCode {
        if self.broken {
            ExitCode::from(BROKEN)
        } else if self.recycled && self.is_drained() && parent::is_supervised() {
            ExitCode::from(RECYCLED)
        } else if self.is_drained() {
            ExitCode::SUCCESS
        } else {
            ExitCode::from(CUT_SHORT)
        }
    }
}
