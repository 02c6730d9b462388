//! Runs operations on many jobs, between clearing.

use crate::clock;
use crate::operation::turns::{OperationTurns, pause_after};
use crate::process::base::session::Session;
use crate::process::base::stop::Stop;
use std::time::{Duration, Instant};

/// How often it looks for operations.
const LOOK: Duration = Duration::from_secs(2);

/// Runs operations until this time, or until the process must stop.
pub(crate) fn run_until(
    session: &mut Session,
    turns: &mut OperationTurns,
    stop: &Stop,
    until: Instant,
) {
    while !stop.is_stopped() {
        let pause = match turn(session, turns, stop) {
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
pub(crate) fn turn(
    session: &mut Session,
    turns: &mut OperationTurns,
    stop: &Stop,
) -> Result<bool, Duration> {
    let open = session.run("look for operations", |conn| turns.open(conn))?;
    let mut has_run = false;
    for id in open {
        let start = clock::instant();
        match session.run("run an operation", |conn| turns.step(conn, id)) {
            Ok(advance) => has_run |= advance.is_some(),
            Err(delay) if !session.is_well() => return Err(delay),
            Err(_) => {}
        }
        if stop.wait(pause_after(start.elapsed())) {
            break;
        }
    }
    Ok(has_run)
}
