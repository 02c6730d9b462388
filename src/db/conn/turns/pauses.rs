//! Pauses between turns, for programs that write the file without taking turns.
//!
//! Such a program looks for the lock again after 1, 2, 5, 10, .. up to 100 ms, and gets it only if it is
//! free at that moment. While no such program is seen, a process that writes all the time pauses now and
//! then, for so long that none can miss it. Once one has used a pause, the lock is free for most of the
//! time, in short pauses: of a hundred looks at 0, 1, 3, 8, 18, 33 and 53 ms, all but one or two then
//! find it free by the sixth.

use crate::clock;
use crate::db::conn::turns::queue::{LogState, TurnQueue};
use std::time::{Duration, Instant};

/// Without another program: after this long of writing, a pause is due.
const LONG_AFTER: Duration = Duration::from_millis(1_200);

/// Longer than the longest sleep of SQLite's busy handler.
const LONG: Duration = Duration::from_millis(105);

/// Beside another program: after this long of writing, a pause is due.
const BESIDE_AFTER: Duration = Duration::from_millis(4);

/// So many times as long as the writing before it, up to [`LONGEST_BESIDE`].
const BESIDE_TIMES: f64 = 2.3;

const LONGEST_BESIDE: Duration = Duration::from_millis(50);

/// The time for which another program counts as writing after its last commit in a pause.
const BESIDE_FOR: Duration = Duration::from_secs(10);

/// A time without a turn that counts as a pause.
const SHORTEST: Duration = Duration::from_millis(2);

/// In a pause, a process that waits for its turn waits at most this long.
const SLICE: Duration = Duration::from_millis(1);

/// Decides when a process pauses.
#[derive(Debug, Default)]
pub(crate) struct TurnPauses {
    /// The time of writing since the last pause.
    written: Duration,
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
        let (after, times) = if is_beside {
            (BESIDE_AFTER, BESIDE_TIMES)
        } else {
            (LONG_AFTER, LONG.div_duration_f64(LONG_AFTER))
        };
        self.count_idle_time(queue, times);
        if self.written < after {
            return None;
        }
        let written = std::mem::take(&mut self.written);
        let pause = written.mul_f64(times);
        Some(if is_beside {
            pause.min(LONGEST_BESIDE)
        } else {
            LONG
        })
    }

    /// Counts the time since the last turn as a pause, if nothing was written meanwhile.
    fn count_idle_time(&mut self, queue: &TurnQueue, times: f64) {
        let Some((at, log)) = self.last_turn else {
            return;
        };
        let idle = at.elapsed();
        if idle >= SHORTEST && log == queue.log() {
            self.written = self.written.saturating_sub(idle.div_f64(times));
        }
    }

    /// Notes a turn that has ended.
    pub(crate) fn after_a_turn(&mut self, since: Instant, queue: &TurnQueue) {
        let now = clock::instant();
        self.written += now - since;
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
        written(&mut pauses, &queue, 1_000);
        assert_eq!(pauses.due(&queue), None);
        written(&mut pauses, &queue, 200);
        assert_eq!(pauses.due(&queue), Some(LONG));
        assert_eq!(pauses.due(&queue), None);
    }

    #[test]
    fn beside_another_program_pauses_are_more_and_shorter() {
        let directory = tempfile::tempdir().unwrap();
        let queue = TurnQueue::beside(&directory.path().join("jobs.db"));
        let mut pauses = TurnPauses::default();
        pauses.after_a_pause(PauseEnd {
            is_held: true,
            has_stranger: true,
        });
        written(&mut pauses, &queue, 3);
        assert_eq!(pauses.due(&queue), None);
        written(&mut pauses, &queue, 3);
        assert!(pauses.due(&queue) >= Some(Duration::from_millis(13)));
        written(&mut pauses, &queue, 400);
        assert_eq!(pauses.due(&queue), Some(LONGEST_BESIDE));
    }
}
