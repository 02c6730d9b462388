//! The table of all results, as text and as JSON.

use crate::bench::figures::Row;
use crate::terminal::output::Report;
use crate::terminal::table::{Column, Table};
use serde::Serialize;

/// All figures of a benchmark.
#[derive(Debug, Serialize)]
pub(crate) struct Results {
    windlass: &'static str,
    database: String,
    cores: usize,
    rounds: u32,
    rows: Vec<Row>,
}

impl Results {
    pub(crate) fn new(database: String, rounds: u32, rows: Vec<Row>) -> Self {
        Results {
            windlass: env!("CARGO_PKG_VERSION"),
            database,
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            rounds,
            rows,
        }
    }
}

impl Report for Results {
    fn text(&self, width: Option<usize>) -> String {
        let mut table = Table::new(&[
            Column::text("KIND"),
            Column::text("FIGURE"),
            Column::number("WINDLASS"),
            Column::number("CEILING"),
            Column::text("UNIT"),
            Column::number("RATIO"),
            Column::text("SPREAD"),
            Column::text("THE CEILING IS"),
        ]);
        for row in &self.rows {
            let (ceiling, ratio, spread, of) = match &row.ceiling {
                Some(beside) => (
                    number(beside.ceiling),
                    format!("{:.2}", beside.ratio),
                    format!("{:.2} to {:.2}", beside.ratio_min, beside.ratio_max),
                    beside.of.clone(),
                ),
                None => Default::default(),
            };
            table.add(vec![
                row.kind.clone(),
                row.figure.clone(),
                number(row.windlass),
                ceiling,
                row.unit.to_owned(),
                ratio,
                spread,
                of,
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
