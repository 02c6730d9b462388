//! Stores the classes of a worker, for `windlass` and other processes.

use crate::clock;
use crate::db::table::classes;
use crate::job::registry::Registry;
use crate::process::base::session::Session;
use std::time::{Duration, Instant};

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
