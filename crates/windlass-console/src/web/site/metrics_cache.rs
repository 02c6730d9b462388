//! The last figures of a database: however many scrape, one reads.

use crate::web::read::ScrapedFigures;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use windlass::internal::clock;

/// The time for which figures are used.
const FRESH: Duration = Duration::from_secs(5);

/// The greatest age of figures that are shown while another thread reads newer ones.
const STALE: Duration = Duration::from_secs(30);

/// The longest wait for the thread that reads, if there are no figures.
const PATIENCE: Duration = Duration::from_secs(6);

/// The last figures of a database, for all threads.
#[derive(Debug, Default)]
pub(crate) struct MetricsCache {
    last: Mutex<LastFigures>,
    has_read: Condvar,
}

#[derive(Debug, Default)]
struct LastFigures {
    is_reading: bool,
    figures: Option<(Instant, Arc<ScrapedFigures>)>,
}

/// Lets others read when it is dropped, also after a panic.
struct Reading<'c>(&'c MetricsCache);

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.0.last().is_reading = false;
        self.0.has_read.notify_all();
    }
}

impl LastFigures {
    fn younger_than(&self, age: Duration) -> Option<Arc<ScrapedFigures>> {
        let (at, figures) = self.figures.as_ref()?;
        (at.elapsed() < age).then(|| Arc::clone(figures))
    }
}

impl MetricsCache {
    fn last(&self) -> MutexGuard<'_, LastFigures> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the figures: those of a moment ago, or what `read` returns, which is `None` if the
    /// database is away.
    pub(crate) fn figures(
        &self,
        read: impl FnOnce() -> Option<ScrapedFigures>,
    ) -> Option<Arc<ScrapedFigures>> {
        let mut last = self.last();
        if let Some(figures) = last.younger_than(FRESH) {
            return Some(figures);
        }
        if last.is_reading {
            if let Some(figures) = last.younger_than(STALE) {
                return Some(figures);
            }
            let waited = self
                .has_read
                .wait_timeout_while(last, PATIENCE, |last| last.is_reading);
            let (last, _) = waited.unwrap_or_else(PoisonError::into_inner);
            return last.younger_than(STALE);
        }
        last.is_reading = true;
        drop(last);
        let _reading = Reading(self);
        let figures = read().map(Arc::new);
        self.last().figures = figures.clone().map(|figures| (clock::instant(), figures));
        figures
    }
}
