//! Counts how runs end, for the history.

use crate::db::model::claim::Claimed;
use crate::db::model::history::tally::{CountedEnd, RunSpan};
use crate::job::running::Live;
use crate::process::base::history::collector::HistoryCollector;
use std::time::Duration;

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
    // Negative after the database's clock was set back.
    let claimed_after = |seconds: f64| Duration::try_from_secs_f64(seconds).unwrap_or_default();
    let waited = job.waited.map(claimed_after);
    let run = RunSpan {
        waited: waited.map(|waited| waited.saturating_add(in_memory)),
        ran,
    };
    history.add_run(queue, class, end, run);
}
