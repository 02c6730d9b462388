//! Deadlines that this process enforces on its own connections.
//!
//! TCP acknowledges data even if a frozen server, or a proxy in front of it, never answers. Neither
//! libpq nor Diesel has a deadline for that. So each connection has its own `tcp_user_timeout`, a
//! *tag* that libpq sets before it connects.
//!
//! A guard thread checks the deadlines of all connections. When one has passed, the guard finds the
//! socket with that tag among this process's descriptors and shuts it down. libpq's `poll` then
//! returns immediately, and Diesel reports a closed connection.
//!
//! The descriptor itself is never closed here, because it belongs to libpq.

use crate::clock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

#[cfg(target_os = "linux")]
#[path = "linux.rs"]
mod sockets;
#[cfg(not(target_os = "linux"))]
#[path = "elsewhere.rs"]
mod sockets;
#[cfg(test)]
mod tests;

/// The distance between two tags. Kernels before 4.19 round them to 1/HZ, at most 10 ms.
const STEP: u32 = 10;

/// The tag of a connection without a socket; no `tcp_user_timeout` of a connection is that short.
const NO_TAG: u32 = 0;

/// No deadline.
const DISARMED: u64 = 0;

/// The deadline has passed; the socket stays shut down until this is disarmed.
const FIRED: u64 = u64::MAX;

/// One connection.
#[derive(Debug)]
struct Slot {
    tag: u32,
    /// Milliseconds since [`epoch`], [`DISARMED`] or [`FIRED`].
    deadline: AtomicU64,
    /// The start of the current wait, in the same unit.
    since: AtomicU64,
    /// The limit for each statement, in milliseconds.
    limit: AtomicU64,
    /// The limit is for all statements together, until it is disarmed.
    is_in_all: AtomicBool,
    /// Its shutdown, or the failure to shut it down, was logged.
    is_reported: AtomicBool,
    hurry: Option<Hurry>,
}

/// A shorter limit, also for the current statement, once a stop is requested.
#[derive(Debug, Clone)]
pub(crate) struct Hurry {
    pub(crate) stopping: Arc<AtomicBool>,
    pub(crate) limit: Duration,
}

/// The deadline of a connection. Declare it after the connection in a struct, so that it is dropped
/// last.
#[derive(Debug, Clone)]
pub(crate) struct Deadline(Arc<Slot>);

/// Disarms on drop.
#[derive(Debug)]
#[must_use = "without it there is no deadline"]
pub(crate) struct Armed(Option<Deadline>);

#[derive(Debug, Default)]
struct Slots {
    all: Vec<Arc<Slot>>,
    is_guarded: bool,
}

static SLOTS: Mutex<Slots> = Mutex::new(Slots {
    all: Vec::new(),
    is_guarded: false,
});

/// The time at which a deadline last passed, in milliseconds since [`epoch`].
static LAST_SHOT: AtomicU64 = AtomicU64::new(DISARMED);

fn slots() -> MutexGuard<'static, Slots> {
    SLOTS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn epoch() -> Instant {
    static EPOCH: OnceLock<Instant> = OnceLock::new();
    *EPOCH.get_or_init(clock::instant)
}

/// Milliseconds since [`epoch`]; never [`DISARMED`].
fn now() -> u64 {
    millis(epoch().elapsed()) + 1
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX / 4)
}

impl Deadline {
    /// Creates the deadline of a connection about to be opened.
    ///
    /// `user_timeout` is the user's own `tcp_user_timeout` in milliseconds, 0 for none.
    pub(crate) fn new(user_timeout: u32, hurry: Option<Hurry>) -> Self {
        // Practically none: 24 hours.
        let base = if user_timeout == 0 {
            86_400_000
        } else {
            user_timeout
        };
        let mut slots = slots();
        let mut tags = (1..).map(|number| base.saturating_add(number * STEP));
        // A program that was started while another thread opened a connection may have inherited
        // one of its parent's sockets with such a number.
        let is_free = |tag: &u32| {
            slots.all.iter().all(|slot| slot.tag != *tag) && sockets::with_tag(*tag) == 0
        };
        let tag = tags.find(is_free).unwrap_or(base);
        let slot = Arc::new(Slot {
            tag,
            deadline: AtomicU64::new(DISARMED),
            since: AtomicU64::new(DISARMED),
            limit: AtomicU64::new(0),
            is_in_all: AtomicBool::new(false),
            is_reported: AtomicBool::new(false),
            hurry,
        });
        slots.all.push(Arc::clone(&slot));
        if !slots.is_guarded {
            let thread = std::thread::Builder::new().name("windlass-deadline".to_owned());
            match thread.spawn(run) {
                Ok(_) => slots.is_guarded = true,
                Err(error) => log::warn!("no deadline for the database's answers: {error}"),
            }
        }
        Deadline(slot)
    }

    /// Creates one that never passes, for a connection without a socket. It shows how long a
    /// statement has been waiting.
    #[cfg_attr(not(feature = "sqlite"), allow(dead_code))]
    pub(crate) fn never() -> Self {
        let slot = Arc::new(Slot {
            tag: NO_TAG,
            deadline: AtomicU64::new(DISARMED),
            since: AtomicU64::new(DISARMED),
            limit: AtomicU64::new(0),
            is_in_all: AtomicBool::new(false),
            is_reported: AtomicBool::new(false),
            hurry: None,
        });
        slots().all.push(Arc::clone(&slot));
        Deadline(slot)
    }

    /// Notes that the database has refused the statement because of a lock. It counts as an answer that
    /// did not come, if the statement has waited for longer than `patience`.
    #[cfg_attr(not(feature = "sqlite"), allow(dead_code))]
    pub(crate) fn note_locked(&self, patience: Duration) {
        let (since, now) = (self.0.since.load(Ordering::Relaxed), now());
        if since != DISARMED && now.saturating_sub(since) > millis(patience) {
            LAST_SHOT.store(now, Ordering::Relaxed);
        }
    }

    /// Returns the `tcp_user_timeout` by which the socket is found.
    pub(crate) fn tag(&self) -> u32 {
        self.0.tag
    }

    /// Returns the port of this end of the connection, if it is one over TCP.
    #[cfg_attr(not(feature = "postgres"), allow(dead_code))]
    pub(crate) fn port(&self) -> Option<u16> {
        sockets::port_of(self.0.tag)
    }

    /// Checks that exactly one socket has the tag. If not, statements have no deadline, which is
    /// logged once.
    pub(crate) fn check(&self) {
        static LOGGED: AtomicBool = AtomicBool::new(false);
        let found = sockets::with_tag(self.0.tag);
        if found != 1 && !LOGGED.swap(true, Ordering::Relaxed) {
            // A Unix socket has no tag, which is not a problem in itself.
            let level = if found == 0 {
                log::Level::Info
            } else {
                log::Level::Warn
            };
            log::log!(
                level,
                "statements of this database run without a deadline: {found} sockets, not \
                 one, have the timeout of the new connection (a Unix socket has none)"
            );
        }
    }

    /// Limits each statement to `limit` until the result is dropped. Within
    /// [`arm_in_all`](Self::arm_in_all), that limit stays.
    pub(crate) fn arm(&self, limit: Duration) -> Armed {
        if self.0.is_in_all.load(Ordering::Relaxed) {
            return Armed::not();
        }
        self.start(limit);
        Armed(Some(self.clone()))
    }

    /// Limits all statements together to `limit` until the result is dropped.
    pub(crate) fn arm_in_all(&self, limit: Duration) -> Armed {
        let armed = self.arm(limit);
        self.0.is_in_all.store(true, Ordering::Relaxed);
        armed
    }

    /// Limits each statement to `limit` until both the connection and this value are dropped.
    pub(crate) fn start(&self, limit: Duration) {
        let (slot, now) = (&self.0, now());
        slot.limit.store(millis(limit), Ordering::Relaxed);
        slot.since.store(now, Ordering::Relaxed);
        if slot.deadline.load(Ordering::Relaxed) != FIRED {
            slot.deadline.store(now + millis(limit), Ordering::SeqCst);
        }
    }

    /// Restarts the time for the next statement of a unit of work.
    pub(crate) fn again(&self) {
        let slot = &self.0;
        let deadline = slot.deadline.load(Ordering::Relaxed);
        let is_in_all = slot.is_in_all.load(Ordering::Relaxed);
        if deadline == DISARMED || deadline == FIRED || is_in_all {
            return;
        }
        let now = now();
        let next = now + slot.limit.load(Ordering::Relaxed);
        slot.since.store(now, Ordering::Relaxed);
        // Shut down just now: it stays so.
        let _ = slot
            .deadline
            .compare_exchange(deadline, next, Ordering::SeqCst, Ordering::Relaxed);
    }

    /// A connection that was shut down stays so and is discarded.
    fn disarm(&self) {
        let slot = &self.0;
        slot.is_in_all.store(false, Ordering::Relaxed);
        let deadline = slot.deadline.load(Ordering::Relaxed);
        if deadline != FIRED {
            let _ = slot.deadline.compare_exchange(
                deadline,
                DISARMED,
                Ordering::SeqCst,
                Ordering::Relaxed,
            );
        }
        slot.since.store(DISARMED, Ordering::Relaxed);
    }

    /// Returns the limit that passed without an answer, if one did.
    ///
    /// The connection is unusable then, whatever it answered last.
    pub(crate) fn missed(&self) -> Option<Duration> {
        let has_fired = self.0.deadline.load(Ordering::SeqCst) == FIRED;
        has_fired.then(|| Duration::from_millis(self.0.limit.load(Ordering::Relaxed)))
    }
}

impl Armed {
    /// Returns the state of a connection without a deadline.
    pub(crate) fn not() -> Self {
        Armed(None)
    }
}

impl Drop for Armed {
    fn drop(&mut self) {
        if let Some(deadline) = self.0.take() {
            deadline.disarm();
        }
    }
}

/// The connection and its registered slot hold one reference each: two.
const OF_A_CONNECTION: usize = 2;

impl Drop for Deadline {
    fn drop(&mut self) {
        // This is a clone: its original, or `Armed`, still exists.
        if Arc::strong_count(&self.0) > OF_A_CONNECTION {
            return;
        }
        slots().all.retain(|slot| !Arc::ptr_eq(slot, &self.0));
    }
}

/// Returns the error text for a statement that got no answer.
pub fn no_answer(within: Duration) -> String {
    format!("no answer within {within:?}")
}

/// Returns true if the database does not answer at present.
///
/// That is so if a statement has waited for longer than `patience`, or reached its deadline shortly
/// before. On SQLite, a statement that waits for the lock of another process gets no answer either.
pub(crate) fn is_silent(patience: Duration) -> bool {
    let now = now();
    let last = LAST_SHOT.load(Ordering::Relaxed);
    let waits = |slot: &Arc<Slot>| {
        let since = slot.since.load(Ordering::Relaxed);
        // One that has little time for all of its statements may just be slow.
        let is_short = slot.is_in_all.load(Ordering::Relaxed);
        since != DISARMED && !is_short && now.saturating_sub(since) > millis(patience)
    };
    (last != DISARMED && now.saturating_sub(last) < LATELY) || slots().all.iter().any(waits)
}

/// Milliseconds.
const LATELY: u64 = 10_000;

// --- The thread that shuts down the sockets of connections whose deadline has passed ---

/// The time between two checks of the guard: a statement may be cut off this much too late.
const TICK: Duration = Duration::from_millis(100);

/// If the guard runs this much too late, it was suspended with its process. Answers that arrived
/// meanwhile are read first.
const SUSPENDED: Duration = Duration::from_secs(1);

/// Runs the thread that shuts down the sockets of connections whose deadline has passed.
pub(super) fn run() {
    let mut last = clock::instant();
    loop {
        clock::nap(TICK);
        let is_late = last.elapsed() > TICK + SUSPENDED;
        last = clock::instant();
        if !is_late {
            shoot();
        }
    }
}

fn shoot() {
    let now = now();
    let overdue: Vec<Arc<Slot>> = slots()
        .all
        .iter()
        .filter(|slot| is_overdue(slot, now))
        .cloned()
        .collect();
    if overdue.is_empty() {
        return;
    }
    if overdue
        .iter()
        .any(|slot| !slot.is_in_all.load(Ordering::Relaxed))
    {
        LAST_SHOT.store(now, Ordering::Relaxed);
    }
    let tags: Vec<u32> = overdue.iter().map(|slot| slot.tag).collect();
    let shut = sockets::shut_down(&tags);
    for slot in overdue {
        // A shutdown may take a moment to be noticed.
        let is_cut = shut.contains(&slot.tag);
        if !slot.is_reported.swap(true, Ordering::Relaxed) && !is_cut {
            let limit = Duration::from_millis(slot.limit.load(Ordering::Relaxed));
            log::warn!(
                "the database gives {}, and the connection cannot be cut",
                no_answer(limit)
            );
        }
    }
}

/// Returns true if its deadline has passed and it still waits.
///
/// While it waits, the socket is shut down at every tick: libpq may have moved on to its next host.
fn is_overdue(slot: &Slot, now: u64) -> bool {
    let deadline = slot.deadline.load(Ordering::SeqCst);
    let since = slot.since.load(Ordering::Relaxed);
    if deadline == FIRED || deadline == DISARMED {
        return deadline == FIRED && since != DISARMED;
    }
    let mut limit = slot.limit.load(Ordering::Relaxed);
    let hurry = slot.hurry.as_ref();
    if let Some(hurry) = hurry.filter(|hurry| hurry.stopping.load(Ordering::Relaxed)) {
        limit = limit.min(millis(hurry.limit));
    }
    if deadline > now && since.saturating_add(limit) > now {
        return false;
    }
    let fired = slot
        .deadline
        .compare_exchange(deadline, FIRED, Ordering::SeqCst, Ordering::SeqCst)
        .is_ok();
    if fired {
        slot.limit.store(limit, Ordering::Relaxed);
    }
    fired
}
