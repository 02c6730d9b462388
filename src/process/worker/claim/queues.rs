//! The queues in which a worker looks for jobs: its selectors, resolved to names.

use crate::clock;
use crate::db::Conn;
use crate::db::model::claim::{ClaimQueues, Claims};
use crate::db::table::{processes, ready, semaphores};
use crate::process::base::heartbeat::Heartbeat;
use crate::process::base::session::Session;
use crate::queue::QueueSelector;
use diesel::QueryResult;
use std::time::{Duration, Instant};

/// The queues of a worker, in their order.
#[derive(Debug)]
pub(crate) struct QueueResolver {
    selectors: Vec<QueueSelector>,
    /// The names that the selectors resolved to when they were last read, and until when these are
    /// used.
    known: Vec<String>,
    good_until: Option<Instant>,
    /// True if the paused queues hold so many jobs that a claim from all queues must go around them.
    /// It was read at `asked_at`.
    is_crowded: bool,
    asked_at: Option<Instant>,
    asking_took: Duration,
    /// True if the last claim from all queues found nothing.
    is_idle: bool,
}

/// While jobs are found, how long the names are cached at least.
const CACHED: Duration = Duration::from_secs(1);

/// While no jobs are found: reading would cost most of the time then.
const CACHED_IDLE: Duration = Duration::from_secs(10);

/// The names are used at least this many times as long as reading them took. With ten thousand
/// names, reading costs more than many claims.
const SHARE: u32 = 20;

/// The most names that a statement contains: few enough that its cost does not depend on the number
/// of queues, and enough to find jobs behind some empty ones.
const CHUNK: usize = 64;

impl QueueResolver {
    pub(crate) fn new(selectors: Vec<QueueSelector>) -> Self {
        QueueResolver {
            selectors,
            known: Vec::new(),
            good_until: None,
            is_crowded: false,
            asked_at: None,
            asking_took: Duration::ZERO,
            is_idle: false,
        }
    }

    /// Claims up to `max_jobs` jobs, queue by queue, with as many calls of `claim` as needed. If there
    /// are no queues, it only looks for wanted keys after the id `wanted_after`.
    pub(crate) fn claim_from_queues(
        &mut self,
        conn: &mut Conn<'_>,
        max_jobs: usize,
        wanted_after: i64,
        mut claim: impl FnMut(&mut Conn<'_>, &ClaimQueues, usize) -> QueryResult<Claims>,
    ) -> QueryResult<Claims> {
        if self.is_of_all() && !self.goes_around_pauses(conn)? {
            let found = claim(conn, &ClaimQueues::All, max_jobs)?;
            self.is_idle = is_nothing(&found);
            return Ok(found);
        }
        let is_fresh = self.refresh(conn)?;
        let found = claim_in(conn, &self.known, max_jobs, wanted_after, &mut claim)?;
        if is_nothing(&found) && !is_fresh {
            // A new queue may exist by now.
            self.good_until = None;
            self.refresh(conn)?;
            return claim_in(conn, &self.known, max_jobs, wanted_after, &mut claim);
        }
        Ok(found)
    }

    /// Returns the queues of the last claim, unless they are many.
    pub(crate) fn few(&self) -> Option<ClaimQueues> {
        if self.is_of_all() {
            return Some(ClaimQueues::All);
        }
        let is_few = (1..=CHUNK).contains(&self.known.len());
        is_few.then(|| ClaimQueues::Named(self.known.clone()))
    }

    /// Returns whether the last claim was from these queues.
    pub(crate) fn is_at(&self, queues: &ClaimQueues) -> bool {
        match queues {
            ClaimQueues::All => self.is_of_all(),
            ClaimQueues::Named(names) => !self.is_of_all() && *names == self.known,
        }
    }

    fn is_of_all(&self) -> bool {
        self.selectors.first() == Some(&QueueSelector::All)
    }

    /// Reads the names again if they are too old. Returns `true` if they are new, or constant.
    fn refresh(&mut self, conn: &mut Conn<'_>) -> QueryResult<bool> {
        let is_fixed = |selector: &QueueSelector| matches!(selector, QueueSelector::Name(_));
        let is_fixed = self.selectors.iter().all(is_fixed);
        let begun = clock::instant();
        match self.good_until {
            Some(_) if is_fixed => return Ok(true),
            Some(until) if begun < until => return Ok(false),
            _ => {}
        }
        self.known = if self.is_of_all() {
            ready::foremost(conn)?
        } else {
            resolve(conn, &self.selectors)?
        };
        self.good_until = Some(clock::deadline((begun.elapsed() * SHARE).max(CACHED)));
        Ok(true)
    }

    fn goes_around_pauses(&mut self, conn: &mut Conn<'_>) -> QueryResult<bool> {
        let lifetime = if self.is_idle { CACHED_IDLE } else { CACHED };
        let lifetime = lifetime.max(self.asking_took * SHARE);
        if self.asked_at.is_none_or(|at| at.elapsed() >= lifetime) {
            let begun = clock::instant();
            self.is_crowded = ready::are_pauses_crowded(conn)?;
            self.asking_took = begun.elapsed();
            self.asked_at = Some(clock::instant());
        }
        Ok(self.is_crowded)
    }
}

fn is_nothing(found: &Claims) -> bool {
    matches!(found, Claims::Held { jobs, .. } if jobs.is_empty())
}

/// Claims queue by queue until there are `max_jobs` jobs.
fn claim_in(
    conn: &mut Conn<'_>,
    names: &[String],
    max_jobs: usize,
    wanted_after: i64,
    claim: &mut impl FnMut(&mut Conn<'_>, &ClaimQueues, usize) -> QueryResult<Claims>,
) -> QueryResult<Claims> {
    let mut held = Vec::new();
    let mut is_wanted = names.is_empty() && semaphores::is_requested(conn, wanted_after)?;
    for chunk in names.chunks(CHUNK) {
        let queues = ClaimQueues::Named(chunk.to_vec());
        match claim(conn, &queues, max_jobs - held.len()) {
            Ok(Claims::Held {
                jobs,
                is_wanted: wanted,
            }) => {
                held.extend(jobs);
                is_wanted |= wanted;
            }
            Ok(Claims::Unregistered) if held.is_empty() => return Ok(Claims::Unregistered),
            // The jobs found so far must be kept; the next poll finds the process unregistered
            // again.
            Ok(Claims::Unregistered) => break,
            Err(error) if held.is_empty() => return Err(error),
            Err(_) => break,
        }
        if held.len() >= max_jobs {
            break;
        }
    }
    Ok(Claims::Held {
        jobs: held,
        is_wanted,
    })
}

/// Returns the names of the queues that match the selectors, in order.
fn resolve(conn: &mut Conn<'_>, selectors: &[QueueSelector]) -> QueryResult<Vec<String>> {
    let mut known: Vec<String> = Vec::new();
    let mut seen = std::collections::HashSet::new();
    for selector in selectors {
        let more = match selector {
            QueueSelector::Name(name) => vec![name.clone()],
            QueueSelector::Prefix(prefix) => ready::queue_names(conn, prefix)?,
            QueueSelector::All => ready::queue_names(conn, "")?,
        };
        known.extend(more.into_iter().filter(|name| seen.insert(name.clone())));
    }
    Ok(known)
}

// --- Shares jobs between the workers of a queue that runs dry ---

/// The times at which a worker last asked, and last checked whether it was asked.
#[derive(Debug, Default)]
pub(crate) struct Sharing {
    asked_at: Option<Instant>,
    checked_at: Option<Instant>,
}

/// An idle worker asks no more often.
const ASK_PAUSE: Duration = Duration::from_millis(10);

/// A busy worker checks no more often: on SQLite, every commit wakes it.
const CHECK_PAUSE: Duration = Duration::from_millis(4);

impl Sharing {
    /// Asks the busy workers for jobs, if that is due.
    pub(crate) fn ask(&mut self, heartbeat: &Heartbeat, session: &mut Session) {
        let Some(registration) = heartbeat.current() else {
            return;
        };
        if is_due(&mut self.asked_at, ASK_PAUSE) {
            let _ = session.run("ask for jobs", |conn| {
                processes::request_release(conn, registration.id)
            });
        }
    }

    /// Returns whether an idle worker has asked for jobs, if a check is due.
    pub(crate) fn is_asked(&mut self, heartbeat: &Heartbeat, session: &mut Session) -> bool {
        let Some(registration) = heartbeat.current() else {
            return false;
        };
        is_due(&mut self.checked_at, CHECK_PAUSE)
            && session
                .run("read requests to release", |conn| {
                    processes::take_release_request(conn, registration.id)
                })
                .unwrap_or(false)
    }
}

fn is_due(last: &mut Option<Instant>, pause: Duration) -> bool {
    let is_due = last.is_none_or(|last| last.elapsed() >= pause);
    if is_due {
        *last = Some(clock::instant());
    }
    is_due
}
