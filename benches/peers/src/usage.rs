//! The use of the processor and of the log, by a worker and by the server.

use crate::database::Database;
use anyhow::{Context as _, Result};
use rustix::param::clock_ticks_per_second;
use std::path::PathBuf;
use std::time::Duration;

/// So much since the processes started.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Usage {
    /// Of the worker's process.
    pub(crate) worker: Duration,
    /// Of all processes of the server; `None` if it runs elsewhere, or is none.
    pub(crate) server: Option<Duration>,
    /// Bytes of the write-ahead log, of a server.
    pub(crate) log: Option<u64>,
}

impl Usage {
    /// Of the worker with this process id, and of the server of its database.
    pub(crate) fn now(worker: u32, database: &mut Database) -> Result<Usage> {
        let stat = Stat::of(worker).context("the worker's process")?;
        let server = database.backend()?.and_then(server);
        Ok(Usage {
            worker: stat.own,
            server,
            log: database.log_position()?,
        })
    }

    /// The difference to an earlier one.
    pub(crate) fn since(self, earlier: Usage) -> Usage {
        let difference = |now: Option<Duration>, then: Option<Duration>| {
            now.zip(then).map(|(now, then)| now.saturating_sub(then))
        };
        let log = self.log.zip(earlier.log);
        Usage {
            worker: self.worker.saturating_sub(earlier.worker),
            server: difference(self.server, earlier.server),
            log: log.map(|(now, then)| now.saturating_sub(then)),
        }
    }
}

/// The most memory that a process has had, in bytes.
pub(crate) fn most_memory(process: u32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next());
    Ok(kilobytes.context("VmHWM")?.parse::<u64>()? * 1024)
}

/// The time of all processes of the server with this backend: of those that live, and, as the
/// parent of all of them knows it, of those that have ended.
fn server(backend: u32) -> Option<Duration> {
    let parent = Stat::of(backend).filter(Stat::is_postgres)?.parent;
    let postmaster = Stat::of(parent).filter(Stat::is_postgres)?;
    let processes = std::fs::read_dir("/proc").ok()?;
    let processes = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let children = processes.filter_map(Stat::of);
    let children = children.filter(|stat| stat.parent == parent);
    let alive: Duration = children.map(|stat| stat.own).sum();
    Some(postmaster.own + postmaster.ended + alive)
}

/// A process, as `/proc/PID/stat` describes it.
#[derive(Debug)]
struct Stat {
    name: String,
    parent: u32,
    own: Duration,
    /// The time of its children that have ended.
    ended: Duration,
}

impl Stat {
    fn of(process: u32) -> Option<Stat> {
        let path = PathBuf::from(format!("/proc/{process}/stat"));
        Stat::read(&std::fs::read_to_string(path).ok()?)
    }

    fn read(line: &str) -> Option<Stat> {
        // The name is in parentheses, and may contain some.
        let (before, after) = line.rsplit_once(") ")?;
        let name = before.split_once('(')?.1.to_owned();
        let fields: Vec<&str> = after.split(' ').collect();
        let ticks = |first: usize| {
            let sum = fields.get(first..first + 2)?.iter();
            let sum: u64 = sum.filter_map(|field| field.parse::<u64>().ok()).sum();
            let second = clock_ticks_per_second();
            Some(Duration::from_secs_f64(sum as f64 / second as f64))
        };
        Some(Stat {
            name,
            parent: fields.get(1)?.parse().ok()?,
            own: ticks(11)?,
            ended: ticks(13)?,
        })
    }

    /// Another namespace of processes may have the same number for something else.
    fn is_postgres(&self) -> bool {
        matches!(&*self.name, "postgres" | "postmaster")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_read() {
        let line = "7 (a (b) c) S 3 7 7 0 -1 4194560 1 2 3 4 150 50 200 100 20 0 1 0 5";
        let stat = Stat::read(line).unwrap();
        assert_eq!((&*stat.name, stat.parent), ("a (b) c", 3));
        let ticks = clock_ticks_per_second() as f64;
        assert_eq!(stat.own.as_secs_f64(), 200.0 / ticks);
        assert_eq!(stat.ended.as_secs_f64(), 300.0 / ticks);
        assert!(!stat.is_postgres());
    }
}
