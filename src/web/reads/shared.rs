//! Reads that several pages share, and that cost much on a large database.

use crate::admin::doctor;
use crate::admin::doctor::scope::{CheckScope, Finding};
use crate::admin::groups::{FailedGroups, failed_groups};
use crate::clock;
use crate::db::Conn;
use crate::db::conn::reading::ReadFailure;
use crate::db::query::pages::job_search::{self, StateCounts};
use crate::error::{Doing as _, Result};
use crate::history::SeriesTally;
use crate::process::base::stop;
use crate::web::kept::Kept;
use crate::web::read::concerns::{self, LastHour};
use crate::web::read::{Found, PlaceCounts};
use crate::web::reads::connections::Readers;
use crate::web::site::{Site, SiteSettings, Source};
use crossbeam_channel::{Receiver, Sender, bounded};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
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

// --- The thread that reads anew what pages share, so that no page waits for it ---

/// How many renewals wait at most. One that finds no place is asked for again by a later page.
const QUEUE: usize = 64;

/// Starts the thread. It ends when all senders are dropped.
pub(crate) fn start(site: &Arc<Site>) -> Result<(Sender<Renewal>, JoinHandle<()>)> {
    let (sender, queue) = bounded(QUEUE);
    let site = Arc::clone(site);
    let thread = stop::spawn("web-renew", move || run(&site, &queue))?;
    Ok((sender, thread))
}

fn run(site: &Arc<Site>, queue: &Receiver<Renewal>) {
    let mut readers = Readers::new(site);
    for renewal in queue {
        if site.hub.is_stopped() {
            return;
        }
        let renewed = catch_unwind(AssertUnwindSafe(|| renewal.run(&mut readers, site)));
        if renewed.is_err() {
            log::error!("web: reading what pages share panicked");
        }
    }
}

// --- The reads that pages share ---

/// The most groups of failed jobs that are read, those that failed last.
const MOST_GROUPS: u32 = 200;

/// How old the history may be in a page that is brought up to date: its buckets are minutes.
const HISTORY: Duration = Duration::from_secs(10);

/// What needs attention, and the load.
pub(crate) static LOOK: SharedRead<Found> = SharedRead {
    place: |source| &source.watch.look,
    read: |conn, source, settings| source.watch.look(conn, &settings.promises),
    lifetime: |(load, _), took| {
        let is_large = load.queues.values().any(|queue| queue.ready.is_more);
        lifetime(is_large || load.is_more, took)
    },
    live: Duration::ZERO,
};

/// How long the findings of `doctor` are used.
const CHECKS: Duration = Duration::from_secs(60);

/// The findings of `doctor` for the newest rows.
pub(crate) static FINDINGS: SharedRead<Vec<Finding>> = SharedRead {
    place: |source| &source.watch.findings,
    read: |conn, _, _| doctor::look(conn, CheckScope::Newest),
    lifetime: |_, _| CHECKS,
    live: CHECKS,
};

/// The executions that are not ready, by queue.
pub(crate) static PLACES: SharedRead<PlaceCounts> = SharedRead {
    place: |source| &source.watch.places,
    read: |conn, _, _| PlaceCounts::read(conn),
    lifetime: |counts, took| lifetime(counts.is_more(), took),
    live: Duration::ZERO,
};

/// The groups of failed jobs.
pub(crate) static GROUPS: SharedRead<FailedGroups> = SharedRead {
    place: |source| &source.watch.groups,
    read: |conn, _, _| failed_groups(conn, MOST_GROUPS),
    lifetime: |groups, took| {
        let is_large = groups.groups.iter().any(|group| !group.is_exact);
        lifetime(is_large || !groups.is_complete, took)
    },
    live: Duration::ZERO,
};

/// The number of jobs in each state.
pub(crate) static STATE_COUNTS: SharedRead<StateCounts> = SharedRead {
    place: |source| &source.watch.states,
    read: |conn, _, _| job_search::counts(conn).doing("count the jobs"),
    lifetime: |counts, took| lifetime(counts.is_more(), took),
    live: Duration::ZERO,
};

/// The history of the last hour.
pub(crate) static LAST_HOUR: SharedRead<LastHour> = SharedRead {
    place: |source| &source.watch.hour,
    read: |conn, _, _| LastHour::read(conn),
    lifetime: |_, _| Duration::ZERO,
    live: HISTORY,
};

/// The classes of which most jobs have ended in the last hour.
pub(crate) static BUSIEST: SharedRead<Vec<SeriesTally>> = SharedRead {
    place: |source| &source.watch.busiest,
    read: |conn, _, _| concerns::busiest_classes(conn),
    lifetime: |_, _| Duration::ZERO,
    live: HISTORY,
};

fn lifetime(is_large: bool, took: Duration) -> Duration {
    if is_large {
        affordable(took)
    } else {
        Duration::ZERO
    }
}
