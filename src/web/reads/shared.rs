//! Reads that several pages share, and that cost much on a large database.

use crate::clock;
use crate::db::Conn;
use crate::db::conn::reading::ReadFailure;
use crate::error::Result;
use crate::web::kept::Kept;
use crate::web::reads::connections::Readers;
use crate::web::site::{Site, SiteSettings, Source};
use std::fmt;
use std::time::Duration;

/// The time limit of a read for which no viewer waits.
const RENEW: Duration = Duration::from_secs(8);

/// A read whose value is used for a while.
pub(crate) struct SharedRead<T: 'static> {
    /// Where the value is kept.
    pub(crate) place: fn(&Source) -> &Kept<T>,
    pub(crate) read: fn(&mut Conn<'_>, &Source, &SiteSettings) -> Result<T>,
    /// How long the value is used that took so long to read: zero if it is read each time.
    pub(crate) lifetime: fn(&T, Duration) -> Duration,
    /// How old a value may be in a page that is brought up to date by itself.
    pub(crate) live: Duration,
}

/// Returns how long a value is used so that it is being read for at most 1 % of the time.
pub(crate) fn affordable(took: Duration) -> Duration {
    const LONGEST: Duration = Duration::from_secs(30);
    (100 * took).min(LONGEST)
}

impl<T: Clone + Send> SharedRead<T> {
    /// Reads the value anew, and keeps it.
    pub(crate) fn renew(
        &self,
        readers: &mut Readers,
        (site, database): (&Site, usize),
        limit: Duration,
    ) -> Result<T, ReadFailure> {
        let Some(source) = site.sources.get(database) else {
            return Err(ReadFailure::Lost("there is no such database".to_owned()));
        };
        let (kept, start) = ((self.place)(source), clock::instant());
        let begun = kept.begin(start);
        let read = readers.read(database, limit, |conn| {
            (self.read)(conn, source, &site.settings)
        });
        match &read {
            Ok(value) => {
                let took = start.elapsed();
                kept.set(begun, value, (self.lifetime)(value, took));
            }
            Err(failure) => {
                let is_late = matches!(failure, ReadFailure::Late | ReadFailure::Cut);
                kept.failed(clock::instant(), is_late);
            }
        }
        read
    }

    /// Returns that work, for later.
    pub(crate) fn renewal(&'static self, database: usize) -> Renewal {
        Renewal {
            // If it fails, the next page that needs it reads it, and says so.
            run: Box::new(move |readers, site| {
                let _ = self.renew(readers, (site, database), RENEW);
            }),
            give_up: Box::new(move |site| {
                if let Some(source) = site.sources.get(database) {
                    (self.place)(source).release_renewal();
                }
            }),
        }
    }
}

type RenewFn = dyn FnOnce(&mut Readers, &Site) + Send;
type GiveUpFn = dyn FnOnce(&Site) + Send;

/// A value to read anew after the page that used it was sent.
pub(crate) struct Renewal {
    run: Box<RenewFn>,
    give_up: Box<GiveUpFn>,
}

impl Renewal {
    pub(crate) fn run(self, readers: &mut Readers, site: &Site) {
        (self.run)(readers, site);
    }

    /// Lets a later page ask for it again.
    pub(crate) fn give_up(self, site: &Site) {
        (self.give_up)(site);
    }
}

impl fmt::Debug for Renewal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Renewal")
    }
}
