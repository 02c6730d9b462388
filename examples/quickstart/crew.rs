//! The processes: a supervisor, its two workers, and the end of one of them.

use crate::Result;
use crate::hash_file::{Desk, HashFile};
use crate::journal::{Journal, Story};
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsStr;
use std::io::Read;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;
use windlass::{Child, Database, Dispatcher, Registry, Supervisor, Worker};

pub(crate) const SUPERVISOR: &str = "--as-supervisor";
pub(crate) const WORKER: &str = "--as-worker";
pub(crate) const WORKERS: usize = 2;
/// Of each worker.
pub(crate) const THREADS: usize = 4;

/// The SQLite file in the directory that the processes share.
pub(crate) fn database(home: &Path) -> Result<Database> {
    let path = home.join("jobs.db");
    let path = path.to_str().ok_or("TMPDIR must be UTF-8")?;
    Ok(Database::open(&format!("sqlite://{path}"))?)
}

/// Runs the supervisor process.
pub(crate) fn supervise(home: &OsStr, pause: &OsStr) -> Result<ExitCode> {
    std::thread::spawn(stop_with_the_parent);
    let database = database(home.as_ref())?;
    let workers = Child::this_program([OsStr::new(WORKER), home, pause])?.processes(WORKERS);
    let stopped = Supervisor::new(&database)
        .child(workers)
        .dispatcher(Dispatcher::new(&database))
        .shutdown_timeout(GRACE)
        .run()?;
    Ok(stopped.exit_code())
}

/// Runs a worker process. It stops with its supervisor by itself.
pub(crate) fn work(home: &OsStr, pause: &OsStr) -> Result<ExitCode> {
    let home = Path::new(home);
    let pause: u64 = pause.to_str().ok_or("no number")?.parse()?;
    let desk = Desk {
        journal: Journal::open(home)?,
        pause: Duration::from_millis(pause),
    };
    let registry = Registry::new().register::<HashFile>(desk);
    let stopped = Worker::new(&database(home)?, registry)
        .threads(THREADS)
        .shutdown_timeout(GRACE)
        .run()?;
    Ok(stopped.exit_code())
}

/// For running jobs, when the crew is stopped.
const GRACE: Duration = Duration::from_secs(5);

/// Our parent holds our standard input open. When it is gone, however it
/// went, nobody needs us any more.
fn stop_with_the_parent() {
    let mut rest = [0; 64];
    while matches!(std::io::stdin().read(&mut rest), Ok(count) if count > 0) {}
    let _ = kill_process(rustix::process::getpid(), Signal::TERM);
}

/// The supervisor process, and through it the workers.
pub(crate) struct Crew {
    supervisor: std::process::Child,
}

impl Crew {
    pub(crate) fn start(home: &Path, pause: Duration) -> Result<Self> {
        let supervisor = Command::new(std::env::current_exe()?)
            .arg(SUPERVISOR)
            .arg(home)
            .arg(pause.as_millis().to_string())
            .stdin(Stdio::piped())
            .spawn()?;
        Ok(Crew { supervisor })
    }

    /// An error when the supervisor has ended.
    pub(crate) fn check(&mut self) -> Result<()> {
        match self.supervisor.try_wait()? {
            Some(status) => Err(format!("the supervisor ended early: {status}").into()),
            None => Ok(()),
        }
    }

    /// Kills a worker while it runs a job, once a third of the jobs has ended
    /// where there are enough of them. `None`: all ended before.
    ///
    /// The worker is halted first, so that the journal tells for sure whether
    /// it is in the middle of a job; if not, it goes on and the next try
    /// begins.
    pub(crate) fn kill_one_in_the_middle(
        &mut self,
        story: &mut Story,
        jobs: usize,
        interrupt: &Interrupt,
    ) -> Result<Option<u32>> {
        let rounds = jobs / (WORKERS * THREADS);
        let middle = if rounds < 3 { 0 } else { jobs / 3 };
        while story.ended() < jobs {
            if story.ended() >= middle
                && let Some(worker) = story.busy_worker()
            {
                signal(worker, Signal::STOP)?;
                let is_busy = look_again(story, worker, interrupt);
                let go_on = !matches!(is_busy, Ok(true));
                signal(worker, if go_on { Signal::CONT } else { Signal::KILL })?;
                if is_busy? {
                    return Ok(Some(worker));
                }
            }
            self.check()?;
            interrupt.wait(Duration::from_millis(2))?;
            story.catch_up()?;
        }
        Ok(None)
    }

    /// Stops the supervisor, and it its workers, and waits for their end.
    pub(crate) fn stop(&mut self) -> Result<()> {
        drop(self.supervisor.stdin.take());
        let status = self.supervisor.wait()?;
        if status.success() {
            Ok(())
        } else {
            Err(format!("the supervisor ended badly: {status}").into())
        }
    }
}

impl Drop for Crew {
    /// The supervisor gives up on its workers by itself after a while.
    fn drop(&mut self) {
        let _ = self.stop();
    }
}

/// Returns true if a halted worker is in the middle of a job.
fn look_again(story: &mut Story, worker: u32, interrupt: &Interrupt) -> Result<bool> {
    // Halting takes effect in a moment; a last record may still come.
    interrupt.wait(Duration::from_millis(3))?;
    story.catch_up()?;
    Ok(!story.running_on(worker).is_empty())
}

fn signal(worker: u32, signal: Signal) -> Result<()> {
    let pid = Pid::from_raw(worker.cast_signed()).ok_or("no process has the number 0")?;
    Ok(kill_process(pid, signal)?)
}

/// Ctrl-C, or a request to end.
pub(crate) struct Interrupt(Receiver<()>);

/// The error with which it ends the run.
#[derive(Debug)]
pub(crate) struct Interrupted;

impl std::fmt::Display for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("interrupted")
    }
}

impl std::error::Error for Interrupted {}

impl Interrupt {
    pub(crate) fn listen() -> Result<Self> {
        let (sender, receiver) = channel();
        ctrlc::set_handler(move || {
            let _ = sender.send(());
        })?;
        Ok(Interrupt(receiver))
    }

    /// An error when it has come.
    pub(crate) fn check(&self) -> Result<(), Interrupted> {
        self.wait(Duration::ZERO)
    }

    /// Waits; an error as soon as it comes.
    pub(crate) fn wait(&self, time: Duration) -> Result<(), Interrupted> {
        match self.0.recv_timeout(time) {
            Err(RecvTimeoutError::Timeout) => Ok(()),
            Ok(()) | Err(RecvTimeoutError::Disconnected) => Err(Interrupted),
        }
    }
}
