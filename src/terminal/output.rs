//! The only place that writes to standard output and standard error.

use crate::error::{Error, Result};
use serde::Serialize;
use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;

/// What came of a command: JSON for programs, text for people.
pub(crate) trait Report: Serialize {
    /// Lines for people, at best no longer than `width` columns. `None`: no
    /// terminal will break them.
    fn text(&self, width: Option<usize>) -> String;
}

/// Prints what came of a command.
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

/// The same, and ends with `code` when it could be printed.
pub(crate) fn show_and_end(report: &impl Report, json: bool, code: u8) -> ExitCode {
    let shown = show(report, json);
    if shown == ExitCode::SUCCESS {
        ExitCode::from(code)
    } else {
        shown
    }
}

/// Prints it once more: over the last time on a terminal, below it elsewhere,
/// and JSON on one line. `Some`: nobody reads any more.
pub(crate) fn show_again(report: &impl Report, json: bool) -> Option<ExitCode> {
    let text = if json {
        serde_json::to_string(report).map_err(io::Error::from)
    } else if io::stdout().is_terminal() {
        // Home, the text, and nothing of the last time below it.
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

/// Says one line to the program that reads.
pub(crate) fn line(text: &str) {
    // Where nobody reads any more, nobody misses it.
    let _ = writeln!(io::stdout(), "{text}");
}

/// Prints text as it is.
pub(crate) fn print(text: &[u8]) -> ExitCode {
    match io::stdout().write_all(text) {
        Err(error) => unwritten(error),
        Ok(()) => ExitCode::SUCCESS,
    }
}

fn unwritten(error: io::Error) -> ExitCode {
    // Whoever reads has seen enough, as `head` has.
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

/// Shows, on a terminal, how far a command is.
pub(crate) struct Progress(indicatif::ProgressBar);

impl Progress {
    /// Of `count` jobs, which is only asked when somebody sees it.
    pub(crate) fn of(word: &'static str, count: impl FnOnce() -> Result<u64>) -> Result<Self> {
        if !io::stderr().is_terminal() {
            return Ok(Progress(indicatif::ProgressBar::hidden()));
        }
        let bar = indicatif::ProgressBar::new(count()?);
        let style = indicatif::ProgressStyle::with_template(
            "{wide_bar} {human_pos} of {human_len} jobs {msg}, {eta} left",
        );
        Ok(Progress(match style {
            Ok(style) => bar.with_style(style).with_message(word),
            Err(_) => bar,
        }))
    }

    /// Of nobody knows how much.
    pub(crate) fn of_something() -> Self {
        Progress(if io::stderr().is_terminal() {
            indicatif::ProgressBar::new_spinner()
        } else {
            indicatif::ProgressBar::hidden()
        })
    }

    /// What is being done.
    pub(crate) fn say(&self, text: String) {
        self.0.set_message(text);
        self.0.tick();
    }

    pub(crate) fn reach(&self, jobs: u64) {
        self.0.set_position(jobs);
    }

    /// Takes it away again.
    pub(crate) fn end(self) {
        self.0.finish_and_clear();
    }
}

/// Asks the person at the terminal. `None`: there is none.
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

/// Says why a command failed.
pub(crate) fn failed(error: &Error) -> ExitCode {
    // Where not even this can be written, the exit code still tells.
    let _ = writeln!(io::stderr(), "error: {error}");
    ExitCode::FAILURE
}

/// Prints what the parser of the arguments has to say: help, the version, or
/// what is wrong with them.
pub(crate) fn told(told: &clap::Error) -> ExitCode {
    let _ = told.print();
    u8::try_from(told.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from)
}

/// Logs to standard error, from `level` on unless `RUST_LOG` says otherwise.
pub(crate) fn log_to_stderr(level: log::LevelFilter) {
    let env = env_logger::Env::default().default_filter_or(level.as_str());
    // Fails when the program that runs this command logs already: all the better.
    let _ = env_logger::Builder::from_env(env).try_init();
}
