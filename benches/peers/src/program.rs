//! A driver's process, seen from outside.

use crate::place::{Place, remains};
use crate::setting::Setting;
use anyhow::{Context as _, Result, bail};
use clap::ValueEnum as _;
use rustix::process::Pid;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};
use windlass_peers_driver::{Answer, Command, DATABASE};

/// One that runs; killed when dropped.
#[derive(Debug)]
pub(crate) struct Program {
    child: Child,
    stdin: ChildStdin,
    answers: Receiver<String>,
}

/// After so long without an answer, none is expected any more.
const PATIENCE: Duration = Duration::from_secs(300);

impl Program {
    pub(crate) fn start(setting: Setting, place: &Place) -> Result<Program> {
        let mut command = command(setting)?;
        command
            .env(DATABASE, &place.url)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut remains = remains();
        let mut child = command
            .spawn()
            .with_context(|| format!("start {}", command.get_program().display()))?;
        remains.processes.push(Pid::from_child(&child));
        let stdin = child.stdin.take().context("its standard input")?;
        let stdout = child.stdout.take().context("its standard output")?;
        let (sender, answers) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Program {
            child,
            stdin,
            answers,
        })
    }

    /// Its process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Has a command carried out.
    pub(crate) fn ask(&mut self, command: Command) -> Result<Answer> {
        self.send(command)?;
        self.answer()
    }

    pub(crate) fn send(&mut self, command: Command) -> Result<()> {
        let sent = writeln!(self.stdin, "{command}");
        sent.context("a driver has ended; what it printed says why")
    }

    /// Its next answer.
    pub(crate) fn answer(&self) -> Result<Answer> {
        let answer = self.answer_until(Instant::now() + PATIENCE)?;
        answer.context("a driver does not answer")
    }

    /// Its next answer until then; `None` if there is none.
    pub(crate) fn answer_until(&self, deadline: Instant) -> Result<Option<Answer>> {
        let left = deadline.saturating_duration_since(Instant::now());
        match self.answers.recv_timeout(left) {
            Ok(line) => line.parse().map(Some),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => {
                bail!("a driver has ended; what it printed says why")
            }
        }
    }

    /// Returns the number of jobs that have succeeded, and that of their runs.
    pub(crate) fn counted(&mut self) -> Result<(u64, u64)> {
        self.send(Command::Count)?;
        loop {
            if let Answer::Counted { jobs, runs } = self.answer()? {
                return Ok((jobs, runs));
            }
        }
    }
}

/// This program, or one that lies beside it.
fn command(setting: Setting) -> Result<std::process::Command> {
    let this = std::env::current_exe()?;
    let value = setting.to_possible_value().context("a setting's name")?;
    let mut command = match setting.program() {
        Some(name) => {
            let program = this.with_file_name(name);
            if !program.exists() {
                bail!("{} is missing: `run` builds it", program.display());
            }
            std::process::Command::new(program)
        }
        None => {
            let mut command = std::process::Command::new(this);
            command.arg("drive");
            command
        }
    };
    command.arg(value.get_name());
    Ok(command)
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
