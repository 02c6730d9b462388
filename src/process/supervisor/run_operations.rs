//! Runs operations on many jobs, between clearing.

use crate::clock;
use crate::db::table::operators::operations;
use crate::operation::run::{MOST_OPEN, step};
use crate::process::base::session::Session;
use crate::process::base::stop::Stop;
use std::time::{Duration, Instant};

/// How often it looks for operations.
const LOOK: Duration = Duration::from_secs(2);

/// The bounds of the pause after a batch, so that other statements can run. Within them it is half as
/// long as the batch took.
const PAUSE: (Duration, Duration) = (Duration::from_millis(1), Duration::from_secs(1));

/// Runs operations until this time, or until the process must stop.
pub(crate) fn run_until(session: &mut Session, stop: &Stop, until: Instant) {
    while !stop.is_stopped() {
        let pause = match turn(session, stop) {
            Ok(true) => Duration::ZERO,
            Ok(false) => LOOK,
            Err(delay) => delay,
        };
        let left = until.saturating_duration_since(clock::instant());
        if left.is_zero() || stop.wait(pause.min(left)) {
            return;
        }
    }
}

/// Runs one batch of each open operation. Returns whether there was one to run. An operation that fails
/// does not delay the others.
///
/// # Errors
/// If the database is away: how long to wait.
pub(crate) fn turn(session: &mut Session, stop: &Stop) -> Result<bool, Duration> {
    let open = session.run("look for operations", |conn| {
        operations::open(conn, MOST_OPEN)
    })?;
    let mut has_run = false;
    for id in open {
        let start = clock::instant();
        match session.run("run an operation", |conn| step(conn, id)) {
            Ok(advance) => has_run |= advance.is_some(),
            Err(delay) if !session.is_well() => return Err(delay),
            Err(_) => {}
        }
        if stop.wait((start.elapsed() / 2).clamp(PAUSE.0, PAUSE.1)) {
            break;
        }
    }
    Ok(has_run)
}
