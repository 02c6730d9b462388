//! Rows of text: a table, or one block per row if the terminal is too narrow for a table.

use comfy_table::{CellAlignment, presets};

/// A heading and the alignment of its column.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Column {
    heading: &'static str,
    alignment: CellAlignment,
}

impl Column {
    /// Aligned to the left.
    pub(crate) const fn text(heading: &'static str) -> Self {
        Column {
            heading,
            alignment: CellAlignment::Left,
        }
    }

    /// Aligned to the right.
    pub(crate) const fn number(heading: &'static str) -> Self {
        Column {
            heading,
            alignment: CellAlignment::Right,
        }
    }
}

/// Rows under headings.
#[derive(Debug)]
pub(crate) struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(columns: &[Column]) -> Self {
        Table {
            columns: columns.to_vec(),
            rows: Vec::new(),
        }
    }

    /// Adds a row with one cell per column. A cell may have several lines.
    pub(crate) fn add(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// Returns the lines, if possible no wider than `width` columns.
    pub(crate) fn text(&self, width: Option<usize>) -> String {
        if width.is_some_and(|width| self.width() > width) {
            self.blocks()
        } else {
            self.table().trim_fmt() + "\n"
        }
    }

    /// Returns its width as a table.
    pub(crate) fn width(&self) -> usize {
        let widths = self.table().column_max_content_widths();
        let all: usize = widths.iter().map(|width| usize::from(width + GAP)).sum();
        all - usize::from(GAP)
    }

    fn table(&self) -> comfy_table::Table {
        let mut table = comfy_table::Table::new();
        table.load_style(presets::NOTHING);
        table.set_header(self.columns.iter().map(|column| column.heading));
        table.add_rows(&self.rows);
        for (shown, column) in table.column_iter_mut().zip(&self.columns) {
            shown.set_padding((0, GAP));
            shown.set_cell_alignment(column.alignment);
        }
        table
    }

    /// Returns the first cell of each row, with the other cells that are not empty below it.
    fn blocks(&self) -> String {
        let mut text = String::new();
        for row in &self.rows {
            for (index, (column, cell)) in self.columns.iter().zip(row).enumerate() {
                for line in cell.lines() {
                    if index == 0 {
                        text.push_str(&format!("{line}\n"));
                    } else {
                        let heading = column.heading.to_lowercase();
                        text.push_str(&format!("  {heading}: {line}\n"));
                    }
                }
            }
        }
        text
    }
}

/// Between two columns.
const GAP: u16 = 2;

/// Returns a name with control characters escaped, so that it cannot move the cursor of a terminal
/// or break the table. Names come from any program that enqueues.
pub(crate) fn printable(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for letter in name.chars() {
        if letter.is_control() {
            text.extend(letter.escape_default());
        } else {
            text.push(letter);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(&[
            Column::text("QUEUE"),
            Column::number("READY"),
            Column::text("RUNS"),
        ]);
        table.add(vec!["mail".into(), "12".into(), "a\nb".into()]);
        table.add(vec!["imports".into(), "3".into(), String::new()]);
        table
    }

    const WIDE: &str = "\
QUEUE    READY  RUNS
mail        12  a
                b
imports      3
";

    const NARROW: &str = "\
mail
  ready: 12
  runs: a
  runs: b
imports
  ready: 3
";

    #[test]
    fn a_table_where_there_is_room() {
        assert_eq!(table().text(None), WIDE);
        assert_eq!(table().text(Some(20)), WIDE);
    }

    #[test]
    fn blocks_where_there_is_none() {
        assert_eq!(table().text(Some(19)), NARROW);
    }

    #[test]
    fn names_cannot_steer_the_terminal() {
        assert_eq!(printable("a\u{1b}[2Jb\nü"), "a\\u{1b}[2Jb\\nü");
    }
}
