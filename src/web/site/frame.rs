//! What every page shows around its content: the database's time, and the numbers in the navigation.

use crate::clock;
use crate::db::Conn;
use crate::db::query::frame;
use crate::error::{Doing as _, Result};
use crate::web::show::numbers::COUNTED;
use chrono::{NaiveDateTime, TimeDelta};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The time at the database, and what the navigation counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) now: NaiveDateTime,
    /// How many jobs have failed, counted up to one more than 10,000.
    pub(crate) failed: i64,
    /// How many things need attention, if that was counted.
    pub(crate) attention: Option<u64>,
}

/// The last frame of a database, for all threads.
#[derive(Debug, Default)]
pub(crate) struct FrameCache(Mutex<Option<(Instant, Frame)>>);

/// How long a frame is used. Its time goes on meanwhile, by this host's monotonic clock.
const FRESH: Duration = Duration::from_secs(2);

impl FrameCache {
    /// Returns the last frame, if it is fresh.
    pub(crate) fn get(&self, at: Instant) -> Option<Frame> {
        self.younger_than(FRESH, at)
    }

    /// Returns the last frame, however old it is.
    pub(crate) fn last(&self, at: Instant) -> Option<Frame> {
        self.younger_than(Duration::MAX, at)
    }

    fn younger_than(&self, most: Duration, at: Instant) -> Option<Frame> {
        let cached = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (read_at, frame) = cached.as_ref()?;
        let age = at.saturating_duration_since(*read_at);
        let age = (age < most).then(|| TimeDelta::from_std(age).ok())??;
        Some(Frame {
            now: frame.now.checked_add_signed(age)?,
            ..frame.clone()
        })
    }

    /// Forgets the last frame.
    pub(crate) fn forget(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    pub(crate) fn set(&self, frame: &Frame) {
        let mut cached = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *cached = Some((clock::instant(), frame.clone()));
    }
}

/// Reads a frame.
pub(crate) fn read(conn: &mut Conn<'_>) -> Result<Frame> {
    let row = frame::read(conn, COUNTED + 1).doing("count the failed jobs")?;
    Ok(Frame {
        now: row.now,
        failed: row.failed,
        attention: None,
    })
}
