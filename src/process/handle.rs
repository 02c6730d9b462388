//! Holding on to what runs within this program.

use super::children;
use super::hooked::Hooked;
use super::stop::Stop;
use super::threads;
use crate::error::Result;
use crate::job::JobId;
use crossbeam_channel::{Receiver, RecvTimeoutError, bounded};
use std::process::ExitCode;
use std::time::Duration;

/// How a process came to its end.
#[derive(Debug, Default)]
pub(crate) struct Ending {
    pub(crate) unfinished: Vec<JobId>,
    /// A child had to be killed, or left jobs behind.
    pub(crate) cut_short: bool,
}

/// What a stop left behind.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stopped {
    /// The jobs that were still running at the deadline, or ended with the
    /// stop. They were given back, or failed if they may run at most once. A
    /// supervisor lists those of its own threads, not those of its children.
    pub unfinished: Vec<JobId>,
    cut_short: bool,
    broken: bool,
    recycled: bool,
}

impl Stopped {
    /// Whether every running job came to its end, those of children too.
    pub fn is_drained(&self) -> bool {
        self.unfinished.is_empty() && !self.cut_short
    }

    /// Whether the process ended because a thread of the framework panicked or
    /// the database was lost for good.
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// Whether the worker ended to make room for a new one; see
    /// [`Recycle`](crate::Recycle).
    pub fn is_recycled(&self) -> bool {
        self.recycled
    }

    /// 0 when drained, 75 (try again) when cut short, 70 when broken. A
    /// supervisor's child that was recycled says so with 79, so that the next
    /// is started without any delay.
    pub fn exit_code(&self) -> ExitCode {
        if self.broken {
            ExitCode::from(BROKEN)
        } else if self.recycled && self.is_drained() && children::is_supervised() {
            ExitCode::from(RECYCLED)
        } else if self.is_drained() {
            ExitCode::SUCCESS
        } else {
            ExitCode::from(CUT_SHORT)
        }
    }
}

/// `EX_SOFTWARE` of `sysexits.h`.
pub(crate) const BROKEN: u8 = 70;

/// `EX_TEMPFAIL` of `sysexits.h`.
pub(crate) const CUT_SHORT: u8 = 75;

/// The first that `sysexits.h` leaves free.
pub(crate) const RECYCLED: u8 = 79;

/// A worker, dispatcher or supervisor that runs on threads of this program.
/// Dropping it asks it to stop and waits.
#[derive(Debug)]
pub struct Handle {
    stop: Stop,
    ending: Receiver<Ending>,
    ended: Option<Stopped>,
}

impl Handle {
    /// Starts the thread that runs `work` on what `make` gives. The thread
    /// comes first, so that nothing runs yet if it cannot be had; when `make`
    /// or a hook fails, the stop ends whatever has begun.
    pub(crate) fn start<T: Send + 'static>(
        name: &'static str,
        stop: &Stop,
        hooked: Hooked,
        make: impl FnOnce() -> Result<T>,
        work: impl FnOnce(T, &Stop) -> Ending + Send + 'static,
    ) -> Result<Handle> {
        let (sender, ending) = bounded(1);
        let (made, parts) = bounded(1);
        threads::spawn(name, {
            let (stop, hooked) = (stop.clone(), hooked.clone());
            move || {
                let ending = parts.recv().ok().and_then(|parts| {
                    let awaiting = hooked.await_stop(&stop);
                    let ending = threads::guard(name, &stop, || work(parts, &stop));
                    // Whoever waits for it waits for no more than the end.
                    stop.stop();
                    hooked.exit(awaiting, &stop);
                    ending
                });
                let _ = sender.send(ending.unwrap_or_default());
            }
        })?;
        let handle = Handle {
            stop: stop.clone(),
            ending,
            ended: None,
        };
        match hooked.start().and_then(|()| make()) {
            Ok(parts) => {
                let _ = made.send(parts);
                Ok(handle)
            }
            Err(error) => {
                drop(made);
                Err(error)
            }
        }
    }

    /// Asks for a graceful stop and returns at once.
    pub fn stop(&self) {
        self.stop.stop();
    }

    /// Lets workers claim no more; what they run goes on, and they stay. A
    /// dispatcher takes no notice, and a supervisor passes it on to all that
    /// it runs.
    pub fn quiet(&self) {
        self.stop.quiet();
    }

    /// Lets workers claim again.
    pub fn resume(&self) {
        self.stop.resume();
    }

    /// Asks for an end now: running jobs are not waited for.
    pub fn stop_now(&self) {
        self.stop.stop_now();
    }

    /// Waits up to `timeout` for the end. `None`: it still runs.
    pub fn join(&mut self, timeout: Duration) -> Option<Stopped> {
        if self.ended.is_none() {
            let ending = match self.ending.recv_timeout(timeout) {
                Ok(ending) => ending,
                Err(RecvTimeoutError::Timeout) => return None,
                // Its thread is gone without a word.
                Err(RecvTimeoutError::Disconnected) => {
                    self.stop.break_down();
                    Ending::default()
                }
            };
            self.ended = Some(Stopped {
                unfinished: ending.unfinished,
                cut_short: ending.cut_short,
                broken: self.stop.is_broken(),
                recycled: self.stop.is_recycled(),
            });
        }
        self.ended.clone()
    }

    /// Waits for the end, however long.
    pub(crate) fn wait(mut self) -> Stopped {
        loop {
            if let Some(stopped) = self.join(Duration::from_secs(3600)) {
                return stopped;
            }
        }
    }

    pub(crate) fn stopper(&self) -> Stop {
        self.stop.clone()
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.join(Duration::ZERO).is_some()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.stop.stop();
        while self.join(Duration::from_secs(3600)).is_none() {}
    }
}
