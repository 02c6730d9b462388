//! All figures: medians over the rounds, and the ratio of Windlass to the best of the others.

use crate::measure::Value;
use crate::row::Row;
use crate::setting::{Kind, Name, Setting};
use comfy_table::{CellAlignment, presets};
use serde::Serialize;

/// Figures so far; a round gives each at most one.
#[derive(Debug)]
pub(crate) struct Figures {
    samples: Vec<Sample>,
    /// In the order of the tables.
    settings: Vec<Setting>,
    rows: Vec<Row>,
}

#[derive(Debug)]
struct Sample {
    setting: Setting,
    row: Row,
    round: u32,
    value: Value,
}

/// One cell.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Figure {
    system: &'static str,
    version: &'static str,
    median: f64,
    min: f64,
    max: f64,
    cut_off: bool,
}

/// One row.
#[derive(Debug, Serialize)]
struct Line {
    database: String,
    row: String,
    figures: Vec<Figure>,
    /// The median of those of each round; above 1 Windlass is ahead.
    windlass_to_best_other: Option<f64>,
}

impl Figures {
    /// Empty, for what is to be measured.
    pub(crate) fn of(settings: Vec<Setting>, rows: Vec<Row>) -> Figures {
        Figures {
            samples: Vec::new(),
            settings,
            rows,
        }
    }

    /// Notes what came of a measurement.
    pub(crate) fn note(&mut self, setting: Setting, round: u32, measured: &[(Row, Value)]) {
        self.samples
            .extend(measured.iter().map(|&(row, value)| Sample {
                setting,
                row,
                round,
                value,
            }));
    }

    fn samples(&self, setting: Setting, row: Row) -> impl Iterator<Item = &Sample> {
        let samples = self.samples.iter();
        samples.filter(move |sample| sample.setting == setting && sample.row == row)
    }

    fn figure(&self, setting: Setting, row: Row) -> Option<Figure> {
        let values = self.samples(setting, row).map(|sample| sample.value.value);
        let values: Vec<f64> = values.collect();
        Some(Figure {
            system: setting.label(),
            version: setting.version(),
            min: values.iter().copied().fold(f64::INFINITY, f64::min),
            max: values.iter().copied().fold(0.0, f64::max),
            median: median(values)?,
            cut_off: self.samples(setting, row).any(|it| it.value.cut_off),
        })
    }

    /// Windlass with its defaults to the best of the others in the same round, so that above 1
    /// Windlass is ahead.
    fn ratio(&self, row: Row, kind: Kind) -> Option<f64> {
        let windlass = match kind {
            Kind::Postgres => Setting::Windlass,
            Kind::Sqlite => Setting::WindlassSqlite,
        };
        let ratios = self.samples(windlass, row).filter_map(|own| {
            let others = self.samples.iter().filter(|it| {
                let is_peer = it.setting.name() != Name::Windlass;
                let is_same = it.row == row && it.round == own.round;
                is_peer && is_same && it.setting.database() == kind
            });
            let others = others.map(|it| it.value.value);
            let ratio = if row.is_time() {
                others.reduce(f64::min)? / own.value.value
            } else {
                own.value.value / others.reduce(f64::max)?
            };
            ratio.is_finite().then_some(ratio)
        });
        median(ratios.collect())
    }

    fn of_kind(&self, kind: Kind) -> Vec<Setting> {
        let settings = self.settings.iter().copied();
        settings.filter(|it| it.database() == kind).collect()
    }

    fn cell(&self, setting: Setting, row: Row) -> String {
        match self.figure(setting, row) {
            Some(figure) => figure.text(),
            None if setting.measures(row) => "none".to_owned(),
            None => String::new(),
        }
    }

    /// The tables, as Markdown.
    pub(crate) fn text(&self) -> String {
        let kinds = [(Kind::Postgres, "Postgres"), (Kind::Sqlite, "SQLite")];
        let kinds = kinds
            .into_iter()
            .filter(|&(kind, _)| !self.of_kind(kind).is_empty());
        let tables = kinds.map(|(kind, name)| self.table(kind, name));
        tables.collect::<Vec<_>>().join("\n\n")
    }

    fn table(&self, kind: Kind, name: &str) -> String {
        let settings = self.of_kind(kind);
        let mut table = comfy_table::Table::new();
        table.load_style(presets::ASCII_MARKDOWN);
        let headings = settings.iter().map(|setting| match setting.name() {
            Name::Windlass => setting.label().to_owned(),
            _ => format!("{} {}", setting.label(), setting.version()),
        });
        let ratio = "Windlass / best other".to_owned();
        let headings = std::iter::once(name.to_owned()).chain(headings);
        table.set_header(headings.chain(std::iter::once(ratio)));
        for &row in &self.rows {
            let cells = settings.iter().map(|&setting| self.cell(setting, row));
            let cells = std::iter::once(row.heading()).chain(cells);
            let ratio = self.ratio(row, kind).map_or(String::new(), ratio_text);
            table.add_row(cells.chain(std::iter::once(ratio)));
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        table.to_string()
    }

    /// Everything, for programs.
    pub(crate) fn json(&self) -> serde_json::Result<String> {
        let kinds = [Kind::Postgres, Kind::Sqlite].into_iter();
        let lines = kinds.flat_map(|kind| self.rows.iter().map(move |&row| (kind, row)));
        let lines = lines.map(|(kind, row)| Line {
            database: format!("{kind:?}").to_lowercase(),
            row: row.heading(),
            figures: self
                .of_kind(kind)
                .into_iter()
                .filter_map(|setting| self.figure(setting, row))
                .collect(),
            windlass_to_best_other: self.ratio(row, kind),
        });
        let lines = lines.filter(|line| !line.figures.is_empty());
        serde_json::to_string_pretty(&lines.collect::<Vec<_>>())
    }
}

impl Figure {
    fn text(&self) -> String {
        let median = number(self.median);
        if self.cut_off {
            return format!("{median} c");
        }
        median
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

fn ratio_text(ratio: f64) -> String {
    if ratio >= 10.0 {
        format!("{ratio:.0}")
    } else {
        format!("{ratio:.2}")
    }
}

/// Three digits that matter, with commas between thousands.
fn number(value: f64) -> String {
    if value < 0.995 {
        return format!("{value:.2}");
    }
    if value < 9.95 {
        return format!("{value:.1}");
    }
    let digits = value.log10().floor() as i32 - 2;
    let unit = 10f64.powi(digits.max(0));
    let rounded = ((value / unit).round() * unit) as u64;
    if rounded < 1_000 {
        return rounded.to_string();
    }
    format!("{},{:03}", rounded / 1_000, rounded % 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::{Part, Since};
    use windlass_peers_driver::Work;

    #[test]
    fn medians_are_in_the_middle() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(vec![]), None);
    }

    #[test]
    fn numbers_have_three_digits() {
        let texts = [0.456, 4.56, 45.6, 456.7, 4_567.0, 45_678.0, 456_789.0].map(number);
        let expected = ["0.46", "4.6", "46", "457", "4,570", "45,700", "457,000"];
        assert_eq!(texts, expected);
    }

    fn noted(row: Row, rounds: &[(f64, f64, f64)]) -> Figures {
        let mut figures = Figures::of(Setting::ALL.to_vec(), vec![row]);
        for (round, &(windlass, fang, awa)) in rounds.iter().enumerate() {
            for (setting, value) in [
                (Setting::Windlass, windlass),
                (Setting::WindlassDeleting, 1e9),
                (Setting::Fang, fang),
                (Setting::Awa, awa),
                (Setting::ApalisSqlite, 1e9),
            ] {
                let cut_off = setting == Setting::Fang;
                let value = Value { value, cut_off };
                figures.note(setting, round.try_into().unwrap(), &[(row, value)]);
            }
        }
        figures
    }

    #[test]
    fn ratios_are_to_the_best_peer_of_each_round() {
        let row = Row::Drain(Work::Nothing, 16);
        let figures = noted(
            row,
            &[(100.0, 50.0, 25.0), (10.0, 1.0, 20.0), (9.0, 3.0, 1.0)],
        );
        assert_eq!(figures.ratio(row, Kind::Postgres), Some(2.0));
        assert_eq!(figures.cell(Setting::Fang, row), "3.0 c");
        assert_eq!(figures.cell(Setting::GraphileWorker, row), "none");
    }

    #[test]
    fn less_is_better_where_it_is_time() {
        let row = Row::PickUp(Since::Call, Part::P50);
        let figures = noted(row, &[(2.0, 4.0, 3.0)]);
        assert_eq!(figures.ratio(row, Kind::Postgres), Some(1.5));
    }
}
