//! Shares jobs between the workers of a queue that runs dry: an idle worker asks the busy ones, and
//! each of these releases the jobs that it has claimed ahead and not started. No worker touches
//! claims of another.

use crate::clock;
use crate::db::table::processes;
use crate::process::base::heartbeat::Heartbeat;
use crate::process::base::session::Session;
use std::time::{Duration, Instant};

/// When a worker last asked, or checked whether it was asked.
#[derive(Debug, Default)]
pub(crate) struct Sharing {
    asked_at: Option<Instant>,
    checked_at: Option<Instant>,
}

/// An idle worker asks no more often.
const ASK_PAUSE: Duration = Duration::from_millis(10);

/// A busy worker checks no more often: on SQLite, every commit wakes it.
const CHECK_PAUSE: Duration = Duration::from_millis(4);

impl Sharing {
    /// Asks the busy workers for jobs, if that is due.
    pub(crate) fn ask(&mut self, heartbeat: &Heartbeat, session: &mut Session) {
        let Some(registration) = heartbeat.current() else {
            return;
        };
        if is_due(&mut self.asked_at, ASK_PAUSE) {
            let _ = session.run("ask for jobs", |conn| {
                processes::request_release(conn, registration.id)
            });
        }
    }

    /// Returns whether an idle worker has asked for jobs, if a check is due.
    pub(crate) fn is_asked(&mut self, heartbeat: &Heartbeat, session: &mut Session) -> bool {
        let Some(registration) = heartbeat.current() else {
            return false;
        };
        is_due(&mut self.checked_at, CHECK_PAUSE)
            && session
                .run("read requests to release", |conn| {
                    processes::take_release_request(conn, registration.id)
                })
                .unwrap_or(false)
    }
}

fn is_due(last: &mut Option<Instant>, pause: Duration) -> bool {
    let is_due = last.is_none_or(|last| last.elapsed() >= pause);
    if is_due {
        *last = Some(clock::instant());
    }
    is_due
}
