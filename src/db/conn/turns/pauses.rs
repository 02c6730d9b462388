//! Pauses between turns, for programs that write the file without taking turns.
//!
//! Such a program looks for the lock again after 1, 2, 5, 10, .. up to 100 ms, and gets it only if it is
//! free at that moment. While no such program is seen, pauses are short, with a long one now and then
//! that none can miss: each gets the lock within its own 5 s. Once one has used a pause, they take as
//! long as the writes.

use crate::clock;
use crate::db::conn::turns::queue::{LogState, TurnQueue};
use std::time::{Duration, Instant};

/// After this long of writing, a short pause is due.
const SHORT_AFTER: Duration = Duration::from_millis(50);

const SHORT: Duration = Duration::from_millis(2);

/// After this long of writing, a long pause is due.
const LONG_AFTER: Duration = Duration::from_millis(2_500);

/// Longer than the longest sleep of SQLite's busy handler.
const LONG: Duration = Duration::from_millis(105);

/// While another program writes: after this long of writing, a pause of the same length is due.
const BESIDE_AFTER: Duration = Duration::from_millis(12);

/// The longest such pause: the first sleeps of the busy handler are shorter.
const LONGEST_BESIDE: Duration = Duration::from_millis(25);

/// The time for which another program counts as writing after its last commit in a pause.
const BESIDE_FOR: Duration = Duration::from_secs(5);

/// After this part of a long pause, a process that waits for its turn may have one.
const SLICE: Duration = Duration::from_millis(26);

/// Decides when a process pauses.
#[derive(Debug, Default)]
pub(crate) struct TurnPauses {
    /// The time of writing since the last pause.
    written: Duration,
    /// The same since the last long one.
    written_since_long: Duration,
    last_turn: Option<(Instant, LogState)>,
    stranger_at: Option<Instant>,
}

/// The result of a pause.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PauseEnd {
    /// Set if the process still has its turn among the processes.
    pub(crate) is_held: bool,
    /// Set if a program has written without a turn.
    pub(crate) has_stranger: bool,
}

impl TurnPauses {
    /// Returns the length of the pause that is due, and starts to count anew.
    pub(crate) fn due(&mut self, queue: &TurnQueue) -> Option<Duration> {
        let is_beside = self.stranger_at.is_some_and(|at| at.elapsed() < BESIDE_FOR);
        self.count_idle_time(queue, if is_beside { 1 } else { 25 });
        let pause = if self.written_since_long >= LONG_AFTER {
            self.written_since_long = Duration::ZERO;
            // Where pauses are used, none has to be that long.
            if is_beside { LONGEST_BESIDE } else { LONG }
        } else if is_beside && self.written >= BESIDE_AFTER {
            self.written.min(LONGEST_BESIDE)
        } else if self.written >= SHORT_AFTER {
            SHORT
        } else {
            return None;
        };
        self.written = Duration::ZERO;
        Some(pause)
    }

    /// Counts the time since the last turn as a pause for so many times as much writing, if nothing was
    /// written meanwhile.
    fn count_idle_time(&mut self, queue: &TurnQueue, writes: u32) {
        let Some((at, log)) = self.last_turn else {
            return;
        };
        let idle = at.elapsed();
        if idle < SHORT || log != queue.log() {
            return;
        }
        self.written = self.written.saturating_sub(idle * writes);
        if idle >= LONG {
            self.written_since_long = Duration::ZERO;
        }
    }

    /// Notes a turn that has ended.
    pub(crate) fn after_a_turn(&mut self, since: Instant, queue: &TurnQueue) {
        let now = clock::instant();
        self.written += now - since;
        self.written_since_long += now - since;
        self.last_turn = Some((now, queue.log()));
    }

    /// Notes what came of a pause.
    pub(crate) fn after_a_pause(&mut self, end: PauseEnd) {
        if end.has_stranger {
            self.stranger_at = Some(clock::instant());
        }
    }
}

/// Leaves the lock free for this long. In a long pause, processes that wait for their turn have one in
/// between. `is_held`: whether this process has the turn.
pub(crate) fn pause(queue: &TurnQueue, is_held: bool, length: Duration) -> PauseEnd {
    let takes_turns = is_held;
    let mut end = PauseEnd {
        is_held,
        has_stranger: false,
    };
    let mut left = length;
    let until = clock::deadline(2 * length);
    while !left.is_zero() && clock::instant() < until {
        let slice = left.min(SLICE);
        let before = queue.log();
        clock::nap(slice);
        if !takes_turns {
            left -= slice;
        } else if !end.is_held {
            end.is_held = queue.try_take();
        } else {
            left -= slice;
            end.has_stranger |= before != queue.log();
            if queue.is_awaited() {
                queue.release();
                end.is_held = false;
            }
        }
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(pauses: &mut TurnPauses, queue: &TurnQueue, millis: u64) {
        let now = clock::instant();
        let since = now - Duration::from_millis(millis);
        pauses.after_a_turn(since, queue);
        pauses.last_turn = None;
    }

    #[test]
    fn a_pause_is_due_after_some_writing() {
        let directory = tempfile::tempdir().unwrap();
        let queue = TurnQueue::beside(&directory.path().join("jobs.db"));
        let mut pauses = TurnPauses::default();
        written(&mut pauses, &queue, 20);
        assert_eq!(pauses.due(&queue), None);
        written(&mut pauses, &queue, 30);
        assert_eq!(pauses.due(&queue), Some(SHORT));
        assert_eq!(pauses.due(&queue), None);
        written(&mut pauses, &queue, 2_450);
        assert_eq!(pauses.due(&queue), Some(LONG));
    }

    #[test]
    fn pauses_that_are_used_are_longer() {
        let directory = tempfile::tempdir().unwrap();
        let queue = TurnQueue::beside(&directory.path().join("jobs.db"));
        let mut pauses = TurnPauses::default();
        pauses.after_a_pause(PauseEnd {
            is_held: true,
            has_stranger: true,
        });
        written(&mut pauses, &queue, 15);
        assert!(pauses.due(&queue) >= Some(Duration::from_millis(15)));
        written(&mut pauses, &queue, 400);
        assert_eq!(pauses.due(&queue), Some(LONGEST_BESIDE));
    }
}
