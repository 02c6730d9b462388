//! The results: medians, spread, and ratios to the ceiling.

use crate::terminal::output::Report;
use crate::terminal::table::{Column, Table};
use serde::Serialize;

/// The current measurements, in the order in which they were first made.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    pub(crate) round: u32,
    series: Vec<Series>,
}

#[derive(Debug)]
struct Series {
    name: String,
    unit: &'static str,
    /// One value per round.
    samples: Vec<f64>,
    ceiling: Option<String>,
}

impl Figures {
    /// Records a figure of this round.
    pub(crate) fn note(&mut self, name: &str, unit: &'static str, value: f64) {
        self.note_beside(name, unit, value, None);
    }

    /// Records a figure that is compared with another, measured in the same rounds.
    pub(crate) fn note_of(&mut self, name: &str, unit: &'static str, value: f64, ceiling: &str) {
        self.note_beside(name, unit, value, Some(ceiling.to_owned()));
    }

    fn note_beside(&mut self, name: &str, unit: &'static str, value: f64, ceiling: Option<String>) {
        match self.series.iter_mut().find(|series| series.name == name) {
            Some(series) => series.samples.push(value),
            None => self.series.push(Series {
                name: name.to_owned(),
                unit,
                samples: vec![value],
                ceiling,
            }),
        }
    }

    pub(crate) fn results(&self, database: String, rounds: u32) -> Results {
        Results {
            windlass: env!("CARGO_PKG_VERSION"),
            database,
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            rounds,
            figures: self.series.iter().map(|one| self.figure(one)).collect(),
        }
    }

    fn figure(&self, series: &Series) -> Figure {
        let ceiling = series
            .ceiling
            .as_ref()
            .and_then(|name| self.series.iter().find(|other| other.name == *name));
        // The ratio is taken within each round, since a disturbed round disturbs both.
        let ratio = ceiling.map(|ceiling| {
            let pairs = series.samples.iter().zip(&ceiling.samples);
            median(pairs.map(|(value, most)| value / most).collect())
        });
        let least = series.samples.iter().copied().fold(f64::INFINITY, f64::min);
        Figure {
            name: series.name.clone(),
            unit: series.unit,
            median: median(series.samples.clone()),
            min: least,
            max: series.samples.iter().copied().fold(0.0, f64::max),
            ceiling: ceiling.map(|ceiling| ceiling.name.clone()),
            ceiling_median: ceiling.map(|ceiling| median(ceiling.samples.clone())),
            ratio,
        }
    }
}

/// Returns the middle value, or the mean of the two middle values.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => 0.0,
        length if length % 2 == 1 => values[middle],
        _ => f64::midpoint(values[middle - 1], values[middle]),
    }
}

/// All figures of a benchmark.
#[derive(Debug, Serialize)]
pub(crate) struct Results {
    windlass: &'static str,
    database: String,
    cores: usize,
    rounds: u32,
    figures: Vec<Figure>,
}

/// One figure, over all rounds.
#[derive(Debug, Serialize)]
struct Figure {
    name: String,
    unit: &'static str,
    median: f64,
    min: f64,
    max: f64,
    /// The figure to compare it with.
    #[serde(skip_serializing_if = "Option::is_none")]
    ceiling: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ceiling_median: Option<f64>,
    /// The median of this figure divided by the other, round by round.
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio: Option<f64>,
}

impl Report for Results {
    fn text(&self, width: Option<usize>) -> String {
        let mut table = Table::new(&[
            Column::text("FIGURE"),
            Column::number("MEDIAN"),
            Column::text("UNIT"),
            Column::number("LEAST"),
            Column::number("MOST"),
            Column::number("RATIO"),
            Column::text("OF"),
        ]);
        for figure in &self.figures {
            table.add(vec![
                figure.name.clone(),
                number(figure.median),
                figure.unit.to_owned(),
                number(figure.min),
                number(figure.max),
                figure
                    .ratio
                    .map_or(String::new(), |ratio| format!("{ratio:.2}")),
                figure.ceiling.clone().unwrap_or_default(),
            ]);
        }
        let Results {
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
fn number(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_in_the_middle() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
    }

    #[test]
    fn ratios_are_taken_round_by_round() {
        let mut figures = Figures::default();
        for (ceiling, value) in [(100.0, 50.0), (10.0, 9.0), (1000.0, 700.0)] {
            figures.note("plain", "jobs/s", ceiling);
            figures.note_of("ours", "jobs/s", value, "plain");
        }
        let results = figures.results("a database".to_owned(), 3);
        assert_eq!(results.figures[1].ratio, Some(0.7));
        assert_eq!(results.figures[1].median, 50.0);
        assert_eq!(results.figures[0].ratio, None);
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(number(84_123.4), "84123");
        assert_eq!(number(12.34), "12.3");
        assert_eq!(number(0.456), "0.46");
    }
}
