//! Sessions and tokens that were proven lately: while the database is away, they still see what was
//! last seen.

use crate::web::access::viewer::{Proof, Viewer};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The time for which a proof is remembered.
const REMEMBERED: Duration = Duration::from_secs(15 * 60);

/// The most that are remembered.
const MOST: usize = 1_000;

/// Viewers by the digest of their secret.
#[derive(Debug, Default)]
pub(crate) struct KnownViewers(Mutex<HashMap<String, (Instant, Viewer)>>);

impl KnownViewers {
    pub(crate) fn remember(&self, digest: &str, viewer: &Viewer, now: Instant) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST {
            known.retain(|_, (at, _)| now.saturating_duration_since(*at) < REMEMBERED);
        }
        if known.len() < MOST {
            known.insert(digest.to_owned(), (now, viewer.clone()));
        }
    }

    pub(crate) fn forget(&self, digest: &str) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.remove(digest);
    }

    /// Returns the viewer, who may change nothing.
    pub(crate) fn recall(&self, digest: &str, now: Instant) -> Option<Viewer> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, viewer) = known.get(digest)?;
        let is_recent = now.saturating_duration_since(*at) < REMEMBERED;
        is_recent.then(|| Viewer {
            proof: Proof::Recalled,
            ..viewer.clone()
        })
    }
}
