//! The only place that writes to standard output and standard error.

use crate::error::Error;
use serde::Serialize;
use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;

/// What came of a command: JSON for programs, text for people.
pub(super) trait Report: Serialize {
    /// Lines for people, at best no longer than `width` columns. `None`: no
    /// terminal will break them.
    fn text(&self, width: Option<usize>) -> String;
}

/// Prints what came of a command.
pub(super) fn show(report: &impl Report, json: bool) -> ExitCode {
    let text = if json {
        serde_json::to_string_pretty(report).map_err(io::Error::from)
    } else {
        Ok(report.text(terminal_width()))
    };
    match text.and_then(|text| writeln!(io::stdout(), "{}", text.trim_end())) {
        // Whoever reads has seen enough, as `head` has.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => failed(&Error::Io {
            action: "write to",
            path: "standard output".into(),
            source: error,
        }),
        _ => ExitCode::SUCCESS,
    }
}

/// Says one line to the program that reads.
pub(super) fn line(text: &str) {
    // Where nobody reads any more, nobody misses it.
    let _ = writeln!(io::stdout(), "{text}");
}

fn terminal_width() -> Option<usize> {
    let stdout = io::stdout();
    if !stdout.is_terminal() {
        return None;
    }
    let size = rustix::termios::tcgetwinsize(stdout).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

/// Shows how far a command is, on one line of a terminal that the next call
/// writes over; an empty text wipes it.
pub(super) fn progress(text: &str) {
    let mut stderr = io::stderr();
    if stderr.is_terminal() {
        let _ = write!(stderr, "\r\x1b[K{text}");
        let _ = stderr.flush();
    }
}

/// Says why a command failed.
pub(super) fn failed(error: &Error) -> ExitCode {
    // Where not even this can be written, the exit code still tells.
    let _ = writeln!(io::stderr(), "error: {error}");
    ExitCode::FAILURE
}

/// Prints what the parser of the arguments has to say: help, the version, or
/// what is wrong with them.
pub(super) fn told(told: &clap::Error) -> ExitCode {
    let _ = told.print();
    u8::try_from(told.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from)
}

/// Logs to standard error, from `level` on unless `RUST_LOG` says otherwise.
pub(super) fn log_to_stderr(level: log::LevelFilter) {
    let env = env_logger::Env::default().default_filter_or(level.as_str());
    // Fails when the program that runs this command logs already: all the better.
    let _ = env_logger::Builder::from_env(env).try_init();
}
