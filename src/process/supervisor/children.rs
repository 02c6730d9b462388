//! Child programs: started, watched and restarted, never forked.
//!
//! A child's standard input is held open; its end means stop, so that a child notices when its
//! supervisor was killed. No descriptor, lock or database connection is shared with a child.

use crate::clock::{self, RetryDelay};
use crate::error::{Error, Result};
use crate::event::Event;
use crate::event::logging::Subscriber;
use crate::process::base::handle::Handle;
use crate::process::base::stop::{
    BEGIN_QUIET, BROKEN, CUT_SHORT, OF_THE_MANAGER, QUIET, RECYCLED, RESUME, SUPERVISOR, TIMED_OUT,
    TOKEN, new_token,
};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, wait};
use std::ffi::OsString;
use std::io::Write as _;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// A program that a supervisor runs, and in how many processes.
///
/// ```no_run
/// use windlass::Child;
/// let workers = Child::this_program(["worker"])?.processes(2);
/// # Ok::<(), windlass::Error>(())
/// ```
#[derive(Debug, Clone)]
#[must_use = "a child is run by a supervisor"]
pub struct Child {
    program: PathBuf,
    arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    pub(crate) processes: usize,
}

impl Child {
    /// Creates one process of the program at this path, with these arguments.
    pub fn program<A: Into<OsString>>(
        program: impl Into<PathBuf>,
        arguments: impl IntoIterator<Item = A>,
    ) -> Self {
        Child {
            program: program.into(),
            arguments: arguments.into_iter().map(Into::into).collect(),
            environment: Vec::new(),
            processes: 1,
        }
    }

    /// Creates a process of this same program, with other arguments.
    ///
    /// # Errors
    /// Returns an error if the system does not report the file that this program was started from.
    pub fn this_program<A: Into<OsString>>(arguments: impl IntoIterator<Item = A>) -> Result<Self> {
        let program = std::env::current_exe().map_err(|source| Error::Io {
            action: "find the program of",
            path: PathBuf::from("this process"),
            source,
        })?;
        Ok(Self::program(program, arguments))
    }

    /// Sets an environment variable, in addition to those of this program.
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Sets how many processes of it run at once.
    pub fn processes(mut self, count: usize) -> Self {
        self.processes = count;
        self
    }
}

/// The end of a child process.
#[derive(Debug, Clone)]
pub(crate) struct Exit {
    pub(crate) pid: u32,
    pub(crate) token: String,
    /// Such as "was killed by signal 9" or "exited with code 101".
    pub(crate) how: String,
    /// True if it ended with a code of a graceful stop.
    is_graceful: bool,
    /// True if it ended with a code that means that all its jobs finished.
    is_drained: bool,
    /// True if it left jobs behind, or has released some.
    pub(crate) is_cut_short: bool,
    asked_to_stop: bool,
    killed_by_us: bool,
    /// Set if it has ended soon after its start too often.
    pub(crate) crash_loop: Option<CrashLoop>,
}

/// A child that ends soon after each start.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CrashLoop {
    /// The number of such exits in a row.
    pub(crate) exits: u32,
    /// The time that the supervisor waits before the next start.
    pub(crate) delay: Duration,
}

impl Exit {
    /// Returns whether the jobs of a process of this child may have ended it. A graceful code does
    /// not prove the opposite unless the process was draining, because a job may have called
    /// `exit`. A process that was stopped while the database was away could not store that it
    /// drains.
    pub(crate) fn is_crash(&self, draining: bool) -> bool {
        let was_stopping = draining || self.asked_to_stop;
        !(self.killed_by_us || (self.is_graceful && was_stopping))
    }

    /// Returns whether it may still hold jobs, judged by its exit code.
    pub(crate) fn may_hold_jobs(&self) -> bool {
        !self.is_drained
    }
}

/// The facts about the supervisor that a child gets at its start.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ParentInfo {
    pub(crate) id: Option<i64>,
    pub(crate) is_quiet: bool,
}

/// A child process of a supervisor, which runs or will be started again.
#[derive(Debug)]
pub(crate) struct ChildProcess {
    child: Child,
    running: Option<RunningChild>,
    restart_at: Instant,
    backoff: RetryDelay,
    /// The number of times in a row that it failed to start, or ended soon after its start.
    failed_starts: u32,
}

#[derive(Debug)]
struct RunningChild {
    process: std::process::Child,
    token: String,
    since: Instant,
    asked_to_stop: bool,
    killed_by_us: bool,
}

/// A child that ran for this long was healthy, and is restarted at once.
const HEALTHY_UPTIME: Duration = Duration::from_secs(10);

/// After this many failed starts in a row, restarts are delayed.
const TOO_OFTEN: u32 = 5;

const LONGEST_RESTART_DELAY: Duration = Duration::from_secs(60);

impl ChildProcess {
    pub(crate) fn all_of(children: &[Child]) -> Vec<ChildProcess> {
        children
            .iter()
            .flat_map(|child| std::iter::repeat_n(child, child.processes))
            .map(|child| ChildProcess {
                child: child.clone(),
                running: None,
                restart_at: clock::instant(),
                backoff: RetryDelay::up_to(LONGEST_RESTART_DELAY),
                failed_starts: 0,
            })
            .collect()
    }

    pub(crate) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    pub(crate) fn pid(&self) -> Option<u32> {
        self.running.as_ref().map(|running| running.process.id())
    }

    /// Returns the program's name for display.
    pub(crate) fn program(&self) -> std::borrow::Cow<'_, str> {
        self.child.program.to_string_lossy()
    }

    /// Returns whether it was asked to stop, and still runs.
    pub(crate) fn is_stopping(&self) -> bool {
        matches!(&self.running, Some(running) if running.asked_to_stop)
    }

    /// Returns the token in the names of its processes, if it runs.
    pub(crate) fn token(&self) -> Option<&str> {
        self.running.as_ref().map(|running| &*running.token)
    }

    /// Starts the child if it is due, and returns its process id.
    pub(crate) fn start(&mut self, parent: ParentInfo) -> Result<Option<u32>> {
        if self.running.is_some() || clock::instant() < self.restart_at {
            return Ok(None);
        }
        let token = new_token();
        let mut command = Command::new(&self.child.program);
        command
            .args(&self.child.arguments)
            .stdin(Stdio::piped())
            .envs(
                self.child
                    .environment
                    .iter()
                    .map(|(name, value)| (name, value)),
            )
            .env(TOKEN, &token)
            .env_remove(SUPERVISOR)
            .env_remove(BEGIN_QUIET);
        for name in OF_THE_MANAGER {
            command.env_remove(name);
        }
        if let Some(id) = parent.id {
            command.env(SUPERVISOR, id.to_string());
        }
        if parent.is_quiet {
            command.env(BEGIN_QUIET, "1");
        }
        let process = command.spawn().map_err(|source| {
            self.count_failed_start();
            Error::Io {
                action: "start the program",
                path: self.child.program.clone(),
                source,
            }
        })?;
        let pid = process.id();
        // A child that does not read its input must not block the supervisor.
        if let Some(stdin) = &process.stdin {
            let _ = rustix::io::ioctl_fionbio(stdin, true);
        }
        self.running = Some(RunningChild {
            process,
            token,
            since: clock::instant(),
            asked_to_stop: false,
            killed_by_us: false,
        });
        Ok(Some(pid))
    }

    /// Reaps the child if it has ended.
    pub(crate) fn reap(&mut self) -> Option<Exit> {
        let running = self.running.as_mut()?;
        match running.process.try_wait() {
            Ok(status) => self.end(status?),
            // A child that has ended cannot be waited for if SIGCHLD is ignored, or if other code
            // of this program waits for all children.
            Err(error) if error.raw_os_error() == Some(libc::ECHILD) => self.take(None),
            Err(_) => None,
        }
    }

    /// Notes that the child has ended and was reaped.
    pub(crate) fn end(&mut self, status: ExitStatus) -> Option<Exit> {
        self.take(Some(status))
    }

    /// Notes the end of the child. `status` is `None` if the system does not report it.
    fn take(&mut self, status: Option<ExitStatus>) -> Option<Exit> {
        let running = self.running.take()?;
        let code = status.and_then(|status| status.code());
        let is_wanted = code == Some(i32::from(RECYCLED)) || running.asked_to_stop;
        let crash_loop = if is_wanted || running.since.elapsed() >= HEALTHY_UPTIME {
            self.failed_starts = 0;
            self.backoff.reset();
            self.restart_at = clock::instant();
            None
        } else {
            let delay = self.count_failed_start();
            (self.failed_starts >= TOO_OFTEN).then_some(CrashLoop {
                exits: self.failed_starts,
                delay,
            })
        };
        Some(Exit {
            crash_loop,
            pid: running.process.id(),
            token: running.token,
            how: status.map_or_else(|| "ended in an unknown way".to_owned(), describe),
            // Without a status, the row of the process shows whether it was draining.
            is_graceful: status.is_none_or(|status| has_code(status, &GRACEFUL)),
            is_drained: status.is_some_and(|status| has_code(status, &[0, RECYCLED])),
            is_cut_short: status.is_some_and(|status| has_code(status, &[CUT_SHORT])),
            asked_to_stop: running.asked_to_stop,
            killed_by_us: running.killed_by_us,
        })
    }

    /// Counts a child that failed to start or ended soon, and returns how long its restart is
    /// delayed.
    fn count_failed_start(&mut self) -> Duration {
        let delay = self.backoff.delay();
        self.failed_starts = self.failed_starts.saturating_add(1);
        self.restart_at = clock::instant() + delay;
        delay
    }

    /// Makes the child claim again after its supervisor was quiet. A SIGTSTP to the process group has
    /// suspended a child that had not installed its handlers yet: SIGCONT ends that.
    pub(crate) fn resume(&self) {
        self.set_quiet(false);
        self.signal(Signal::CONT);
    }

    /// Makes the child stop claiming, or claim again; repeating it changes nothing. A program that is
    /// not a Windlass worker may ignore this.
    pub(crate) fn set_quiet(&self, is_quiet: bool) {
        let running = self.running.as_ref();
        if let Some(mut stdin) = running.and_then(|running| running.process.stdin.as_ref()) {
            let _ = stdin.write_all(&[if is_quiet { QUIET } else { RESUME }]);
        }
    }

    /// Stops the child gracefully: with the end of its standard input, and with SIGTERM for
    /// programs that do not read it. A child is asked once: some programs take a second signal as
    /// the request to stop at once. SIGCONT follows, as a suspended child would stop only after that.
    pub(crate) fn stop(&mut self) {
        if let Some(running) = self
            .running
            .as_mut()
            .filter(|running| !running.asked_to_stop)
        {
            running.asked_to_stop = true;
            drop(running.process.stdin.take());
            self.signal(Signal::TERM);
            self.signal(Signal::CONT);
        }
    }

    fn signal(&self, signal: Signal) {
        // The child is not reaped yet, so the process id is still the child's.
        let pid = self.pid().and_then(|pid| Pid::from_raw(pid.cast_signed()));
        if let Some(pid) = pid {
            let _ = kill_process(pid, signal);
        }
    }

    /// Sends SIGKILL; this does not count as a crash of the child's jobs.
    pub(crate) fn kill(&mut self) {
        if let Some(running) = &mut self.running {
            running.killed_by_us = true;
            let _ = running.process.kill();
        }
    }
}

/// The codes of a graceful stop, if the process was draining. One that broke down stops gracefully
/// too: no job has caused that.
const GRACEFUL: [u8; 5] = [0, CUT_SHORT, RECYCLED, TIMED_OUT, BROKEN];

fn has_code(status: ExitStatus, codes: &[u8]) -> bool {
    codes
        .iter()
        .any(|code| status.code() == Some(i32::from(*code)))
}

fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with code {code}"),
        (None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}

// --- Reaps processes that others have left behind ---

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

// --- Passes the quiet mode of a supervisor on to its children and threads ---

/// The interval at which the quiet mode is passed to the children again.
const REPEAT: Duration = Duration::from_secs(2);

/// The quiet mode of a supervisor, in which its workers claim nothing.
#[derive(Debug, Default)]
pub(crate) struct QuietMode {
    is_quiet: bool,
    /// The time at which it is passed to the children again. `None` until it first changes.
    repeat_at: Option<Instant>,
}

impl QuietMode {
    pub(crate) fn is_quiet(&self) -> bool {
        self.is_quiet
    }

    /// Passes on that nothing may be claimed, or that claiming continues. Children hear it again and
    /// again: a script that starts a worker may have read what was written before.
    pub(crate) fn set(
        &mut self,
        is_quiet: bool,
        children: &[ChildProcess],
        threads: &[Handle],
        subscriber: &Subscriber,
    ) {
        let is_changed = self.is_quiet != is_quiet;
        let now = clock::instant();
        if !is_changed && self.repeat_at.is_none_or(|at| now < at) {
            return;
        }
        self.repeat_at = Some(now + REPEAT);
        if !is_changed || is_quiet {
            children.iter().for_each(|child| child.set_quiet(is_quiet));
        } else {
            children.iter().for_each(ChildProcess::resume);
        }
        if !is_changed {
            return;
        }
        self.is_quiet = is_quiet;
        subscriber.emit(&if is_quiet {
            Event::Quieted
        } else {
            Event::Resumed
        });
        for handle in threads {
            if is_quiet {
                handle.quiet();
            } else {
                handle.resume();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a child until it exits by itself with the code.
    fn exit(code: u8) -> Exit {
        exit_of(code, |_| {})
    }

    /// Does the same with a child that was asked to stop.
    fn exit_after_stop(code: u8) -> Exit {
        exit_of(code, |running| running.asked_to_stop = true)
    }

    fn exit_of(code: u8, prepare: impl FnOnce(&mut RunningChild)) -> Exit {
        let mut child =
            ChildProcess::all_of(&[Child::program("sh", ["-c", &format!("exit {code}")])]);
        let child = &mut child[0];
        let parent = ParentInfo {
            id: None,
            is_quiet: false,
        };
        child.start(parent).unwrap();
        let running = child.running.as_mut().unwrap();
        prepare(running);
        let status = running.process.wait().unwrap();
        child.end(status).unwrap()
    }

    #[test]
    fn a_code_says_whether_jobs_are_to_blame() {
        for code in GRACEFUL {
            assert!(exit(code).is_crash(false), "a job may call `exit({code})`");
            assert!(!exit(code).is_crash(true));
            // The database did not accept that the process drains.
            assert!(!exit_after_stop(code).is_crash(false));
        }
        assert!(exit_after_stop(101).is_crash(true));
    }

    #[test]
    fn a_code_says_whether_jobs_were_cut_short() {
        let said = |code| {
            let exit = exit_after_stop(code);
            (exit.is_cut_short, exit.may_hold_jobs())
        };
        assert_eq!([said(0), said(RECYCLED)], [(false, false); 2]);
        assert_eq!(said(CUT_SHORT), (true, true));
        assert_eq!([said(TIMED_OUT), said(BROKEN), said(1)], [(false, true); 3]);
    }
}
