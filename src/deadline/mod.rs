//! Deadlines that this process enforces on its own connections.
//!
//! TCP acknowledges what a frozen server, or a proxy in front of it, never
//! answers, and neither libpq nor Diesel has a deadline for that. So each
//! connection carries a `tcp_user_timeout` of its own, a *tag* that libpq sets
//! before it connects. A guard thread looks at the deadlines of all
//! connections; when one has passed, it finds the socket with that tag among
//! the descriptors of this process and shuts it down. libpq's `poll` returns
//! at once, and Diesel reports a closed connection.
//!
//! The descriptor itself is never closed here, for it is libpq's.

#[cfg(target_os = "linux")]
#[path = "linux.rs"]
mod sockets;
#[cfg(not(target_os = "linux"))]
#[path = "elsewhere.rs"]
mod sockets;

use crate::clock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// How often the guard looks: so much later than its deadline a statement may
/// end.
const TICK: Duration = Duration::from_millis(100);

/// A guard that comes so much too late has been suspended with its process,
/// and answers that have come meanwhile are read first.
const SUSPENDED: Duration = Duration::from_secs(1);

/// Between two tags. Kernels before 4.19 round them to 1/HZ, 10 ms at most.
const STEP: u32 = 10;

/// No deadline.
const DISARMED: u64 = 0;

/// The deadline has passed; the socket is shut down until this is disarmed.
const FIRED: u64 = u64::MAX;

/// One connection.
#[derive(Debug)]
struct Slot {
    tag: u32,
    /// Milliseconds since [`epoch`], [`DISARMED`] or [`FIRED`].
    deadline: AtomicU64,
    /// When the wait under way started, likewise.
    since: AtomicU64,
    /// Milliseconds for each statement.
    limit: AtomicU64,
    /// It was shut down, or that it could not be was logged.
    is_reported: AtomicBool,
    hurry: Option<Hurry>,
}

/// A shorter limit, also for what is under way, once a stop is asked for.
#[derive(Debug, Clone)]
pub(crate) struct Hurry {
    pub(crate) stopping: Arc<AtomicBool>,
    pub(crate) limit: Duration,
}

/// The deadline of a connection: declare it behind the connection in a struct,
/// so that it is dropped last.
#[derive(Debug, Clone)]
pub(crate) struct Deadline(Arc<Slot>);

/// Disarms on drop.
#[derive(Debug)]
#[must_use = "without it nothing is armed"]
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

/// When a deadline last passed, in milliseconds since [`epoch`].
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
    /// For a connection that is about to be opened, with the user's own
    /// `tcp_user_timeout` in milliseconds, 0 for none.
    pub(crate) fn new(user_timeout: u32, hurry: Option<Hurry>) -> Self {
        // As good as none: 24 hours.
        let base = if user_timeout == 0 {
            86_400_000
        } else {
            user_timeout
        };
        let mut slots = slots();
        let mut tags = (1..).map(|number| base.saturating_add(number * STEP));
        // A program that was started while another thread opened a connection
        // may have inherited a socket of its parent's with such a number.
        let is_free = |tag: &u32| {
            slots.all.iter().all(|slot| slot.tag != *tag) && sockets::with_tag(*tag) == 0
        };
        let tag = tags.find(is_free).unwrap_or(base);
        let slot = Arc::new(Slot {
            tag,
            deadline: AtomicU64::new(DISARMED),
            since: AtomicU64::new(DISARMED),
            limit: AtomicU64::new(0),
            is_reported: AtomicBool::new(false),
            hurry,
        });
        slots.all.push(Arc::clone(&slot));
        if !slots.is_guarded {
            let thread = std::thread::Builder::new().name("windlass-deadline".to_owned());
            match thread.spawn(guard) {
                Ok(_) => slots.is_guarded = true,
                Err(error) => log::warn!("no deadline for the database's answers: {error}"),
            }
        }
        Deadline(slot)
    }

    /// The `tcp_user_timeout` by which the socket is found.
    pub(crate) fn tag(&self) -> u32 {
        self.0.tag
    }

    /// Whether one socket, and no other, bears the tag; if not, its statements
    /// have no deadline, which is logged once.
    pub(crate) fn check(&self) {
        static LOGGED: AtomicBool = AtomicBool::new(false);
        let found = sockets::with_tag(self.0.tag);
        if found != 1 && !LOGGED.swap(true, Ordering::Relaxed) {
            // A Unix socket has no tag, and that is no trouble as such.
            let level = if found == 0 {
                log::Level::Info
            } else {
                log::Level::Warn
            };
            log::log!(
                level,
                "the database's answers are waited for without a deadline: {found} sockets, not \
                 one, have the timeout of the new connection (a Unix socket has none)"
            );
        }
    }

    /// Gives each statement `limit` until the result is dropped.
    pub(crate) fn arm(&self, limit: Duration) -> Armed {
        self.start(limit);
        Armed(Some(self.clone()))
    }

    /// The same, until the connection and this are gone.
    pub(crate) fn start(&self, limit: Duration) {
        let (slot, now) = (&self.0, now());
        slot.limit.store(millis(limit), Ordering::Relaxed);
        slot.since.store(now, Ordering::Relaxed);
        if slot.deadline.load(Ordering::Relaxed) != FIRED {
            slot.deadline.store(now + millis(limit), Ordering::SeqCst);
        }
    }

    /// The next statement of a unit of work: its time starts anew.
    pub(crate) fn again(&self) {
        let slot = &self.0;
        let deadline = slot.deadline.load(Ordering::Relaxed);
        if deadline == DISARMED || deadline == FIRED {
            return;
        }
        let now = now();
        let next = now + slot.limit.load(Ordering::Relaxed);
        slot.since.store(now, Ordering::Relaxed);
        // Shot just now: it stays so.
        let _ = slot
            .deadline
            .compare_exchange(deadline, next, Ordering::SeqCst, Ordering::Relaxed);
    }

    /// A shot connection stays shot: it is thrown away.
    fn disarm(&self) {
        let slot = &self.0;
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

    /// The limit that has passed without an answer, if one has. The connection
    /// is of no use then, whatever its last answer was.
    pub(crate) fn missed(&self) -> Option<Duration> {
        let has_fired = self.0.deadline.load(Ordering::SeqCst) == FIRED;
        has_fired.then(|| Duration::from_millis(self.0.limit.load(Ordering::Relaxed)))
    }
}

impl Armed {
    /// Of a connection without a deadline.
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

/// A connection and the listed slot hold it together: two.
const OF_A_CONNECTION: usize = 2;

impl Drop for Deadline {
    fn drop(&mut self) {
        // A clone: its original, or `Armed`, is still there.
        if Arc::strong_count(&self.0) > OF_A_CONNECTION {
            return;
        }
        slots().all.retain(|slot| !Arc::ptr_eq(slot, &self.0));
    }
}

/// The text of an error for a statement that got no answer.
pub(crate) fn no_answer(within: Duration) -> String {
    format!("no answer within {within:?}")
}

/// Whether the database does not answer at present: something has waited for
/// it for longer than `patience`, or waited in vain a moment ago.
pub(crate) fn is_silent(patience: Duration) -> bool {
    let now = now();
    let last = LAST_SHOT.load(Ordering::Relaxed);
    let waits = |slot: &Arc<Slot>| {
        let since = slot.since.load(Ordering::Relaxed);
        since != DISARMED && now.saturating_sub(since) > millis(patience)
    };
    (last != DISARMED && now.saturating_sub(last) < LATELY) || slots().all.iter().any(waits)
}

/// Milliseconds.
const LATELY: u64 = 10_000;

/// The thread that shuts down the sockets of connections whose deadline has
/// passed.
fn guard() {
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
    LAST_SHOT.store(now, Ordering::Relaxed);
    let tags: Vec<u32> = overdue.iter().map(|slot| slot.tag).collect();
    let shut = sockets::shut_down(&tags);
    for slot in overdue {
        // One that was cut may take a moment to be noticed.
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

/// Whether its deadline has passed and it still waits. While it waits it is
/// shot at every tick: libpq may have gone on to its next host.
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

#[cfg(test)]
mod tests;
