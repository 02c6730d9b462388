//! A worker process, as who started it sees it.

use crate::Setting;
use crate::place::{Address, remains};
use crate::worker::{self, Told};
use anyhow::{Context as _, Result, bail};
use clap::ValueEnum as _;
use rustix::process::Pid;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// One that runs; killed when dropped.
#[derive(Debug)]
pub(crate) struct Program {
    child: Child,
    stdin: ChildStdin,
    told: Receiver<String>,
}

impl Program {
    /// Starts one that has everything ready to perform so many jobs, and
    /// waits for the first [`Program::nudge`].
    pub(crate) fn start(
        address: &Address,
        setting: Setting,
        workers: u32,
        jobs: u32,
    ) -> Result<Program> {
        let name = setting.to_possible_value().context("a setting's name")?;
        let mut command = Command::new(std::env::current_exe()?);
        command
            .args(["worker", name.get_name()])
            .args([workers.to_string(), jobs.to_string()])
            .env(worker::DATABASE, &address.url)
            .env(worker::SCHEMA, &address.schema)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let program = Program::spawn(&mut command).context("start a worker process")?;
        match program.next_within(PATIENCE)? {
            Some(Told::Ready) => Ok(program),
            other => bail!("a worker process began with {other:?}"),
        }
    }

    fn spawn(command: &mut Command) -> Result<Program> {
        let mut remains = remains();
        let mut child = command.spawn()?;
        remains.processes.push(Pid::from_child(&child));
        let stdin = child.stdin.take().context("its standard input")?;
        let stdout = child.stdout.take().context("its standard output")?;
        let (sender, told) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Program { child, stdin, told })
    }

    /// Sends a line: the first starts the worker, each other asks how many
    /// jobs it has performed.
    pub(crate) fn nudge(&mut self) -> Result<()> {
        writeln!(self.stdin).context("a worker process has ended; what it printed says why")
    }

    /// What it says within a time; `None` when that is nothing.
    pub(crate) fn next_within(&self, time: Duration) -> Result<Option<Told>> {
        match self.told.recv_timeout(time) {
            Ok(line) => line.parse().map(Some),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => {
                bail!("a worker process has ended; what it printed says why")
            }
        }
    }

    /// How many jobs it has performed.
    pub(crate) fn performed(&mut self) -> Result<u64> {
        self.nudge()?;
        loop {
            match self.next_within(PATIENCE)? {
                Some(Told::Performed(jobs)) => return Ok(jobs),
                Some(_) => {}
                None => bail!("a worker process does not answer"),
            }
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let mut remains = remains();
        let process = Pid::from_child(&self.child);
        let _ = self.child.kill();
        let _ = self.child.wait();
        remains.processes.retain(|other| *other != process);
    }
}

/// Whoever says nothing for so long will say nothing more. The longest that
/// is waited for is a worker of fang that sleeps 15 s.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
