//! A channel whose more important messages overtake the others.

use crossbeam_channel::{Receiver, Sender, select_biased, unbounded};

/// How important a job is for its worker: the smaller, the more important.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    /// The position of its queue among the worker's.
    pub(crate) queue: usize,
    pub(crate) priority: i32,
}

/// Sends in order, except that what ranks before the last one overtakes all that wait.
pub(crate) struct RankedSender<T> {
    urgent: Sender<T>,
    regular: Sender<T>,
    last: Option<Rank>,
}

/// Receives what is urgent first. Its clones share what is sent.
pub(crate) struct RankedReceiver<T> {
    urgent: Receiver<T>,
    regular: Receiver<T>,
}

impl<T> Clone for RankedReceiver<T> {
    fn clone(&self) -> Self {
        RankedReceiver {
            urgent: self.urgent.clone(),
            regular: self.regular.clone(),
        }
    }
}

pub(crate) fn ranked<T>() -> (RankedSender<T>, RankedReceiver<T>) {
    let ((urgent_tx, urgent), (regular_tx, regular)) = (unbounded(), unbounded());
    let sender = RankedSender {
        urgent: urgent_tx,
        regular: regular_tx,
        last: None,
    };
    (sender, RankedReceiver { urgent, regular })
}

impl<T> RankedSender<T> {
    /// Sends, if a receiver is left.
    pub(crate) fn send(&mut self, message: T, rank: Rank) {
        let overtakes = !self.regular.is_empty() && self.last.is_some_and(|last| rank < last);
        let _ = if overtakes {
            self.urgent.send(message)
        } else {
            self.last = Some(rank);
            self.regular.send(message)
        };
    }
}

impl<T> RankedReceiver<T> {
    /// Waits for the next message. Returns `None` when the sender is gone and all is received, or
    /// after a message of `leave`.
    pub(crate) fn next(&self, leave: &Receiver<()>) -> Option<T> {
        if leave.try_recv().is_ok() {
            return None;
        }
        let urgent = self.urgent.try_recv();
        let next = urgent.or_else(|_| self.regular.try_recv());
        next.ok().or_else(|| self.wait(leave))
    }

    fn wait(&self, leave: &Receiver<()>) -> Option<T> {
        let next = select_biased! {
            recv(leave) -> _ => return None,
            recv(self.urgent) -> next => next.or_else(|_| self.regular.recv()),
            recv(self.regular) -> next => next.or_else(|_| self.urgent.recv()),
        };
        next.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossbeam_channel::never;

    fn rank(queue: usize, priority: i32) -> Rank {
        Rank { queue, priority }
    }

    fn all(receiver: &RankedReceiver<u32>) -> Vec<u32> {
        std::iter::from_fn(|| receiver.next(&never())).collect()
    }

    #[test]
    fn what_is_more_important_overtakes_what_waits() {
        let (mut sender, receiver) = ranked();
        sender.send(1, rank(0, 5));
        sender.send(2, rank(0, 5));
        sender.send(3, rank(0, 1));
        sender.send(4, rank(1, 0));
        sender.send(5, rank(0, 9));
        drop(sender);
        assert_eq!(all(&receiver), [3, 5, 1, 2, 4]);
    }

    #[test]
    fn nothing_is_lost_when_the_sender_goes() {
        let (mut sender, receiver) = ranked();
        let late = receiver.clone();
        let thread = std::thread::spawn(move || all(&late).len());
        for number in 0..1_000 {
            sender.send(number, rank(0, -i32::try_from(number % 7).unwrap()));
        }
        drop(sender);
        let here = all(&receiver).len();
        assert_eq!(here + thread.join().unwrap(), 1_000);
    }
}
