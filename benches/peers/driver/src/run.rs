//! The loop of a driver's process.

use crate::command::{Answer, Command};
use crate::{Enqueuer, Running, Start, System, job};
use anyhow::{Context as _, Result};
use rustix::time::{ClockId, clock_gettime};
use std::io::{BufRead as _, Write as _};
use std::time::Duration;

/// The environment variable with the database's address.
pub const DATABASE: &str = "WINDLASS_PEERS_DATABASE";

/// Returns the monotonic time, which all processes of the machine share.
#[must_use]
pub fn now() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    let (seconds, nanos) = (now.tv_sec.try_into(), now.tv_nsec.try_into());
    Duration::new(seconds.unwrap_or_default(), nanos.unwrap_or_default())
}

pub(crate) fn say(answer: Answer) {
    // The other end may be gone already; then the answer is not needed.
    let _ = writeln!(std::io::stdout().lock(), "{answer}");
}

/// Carries out the commands of the standard input, and ends the process with it.
///
/// # Errors
/// If a command is unknown or fails.
pub fn run(system: &dyn System) -> Result<()> {
    let url = std::env::var(DATABASE).with_context(|| format!("read {DATABASE}"))?;
    let mut driver = Driver {
        system,
        url,
        enqueuer: None,
        start: None,
        running: None,
    };
    for line in std::io::stdin().lock().lines() {
        let line = line.context("read the standard input")?;
        let answer = driver
            .carry_out(line.parse()?)
            .with_context(|| line.clone())?;
        say(answer);
    }
    // Not by returning: a graceful stop takes its time.
    std::process::exit(0)
}

struct Driver<'s> {
    system: &'s dyn System,
    url: String,
    enqueuer: Option<Enqueuer>,
    start: Option<Start>,
    running: Option<Running>,
}

impl Driver<'_> {
    fn carry_out(&mut self, command: Command) -> Result<Answer> {
        let (system, url) = (self.system, &*self.url);
        Ok(match command {
            Command::Migrate => {
                system.migrate(url)?;
                Answer::Done
            }
            Command::Fill(jobs) => {
                system.fill(url, jobs)?;
                Answer::Done
            }
            Command::FillLimited(jobs) => match system.fill_limited(url, jobs)? {
                Some(()) => Answer::Done,
                None => Answer::HasNone,
            },
            Command::EnqueueSingly { callers, each } => {
                Answer::Took(system.enqueue_singly(url, callers, each)?)
            }
            Command::EnqueueInBulk(jobs) => match system.enqueue_in_bulk(url, jobs)? {
                Some(time) => Answer::Took(time),
                None => Answer::HasNone,
            },
            Command::Enqueue => self.enqueue()?,
            Command::Connect {
                work,
                workers,
                jobs,
            } => {
                job::plan(work, jobs);
                self.start = Some(system.worker(url, work, workers)?);
                Answer::Done
            }
            Command::Start => {
                let start = self.start.take().context("no worker has connected")?;
                self.running = Some(start()?);
                Answer::Done
            }
            Command::Count => job::counted(),
        })
    }

    fn enqueue(&mut self) -> Result<Answer> {
        let own = self.running.as_mut().and_then(|it| it.enqueuer.as_mut());
        let enqueue = match (own, &mut self.enqueuer) {
            (Some(enqueue), _) => enqueue,
            (None, Some(enqueue)) => enqueue,
            (None, empty) => empty.insert(self.system.enqueuer(&self.url)?),
        };
        let called = now();
        enqueue()?;
        Ok(Answer::Enqueued(called, now()))
    }
}
