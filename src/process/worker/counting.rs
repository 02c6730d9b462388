//! Counts how runs end, for the history.

use crate::clock;
use crate::db::model::claim::Claimed;
use crate::db::model::history::tally::{CountedEnd, RunSpan};
use crate::db::table::classes;
use crate::job::registry::Registry;
use crate::job::running::Live;
use crate::process::base::context::HistoryCollector;
use crate::process::base::session::Session;
use std::time::{Duration, Instant};

/// Counts the end of a claim, whose job took `ran` if it was started.
pub(crate) fn count(
    history: &HistoryCollector,
    job: &Claimed,
    live: &Live,
    ran: Duration,
    end: CountedEnd,
) {
    let (queue, class) = (&job.queue_name, &job.class_name);
    let Some(in_memory) = live.waited() else {
        return history.add(queue, class, end);
    };
    let waited = job.waited.and_then(waited_in_database);
    let run = RunSpan {
        waited: waited.map(|waited| waited.saturating_add(in_memory)),
        ran,
    };
    history.add_run(queue, class, end, run);
}

/// The longest wait in seconds that is believed: 100 years. Other programs can store any time.
const LONGEST_WAIT: f64 = 100.0 * 365.25 * 86_400.0;

/// Returns how long a job was ready before its claim. After the database's clock was set back, the
/// difference can be negative.
fn waited_in_database(seconds: f64) -> Option<Duration> {
    let is_time = seconds.abs() <= LONGEST_WAIT;
    is_time.then(|| Duration::try_from_secs_f64(seconds).unwrap_or_default())
}

// --- Stores the classes of a worker, for `windlass` and other processes ---

/// How often a worker stores that it still performs its classes. A class that no worker has stored
/// for 30 days is cleared.
const EVERY: Duration = Duration::from_secs(12 * 3600);

/// Returns a function to call after each heartbeat. It stores the classes of a worker at the start
/// and every [`EVERY`]; after a failure it tries again after the next heartbeat.
pub(crate) fn recorder(registry: &Registry) -> impl FnMut(&mut Session) + use<> {
    let classes = registry.described();
    let mut written: Option<Instant> = None;
    move |session| {
        let now = clock::instant();
        if classes.is_empty() || written.is_some_and(|written| now - written < EVERY) {
            return;
        }
        let seen = session.run("name the classes", |conn| classes::see(conn, &classes));
        written = seen.is_ok().then_some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_time_is_no_wait() {
        let waits = [1.5, -2.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 1e11];
        let waits = waits.map(waited_in_database);
        let second = Duration::from_millis(1_500);
        assert_eq!(
            waits,
            [Some(second), Some(Duration::ZERO), None, None, None, None]
        );
    }
}
