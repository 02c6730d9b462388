//! The jobs on their way to the threads of a worker. The more important ones overtake the others, and no more threads are
//! woken than the jobs need.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// The importance of a job for its worker: the smaller, the more important.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    /// The position of its queue among the worker's.
    pub(crate) queue: usize,
    pub(crate) priority: i32,
}

/// Sends in order, except that what ranks before the last one overtakes all that wait. When it is dropped, the receivers
/// end once all is received.
pub(crate) struct RankedSender<T> {
    line: Arc<RankedLine<T>>,
    last: Option<Rank>,
}

/// Receives what is urgent first. Its clones share what is sent.
pub(crate) struct RankedReceiver<T> {
    line: Arc<RankedLine<T>>,
}

struct RankedLine<T> {
    state: Mutex<LineState<T>>,
    changed: Condvar,
}

struct LineState<T> {
    urgent: VecDeque<T>,
    regular: VecDeque<T>,
    /// The number of threads that wait.
    idle: usize,
    /// The number of those that were woken, and have not come yet.
    woken: usize,
    /// The number of threads that are to end.
    dismissed: usize,
    is_closed: bool,
}

pub(crate) fn ranked<T>() -> (RankedSender<T>, RankedReceiver<T>) {
    let line = Arc::new(RankedLine {
        state: Mutex::new(LineState {
            urgent: VecDeque::new(),
            regular: VecDeque::new(),
            idle: 0,
            woken: 0,
            dismissed: 0,
            is_closed: false,
        }),
        changed: Condvar::new(),
    });
    let sender = RankedSender {
        line: Arc::clone(&line),
        last: None,
    };
    (sender, RankedReceiver { line })
}

impl<T> RankedLine<T> {
    fn state(&self) -> MutexGuard<'_, LineState<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes threads until so many are on their way, or none waits any more.
    fn wake(&self, state: &mut LineState<T>, wanted: usize) {
        let wanted = wanted.min(state.idle);
        while state.woken < wanted {
            state.woken += 1;
            self.changed.notify_one();
        }
    }
}

impl<T> LineState<T> {
    fn len(&self) -> usize {
        self.urgent.len() + self.regular.len()
    }

    fn take(&mut self) -> Option<T> {
        self.urgent.pop_front().or_else(|| self.regular.pop_front())
    }
}

impl<T> RankedSender<T> {
    /// Sends messages. If they are `short`, one thread is woken, and wakes the next one only if it finds more than it
    /// takes; otherwise a thread for each message is woken at once. `coming` threads come for the next messages anyway.
    pub(crate) fn send(
        &mut self,
        messages: impl IntoIterator<Item = (Rank, T)>,
        short: bool,
        coming: usize,
    ) {
        let mut state = self.line.state();
        for (rank, message) in messages {
            if !state.regular.is_empty() && self.last.is_some_and(|last| rank < last) {
                state.urgent.push_back(message);
            } else {
                self.last = Some(rank);
                state.regular.push_back(message);
            }
        }
        let wanted = match short {
            true => state.len().min(1),
            false => state.len(),
        };
        self.line.wake(&mut state, wanted.saturating_sub(coming));
    }
}

impl<T> Drop for RankedSender<T> {
    fn drop(&mut self) {
        self.line.state().is_closed = true;
        self.line.changed.notify_all();
    }
}

impl<T> Clone for RankedReceiver<T> {
    fn clone(&self) -> Self {
        RankedReceiver {
            line: Arc::clone(&self.line),
        }
    }
}

impl<T> RankedReceiver<T> {
    /// Waits for the next message. Returns `None` when the sender is gone and all is received, or if the thread is
    /// dismissed.
    pub(crate) fn next(&self) -> Option<T> {
        let mut state = self.line.state();
        loop {
            let is_dismissed = state.dismissed > 0;
            let next = match is_dismissed {
                true => None,
                false => state.take(),
            };
            if is_dismissed || next.is_some() || state.is_closed {
                state.dismissed -= usize::from(is_dismissed);
                // The rest is for another thread.
                let wanted = state.len().min(1);
                self.line.wake(&mut state, wanted);
                return next;
            }
            state.idle += 1;
            state = (self.line.changed.wait(state)).unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
            state.woken = state.woken.saturating_sub(1);
        }
    }

    /// Lets one thread end, after its job.
    pub(crate) fn dismiss(&self) {
        let mut state = self.line.state();
        state.dismissed += 1;
        let wanted = state.woken + 1;
        self.line.wake(&mut state, wanted);
    }

    /// Keeps a thread that was dismissed. Returns `false` if all such have ended.
    pub(crate) fn keep(&self) -> bool {
        let mut state = self.line.state();
        let is_kept = state.dismissed > 0;
        state.dismissed -= usize::from(is_kept);
        is_kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank(queue: usize, priority: i32) -> Rank {
        Rank { queue, priority }
    }

    fn all(receiver: &RankedReceiver<u32>) -> Vec<u32> {
        std::iter::from_fn(|| receiver.next()).collect()
    }

    #[test]
    fn what_is_more_important_overtakes_what_waits() {
        let (mut sender, receiver) = ranked();
        sender.send([(rank(0, 5), 1), (rank(0, 5), 2)], false, 0);
        sender.send([(rank(0, 1), 3), (rank(1, 0), 4)], true, 0);
        sender.send([(rank(0, 9), 5)], false, 0);
        drop(sender);
        assert_eq!(all(&receiver), [3, 5, 1, 2, 4]);
    }

    #[test]
    fn nothing_is_lost_when_the_sender_goes() {
        let (mut sender, receiver) = ranked();
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let receiver = receiver.clone();
                std::thread::spawn(move || all(&receiver).len())
            })
            .collect();
        for number in 0..1_000_u32 {
            let rank = rank(0, -i32::try_from(number % 7).unwrap());
            sender.send([(rank, number)], number % 2 == 0, 0);
        }
        drop(sender);
        let received: usize = threads.into_iter().map(|t| t.join().unwrap()).sum();
        assert_eq!(all(&receiver).len() + received, 1_000);
    }

    /// Each thread keeps its message until all have one.
    #[test]
    fn each_message_gets_a_thread_whatever_was_expected_of_them() {
        for short in [false, true] {
            let (mut sender, receiver) = ranked();
            let barrier = Arc::new(std::sync::Barrier::new(8));
            let threads: Vec<_> = (0..8)
                .map(|_| {
                    let (receiver, barrier) = (receiver.clone(), Arc::clone(&barrier));
                    std::thread::spawn(move || {
                        let taken = receiver.next();
                        barrier.wait();
                        taken
                    })
                })
                .collect();
            sender.send((0..8).map(|number| (rank(0, 0), number)), short, 0);
            let mut taken: Vec<_> = threads.into_iter().map(|t| t.join().unwrap()).collect();
            taken.sort_unstable();
            assert_eq!(taken, (0..8).map(Some).collect::<Vec<_>>());
        }
    }

    #[test]
    fn as_many_threads_end_as_are_dismissed() {
        let (mut sender, receiver) = ranked::<u32>();
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let receiver = receiver.clone();
                std::thread::spawn(move || all(&receiver).len())
            })
            .collect();
        receiver.dismiss();
        receiver.dismiss();
        let ended = || threads.iter().filter(|thread| thread.is_finished()).count();
        while ended() < 2 {
            std::thread::yield_now();
        }
        assert!(!receiver.keep());
        receiver.dismiss();
        let is_kept = receiver.keep();
        sender.send([(rank(0, 0), 1)], false, 0);
        drop(sender);
        let received: usize = threads.into_iter().map(|t| t.join().unwrap()).sum();
        assert!(received == 1 || (!is_kept && all(&receiver) == [1]));
    }
}
