//! The machine on which figures were made, for the reader of the tables.

use crate::Options;
use crate::database::Database;
use anyhow::{Context as _, Result};

/// A sentence about the machine, the server and the options of a run.
pub(crate) fn describe(options: &Options) -> Result<String> {
    let cores = std::thread::available_parallelism()?;
    let mut parts = vec![format!("{cores} cores, {} GB", gigabytes()?)];
    if let Some(url) = &options.postgres {
        let mut database = Database::connect(url)?;
        let version = database.setting("server_version")?;
        let version = version.split(' ').next().unwrap_or_default();
        parts.push(format!("Postgres {version}"));
        for name in ["shared_buffers", "fsync", "synchronous_commit"] {
            parts.push(format!("`{name}` {}", database.setting(name)?));
        }
    }
    let limit = humantime::format_duration(options.limit);
    parts.push(format!(
        "`--rounds {} --jobs {} --backlog {} --singles {} --samples {} --limit {limit}`",
        options.rounds, options.jobs, options.backlog, options.singles, options.samples
    ));
    Ok(format!("{}.", parts.join(", ")))
}

/// The memory of the machine.
fn gigabytes() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next());
    let kilobytes: u64 = kilobytes.context("MemTotal")?.parse()?;
    Ok(kilobytes.div_ceil(1024 * 1024))
}
