//! A deliberate fault, by which the chaos run shows that it would find it.

use crate::clock;
use crate::db::model::decision::Death;
use crate::db::transition::recover::Recovered;
use crate::db::transition::{faults, prune};
use crate::process::base::session::Session;
use std::time::Duration;

/// Prunes a process as if nothing had changed since the observation, and gives others the time to
/// claim between its two halves.
pub(crate) fn prune_stale(
    session: &mut Session,
    id: i64,
    death: &Death,
) -> Result<Option<Recovered>, Duration> {
    let recovered = session.run("prune a process", |conn| {
        faults::recover_stale(conn, id, death)
    })?;
    clock::nap(Duration::from_millis(60));
    session.run("prune a process", |conn| prune::delete(conn, id))?;
    Ok(Some(recovered))
}
