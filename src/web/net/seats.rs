//! The connections without a request, of which one gives way when there are too many.

use axum::body::Body;
use hyper::body::{Bytes, Frame, SizeHint};
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use tokio::sync::Notify;

/// The connections that are idle, the longest first.
#[derive(Debug, Default)]
pub(crate) struct Seats(Mutex<IdleSeats>);

#[derive(Debug, Default)]
struct IdleSeats {
    /// The number of the next one.
    next: u64,
    idle: BTreeMap<u64, Arc<Notify>>,
}

impl Seats {
    fn idle(&self) -> MutexGuard<'_, IdleSeats> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a connection, which has no request yet.
    pub(crate) fn take(self: &Arc<Self>) -> Seat {
        let seat = Seat {
            seats: Arc::clone(self),
            place: Mutex::new(None),
            gives_way: Arc::new(Notify::new()),
        };
        seat.rest();
        seat
    }

    /// Ends the connection that has been idle for longest. Returns `false` if none is.
    pub(crate) fn make_room(&self) -> bool {
        let first = self.idle().idle.pop_first();
        first.is_some_and(|(_, gives_way)| {
            gives_way.notify_one();
            true
        })
    }
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Seat {
    seats: Arc<Seats>,
    /// Its number while it is idle.
    place: Mutex<Option<u64>>,
    gives_way: Arc<Notify>,
}

impl Seat {
    fn rest(&self) {
        let mut idle = self.seats.idle();
        let number = idle.next;
        idle.next += 1;
        idle.idle.insert(number, Arc::clone(&self.gives_way));
        *self.place.lock().unwrap_or_else(PoisonError::into_inner) = Some(number);
    }

    fn work(&self) {
        let place = self
            .place
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(number) = place {
            self.seats.idle().idle.remove(&number);
        }
    }

    /// Marks the connection as busy, until what is returned is dropped.
    pub(crate) fn serve(self: &Arc<Self>) -> Serving {
        self.work();
        Serving(Arc::clone(self))
    }

    /// Ends when the connection is to give way.
    pub(crate) async fn gives_way(&self) {
        self.gives_way.notified().await;
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.work();
    }
}

/// A request that is being answered.
#[derive(Debug)]
pub(crate) struct Serving(Arc<Seat>);

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.rest();
    }
}

/// The body of an answer, until whose end the connection is busy.
pub(crate) struct ServedBody {
    body: Body,
    _serving: Serving,
}

impl ServedBody {
    pub(crate) fn new(body: Body, serving: Serving) -> Self {
        ServedBody {
            body,
            _serving: serving,
        }
    }
}

impl hyper::body::Body for ServedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_one_that_has_been_idle_for_longest_gives_way() {
        let seats = Arc::new(Seats::default());
        assert!(!seats.make_room());
        let (one, two) = (Arc::new(seats.take()), Arc::new(seats.take()));
        let serving = one.serve();
        assert!(
            seats.make_room() && !seats.make_room(),
            "one is busy, two gives way"
        );
        drop(serving);
        drop(two);
        assert!(seats.make_room(), "one is idle again");
        drop(one);
        assert!(!seats.make_room());
    }
}
