//! All figures: medians over the rounds, and the ratio of Windlass to the best of the others.

use crate::log::{Entry, Log};
use crate::measure::Value;
use crate::row::Row;
use crate::setting::{Kind, Name, Setting};
use comfy_table::{CellAlignment, presets};
use serde::Serialize;

/// Figures so far; a round gives each at most one.
#[derive(Debug)]
pub(crate) struct Figures {
    entries: Vec<Entry>,
    /// In the order of the tables.
    settings: Vec<Setting>,
    rows: Vec<Row>,
}

/// The value of a row in one round.
#[derive(Debug, Clone, Copy)]
struct Sample {
    setting: Setting,
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
    /// Those of a log, in tables of these columns and rows.
    pub(crate) fn of(settings: Vec<Setting>, rows: Vec<Row>, log: Log) -> Figures {
        Figures {
            entries: log.entries,
            settings,
            rows,
        }
    }

    fn samples(&self, row: Row) -> impl Iterator<Item = Sample> {
        self.entries.iter().filter_map(move |entry| {
            let mut measured = entry.measured.iter();
            let (_, value) = measured.find(|(measured, _)| *measured == row)?;
            Some(Sample {
                setting: entry.setting,
                round: entry.round,
                value: *value,
            })
        })
    }

    fn figure(&self, setting: Setting, row: Row) -> Option<Figure> {
        let samples = self.samples(row).filter(|it| it.setting == setting);
        let samples: Vec<Sample> = samples.collect();
        let values: Vec<f64> = samples.iter().map(|it| it.value.value).collect();
        Some(Figure {
            system: setting.label(),
            version: setting.version(),
            min: values.iter().copied().fold(f64::INFINITY, f64::min),
            max: values.iter().copied().fold(0.0, f64::max),
            median: median(values)?,
            cut_off: samples.iter().any(|it| it.value.cut_off),
        })
    }

    /// Windlass with its defaults to the best of the others in the same round, so that above 1
    /// Windlass is ahead.
    fn ratio(&self, row: Row, kind: Kind) -> Option<f64> {
        let windlass = windlass_on(kind);
        let own = self.samples(row).filter(|it| it.setting == windlass);
        let ratios = own.filter_map(|own| {
            let others = self.samples(row).filter(|it| {
                let is_peer = it.setting.name() != Name::Windlass;
                is_peer && it.round == own.round && it.setting.database() == kind
            });
            let others = others.map(|it| it.value.value);
            let ratio = if row.is_price() {
                others.reduce(f64::min)? / own.value.value
            } else {
                own.value.value / others.reduce(f64::max)?
            };
            // A value may be too small to be measured.
            (ratio.is_finite() && ratio > 0.0).then_some(ratio)
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
            None if self.was_measured(setting, row) => "none".to_owned(),
            None => String::new(),
        }
    }

    fn was_measured(&self, setting: Setting, row: Row) -> bool {
        let mut entries = self.entries.iter();
        entries.any(|entry| entry.setting == setting && entry.row == row)
    }

    /// The tables, as Markdown: one for each kind of database, and a short one.
    pub(crate) fn text(&self) -> String {
        let kinds = [(Kind::Postgres, "Postgres"), (Kind::Sqlite, "SQLite")];
        let kinds = kinds
            .into_iter()
            .filter(|&(kind, _)| !self.of_kind(kind).is_empty());
        let tables = kinds.map(|(kind, name)| self.table(kind, name));
        let tables = tables.chain(std::iter::once(self.summary()));
        tables.collect::<Vec<_>>().join("\n\n")
    }

    fn has_some(&self, row: Row, kind: Kind) -> bool {
        self.samples(row).any(|it| it.setting.database() == kind)
    }

    /// Windlass alone, with the ratios.
    fn summary(&self) -> String {
        let kinds = [Kind::Postgres, Kind::Sqlite];
        let header = ["", "Postgres", "/ best other", "SQLite", "/ best other"];
        let mut table = markdown(header.map(str::to_owned).to_vec());
        for &row in &self.rows {
            let cells = kinds.into_iter().flat_map(|kind| {
                let ratio = self.ratio(row, kind).map_or(String::new(), ratio_text);
                [self.cell(windlass_on(kind), row), ratio]
            });
            let cells: Vec<String> = cells.collect();
            if cells.iter().any(|cell| !cell.is_empty()) {
                table.add_row(std::iter::once(row.heading()).chain(cells));
            }
        }
        aligned(table)
    }

    fn table(&self, kind: Kind, name: &str) -> String {
        let settings = self.of_kind(kind);
        let headings = settings.iter().map(|setting| setting.heading());
        let ratio = "Windlass / best other".to_owned();
        let headings = std::iter::once(name.to_owned()).chain(headings);
        let mut table = markdown(headings.chain(std::iter::once(ratio)).collect());
        let rows = self.rows.iter().copied();
        for row in rows.filter(|&row| self.has_some(row, kind)) {
            let cells = settings.iter().map(|&setting| self.cell(setting, row));
            let cells = std::iter::once(row.heading()).chain(cells);
            let ratio = self.ratio(row, kind).map_or(String::new(), ratio_text);
            table.add_row(cells.chain(std::iter::once(ratio)));
        }
        aligned(table)
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

fn windlass_on(kind: Kind) -> Setting {
    match kind {
        Kind::Postgres => Setting::Windlass,
        Kind::Sqlite => Setting::WindlassSqlite,
    }
}

fn markdown(header: Vec<String>) -> comfy_table::Table {
    let mut table = comfy_table::Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    table.set_header(header);
    table
}

fn aligned(mut table: comfy_table::Table) -> String {
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string()
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
    match rounded {
        ..1_000 => rounded.to_string(),
        1_000..1_000_000 => format!("{},{:03}", rounded / 1_000, rounded % 1_000),
        _ => format!("{:.1} million", value / 1e6),
    }
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
        let values = [0.456, 4.56, 45.6, 456.7, 4_567.0, 45_678.0, 456_789.0, 4e6];
        let texts = values.map(number);
        let expected = [
            "0.46",
            "4.6",
            "46",
            "457",
            "4,570",
            "45,700",
            "457,000",
            "4.0 million",
        ];
        assert_eq!(texts, expected);
    }

    fn noted(row: Row, rounds: &[(f64, f64, f64)]) -> Figures {
        let mut log = Log::default();
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
                let noted = log.note(Entry {
                    setting,
                    row,
                    round: round.try_into().unwrap(),
                    measured: vec![(row, value)],
                });
                noted.unwrap();
            }
        }
        Figures::of(Setting::ALL.to_vec(), vec![row], log)
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
        assert_eq!(figures.cell(Setting::GraphileWorker, row), "");
    }

    #[test]
    fn less_is_better_where_it_is_time() {
        let row = Row::PickUp(Since::Call, Part::P50);
        let figures = noted(row, &[(2.0, 4.0, 3.0)]);
        assert_eq!(figures.ratio(row, Kind::Postgres), Some(1.5));
    }
}
