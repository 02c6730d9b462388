//! The figures that a run has, also those of a run that was stopped.

use crate::measure::{Measured, Value};
use crate::row::Row;
use crate::setting::Setting;
use anyhow::{Context as _, Result};
use clap::ValueEnum as _;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;

/// The result of one measurement.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) setting: Setting,
    /// The row that was measured; its figures may be those of other rows, too.
    pub(crate) row: Row,
    pub(crate) round: u32,
    pub(crate) measured: Measured,
}

/// Entries, in a file if there is to be one.
#[derive(Debug, Default)]
pub(crate) struct Log {
    pub(crate) entries: Vec<Entry>,
    file: Option<File>,
}

/// A line of the file.
#[derive(Debug, Serialize, Deserialize)]
struct Line {
    system: String,
    row: String,
    round: u32,
    figures: Vec<(String, Value)>,
}

impl Log {
    /// One that continues a file.
    pub(crate) fn open(path: &Path) -> Result<Log> {
        let mut options = OpenOptions::new();
        let file = options.create(true).append(true).open(path);
        let file = file.with_context(|| format!("open {}", path.display()))?;
        let text = std::fs::read_to_string(path)?;
        let entries = text.lines().map(|line| {
            let entry = read(line);
            entry.with_context(|| format!("{}: {line}", path.display()))
        });
        Ok(Log {
            entries: entries.collect::<Result<_>>()?,
            file: Some(file),
        })
    }

    pub(crate) fn has(&self, setting: Setting, row: Row, round: u32) -> bool {
        let mut entries = self.entries.iter();
        entries.any(|it| it.setting == setting && it.row == row && it.round == round)
    }

    pub(crate) fn note(&mut self, entry: Entry) -> Result<()> {
        if let Some(file) = &mut self.file {
            let line = format!("{}\n", write(&entry)?);
            file.write_all(line.as_bytes()).context("write the log")?;
        }
        self.entries.push(entry);
        Ok(())
    }
}

fn write(entry: &Entry) -> Result<String> {
    let figures = entry.measured.iter();
    let figures = figures.map(|&(row, value)| (row.heading(), value));
    let system = entry.setting.to_possible_value();
    Ok(serde_json::to_string(&Line {
        system: system.context("a setting's name")?.get_name().to_owned(),
        row: entry.row.heading(),
        round: entry.round,
        figures: figures.collect(),
    })?)
}

fn read(line: &str) -> Result<Entry> {
    let line: Line = serde_json::from_str(line)?;
    let row = |heading: &str| {
        let row = Row::ALL.into_iter().find(|row| row.heading() == heading);
        row.with_context(|| format!("no row is called {heading:?}"))
    };
    let figures = line.figures.iter();
    let figures = figures.map(|(heading, value)| Ok((row(heading)?, *value)));
    Ok(Entry {
        setting: Setting::from_str(&line.system, false).map_err(anyhow::Error::msg)?,
        row: row(&line.row)?,
        round: line.round,
        measured: figures.collect::<Result<_>>()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_read_as_they_are_written() {
        let value = Value {
            value: 1.5,
            cut_off: true,
        };
        for row in Row::ALL {
            let entry = Entry {
                setting: Setting::RiverDefaultsSqlite,
                row: row.source(),
                round: 2,
                measured: vec![(row, value)],
            };
            let again = read(&write(&entry).unwrap()).unwrap();
            assert_eq!((again.setting, again.row), (entry.setting, entry.row));
            assert_eq!((again.round, again.measured), (2, entry.measured));
        }
        assert!(read("{}").is_err());
    }
}
