//! The other process of a benchmark: a worker that reports its progress.

use crate::bench::counters;
use crate::clock;
use crate::db::Database;
use crate::error::{Error, Result};
use crate::event::events::Event;
use crate::event::subscriber::Subscriber;
use crate::job::class::Job;
use crate::job::context::Context;
use crate::job::error::JobResult;
use crate::job::registry::Registry;
use crate::process::worker::builder::Worker;
use crate::terminal::output;
use crossbeam_channel::{Receiver, Sender, after, never, select, unbounded};
use serde::{Deserialize, Serialize};
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A job that does nothing.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Nothing {
    pub(crate) number: u64,
}

impl Job for Nothing {
    const NAME: &'static str = CLASS;
    type State = ();
    type Output = ();

    fn perform(self, _: &Context<'_, ()>) -> JobResult {
        Ok(())
    }
}

/// A job that reports when it started.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Stamp {}

impl Job for Stamp {
    const NAME: &'static str = "windlass_bench_stamp";
    type State = Sender<Duration>;
    type Output = ();

    fn perform(self, cx: &Context<'_, Sender<Duration>>) -> JobResult {
        let _ = cx.state().send(clock::since_boot());
        Ok(())
    }
}

/// What such a process prints, one line of JSON each.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Told {
    /// It is ready to start its worker when requested.
    Ready,
    /// The number of jobs finished so far.
    Finished(u64),
    /// A [`Stamp`] started, at this time since the host was started.
    Began(Duration),
    /// Its cost so far.
    Cost(Cost),
}

/// The resources that a process has used.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct Cost {
    pub(crate) statements: u64,
    pub(crate) transactions: u64,
    pub(crate) cpu: Duration,
    /// The peak memory, if the system reports it.
    pub(crate) peak_kib: Option<u64>,
    /// Bytes written to files and sockets, if the system reports them.
    pub(crate) written: Option<u64>,
}

/// A worker that `windlass bench` starts and reads from.
#[derive(Debug, clap::Args)]
#[command(hide = true)]
pub(crate) struct BenchWorker {
    #[arg(long)]
    threads: usize,
    #[arg(long)]
    delete: bool,
}

impl BenchWorker {
    /// Starts working at the first line on standard input, reports its cost at each further line,
    /// and stops when the input ends.
    pub(crate) fn run(&self, database: &Database) -> Result<ExitCode> {
        counters::count_statements();
        let lines = lines(std::io::stdin());
        tell(&Told::Ready);
        let Ok(_) = lines.recv() else {
            return Ok(ExitCode::SUCCESS);
        };
        let finished = Arc::new(AtomicU64::new(0));
        let (stamps, began) = unbounded();
        let registry = Registry::new()
            .register::<Nothing>(())
            .register::<Stamp>(stamps);
        let count = Arc::clone(&finished);
        let worker = Worker::new(database, registry)
            .threads(self.threads)
            .keep_finished(!self.delete)
            .subscriber(Subscriber::new(move |event| {
                if let Event::Finished { .. } = event {
                    count.fetch_add(1, Ordering::Relaxed);
                }
            }))
            .start()?;
        report(&lines, &began, &finished);
        worker.stop();
        Ok(worker.wait().exit_code())
    }
}

/// A worker that has finished nothing for this long is treated as idle.
const IDLE: Duration = Duration::from_secs(2);

/// Reports until the lines end.
fn report(lines: &Receiver<String>, began: &Receiver<Duration>, finished: &AtomicU64) {
    let mut told = 0;
    let mut told_at = clock::instant();
    loop {
        let now = finished.load(Ordering::Relaxed);
        if now > told {
            told = now;
            told_at = clock::instant();
            tell(&Told::Finished(now));
        }
        // An idle process must not wake up for its own reports; one that waits for the disk is not
        // idle.
        let pause = if told_at.elapsed() < IDLE {
            after(Duration::from_millis(5))
        } else {
            after(Duration::from_millis(500))
        };
        select! {
            recv(lines) -> line => {
                if line.is_err() {
                    return;
                }
                tell(&Told::Cost(cost()));
            }
            recv(began) -> at => {
                if let Ok(at) = at {
                    tell(&Told::Began(at));
                }
            }
            recv(pause) -> _ => {}
        }
    }
}

fn tell(told: &Told) {
    if let Ok(line) = serde_json::to_string(told) {
        output::line(&line);
    }
}

fn cost() -> Cost {
    let counted = counters::counted();
    Cost {
        statements: counted.statements,
        transactions: counted.transactions,
        cpu: clock::cpu(),
        peak_kib: entry("/proc/self/status", "VmHWM:"),
        written: entry("/proc/self/io", "wchar:"),
    }
}

/// Returns a number from a file of Linux about this process.
fn entry(file: &str, name: &str) -> Option<u64> {
    let text = std::fs::read_to_string(file).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Reads lines from elsewhere, on a thread of their own.
fn lines(from: impl std::io::Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = unbounded();
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines() {
            let Ok(line) = line else { return };
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

/// A running process, killed when dropped.
pub(crate) struct Program {
    child: Child,
    stdin: Option<ChildStdin>,
    told: Receiver<String>,
}

impl Program {
    /// Starts a process, which waits before it starts its worker.
    pub(crate) fn start(url: &str, threads: u32, delete: bool) -> Result<Program> {
        let failed = |source| Error::Io {
            action: "start",
            path: "windlass bench-worker".into(),
            source,
        };
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        command
            .args(["bench-worker", "--threads", &threads.to_string()])
            .args(delete.then_some("--delete"))
            .env("DATABASE_URL", url)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().map_err(failed)?;
        let stdin = child.stdin.take();
        let told = child.stdout.take().map_or_else(never, lines);
        let program = Program { child, stdin, told };
        loop {
            if let Told::Ready = program.next()? {
                return Ok(program);
            }
        }
    }

    /// Sends a line: the first starts the worker, each further one requests its cost.
    pub(crate) fn nudge(&mut self) -> Result<()> {
        let stdin = self.stdin.as_mut();
        stdin
            .map_or(Ok(()), |stdin| writeln!(stdin))
            .map_err(|_| gone())
    }

    /// Returns its next report.
    pub(crate) fn next(&self) -> Result<Told> {
        self.next_within(PATIENCE)?.ok_or_else(gone)
    }

    /// Returns its next report within a time.
    pub(crate) fn next_within(&self, time: Duration) -> Result<Option<Told>> {
        use crossbeam_channel::RecvTimeoutError::{Disconnected, Timeout};
        match self.told.recv_timeout(time) {
            Ok(line) => Ok(serde_json::from_str(&line).ok()),
            Err(Timeout) => Ok(None),
            Err(Disconnected) => Err(gone()),
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
        path: "a worker of the benchmark, whose log says why".into(),
        source: std::io::ErrorKind::UnexpectedEof.into(),
    }
}

/// Long enough for all processes to become idle, and not a multiple of any interval.
pub(crate) fn until_idle() {
    clock::nap(Duration::from_millis(fastrand::u64(20..80)));
}

/// The class of the jobs, as stored in each row.
pub(crate) const CLASS: &str = "windlass_bench_nothing";
