//! The turns of the writers of a SQLite file, within a process and between processes.

pub mod queue;
#[cfg(feature = "sqlite")]
pub(crate) mod takes_turns;

use crate::clock;
use crate::db::conn::turns::queue::{LogState, TurnQueue};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

// --- The turns of the writers of a SQLite file ---

/// The longest wait of a thread for the other threads of its process: as long as SQLite itself waits for
/// the write lock.
const LONGEST: Duration = Duration::from_secs(5);

/// The longest wait of a process for the other processes. One that was stopped in the middle of its turn
/// delays the others by this once, and not for each of their turns.
const LONGEST_IN_QUEUE: Duration = Duration::from_secs(1);

/// The time for which a process holds its turn while other processes wait for theirs, if its threads go on
/// writing: changing over takes time.
const HELD: Duration = Duration::from_millis(5);

/// The order in which the waiting threads of a process write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Precedence {
    /// Heartbeats and the ends of jobs: others count the process as dead, or run a job again, if they
    /// come too late.
    First,
    /// In the order of arrival.
    Normal,
}

/// Lets one writer after the other write.
#[derive(Debug)]
#[doc(hidden)]
pub struct WriteTurns {
    state: Mutex<TurnState>,
    queue: TurnQueue,
}

#[derive(Debug, Default)]
struct TurnState {
    /// Since when a thread has its turn, or pauses.
    taken: Option<Instant>,
    arrived: u64,
    /// The threads that wait, in their order. Only the first is woken: to wake all for each turn would take longer than
    /// most turns.
    waiting: BTreeMap<(Precedence, u64), Arc<Condvar>>,
    process: ProcessTurn,
    pauses: TurnPauses,
}

/// The state of this process in the queue of processes.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum ProcessTurn {
    #[default]
    Not,
    /// A thread of this process waits for it.
    Queued(Instant),
    /// Since when this process has it.
    Held(Instant),
}

/// A turn, until it is dropped.
#[derive(Debug)]
pub(crate) struct WriteTurn {
    turns: Arc<WriteTurns>,
    since: Instant,
}

impl WriteTurns {
    /// Returns the turns of the database file at this path. All that open it in this process share them:
    /// the locks of the door do not tell the threads of a process apart.
    pub(crate) fn of(path: &Path) -> Arc<Self> {
        static ALL: Mutex<BTreeMap<PathBuf, Weak<WriteTurns>>> = Mutex::new(BTreeMap::new());
        let path = resolved(path);
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(turns) = all.get(&path).and_then(Weak::upgrade) {
            return turns;
        }
        all.retain(|_, turns| turns.strong_count() > 0);
        let turns = Arc::new(WriteTurns {
            state: Mutex::default(),
            queue: TurnQueue::beside(&path),
        });
        all.insert(path, Arc::downgrade(&turns));
        turns
    }

    /// Waits for a turn. Returns `None` if that takes longer than SQLite would wait.
    ///
    /// A thread that keeps its turn for that long has lost it then, and delays the others once: Diesel
    /// does not report the end of a statement whose values it could not bind.
    pub(crate) fn take(self: &Arc<Self>, precedence: Precedence) -> Option<WriteTurn> {
        let mut state = self.state();
        let mine = (precedence, state.arrived);
        state.arrived += 1;
        let woken = Arc::new(Condvar::new());
        state.waiting.insert(mine, Arc::clone(&woken));
        let until = clock::deadline(LONGEST);
        loop {
            let now = clock::instant();
            let is_next = state.taken.is_none() && state.is_first(mine);
            let most = if is_next {
                let Some(left) = self.left_in_queue(&mut state, now) else {
                    let Some(pause) = state.pauses.due(&self.queue) else {
                        break;
                    };
                    state = self.pause(state, pause);
                    continue;
                };
                left
            } else {
                until.saturating_duration_since(now)
            };
            if most.is_zero() {
                if state.taken.is_some_and(|taken| now - taken >= LONGEST) {
                    state.taken = None;
                    continue;
                }
                state.waiting.remove(&mine);
                state.wake_first();
                return None;
            }
            let waited = woken.wait_timeout(state, most);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.waiting.remove(&mine);
        let since = clock::instant();
        state.taken = Some(since);
        drop(state);
        Some(WriteTurn {
            turns: Arc::clone(self),
            since,
        })
    }

    /// Leaves SQLite's lock free for this long, while no other thread of this process writes.
    fn pause<'s>(
        &'s self,
        mut state: MutexGuard<'s, TurnState>,
        length: Duration,
    ) -> MutexGuard<'s, TurnState> {
        let is_held = matches!(state.process, ProcessTurn::Held(_));
        state.taken = Some(clock::instant());
        drop(state);
        let end = pause(&self.queue, is_held, length);
        let mut state = self.state();
        state.taken = None;
        if is_held {
            state.process = match end.is_held {
                true => ProcessTurn::Held(clock::instant()),
                false => ProcessTurn::Not,
            };
        }
        state.pauses.after_a_pause(end);
        // A thread with precedence may have arrived.
        state.wake_first();
        state
    }

    /// Returns how much longer the process waits for its turn among the processes, or `None` if it has
    /// that, or goes on without.
    fn left_in_queue(self: &Arc<Self>, state: &mut TurnState, now: Instant) -> Option<Duration> {
        if state.process == ProcessTurn::Not {
            if self.queue.try_take() {
                state.process = ProcessTurn::Held(now);
            } else if self.start_to_queue() {
                state.process = ProcessTurn::Queued(now);
            }
        }
        let ProcessTurn::Queued(since) = state.process else {
            return None;
        };
        let left = LONGEST_IN_QUEUE.saturating_sub(now - since);
        (!left.is_zero()).then_some(left)
    }

    /// Waits in the queue on a thread of its own, as a process that was stopped in the middle of its
    /// turn may keep that for any length of time. Returns `false` if there is no such thread.
    fn start_to_queue(self: &Arc<Self>) -> bool {
        let turns = Arc::clone(self);
        let thread = std::thread::Builder::new().name("windlass-turn".to_owned());
        let started = thread.spawn(move || {
            let is_held = turns.queue.take();
            let mut state = turns.state();
            state.process = ProcessTurn::Not;
            if is_held {
                state.process = ProcessTurn::Held(clock::instant());
                turns.pass_on(&mut state);
            }
            state.wake_first();
        });
        started.is_ok()
    }

    /// Ends the turn of the process, unless another of its threads may go on with it.
    fn pass_on(&self, state: &mut TurnState) {
        let ProcessTurn::Held(since) = state.process else {
            return;
        };
        let is_wanted = state.taken.is_some() || !state.waiting.is_empty();
        if !is_wanted || (since.elapsed() >= HELD && self.queue.is_awaited()) {
            self.queue.release();
            state.process = ProcessTurn::Not;
        }
    }

    #[cfg(test)]
    pub(crate) fn is_taken(&self) -> bool {
        self.state().taken.is_some()
    }

    /// Returns how often a turn was asked for.
    #[cfg(test)]
    pub(crate) fn arrived(&self) -> u64 {
        self.state().arrived
    }

    fn state(&self) -> MutexGuard<'_, TurnState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for WriteTurn {
    fn drop(&mut self) {
        let turns = &self.turns;
        let mut state = turns.state();
        if state.taken != Some(self.since) {
            return;
        }
        state.taken = None;
        state.pauses.after_a_turn(self.since, &turns.queue);
        turns.pass_on(&mut state);
        let next = state.waiting.values().next().cloned();
        drop(state);
        if let Some(next) = next {
            next.notify_one();
        }
    }
}

impl TurnState {
    fn is_first(&self, waiting: (Precedence, u64)) -> bool {
        let first = self.waiting.first_key_value();
        first.is_some_and(|(first, _)| *first == waiting)
    }

    /// Wakes the thread whose turn is next, if one waits.
    fn wake_first(&self) {
        if let Some(first) = self.waiting.values().next() {
            first.notify_one();
        }
    }
}

/// Returns the path that all names of a file lead to. The file may not exist yet.
fn resolved(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let within = |path: &Path| Some(path.parent()?.canonicalize().ok()?.join(path.file_name()?));
    let found = path.canonicalize().ok().or_else(|| within(&path));
    found.unwrap_or(path)
}

// --- Pauses between turns, for programs that write the file without taking turns ---

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

    #[test]
    fn all_names_of_a_file_have_one_order_of_turns() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("jobs.db");
        let early = WriteTurns::of(&path);
        std::fs::write(&path, "").unwrap();
        let link = directory.path().join("link.db");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let around = directory
            .path()
            .join("..")
            .join(directory.path().file_name().unwrap());
        for name in [&path, &link, &around.join("jobs.db")] {
            assert!(Arc::ptr_eq(&early, &WriteTurns::of(name)), "{name:?}");
        }
        let other = WriteTurns::of(&directory.path().join("other.db"));
        assert!(!Arc::ptr_eq(&early, &other));
    }

    #[test]
    fn precedence_comes_before_arrival() {
        let directory = tempfile::tempdir().unwrap();
        let turns = WriteTurns::of(&directory.path().join("jobs.db"));
        let (sender, order) = crossbeam_channel::unbounded();
        let first = turns.take(Precedence::Normal);
        let threads: Vec<_> = [Precedence::Normal, Precedence::Normal, Precedence::First]
            .into_iter()
            .enumerate()
            .map(|(number, precedence)| {
                let (waiting, sender) = (Arc::clone(&turns), sender.clone());
                let thread = std::thread::spawn(move || {
                    let turn = waiting.take(precedence);
                    sender.send((number, turn.is_some())).unwrap();
                });
                while turns.state().waiting.len() <= number {
                    clock::nap(Duration::from_millis(1));
                }
                thread
            })
            .collect();
        drop(first);
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        let order: Vec<(usize, bool)> = order.try_iter().collect();
        assert_eq!(order, [(2, true), (0, true), (1, true)]);
    }

    /// Another process, which has its turn until it is killed.
    struct OtherProcess(std::process::Child);

    const FILE: &str = "WINDLASS_TEST_TURN_OF";

    #[test]
    #[allow(clippy::disallowed_methods, reason = "it is how a test plays a part")]
    fn has_a_turn_for_another_test() {
        let Ok(path) = std::env::var(FILE) else {
            return;
        };
        let turns = WriteTurns::of(Path::new(&path));
        let _turn = turns.take(Precedence::Normal);
        assert!(matches!(turns.state().process, ProcessTurn::Held(_)));
        std::fs::write(format!("{path}.taken"), "").unwrap();
        let _ = std::io::Read::read(&mut std::io::stdin(), &mut [0]);
    }

    impl OtherProcess {
        fn with_a_turn(path: &Path) -> Self {
            let program = std::process::Command::new(std::env::current_exe().unwrap())
                .args(["has_a_turn_for_another_test", "--nocapture"])
                .env(FILE, path)
                .stdin(std::process::Stdio::piped())
                .stdout(std::process::Stdio::null())
                .spawn()
                .unwrap();
            let taken = PathBuf::from(format!("{}.taken", path.display()));
            while !taken.exists() {
                clock::nap(Duration::from_millis(5));
            }
            OtherProcess(program)
        }
    }

    impl Drop for OtherProcess {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn a_process_waits_for_the_turn_of_another_until_that_dies() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("jobs.db");
        std::fs::write(&path, "").unwrap();
        let other = OtherProcess::with_a_turn(&path);
        let turns = WriteTurns::of(&path);
        assert!(!turns.queue.try_take());
        assert_eq!(turns.queue.holder(), Some(other.0.id()));
        assert!(turns.start_to_queue());
        turns.state().process = ProcessTurn::Queued(clock::instant());
        drop(other);
        let until = clock::deadline(LONGEST * 20);
        let is_queued = || matches!(turns.state().process, ProcessTurn::Queued(_));
        while is_queued() && clock::instant() < until {
            clock::nap(Duration::from_millis(5));
        }
        // It wants nothing any more, so it has passed the turn on.
        assert_eq!(turns.state().process, ProcessTurn::Not);
        assert!(turns.take(Precedence::Normal).is_some());
    }

    #[test]
    fn a_process_that_keeps_its_turn_delays_another_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("jobs.db");
        std::fs::write(&path, "").unwrap();
        let other = OtherProcess::with_a_turn(&path);
        let turns = WriteTurns::of(&path);
        for _ in 0..100 {
            let turn = turns.take(Precedence::Normal);
            assert!(turn.is_some());
            assert!(matches!(turns.state().process, ProcessTurn::Queued(_)));
        }
        drop(other);
        while turns.state().process != ProcessTurn::Not {
            clock::nap(Duration::from_millis(5));
        }
        drop(turns.take(Precedence::Normal));
        assert_eq!(turns.state().process, ProcessTurn::Not);
    }

    #[test]
    fn a_turn_ends_when_it_is_dropped() {
        let directory = tempfile::tempdir().unwrap();
        let turns = WriteTurns::of(&directory.path().join("jobs.db"));
        let first = turns.take(Precedence::Normal);
        let waiting = std::thread::spawn({
            let turns = Arc::clone(&turns);
            move || turns.take(Precedence::Normal).is_some()
        });
        drop(first);
        assert!(waiting.join().unwrap());
    }

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
