//! A worker process, seen from within: it performs jobs, and tells of them.

use crate::Setting;
use crate::place::Address;
use anyhow::{Context as _, Error, Result, bail};
use rustix::time::{ClockId, clock_gettime};
use std::io::{BufRead as _, Write as _};
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The environment variable with the database's address.
pub(crate) const DATABASE: &str = "WINDLASS_PEERS_DATABASE";

/// And the one with the schema's name.
pub(crate) const SCHEMA: &str = "WINDLASS_PEERS_SCHEMA";

/// What such a process says, a line each.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Told {
    /// It has connected, and waits to be told to start.
    Ready,
    /// The last of its jobs has been performed.
    Done,
    /// So many jobs have been performed so far.
    Performed(u64),
    /// A stamp job began at this time, see [`now`].
    Began(Duration),
}

impl FromStr for Told {
    type Err = Error;

    fn from_str(line: &str) -> Result<Told> {
        Ok(match line.split_once(' ').unwrap_or((line, "")) {
            ("ready", "") => Told::Ready,
            ("done", "") => Told::Done,
            ("performed", jobs) => Told::Performed(jobs.parse()?),
            ("began", nanos) => Told::Began(Duration::from_nanos(nanos.parse()?)),
            _ => bail!("a worker process said {line:?}"),
        })
    }
}

impl Told {
    fn tell(self) {
        let mut stdout = std::io::stdout().lock();
        // Who does not listen any more does not want to know.
        let _ = match self {
            Told::Ready => writeln!(stdout, "ready"),
            Told::Done => writeln!(stdout, "done"),
            Told::Performed(jobs) => writeln!(stdout, "performed {jobs}"),
            Told::Began(at) => writeln!(stdout, "began {}", at.as_nanos()),
        };
    }
}

/// The monotonic time, which all processes of the machine share.
pub(crate) fn now() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    let (seconds, nanos) = (now.tv_sec.try_into(), now.tv_nsec.try_into());
    Duration::new(seconds.unwrap_or_default(), nanos.unwrap_or_default())
}

static PERFORMED: AtomicU64 = AtomicU64::new(0);
static EXPECTED: AtomicU64 = AtomicU64::new(0);

/// What a no-op job does, in every system.
pub(crate) fn performed() {
    let performed = PERFORMED.fetch_add(1, Ordering::Relaxed) + 1;
    if performed == EXPECTED.load(Ordering::Relaxed) {
        Told::Done.tell();
    }
}

/// What a stamp job does, in every system.
pub(crate) fn began() {
    Told::Began(now()).tell();
}

/// Connects, starts working at the first line of the standard input, tells
/// how many jobs it has performed at each further one, and ends with it.
pub(crate) fn run(setting: Setting, workers: u32, jobs: u32) -> Result<()> {
    let variable = |name| std::env::var(name).with_context(|| format!("read {name}"));
    let address = Address {
        url: variable(DATABASE)?,
        schema: variable(SCHEMA)?,
    };
    EXPECTED.store(jobs.into(), Ordering::Relaxed);
    let start = setting.system().worker(&address, workers)?;
    let mut lines = std::io::stdin().lock().lines();
    Told::Ready.tell();
    if lines.next().is_none() {
        return Ok(());
    }
    let _running = start()?;
    for line in lines {
        line.context("read the standard input")?;
        Told::Performed(PERFORMED.load(Ordering::Relaxed)).tell();
    }
    // Not by returning: a graceful stop would take its time, or never end.
    std::process::exit(0)
}

#[cfg(test)]
mod tests {
    use super::Told;
    use std::time::Duration;

    #[test]
    fn what_is_told_is_understood() {
        let parse = |line: &str| line.parse::<Told>().ok();
        assert_eq!(parse("ready"), Some(Told::Ready));
        assert_eq!(parse("performed 7"), Some(Told::Performed(7)));
        let began = Told::Began(Duration::from_micros(2));
        assert_eq!(parse("began 2000"), Some(began));
        assert_eq!(parse("began"), None);
        assert_eq!(parse("thread panicked"), None);
    }
}
