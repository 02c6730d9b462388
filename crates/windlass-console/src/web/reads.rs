//! The threads that read and change the database, and render pages.

use crate::read::doctor;
use crate::read::doctor::scope::{CheckScope, Finding};
use crate::read::sql::job_search::{self, StateCounts};
use crate::web::cache::Cached;
use crate::web::read::concerns::{self, LastHour};
use crate::web::read::{LoadAndConcerns, QueueStateCounts};
use crate::web::site::{Site, SiteSettings, Source};
use crossbeam_channel::{Receiver, Sender, bounded};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use windlass::failed::FailedGroups;
use windlass::history::SeriesTally;
use windlass::internal::clock;
use windlass::internal::db::conn::reading::{ReadConnection, ReadFailure};
use windlass::internal::db::schema::migrate;
use windlass::internal::db::{FileId, Refusal};
use windlass::internal::deadline::no_answer;
use windlass::internal::error::ErrorContext as _;
use windlass::internal::process::base::stop;
use windlass::{Conn, Database, DbConnection, Error, Result, failed};

// --- The connections of one thread: for each database one to read, and one to change ---

/// The time limit for connecting.
const CONNECT: Duration = Duration::from_secs(2);

/// The time limit for each statement of a change.
const CHANGE: Duration = Duration::from_secs(5);

/// A connection to change, which stays open from one use to the next.
#[derive(Debug)]
struct ChangeConnection {
    connection: DbConnection,
    /// The identity of the SQLite file when it was opened.
    file: Option<FileId>,
}

impl ChangeConnection {
    /// Opens one, with a limit for connecting and for each statement.
    fn open(database: &Database, limit: Duration) -> Result<Self> {
        let file = database.file();
        let connection = database.connect_within(limit)?;
        Ok(ChangeConnection { connection, file })
    }

    /// Returns `false` if its file was removed or replaced: SQLite itself would go on writing it, and
    /// no other process would find what was written.
    fn is_current(&self) -> bool {
        self.file.as_ref().and_then(FileId::gone).is_none()
    }
}

/// The connections to read. They cannot write.
#[derive(Debug)]
pub(crate) struct Readers {
    site: Arc<Site>,
    open: Vec<Option<ReadConnection>>,
}

/// The connections to change, which no request of a viewer gets.
#[derive(Debug)]
pub(crate) struct Writers {
    site: Arc<Site>,
    open: Vec<Option<ChangeConnection>>,
}

impl Readers {
    pub(crate) fn new(site: &Arc<Site>) -> Self {
        Readers {
            site: Arc::clone(site),
            open: site.sources.iter().map(|_| None).collect(),
        }
    }

    /// Runs `work` in a read-only transaction of this database, for up to `limit`.
    ///
    /// While the database is away, only one attempt a second is made; the others fail at once.
    pub(crate) fn read<T>(
        &mut self,
        database: usize,
        limit: Duration,
        work: impl FnOnce(&mut Conn<'_>) -> Result<T>,
    ) -> Result<T, ReadFailure> {
        let site = Arc::clone(&self.site);
        let (Some(source), Some(place)) = (site.sources.get(database), self.open.get_mut(database))
        else {
            return Err(ReadFailure::Lost("there is no such database".to_owned()));
        };
        let attempt = source.outage.attempt(clock::instant());
        let Some(attempt) = attempt else {
            return Err(ReadFailure::Lost(source.outage.reason()));
        };
        // It is put back only in order: not after a panic either.
        let begun = begin(source, place.take(), limit);
        let result = begun.and_then(|mut connection| {
            let result = connection.finish(work);
            if matches!(result, Ok(_) | Err(ReadFailure::Late)) {
                *place = Some(connection);
            }
            result
        });
        match &result {
            Err(ReadFailure::Lost(reason)) => attempt.failed(reason, clock::instant()),
            // It answered the first statement.
            _ => attempt.succeeded(),
        }
        result
    }
}

/// Starts to read. A connection that was used before may have broken, or lead to a server that is no more:
/// whether the database is away, only a new one shows.
fn begin(
    source: &Source,
    used: Option<ReadConnection>,
    limit: Duration,
) -> Result<ReadConnection, ReadFailure> {
    if let Some(mut connection) = used {
        match connection.begin(limit) {
            Ok(()) => return Ok(connection),
            Err(ReadFailure::Lost(_)) => {}
            Err(failure) => return Err(failure),
        }
    }
    let mut connection = open(source)?;
    connection.begin(limit)?;
    Ok(connection)
}

fn open(source: &Source) -> Result<ReadConnection, ReadFailure> {
    let database = source.to_read();
    let mut connection = database
        .connect_to_read(CONNECT)
        .map_err(|error| match error {
            Error::Connect { reason, .. } => ReadFailure::Lost(reason),
            other => ReadFailure::Failed(other),
        })?;
    if !source.tables.get() {
        connection.read(CONNECT, |conn| migrate::check(conn, database))?;
        source.tables.set();
    }
    Ok(connection)
}

impl Writers {
    pub(crate) fn new(site: &Arc<Site>) -> Self {
        Writers {
            site: Arc::clone(site),
            open: site.sources.iter().map(|_| None).collect(),
        }
    }

    /// Runs `work`, which only reads, where changes go: a replica may lag. It is run once more on a new
    /// connection if one that was used before has broken.
    pub(crate) fn read<T>(
        &mut self,
        database: usize,
        mut work: impl FnMut(&mut Conn<'_>) -> Result<T>,
    ) -> Result<T> {
        let is_reused = self.open.get(database).is_some_and(Option::is_some);
        let read = self.run(database, |connection| connection.with_connection(&mut work));
        match read {
            Err(Error::Query { ref source, .. })
                if is_reused && Refusal::of(source) == Refusal::Trouble =>
            {
                self.run(database, |connection| connection.with_connection(work))
            }
            read => read,
        }
    }

    /// Runs `work` on a connection that may write.
    pub(crate) fn write<T>(
        &mut self,
        database: usize,
        work: impl FnOnce(&mut Conn<'_>) -> Result<T>,
    ) -> Result<T> {
        self.run(database, |connection| connection.with_write_lock(work))
    }

    fn run<T>(
        &mut self,
        database: usize,
        work: impl FnOnce(&mut DbConnection) -> Result<T>,
    ) -> Result<T> {
        let (Some(source), Some(place)) =
            (self.site.sources.get(database), self.open.get_mut(database))
        else {
            return Err(Error::Settings("there is no such database".to_owned()));
        };
        let away = |reason: String| source.database.refused(&source.database.target(), reason);
        let outage = source.primary_outage();
        let Some(attempt) = outage.attempt(clock::instant()) else {
            return Err(away(outage.reason()));
        };
        let opened = match place.take().filter(ChangeConnection::is_current) {
            Some(connection) => Ok(connection),
            None => ChangeConnection::open(&source.database, CHANGE),
        };
        let mut open = match opened {
            Ok(open) => open,
            Err(error) => {
                attempt.failed(&error.to_string(), clock::instant());
                return Err(error);
            }
        };
        let result = work(&mut open.connection);
        // The next attempt shows whether the database is away: this one may have waited for a lock.
        if let Some(limit) = open.connection.missed() {
            return Err(away(no_answer(limit)));
        }
        attempt.succeeded();
        // After an error, the connection may lead to a server that has become a replica.
        if result.is_ok() {
            *place = Some(open);
        }
        result
    }
}

// --- Reads that several pages share, and that cost much on a large database ---

/// The time limit of a read for which no viewer waits.
const RENEW: Duration = Duration::from_secs(8);

/// A read whose value is used for a while.
pub(crate) struct CachedRead<T: 'static> {
    /// The slot of the cached value.
    pub(crate) slot: fn(&Source) -> &Cached<T>,
    pub(crate) read: fn(&mut Conn<'_>, &Source, &SiteSettings) -> Result<T>,
    /// The lifetime of a value, by the time that its read took: zero if it is read each time.
    pub(crate) lifetime: fn(&T, Duration) -> Duration,
    /// The greatest age of a value in a page that is brought up to date by itself.
    pub(crate) live: Duration,
}

/// Returns how long a value is used so that it is being read for at most 1 % of the time.
pub(crate) fn affordable(took: Duration) -> Duration {
    const LONGEST: Duration = Duration::from_secs(30);
    (100 * took).min(LONGEST)
}

impl<T: Clone + Send> CachedRead<T> {
    /// Reads the value anew, and caches it.
    pub(crate) fn renew(
        &self,
        readers: &mut Readers,
        (site, database): (&Site, usize),
        limit: Duration,
    ) -> Result<T, ReadFailure> {
        let Some(source) = site.sources.get(database) else {
            return Err(ReadFailure::Lost("there is no such database".to_owned()));
        };
        let (cached, start) = ((self.slot)(source), clock::instant());
        let begun = cached.begin(start);
        let read = readers.read(database, limit, |conn| {
            (self.read)(conn, source, &site.settings)
        });
        match &read {
            Ok(value) => {
                let took = start.elapsed();
                cached.set(begun, value, (self.lifetime)(value, took));
            }
            Err(failure) => {
                let is_late = matches!(failure, ReadFailure::Late | ReadFailure::Cut);
                cached.failed(clock::instant(), is_late);
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
                    (self.slot)(source).release_renewal();
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

/// The most renewals that wait. One that finds no place is asked for again by a later page.
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

/// The greatest age of the history in a page that is brought up to date: its buckets are minutes.
const HISTORY: Duration = Duration::from_secs(10);

/// The load, and the concerns that were found in it.
pub(crate) static LOAD: CachedRead<LoadAndConcerns> = CachedRead {
    slot: |source| &source.watch.load,
    read: |conn, source, settings| source.watch.read(conn, &settings.promises),
    lifetime: |(load, _), took| {
        let is_large = load.queues.values().any(|queue| queue.ready.is_more);
        lifetime(is_large || load.is_more, took)
    },
    live: Duration::ZERO,
};

/// The time for which the findings of `doctor` are used.
const CHECKS: Duration = Duration::from_secs(60);

/// The findings of `doctor` for the newest rows.
pub(crate) static FINDINGS: CachedRead<Vec<Finding>> = CachedRead {
    slot: |source| &source.watch.findings,
    read: |conn, _, _| doctor::check(conn, CheckScope::Newest),
    lifetime: |_, _| CHECKS,
    live: CHECKS,
};

/// The executions that are not ready, by queue.
pub(crate) static PLACES: CachedRead<QueueStateCounts> = CachedRead {
    slot: |source| &source.watch.counts,
    read: |conn, _, _| QueueStateCounts::read(conn),
    lifetime: |counts, took| lifetime(counts.is_more(), took),
    live: Duration::ZERO,
};

/// The groups of failed jobs.
pub(crate) static GROUPS: CachedRead<FailedGroups> = CachedRead {
    slot: |source| &source.watch.groups,
    read: |conn, _, _| failed::groups(conn, MOST_GROUPS),
    lifetime: |groups, took| {
        let is_large = groups.groups.iter().any(|group| !group.is_exact);
        lifetime(is_large || !groups.is_complete, took)
    },
    live: Duration::ZERO,
};

/// The number of jobs in each state.
pub(crate) static STATE_COUNTS: CachedRead<StateCounts> = CachedRead {
    slot: |source| &source.watch.states,
    read: |conn, _, _| job_search::counts(conn).during("count the jobs"),
    lifetime: |counts, took| lifetime(counts.is_more(), took),
    live: Duration::ZERO,
};

/// The history of the last hour.
pub(crate) static LAST_HOUR: CachedRead<LastHour> = CachedRead {
    slot: |source| &source.watch.hour,
    read: |conn, _, _| LastHour::read(conn),
    lifetime: |_, _| Duration::ZERO,
    live: HISTORY,
};

/// The classes of which most jobs have ended in the last hour.
pub(crate) static BUSIEST: CachedRead<Vec<SeriesTally>> = CachedRead {
    slot: |source| &source.watch.busiest,
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
