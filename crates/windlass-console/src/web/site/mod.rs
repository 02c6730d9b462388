//! The state that the threads of a server share.

pub(crate) mod metrics_cache;

use crate::read::now::Promises;
use crate::read::sql::frame;
use crate::web::access::settings::Access;
use crate::web::assets::Assets;
use crate::web::live::{CachedPages, Hub};
use crate::web::read::Watch;
use crate::web::show::COUNTED;
use crate::web::site::metrics_cache::MetricsCache;
use chrono::{NaiveDateTime, TimeDelta};
use crossbeam_channel::{Receiver, Sender, bounded};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use windlass::internal::clock;
use windlass::internal::error::ErrorContext as _;
use windlass::processes::Health;
use windlass::{Conn, Database, Result};

/// A database that is served.
#[derive(Debug)]
pub(crate) struct Source {
    /// Its name in addresses: `/db/<name>/..`, for all but the first.
    pub(crate) name: String,
    /// The database that is changed.
    pub(crate) database: Database,
    /// The database that is read, if not `database`.
    pub(crate) replica: Option<Database>,
    pub(crate) frame: FrameCache,
    pub(crate) metrics: MetricsCache,
    /// The outage of the database that is read.
    pub(crate) outage: Outage,
    /// The outage of `database`, if another one is read.
    changes_outage: Outage,
    /// Set once the tables were found to be in order.
    pub(crate) tables: SetOnce,
    /// The last reads of this database, cached, and its concerns.
    pub(crate) watch: Arc<Watch>,
}

impl Source {
    pub(crate) fn new(name: String, database: Database, replica: Option<Database>) -> Self {
        Source {
            name,
            database,
            replica,
            frame: FrameCache::default(),
            metrics: MetricsCache::default(),
            outage: Outage::default(),
            changes_outage: Outage::default(),
            tables: SetOnce::default(),
            watch: Arc::default(),
        }
    }

    /// Returns whether `database` is away.
    pub(crate) fn primary_outage(&self) -> &Outage {
        match self.replica {
            Some(_) => &self.changes_outage,
            None => &self.outage,
        }
    }

    /// Forgets what a change may have changed.
    pub(crate) fn forget(&self) {
        self.watch.forget();
        self.frame.forget();
    }

    /// Returns the database that pages are read from.
    pub(crate) fn to_read(&self) -> &Database {
        self.replica.as_ref().unwrap_or(&self.database)
    }
}

/// Settings of a server that its threads use.
#[derive(Debug, Clone)]
pub(crate) struct SiteSettings {
    /// `/windlass`, or empty.
    pub(crate) base_path: String,
    /// True if the metrics need no token.
    pub(crate) metrics_open: bool,
    /// The time for which a job may be ready before its queue is late.
    pub(crate) promises: Promises,
}

/// Everything but the network and the pages.
#[derive(Debug)]
pub(crate) struct Site {
    /// At least one.
    pub(crate) sources: Vec<Source>,
    /// The sections that the navigation shows.
    pub(crate) sections: Vec<Section>,
    pub(crate) settings: SiteSettings,
    pub(crate) access: Access,
    /// The name of the session's cookie: cookies are shared by all ports of a host.
    pub(crate) session_cookie: String,
    /// Wakes the thread that runs operations.
    pub(crate) operations: OperationsWake,
    pub(crate) assets: Assets,
    /// The processes of this program, for which the probes answer.
    pub(crate) processes: Vec<Health>,
    /// The open pages.
    pub(crate) hub: Hub,
    /// The requests that wait for the end of a job.
    pub(crate) polls: LongPolls,
    /// The last content of pages, for the time in which the database is away.
    pub(crate) pages: CachedPages,
}

impl Site {
    /// Returns the path of the cookies.
    pub(crate) fn cookie_path(&self) -> &str {
        match self.settings.base_path.as_str() {
            "" => "/",
            base => base,
        }
    }

    /// Returns a link to a path such as `/queues` of one of the databases.
    pub(crate) fn link(&self, database: usize, path: &str) -> String {
        let base = &self.settings.base_path;
        match self.sources.get(database) {
            Some(source) if database > 0 => format!("{base}/db/{}{path}", source.name),
            _ => format!("{base}{path}"),
        }
    }
}

// --- The entries of the navigation ---

/// An entry of the navigation, which the current page belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Section {
    Overview,
    Queues,
    Jobs,
    Failed,
    Recurring,
    Processes,
    Limits,
    Batches,
    Operations,
    Audit,
    /// Not in the navigation: sign in, errors.
    Other,
}

impl Section {
    /// All that the navigation may show, in order.
    pub(crate) const ALL: [Section; 10] = [
        Section::Overview,
        Section::Queues,
        Section::Jobs,
        Section::Failed,
        Section::Recurring,
        Section::Processes,
        Section::Limits,
        Section::Batches,
        Section::Operations,
        Section::Audit,
    ];

    pub(crate) fn label(self) -> &'static str {
        match self {
            Section::Overview => "Overview",
            Section::Queues => "Queues",
            Section::Jobs => "Jobs",
            Section::Failed => "Failed",
            Section::Recurring => "Recurring",
            Section::Processes => "Processes",
            Section::Limits => "Limits",
            Section::Batches => "Batches",
            Section::Operations => "Operations",
            Section::Audit => "Audit",
            Section::Other => "",
        }
    }

    pub(crate) fn path(self) -> &'static str {
        match self {
            Section::Overview | Section::Other => "/",
            Section::Queues => "/queues",
            Section::Jobs => "/jobs",
            Section::Failed => "/failed",
            Section::Recurring => "/recurring",
            Section::Processes => "/processes",
            Section::Limits => "/limits",
            Section::Batches => "/batches",
            Section::Operations => "/operations",
            Section::Audit => "/audit",
        }
    }
}

// --- The outage of a database: one attempt a second, and everything else fails ---

/// The pause after a failed attempt, in which no other is made.
const PAUSE: Duration = Duration::from_secs(1);

/// The least time between two log lines about the same outage.
const LOGGED: Duration = Duration::from_secs(10);

/// The state of a database, for all threads.
#[derive(Debug, Default)]
pub(crate) struct Outage(Mutex<Option<Away>>);

#[derive(Debug, Clone)]
struct Away {
    since: Instant,
    tried_at: Instant,
    /// The time of the last log line about the outage.
    logged_at: Instant,
    reason: String,
    /// True while an attempt is under way.
    is_tried: bool,
}

/// An attempt that is under way.
pub(crate) struct DatabaseAttempt<'o>(&'o Outage);

impl Outage {
    fn away(&self) -> MutexGuard<'_, Option<Away>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns `None` if the database is away, and was tried a moment ago, or is being tried.
    pub(crate) fn attempt(&self, now: Instant) -> Option<DatabaseAttempt<'_>> {
        if let Some(away) = self.away().as_mut() {
            if away.is_tried || now.saturating_duration_since(away.tried_at) < PAUSE {
                return None;
            }
            (away.tried_at, away.is_tried) = (now, true);
        }
        Some(DatabaseAttempt(self))
    }

    /// Returns why the last attempt failed, and nothing while the database answers.
    pub(crate) fn reason(&self) -> String {
        let away = self.away();
        away.as_ref()
            .map_or_else(String::new, |away| away.reason.clone())
    }

    /// Returns for how long the database has been away.
    pub(crate) fn age(&self) -> Option<Duration> {
        let since = self.away().as_ref()?.since;
        Some(clock::instant().saturating_duration_since(since))
    }
}

impl DatabaseAttempt<'_> {
    pub(crate) fn succeeded(self) {
        if let Some(away) = self.0.away().take() {
            let seconds = clock::instant()
                .saturating_duration_since(away.since)
                .as_secs();
            log::info!("web: the database answers again, after {seconds} s");
        }
    }

    pub(crate) fn failed(self, reason: &str, now: Instant) {
        let mut away = self.0.away();
        let is_old = |away: &Away| now.saturating_duration_since(away.logged_at) >= LOGGED;
        if away.as_ref().is_none_or(is_old) {
            log::warn!("web: the database does not answer: {reason}");
        }
        let known = away.as_ref().filter(|away| !is_old(away));
        *away = Some(Away {
            since: away.as_ref().map_or(now, |away| away.since),
            logged_at: known.map_or(now, |away| away.logged_at),
            tried_at: now,
            reason: reason.to_owned(),
            is_tried: false,
        });
    }
}

impl Drop for DatabaseAttempt<'_> {
    fn drop(&mut self) {
        if let Some(away) = self.0.away().as_mut() {
            away.is_tried = false;
        }
    }
}

/// A flag that is set once.
#[derive(Debug, Default)]
pub(crate) struct SetOnce(std::sync::atomic::AtomicBool);

impl SetOnce {
    pub(crate) fn get(&self) -> bool {
        self.0.load(std::sync::atomic::Ordering::Relaxed)
    }

    pub(crate) fn set(&self) {
        self.0.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}

// --- The frame of every page: the database's time, and the numbers in the menu ---

/// The time at the database, and what the navigation counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) now: NaiveDateTime,
    /// The number of failed jobs, counted up to one more than 10,000.
    pub(crate) failed: i64,
    /// The number of concerns, if they were counted.
    pub(crate) attention: Option<u64>,
}

/// The last frame of a database, for all threads.
#[derive(Debug, Default)]
pub(crate) struct FrameCache(Mutex<Option<(Instant, Frame)>>);

/// The time for which a frame is used. Its time goes on meanwhile, by this host's monotonic clock.
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
    let row = frame::read(conn, COUNTED + 1).during("count the failed jobs")?;
    Ok(Frame {
        now: row.now,
        failed: row.failed,
        attention: None,
    })
}

// --- Requests that wait for the end of a job ---

/// The most requests that wait at once: they hold connections that the pages need.
const MOST: usize = 256;

/// A job of one of the databases.
type PolledJob = (usize, i64);

#[derive(Debug, Default)]
struct OpenPolls {
    senders: HashMap<PolledJob, Vec<oneshot::Sender<()>>>,
    is_stopped: bool,
}

/// The requests that wait for the end of a job, by job.
#[derive(Debug)]
pub(crate) struct LongPolls {
    open: Mutex<OpenPolls>,
    wake: Sender<()>,
    pub(crate) woken: Receiver<()>,
}

impl Default for LongPolls {
    fn default() -> Self {
        // One that is not yet received is as good as many.
        let (wake, woken) = bounded(1);
        LongPolls {
            open: Mutex::default(),
            wake,
            woken,
        }
    }
}

impl LongPolls {
    fn open_polls(&self) -> MutexGuard<'_, OpenPolls> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns what is completed when the job has ended, or the server stops. `None`: too many wait,
    /// or the server stops.
    pub(crate) fn of(&self, database: usize, job: i64) -> Option<oneshot::Receiver<()>> {
        let mut open = self.open_polls();
        let count: usize = open.senders.values().map(Vec::len).sum();
        if count >= MOST || open.is_stopped {
            return None;
        }
        let (sender, receiver) = oneshot::channel();
        let senders = open.senders.entry((database, job)).or_default();
        senders.push(sender);
        let _ = self.wake.try_send(());
        Some(receiver)
    }

    /// Ends all polls, and the thread.
    pub(crate) fn stop(&self) {
        let mut open = self.open_polls();
        open.is_stopped = true;
        open.senders.clear();
        let _ = self.wake.try_send(());
    }

    /// Returns the jobs of each database, without those for which nothing waits any more. `None` after
    /// the stop.
    pub(crate) fn jobs(&self) -> Option<HashMap<usize, Vec<i64>>> {
        let mut open = self.open_polls();
        open.senders.retain(|_, senders| {
            senders.retain(|sender| !sender.is_closed());
            !senders.is_empty()
        });
        let mut jobs: HashMap<usize, Vec<i64>> = HashMap::new();
        for (database, job) in open.senders.keys() {
            jobs.entry(*database).or_default().push(*job);
        }
        (!open.is_stopped).then_some(jobs)
    }

    pub(crate) fn ended(&self, database: usize, jobs: impl Iterator<Item = i64>) {
        let mut open = self.open_polls();
        for job in jobs {
            for sender in open.senders.remove(&(database, job)).unwrap_or_default() {
                let _ = sender.send(());
            }
        }
    }
}

// --- Wakes the thread that runs operations ---

/// Wakes the thread: there is an operation, or a stop.
pub(crate) type OperationsWake = Sender<()>;

/// Returns a way to wake the thread, and what the thread waits on.
pub(crate) fn wake() -> (OperationsWake, Receiver<()>) {
    // One that is not yet received is as good as many.
    bounded(1)
}
