//! Starts the other process of a benchmark, and reads what it reports.

use crate::clock;
use crate::error::{Error, Result};
use crate::laboratory::role::{ROLE, Role, Setup};
use crate::laboratory::worker::{Began, Cost, Told, read};
use crossbeam_channel::{Receiver, never};
use std::io::Write as _;
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

/// A running process, killed when dropped.
pub(crate) struct Program {
    child: Child,
    stdin: Option<ChildStdin>,
    told: Receiver<Told>,
}

impl Program {
    /// Starts a process, which waits before it starts its worker.
    pub(crate) fn start(url: &str, setup: Setup) -> Result<Program> {
        let program = Self::spawn(&Role::Worker(setup), url)?;
        loop {
            if let Told::Ready = program.next()? {
                return Ok(program);
            }
        }
    }

    /// Starts a web server, and returns where it listens.
    pub(crate) fn serve(url: &str, slow: Option<Duration>) -> Result<(Program, SocketAddr)> {
        let program = Self::spawn(&Role::Server { slow }, url)?;
        loop {
            if let Told::Listening(address) = program.next()? {
                return Ok((program, address));
            }
        }
    }

    fn spawn(role: &Role, url: &str) -> Result<Program> {
        let failed = |source| Error::Io {
            action: "start",
            path: "a process of the benchmark".into(),
            source,
        };
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        // The program of the tests runs the one that carries out its role.
        #[cfg(test)]
        command.args([
            "plays_a_part_in_a_measurement",
            "--nocapture",
            "--test-threads=2",
        ]);
        let role = serde_json::to_string(role).map_err(|error| failed(error.into()))?;
        command
            .env(ROLE, role)
            .env("DATABASE_URL", url)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().map_err(failed)?;
        let stdin = child.stdin.take();
        let told = child.stdout.take().map_or_else(never, read);
        Ok(Program { child, stdin, told })
    }

    /// Sends a line: the first starts the worker, each further one requests its cost.
    pub(crate) fn nudge(&mut self) -> Result<()> {
        let stdin = self.stdin.as_mut();
        stdin
            .map_or(Ok(()), |stdin| writeln!(stdin))
            .map_err(|_| gone())
    }

    /// Returns its next report.
    fn next(&self) -> Result<Told> {
        self.next_within(PATIENCE)?.ok_or_else(gone)
    }

    /// Returns its next report within a time.
    fn next_within(&self, time: Duration) -> Result<Option<Told>> {
        use crossbeam_channel::RecvTimeoutError::{Disconnected, Timeout};
        match self.told.recv_timeout(time) {
            Ok(told) => Ok(Some(told)),
            Err(Timeout) => Ok(None),
            Err(Disconnected) => Err(gone()),
        }
    }

    /// Waits until it is done, at most so long.
    pub(crate) fn wait(&self, limit: Duration) -> Result<()> {
        let deadline = clock::deadline(limit);
        loop {
            let left = deadline.saturating_duration_since(clock::instant());
            match self.next_within(left)? {
                Some(Told::Done) => return Ok(()),
                None if left.is_zero() => return Ok(()),
                _ => {}
            }
        }
    }

    /// Returns the times of the next stamp.
    pub(crate) fn began(&self) -> Result<Began> {
        loop {
            if let Told::Began(began) = self.next()? {
                return Ok(began);
            }
        }
    }

    /// Returns the times of the next stamp, which may take so long.
    pub(crate) fn began_within(&self, limit: Duration) -> Result<Began> {
        let deadline = clock::deadline(limit.max(PATIENCE));
        loop {
            let left = deadline.saturating_duration_since(clock::instant());
            match self.next_within(left)? {
                Some(Told::Began(began)) => return Ok(began),
                None if left.is_zero() => return Err(gone()),
                _ => {}
            }
        }
    }

    /// Returns its cost so far.
    pub(crate) fn cost(&mut self) -> Result<Cost> {
        self.nudge()?;
        loop {
            if let Told::Cost(cost) = self.next()? {
                return Ok(cost);
            }
        }
    }

    /// Stops it gracefully.
    pub(crate) fn stop(mut self) {
        self.stdin = None;
        let _ = self.child.wait();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// If there is no report for this long, none will come.
const PATIENCE: Duration = Duration::from_secs(60);

fn gone() -> Error {
    Error::Io {
        action: "hear from",
        path: "a process of the benchmark, whose log says why".into(),
        source: std::io::ErrorKind::UnexpectedEof.into(),
    }
}

/// Long enough for all processes to become idle, and not a multiple of any interval.
pub(crate) fn until_idle() {
    clock::nap(Duration::from_millis(fastrand::u64(20..80)));
}
