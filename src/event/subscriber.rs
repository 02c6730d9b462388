//! Passes events to the log and to the program's own functions.

use crate::event::events::Event;
use crate::event::logging;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Hears every event, on the thread where it happened: be quick. A panic in it
/// is logged and ends the process in good order, with exit code 70.
#[derive(Clone, Default)]
pub struct Subscriber {
    hear: Option<Arc<Hear>>,
    on_panic: Option<Arc<OnPanic>>,
    hides_messages: bool,
}

type Hear = dyn Fn(&Event<'_>) + Send + Sync;

type OnPanic = dyn Fn() + Send + Sync;

impl Subscriber {
    /// Calls `hear` for every event, after it was logged. A panic in `hear` is
    /// logged, does not unwind into the thread that emitted the event, and
    /// ends the process in good order, with exit code 70.
    pub fn new(hear: impl Fn(&Event<'_>) + Send + Sync + 'static) -> Self {
        Subscriber {
            hear: Some(Arc::new(hear)),
            on_panic: None,
            hides_messages: false,
        }
    }

    /// Whether the log has the messages of errors of jobs, each in one line
    /// of at most 500 characters, beside their kinds. Default: it has. Turn it
    /// off where messages may contain what must not be in a log; they are kept
    /// with the job all the same, and events have them.
    pub fn log_messages(mut self, logged: bool) -> Self {
        self.hides_messages = !logged;
        self
    }

    /// The same, for a process that does not outlive a panic of it.
    pub(crate) fn on_panic(&self, then: impl Fn() + Send + Sync + 'static) -> Self {
        Subscriber {
            hear: self.hear.clone(),
            on_panic: Some(Arc::new(then)),
            hides_messages: self.hides_messages,
        }
    }

    /// Logs an event and passes it on.
    pub(crate) fn emit(&self, event: &Event<'_>) {
        logging::log_event(event, !self.hides_messages);
        let Some(hear) = &self.hear else { return };
        // It must not take along the thread it runs on: what a finisher or a
        // heartbeat has begun, it has to end.
        if catch_unwind(AssertUnwindSafe(|| hear(event))).is_err() {
            log::error!("a subscriber panicked: this process stops");
            if let Some(then) = &self.on_panic {
                then();
            }
        }
    }
}

impl fmt::Debug for Subscriber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Subscriber")
    }
}
