//! Stores what a process has counted.

use crate::db::table::history::deltas;
use crate::process::base::history::collector::HistoryCollector;
use crate::process::base::session::Session;

/// Stores what ended since the last call, one row at most and mostly one statement. What cannot be
/// stored is kept for the next call.
pub(crate) fn store(collector: &HistoryCollector, session: &mut Session) {
    while let Some(delta) = collector.take() {
        let stored = session.run("store what ended", |conn| deltas::insert(conn, &delta));
        if stored.is_err() {
            collector.put_back(delta);
            return;
        }
    }
}
