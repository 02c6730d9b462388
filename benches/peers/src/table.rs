//! All figures: medians over the rounds, and ratios to Windlass.

use crate::setting::{COLUMNS, Column, Setting};
use comfy_table::{CellAlignment, presets};
use serde::Serialize;

/// Figures under way; a round gives each at most one.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    samples: Vec<(Setting, Column, u32, f64)>,
    /// In the order of the table.
    measured: Vec<Setting>,
}

/// One cell.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Figure {
    figure: String,
    unit: &'static str,
    median: f64,
    min: f64,
    max: f64,
    /// To the figure of Windlass, the median of those of each round.
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio: Option<f64>,
}

/// One row.
#[derive(Debug, Serialize)]
struct Row {
    system: &'static str,
    version: &'static str,
    settings: &'static str,
    figures: Vec<Figure>,
}

impl Figures {
    /// For the rows that are to be measured.
    pub(crate) fn of(measured: Vec<Setting>) -> Figures {
        let samples = Vec::new();
        Figures { samples, measured }
    }

    /// Notes what came of a measurement.
    pub(crate) fn note(&mut self, setting: Setting, round: u32, measured: &[(Column, f64)]) {
        let samples = measured
            .iter()
            .map(|&(column, value)| (setting, column, round, value));
        self.samples.extend(samples);
    }

    fn samples(&self, setting: Setting, column: Column) -> impl Iterator<Item = (u32, f64)> {
        let samples = self.samples.iter();
        let samples = samples.filter(move |sample| sample.0 == setting && sample.1 == column);
        samples.map(|&(_, _, round, value)| (round, value))
    }

    fn figure(&self, setting: Setting, column: Column) -> Option<Figure> {
        let values: Vec<f64> = self
            .samples(setting, column)
            .map(|(_, value)| value)
            .collect();
        let ratios = setting.beside(column).map(|base| {
            let pairs = self.samples(setting, column).filter_map(|(round, value)| {
                let mut bases = self.samples(base, column);
                let (_, base) = bases.find(|&(other, _)| other == round)?;
                Some(value / base)
            });
            pairs.collect::<Vec<f64>>()
        });
        Some(Figure {
            figure: column.heading(),
            unit: column.unit(),
            min: values.iter().copied().fold(f64::INFINITY, f64::min),
            max: values.iter().copied().fold(0.0, f64::max),
            median: median(values)?,
            ratio: ratios.and_then(median),
        })
    }

    fn cell(&self, setting: Setting, column: Column) -> String {
        match self.figure(setting, column) {
            Some(figure) => figure.text(),
            None if setting.measures(column) => "none".to_owned(),
            None => "as above".to_owned(),
        }
    }

    /// The table, and under it how to read it.
    pub(crate) fn text(&self) -> String {
        let mut table = comfy_table::Table::new();
        table.load_style(presets::NOTHING);
        let headings = COLUMNS
            .iter()
            .map(|column| column.heading().replace(", ", ",\n"));
        table.set_header(std::iter::once(String::new()).chain(headings));
        for &setting in &self.measured {
            let cells = COLUMNS.iter().map(|&column| self.cell(setting, column));
            table.add_row(std::iter::once(setting.label().to_owned()).chain(cells));
        }
        for (index, column) in table.column_iter_mut().enumerate() {
            column.set_padding((0, 2));
            if index > 0 {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        let table = table.trim_fmt();
        let settings = self.measured.iter().map(|&setting| {
            let (label, version) = (setting.label(), setting.version());
            format!("{label} (version {version}): {}\n", setting.described())
        });
        format!("{table}\n\n{READING}\n\n{}", settings.collect::<String>())
    }

    /// Everything, for programs.
    pub(crate) fn json(&self) -> serde_json::Result<String> {
        let rows = self.measured.iter().map(|&setting| Row {
            system: setting.label(),
            version: setting.version(),
            settings: setting.described(),
            figures: COLUMNS
                .iter()
                .filter_map(|&column| self.figure(setting, column))
                .collect(),
        });
        serde_json::to_string_pretty(&rows.collect::<Vec<_>>())
    }
}

const READING: &str = "\
Enqueue and drain: jobs a second. Pick-up: milliseconds. In brackets: the figure divided by that
of Windlass in the same round; in the drains, of Windlass deleting finished jobs, as the peers do.
So below 1 a peer is slower in enqueue and drain, and faster in pick-up.";

impl Figure {
    fn text(&self) -> String {
        let median = number(self.median);
        match self.ratio {
            Some(ratio) if ratio < 0.001 => format!("{median} (< 0.001)"),
            Some(ratio) => format!("{median} ({})", number(ratio)),
            None => median,
        }
    }
}

/// The middle one, or the mean of the two in the middle.
fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = *values.get(middle)?;
    let lower = if values.len() % 2 == 1 {
        middle
    } else {
        middle - 1
    };
    Some(f64::midpoint(values[lower], upper))
}

/// Three digits that matter, or all before the point.
fn number(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value if value >= 0.1 => format!("{value:.2}"),
        value => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_in_the_middle() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(vec![]), None);
    }

    #[test]
    fn ratios_are_taken_round_by_round() {
        let mut figures = Figures::of(Setting::ALL.to_vec());
        let drain = Column::Drain(16);
        for (round, ours, theirs) in [(1, 100.0, 50.0), (2, 10.0, 9.0), (3, 1000.0, 700.0)] {
            figures.note(Setting::WindlassDeleting, round, &[(drain, ours)]);
            figures.note(Setting::Fang, round, &[(drain, theirs)]);
        }
        let figure = figures.figure(Setting::Fang, drain).unwrap();
        assert_eq!((figure.median, figure.ratio), (50.0, Some(0.7)));
        assert_eq!(figure.text(), "50.0 (0.70)");
        let none = figures.cell(Setting::Fang, Column::Bulk);
        let above = figures.cell(Setting::WindlassDeleting, Column::Bulk);
        assert_eq!((&*none, &*above), ("none", "as above"));
    }
}
