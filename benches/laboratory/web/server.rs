//! The server, in a process of its own.

use crate::db::Database;
use crate::error::Result;
use crate::laboratory::counters;
use crate::laboratory::worker::{Cost, Told, lines, tell};
use crate::terminal;
use crate::web::server::Server;
use std::process::ExitCode;
use std::time::Duration;

/// Serves until standard input ends, and reports its cost at each line of it.
pub(crate) fn serve(slow: Option<Duration>, url: &str) -> Result<ExitCode> {
    terminal::log_to_stderr(log::LevelFilter::Warn);
    counters::count_statements();
    counters::log_slower_than(slow);
    let server = Server::new(&Database::open(url)?)
        .listen("127.0.0.1:0")
        .start()?;
    tell(&Told::Listening(server.address()));
    for _ in lines(std::io::stdin()) {
        tell(&Told::Cost(Cost::of_process()));
    }
    Ok(ExitCode::SUCCESS)
}
