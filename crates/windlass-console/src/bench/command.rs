//! `windlass bench`: runs what was asked for, round by round, and shows the medians.

use crate::bench::figures::{Rounds, Summary};
use crate::bench::kinds::{Amounts, Kind};
use crate::bench::place::{Places, version};
use crate::terminal::{Column, ProgressReport, Report, Table};
use clap::ValueEnum as _;
use serde::Serialize;
use windlass::Result;

/// Measure how fast a database moves jobs
///
/// Works in its own schema, or on SQLite in a directory beside the given file, and removes it
/// afterwards: the jobs of the database are not touched. Everything takes about a minute; nothing
/// else should run on the machine.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "\
Examples:
  windlass bench --database postgres://localhost/app
  windlass bench --database sqlite://jobs.db --only drain,pickup
  windlass bench --rounds 5 --json > bench.json

What was measured elsewhere, and what makes it faster: docs/performance.md.")]
pub(crate) struct Bench {
    /// Only these kinds of work, separated by commas
    #[arg(long, value_enum, value_name = "KINDS", value_delimiter = ',')]
    only: Vec<Kind>,
    /// The number of times that each is measured, in turn
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    #[command(flatten)]
    amounts: Amounts,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// All figures, and where they were measured.
#[derive(Debug, Serialize)]
pub(crate) struct Measured {
    windlass: &'static str,
    database: String,
    cores: usize,
    rounds: u32,
    rows: Vec<Summary>,
}

impl Bench {
    /// Runs the requested measurements. If a signal interrupts them, their data is first removed
    /// from the database.
    pub(crate) fn run(&self, url: &str) -> Result<Measured> {
        let settings = self.clone();
        Places::with(url, move |places| settings.measure(&places))
    }

    fn measure(&self, places: &Places) -> Result<Measured> {
        let progress = ProgressReport::of_something();
        let database = version(&places.create()?.migrated()?)?;
        let mut samples = Rounds::default();
        for round in 1..=self.rounds {
            for kind in Kind::value_variants() {
                if self.only.is_empty() || self.only.contains(kind) {
                    let (name, rounds) = (kind.name(), self.rounds);
                    progress.say(format!("{name}: round {round} of {rounds}"));
                    for figure in kind.measure(&self.amounts, &places.create()?.migrated()?)? {
                        samples.note(&name, figure);
                    }
                }
            }
        }
        progress.end();
        Ok(Measured {
            windlass: env!("CARGO_PKG_VERSION"),
            database,
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            rounds: self.rounds,
            rows: samples.summaries(),
        })
    }
}

impl Report for Measured {
    fn text(&self, width: Option<usize>) -> String {
        let mut table = Table::new(&[
            Column::text("KIND"),
            Column::text("FIGURE"),
            Column::number("MEDIAN"),
            Column::number("LEAST"),
            Column::number("MOST"),
            Column::text("UNIT"),
        ]);
        for row in &self.rows {
            table.add(vec![
                row.kind.clone(),
                row.figure.to_owned(),
                number(row.median),
                number(row.least),
                number(row.most),
                row.unit.to_owned(),
            ]);
        }
        let Measured {
            windlass,
            database,
            cores,
            rounds,
            ..
        } = self;
        let head = format!("windlass {windlass}, {database}, {cores} cores, {rounds} rounds");
        format!("{head}\n\n{}", table.text(width))
    }
}

/// Formats three significant digits, or all before the point.
pub(crate) fn number(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value if value >= 0.1 => format!("{value:.2}"),
        value => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn numbers_are_short() {
        assert_eq!(number(84_123.4), "84123");
        assert_eq!(number(12.34), "12.3");
        assert_eq!(number(0.456), "0.46");
        assert_eq!(number(0.0456), "0.046");
    }
}
