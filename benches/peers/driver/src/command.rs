//! The commands and answers of a driver, as lines of text.

use anyhow::{Context as _, Error, Result, bail};
use std::fmt;
use std::str::{FromStr, SplitWhitespace};
use std::time::Duration;

/// The work of the jobs of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Nothing.
    Nothing,
    /// Insert one row on a pooled connection.
    Insert,
    /// Sleep for so many milliseconds.
    Sleep(u32),
    /// Fail once, then succeed.
    FailOnce,
    /// Nothing, never two at once.
    Alone,
    /// Report when they start.
    Stamp,
}

/// A command to a driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// Create the tables.
    Migrate,
    /// Enqueue so many jobs.
    Fill(u32),
    /// Enqueue so many jobs with one key, of which one may run at a time.
    FillLimited(u32),
    /// Let `callers` enqueue `each` jobs, one at a time.
    EnqueueSingly {
        /// The number of callers at once.
        callers: u32,
        /// Jobs of each caller.
        each: u32,
    },
    /// Enqueue so many jobs, [`BULK`](crate::BULK) a call.
    EnqueueInBulk(u32),
    /// Enqueue one job.
    Enqueue,
    /// Connect a worker.
    Connect {
        /// The work of its jobs.
        work: Work,
        /// The number of jobs that it performs at once.
        workers: u32,
        /// The number of jobs after which it answers [`Answer::AllSucceeded`].
        jobs: u32,
    },
    /// Start the worker that has connected.
    Start,
    /// Report how many jobs have succeeded; no other one does from then on.
    Count,
}

/// An answer of a driver.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Answer {
    /// The command was carried out.
    Done,
    /// It was carried out, and took so long.
    Took(Duration),
    /// The framework has no such call.
    HasNone,
    /// A job was enqueued: the call started at the first time and returned at the second, see
    /// [`now`](crate::now).
    Enqueued(Duration, Duration),
    /// A job started at this time.
    Began(Duration),
    /// Every job has succeeded.
    AllSucceeded,
    /// So many jobs have succeeded, in so many runs that did.
    Counted {
        /// Different ones.
        jobs: u64,
        /// A job that ran twice counts twice.
        runs: u64,
    },
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Work::Nothing => write!(f, "nothing 0"),
            Work::Insert => write!(f, "insert 0"),
            Work::Sleep(millis) => write!(f, "sleep {millis}"),
            Work::FailOnce => write!(f, "fail-once 0"),
            Work::Alone => write!(f, "alone 0"),
            Work::Stamp => write!(f, "stamp 0"),
        }
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Command::Migrate => write!(f, "migrate"),
            Command::Fill(jobs) => write!(f, "fill {jobs}"),
            Command::FillLimited(jobs) => write!(f, "fill-limited {jobs}"),
            Command::EnqueueSingly { callers, each } => write!(f, "singly {callers} {each}"),
            Command::EnqueueInBulk(jobs) => write!(f, "bulk {jobs}"),
            Command::Enqueue => write!(f, "enqueue"),
            Command::Connect {
                work,
                workers,
                jobs,
            } => write!(f, "connect {work} {workers} {jobs}"),
            Command::Start => write!(f, "start"),
            Command::Count => write!(f, "count"),
        }
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Answer::Done => write!(f, "done"),
            Answer::Took(time) => write!(f, "took {}", time.as_nanos()),
            Answer::HasNone => write!(f, "has-none"),
            Answer::Enqueued(called, answered) => {
                write!(f, "enqueued {} {}", called.as_nanos(), answered.as_nanos())
            }
            Answer::Began(at) => write!(f, "began {}", at.as_nanos()),
            Answer::AllSucceeded => write!(f, "all-succeeded"),
            Answer::Counted { jobs, runs } => write!(f, "counted {jobs} {runs}"),
        }
    }
}

impl FromStr for Command {
    type Err = Error;

    fn from_str(line: &str) -> Result<Command> {
        let mut words = line.split_whitespace();
        Ok(match words.next().unwrap_or("") {
            "migrate" => Command::Migrate,
            "fill" => Command::Fill(next(&mut words)?),
            "fill-limited" => Command::FillLimited(next(&mut words)?),
            "singly" => Command::EnqueueSingly {
                callers: next(&mut words)?,
                each: next(&mut words)?,
            },
            "bulk" => Command::EnqueueInBulk(next(&mut words)?),
            "enqueue" => Command::Enqueue,
            "connect" => Command::Connect {
                work: work(&mut words)?,
                workers: next(&mut words)?,
                jobs: next(&mut words)?,
            },
            "start" => Command::Start,
            "count" => Command::Count,
            _ => bail!("an unknown command: {line:?}"),
        })
    }
}

impl FromStr for Answer {
    type Err = Error;

    fn from_str(line: &str) -> Result<Answer> {
        let mut words = line.split_whitespace();
        Ok(match words.next().unwrap_or("") {
            "done" => Answer::Done,
            "took" => Answer::Took(nanos(&mut words)?),
            "has-none" => Answer::HasNone,
            "enqueued" => Answer::Enqueued(nanos(&mut words)?, nanos(&mut words)?),
            "began" => Answer::Began(nanos(&mut words)?),
            "all-succeeded" => Answer::AllSucceeded,
            "counted" => Answer::Counted {
                jobs: next(&mut words)?,
                runs: next(&mut words)?,
            },
            _ => bail!("a driver said {line:?}"),
        })
    }
}

fn work(words: &mut SplitWhitespace<'_>) -> Result<Work> {
    let (name, number) = (words.next(), next(words)?);
    Ok(match name {
        Some("nothing") => Work::Nothing,
        Some("insert") => Work::Insert,
        Some("sleep") => Work::Sleep(number),
        Some("fail-once") => Work::FailOnce,
        Some("alone") => Work::Alone,
        Some("stamp") => Work::Stamp,
        other => bail!("an unknown kind of work: {other:?}"),
    })
}

fn nanos(words: &mut SplitWhitespace<'_>) -> Result<Duration> {
    Ok(Duration::from_nanos(next(words)?))
}

fn next<T: FromStr<Err: std::error::Error + Send + Sync + 'static>>(
    words: &mut SplitWhitespace<'_>,
) -> Result<T> {
    let word = words.next().context("a number is missing")?;
    word.parse().with_context(|| format!("read {word:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_read_as_they_are_written() {
        for command in [
            Command::Migrate,
            Command::Fill(7),
            Command::FillLimited(7),
            Command::EnqueueSingly {
                callers: 8,
                each: 9,
            },
            Command::Connect {
                work: Work::Sleep(5),
                workers: 16,
                jobs: 1,
            },
        ] {
            assert_eq!(command.to_string().parse::<Command>().ok(), Some(command));
        }
        assert!("fill".parse::<Command>().is_err());
    }

    #[test]
    fn answers_are_read_as_they_are_written() {
        let time = Duration::from_micros(2);
        for answer in [
            Answer::Took(time),
            Answer::Enqueued(time, time * 2),
            Answer::Counted { jobs: 1, runs: 2 },
        ] {
            assert_eq!(answer.to_string().parse::<Answer>().ok(), Some(answer));
        }
        assert!("thread panicked".parse::<Answer>().is_err());
    }
}
