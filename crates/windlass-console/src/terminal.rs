//! Output: reports as text or JSON, tables, progress, questions.

use comfy_table::{CellAlignment, presets};
use serde::Serialize;
use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;
use windlass::{Error, Result};

// --- The only place that writes to standard output and standard error ---

/// The result of a command: JSON for programs, text for readers.
pub(crate) trait Report: Serialize {
    /// Returns the text, if possible no wider than `width` columns. `None` means that no terminal
    /// wraps the lines.
    fn text(&self, width: Option<usize>) -> String;
}

/// Prints the result of a command.
pub(crate) fn show(report: &impl Report, json: bool) -> ExitCode {
    let text = if json {
        serde_json::to_string_pretty(report).map_err(io::Error::from)
    } else {
        Ok(report.text(terminal_width()))
    };
    match text.and_then(|text| writeln!(io::stdout(), "{}", text.trim_end())) {
        Err(error) => unwritten(error),
        Ok(()) => ExitCode::SUCCESS,
    }
}

/// Prints the result, and returns `code` if it could be printed.
pub(crate) fn show_and_end(report: &impl Report, json: bool, code: u8) -> ExitCode {
    let shown = show(report, json);
    if shown == ExitCode::SUCCESS {
        ExitCode::from(code)
    } else {
        shown
    }
}

/// Prints the report again: over the previous one on a terminal, below it elsewhere, and JSON on
/// one line.
///
/// Returns `Some` once the output is closed.
pub(crate) fn show_again(report: &impl Report, json: bool) -> Option<ExitCode> {
    let text = if json {
        serde_json::to_string(report).map_err(io::Error::from)
    } else if io::stdout().is_terminal() {
        // Home, the text, and nothing of the previous report below it.
        let lines = report.text(terminal_width()).replace('\n', "\x1b[K\n");
        Ok(format!("\x1b[H{lines}\x1b[J"))
    } else {
        Ok(report.text(None))
    };
    let mut stdout = io::stdout();
    text.and_then(|text| writeln!(stdout, "{text}"))
        .and_then(|()| stdout.flush())
        .err()
        .map(unwritten)
}

/// Prints one line for the program that reads the output.
#[cfg(feature = "laboratory")]
pub(crate) fn line(text: &str) {
    // If the output is closed, the line is not needed.
    let _ = writeln!(io::stdout(), "{text}");
}

/// Prints a line. Returns `false` if the output is closed.
pub(crate) fn print_line(text: &str) -> bool {
    let mut stdout = io::stdout();
    writeln!(stdout, "{text}")
        .and_then(|()| stdout.flush())
        .is_ok()
}

/// Prints text unchanged.
pub(crate) fn print(text: &[u8]) -> ExitCode {
    match io::stdout().write_all(text) {
        Err(error) => unwritten(error),
        Ok(()) => ExitCode::SUCCESS,
    }
}

fn unwritten(error: io::Error) -> ExitCode {
    // The reader has closed the output, as `head` does.
    if error.kind() == io::ErrorKind::BrokenPipe {
        return ExitCode::SUCCESS;
    }
    failed(&Error::Io {
        action: "write to",
        path: "standard output".into(),
        source: error,
    })
}

fn terminal_width() -> Option<usize> {
    let stdout = io::stdout();
    if !stdout.is_terminal() {
        return None;
    }
    let size = rustix::termios::tcgetwinsize(stdout).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

/// Returns whether a terminal is to be written to in colors: <https://no-color.org>.
pub(crate) fn has_colors() -> bool {
    let no_color = std::env::var_os("NO_COLOR");
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    no_color.is_none_or(|value| value.is_empty()) && !is_dumb
}

/// Shows the progress of a command on a terminal.
pub(crate) struct ProgressReport(indicatif::ProgressBar);

impl ProgressReport {
    /// Creates progress over `count` jobs. `count` is only called if the progress is visible.
    pub(crate) fn of(word: &'static str, count: impl FnOnce() -> Result<u64>) -> Result<Self> {
        if !io::stderr().is_terminal() {
            return Ok(ProgressReport(indicatif::ProgressBar::hidden()));
        }
        let bar = indicatif::ProgressBar::new(count()?);
        let style = indicatif::ProgressStyle::with_template(
            "{wide_bar} {human_pos} of {human_len} jobs {msg}, {eta} left",
        );
        Ok(ProgressReport(match style {
            Ok(style) => bar.with_style(style).with_message(word),
            Err(_) => bar,
        }))
    }

    /// Creates progress without a known total.
    pub(crate) fn of_something() -> Self {
        ProgressReport(if io::stderr().is_terminal() {
            indicatif::ProgressBar::new_spinner()
        } else {
            indicatif::ProgressBar::hidden()
        })
    }

    /// Shows the current action.
    pub(crate) fn say(&self, text: String) {
        self.0.set_message(text);
        self.0.tick();
    }

    pub(crate) fn reach(&self, jobs: u64) {
        self.0.set_position(jobs);
    }

    /// Removes it from the terminal.
    pub(crate) fn end(self) {
        self.0.finish_and_clear();
    }
}

/// Asks a question on the terminal. Returns `None` if there is no terminal.
pub(crate) fn ask(question: &str) -> Option<bool> {
    if !(io::stdin().is_terminal() && io::stderr().is_terminal()) {
        return None;
    }
    let mut answer = String::new();
    let asked = write!(io::stderr(), "{question} [y/N] ").and_then(|()| io::stderr().flush());
    let read = asked.and_then(|()| io::stdin().read_line(&mut answer));
    let answer = answer.trim().to_lowercase();
    Some(read.is_ok() && ["y", "yes"].contains(&&*answer))
}

/// Reports why a command failed.
pub(crate) fn failed(error: &Error) -> ExitCode {
    // If even this cannot be written, the exit code still reports it.
    let _ = writeln!(io::stderr(), "error: {error}");
    ExitCode::FAILURE
}

/// Reports what a command noticed although it succeeded.
pub(crate) fn warn(warning: &str) {
    let _ = writeln!(io::stderr(), "warning: {warning}");
}

/// Prints a message of the argument parser: help, the version, or an error.
pub(crate) fn told(told: &clap::Error) -> ExitCode {
    let _ = told.print();
    u8::try_from(told.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from)
}

/// Logs to standard error, from `level` on unless `RUST_LOG` is set.
pub(crate) fn log_to_stderr(level: log::LevelFilter) {
    let env = env_logger::Env::default().default_filter_or(level.as_str());
    // Fails if the program that runs this command already logs, which is fine.
    let _ = env_logger::Builder::from_env(env).try_init();
}

// --- Rows of text: a table, or one block per row if the terminal is too narrow for a table ---

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
