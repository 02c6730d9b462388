//! The samples of all rounds, and their medians.

use serde::Serialize;
use std::time::Duration;

/// A number that a measurement gave.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Figure {
    /// Empty for the only one of its kind.
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) value: f64,
}

impl Figure {
    /// A rate, from a count of jobs and the time that they took.
    pub(crate) fn rate(jobs: u64, took: Duration) -> Figure {
        Figure {
            name: "",
            unit: "jobs/s",
            value: rate(jobs, took),
        }
    }
}

/// All samples, in the order in which they were first taken.
#[derive(Debug, Default)]
pub(crate) struct Rounds(Vec<(String, Figure, Vec<f64>)>);

/// One line of the results.
#[derive(Debug, Serialize)]
pub(crate) struct Summary {
    pub(crate) kind: String,
    pub(crate) figure: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

impl Rounds {
    /// Records a figure of a round.
    pub(crate) fn note(&mut self, kind: &str, figure: Figure) {
        let mut all = self.0.iter_mut();
        match all.find(|(of, known, _)| of == kind && known.name == figure.name) {
            Some((_, _, values)) => values.push(figure.value),
            None => self.0.push((kind.to_owned(), figure, vec![figure.value])),
        }
    }

    /// Returns the medians of all rounds.
    pub(crate) fn summaries(self) -> Vec<Summary> {
        let all = self.0.into_iter().map(|(kind, figure, values)| Summary {
            kind,
            figure: figure.name,
            unit: figure.unit,
            least: least(&values),
            most: most(&values),
            median: median(values),
        });
        all.collect()
    }
}

/// Returns the rate per second.
pub(crate) fn rate(count: u64, took: Duration) -> f64 {
    count as f64 / took.as_secs_f64().max(1e-9)
}

/// Returns the smallest value.
pub(crate) fn least(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::INFINITY, f64::min)
}

/// Returns the largest value.
pub(crate) fn most(values: &[f64]) -> f64 {
    values.iter().copied().fold(0.0, f64::max)
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

/// Returns the quantile `part` of values: one that was seen.
pub(crate) fn quantile(mut values: Vec<f64>, part: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let rank = (part * values.len() as f64).ceil() as usize;
    values.get(rank.max(1) - 1).copied().unwrap_or(0.0)
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
    fn quantiles_are_values_that_were_seen() {
        let values = vec![4.0, 1.0, 3.0, 2.0];
        assert_eq!(quantile(values.clone(), 0.5), 2.0);
        assert_eq!(quantile(values.clone(), 0.95), 4.0);
        assert_eq!(quantile(values, 1.0), 4.0);
        assert_eq!(quantile(Vec::new(), 0.5), 0.0);
    }

    #[test]
    fn a_figure_has_a_sample_of_each_round() {
        let mut samples = Rounds::default();
        for value in [2.0, 9.0, 4.0] {
            for (name, value) in [("a", value), ("b", value * 10.0)] {
                let unit = "ms";
                samples.note("pickup", Figure { name, unit, value });
            }
        }
        let rows = samples.summaries();
        let of = |row: &Summary| (row.figure, row.least, row.median, row.most);
        let rows: Vec<_> = rows.iter().map(of).collect();
        assert_eq!(rows, [("a", 2.0, 4.0, 9.0), ("b", 20.0, 40.0, 90.0)]);
    }
}
