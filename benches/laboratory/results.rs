//! The table of all results, as text and as JSON.

use crate::bench::command::number;
use crate::laboratory::figures::Row;
use crate::terminal::{Column, Report, Table};
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
