//! Holding on to what runs within this program.

use crate::clock;
use crate::deadline::is_silent;
use crate::error::Result;
use crate::job::id::JobId;
use crate::process::base::context::ProcessContext;
use crate::process::base::exit_codes::{BROKEN, CUT_SHORT, RECYCLED};
use crate::process::base::liveness::Liveness;
use crate::process::base::run_hooks::Hooked;
use crate::process::base::stop::Stop;
use crate::process::base::{parent, threads};
use crossbeam_channel::{Receiver, bounded, select};
use std::process::ExitCode;
use std::time::{Duration, Instant};

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
    overdue: bool,
}

impl Stopped {
    /// Whether every running job came to its end, those of children too.
    pub fn is_drained(&self) -> bool {
        self.unfinished.is_empty() && !self.cut_short
    }

    /// Whether the stop took too long, because the database gave no answer for
    /// example, and was not waited for: threads of the process may still run.
    /// What it held is recovered like that of a process that died.
    pub fn is_overdue(&self) -> bool {
        self.overdue
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
        } else if self.recycled && self.is_drained() && parent::is_supervised() {
            ExitCode::from(RECYCLED)
        } else if self.is_drained() {
            ExitCode::SUCCESS
        } else {
            ExitCode::from(CUT_SHORT)
        }
    }
}

/// A worker, dispatcher or supervisor that runs on threads of this program.
/// Dropping it asks it to stop and waits, until the end or until the stop is
/// [overdue](Stopped::is_overdue).
#[derive(Debug)]
pub struct Handle {
    stop: Stop,
    ending: Receiver<Ending>,
    ended: Option<Stopped>,
    bounds: Bounds,
    liveness: Liveness,
}

/// How long a stop may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// What runs may go on for.
    pub(crate) shutdown_timeout: Duration,
    /// After that, to end what there is, while the database gives no answer.
    pub(crate) kill_grace: Duration,
}

/// The kill grace for all but supervisors.
pub(crate) const KILL_GRACE: Duration = Duration::from_secs(3);

/// The kill grace after a stop that is to wait for nothing.
const KILL_GRACE_NOW: Duration = Duration::from_secs(1);

/// The kill grace while the database answers, or hooks of the program run.
const LONG_KILL_GRACE: Duration = Duration::from_secs(20);

/// A database that takes so long to answer gives none.
const SILENT: Duration = Duration::from_millis(500);

/// How often it is looked at whether a stop takes too long.
const LOOK: Duration = Duration::from_millis(100);

impl Bounds {
    /// Of what runs no jobs.
    pub(crate) fn of_a_loop() -> Self {
        Bounds {
            shutdown_timeout: Duration::ZERO,
            kill_grace: KILL_GRACE,
        }
    }

    /// How much longer a stop may take. `None`: it was not asked for.
    fn left(self, stop: &Stop) -> Option<Duration> {
        let asked = stop.asked_at()?;
        let (mut kill_grace, mut kill_grace_now) = (self.kill_grace, KILL_GRACE_NOW);
        if !is_silent(SILENT) {
            (kill_grace, kill_grace_now) = (LONG_KILL_GRACE, LONG_KILL_GRACE);
        }
        let add = |at: Instant, more: Duration| at.checked_add(more);
        let gently = add(asked, self.shutdown_timeout.saturating_add(kill_grace));
        let now = stop.asked_now_at().and_then(|at| add(at, kill_grace_now));
        let end = gently.into_iter().chain(now).min();
        let left = end.map(|end| end.saturating_duration_since(clock::instant()));
        Some(left.unwrap_or(clock::NEVER))
    }
}

impl Handle {
    /// Starts the thread that runs `work` on what `make` gives. The thread
    /// comes first, so that nothing runs yet if it cannot be had; when `make`
    /// or a hook fails, the stop ends whatever has begun.
    pub(crate) fn start<T: Send + 'static>(
        name: &'static str,
        (context, bounds): (&ProcessContext, Bounds),
        hooked: Hooked,
        make: impl FnOnce() -> Result<T>,
        work: impl FnOnce(T, &Stop) -> Ending + Send + 'static,
    ) -> Result<Handle> {
        let (sender, ending) = bounded(1);
        let (made, parts) = bounded(1);
        threads::spawn(name, {
            let (stop, hooked) = (context.stop.clone(), hooked.clone());
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
            stop: context.stop.clone(),
            liveness: context.liveness.clone(),
            ending,
            ended: None,
            bounds,
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

    /// Waits up to `timeout` for the end. Returns `None` if it still runs.
    ///
    /// A stop that takes much longer than the shutdown timeout (3 s, or 5 s for
    /// a supervisor, while the database gives no answer) is reported as
    /// [overdue](Stopped::is_overdue) instead of being waited for.
    pub fn join(&mut self, timeout: Duration) -> Option<Stopped> {
        let until = clock::deadline(timeout);
        while self.ended.is_none() {
            let left = until.saturating_duration_since(clock::instant());
            self.ended = self.look(left);
            if left.is_zero() {
                break;
            }
        }
        self.ended.clone()
    }

    /// Waits for the end, or for a moment in which a stop may be asked for or
    /// become overdue.
    fn look(&self, most: Duration) -> Option<Stopped> {
        let left = self.bounds.left(&self.stop);
        let ending = match left {
            None => select! {
                recv(self.ending) -> ending => Some(ending),
                recv(self.stop.channel()) -> _ => None,
                default(most) => None,
            },
            Some(_) => select! {
                recv(self.ending) -> ending => Some(ending),
                default(most.min(LOOK)) => None,
            },
        };
        let overdue = ending.is_none();
        let ending = match ending {
            Some(Ok(ending)) => ending,
            // Its thread is gone without a word.
            Some(Err(_)) => {
                self.stop.break_down();
                Ending::default()
            }
            None if left == Some(Duration::ZERO) => Ending {
                unfinished: Vec::new(),
                cut_short: true,
            },
            None => return None,
        };
        Some(Stopped {
            unfinished: ending.unfinished,
            cut_short: ending.cut_short,
            broken: self.stop.is_broken(),
            recycled: self.stop.is_recycled(),
            overdue,
        })
    }

    /// Waits for the end.
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

    pub(crate) fn liveness(&self) -> Liveness {
        self.liveness.clone()
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
