//! The thread that shuts down the sockets of connections whose deadline has passed.

use crate::clock;
use crate::deadline::{DISARMED, FIRED, LAST_SHOT, Slot, millis, no_answer, now, slots, sockets};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How often the guard checks, and so how late a statement may be cut off.
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

/// Whether its deadline has passed and it still waits.
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
