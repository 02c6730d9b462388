//! The end of a worker that runs until it is idle.

use crate::process::base::dispatching::RefusedJobs;
use crate::process::base::session::Session;
use crate::process::base::stop::Stop;
use crate::process::worker::claim::wakeups::Wakeups;
use std::time::Duration;

/// Notices that no job is left. A worker is idle if it holds no job at one look, and finds none at
/// the next.
#[derive(Debug)]
pub(crate) struct IdleEnd {
    pub(crate) is_wanted: bool,
    /// Whether the worker held no job at the last look, and has found none since.
    was_idle: bool,
    refused: RefusedJobs,
}

/// How many scheduled jobs become ready at once.
const DISPATCHED: usize = 500;

/// How long to wait for running jobs before the next look.
const WHILE_JOBS_RUN: Duration = Duration::from_millis(100);

impl IdleEnd {
    pub(crate) fn new(is_wanted: bool) -> Self {
        IdleEnd {
            is_wanted,
            was_idle: false,
            refused: RefusedJobs::default(),
        }
    }

    /// Notes how many jobs a claim has found.
    pub(crate) fn note_found(&mut self, jobs: usize) {
        self.was_idle &= jobs == 0;
    }

    /// Makes scheduled jobs ready that are due, after a look that found no ready job. Stops the
    /// worker if there are none, and it has none. Waits while jobs run.
    pub(crate) fn look(
        &mut self,
        is_idle: bool,
        session: &mut Session,
        wakeups: &mut Wakeups,
        stop: &Stop,
    ) {
        match self.refused.dispatch(session, DISPATCHED) {
            Ok(0) if is_idle && self.was_idle => {
                log::info!("no job is left that this worker could run: it stops");
                stop.stop();
            }
            Ok(0) if is_idle => self.was_idle = true,
            Ok(0) => wakeups.wait_for_end(stop, WHILE_JOBS_RUN),
            Ok(_) => self.was_idle = false,
            Err(delay) => drop(stop.wait(delay)),
        }
    }
}
