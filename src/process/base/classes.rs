//! What a worker tells others of its classes.

use crate::clock;
use crate::db::table::classes;
use crate::job::registry::Registry;
use crate::process::base::session::Link;
use std::time::{Duration, Instant};

/// How often a worker says that it still performs its classes. What none has
/// said for 30 days is cleared.
const EVERY: Duration = Duration::from_secs(12 * 3600);

/// After a heartbeat: writes the classes of a worker down, at the start and
/// then now and again. A failure is made up for after the next heartbeat.
pub(crate) fn teller(registry: &Registry) -> impl FnMut(&mut Link) + use<> {
    let classes = registry.described();
    let mut told: Option<Instant> = None;
    move |link| {
        let now = clock::instant();
        if classes.is_empty() || told.is_some_and(|told| now - told < EVERY) {
            return;
        }
        let seen = link.write("name the classes", |conn| classes::see(conn, &classes));
        told = seen.is_ok().then_some(now);
    }
}
