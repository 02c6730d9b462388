//! Passes events to the log and to the application's functions.

use crate::event::events::Event;
use crate::event::logging::{self, ErrorMessages};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Receives every event, on the thread where it happened, so it must return quickly.
///
/// A panic in it is logged, and the process stops in an orderly way with exit code 70.
#[derive(Clone, Default)]
pub struct Subscriber {
    hear: Option<Arc<Hear>>,
    on_panic: Option<Arc<OnPanic>>,
    messages: ErrorMessages,
}

type Hear = dyn Fn(&Event<'_>) + Send + Sync;

type OnPanic = dyn Fn() + Send + Sync;

impl Subscriber {
    /// Creates a subscriber that calls `hear` for every event, after the event was logged.
    ///
    /// A panic in `hear` is logged and does not unwind into the thread that emitted the event. The
    /// process then stops in an orderly way, with exit code 70.
    pub fn new(hear: impl Fn(&Event<'_>) + Send + Sync + 'static) -> Self {
        Subscriber {
            hear: Some(Arc::new(hear)),
            on_panic: None,
            messages: ErrorMessages::Logged,
        }
    }

    /// Sets whether the log and the spans of jobs contain their error messages, beside the kinds.
    /// Default: `true`.
    ///
    /// Each message is one line of at most 500 characters. Turn this off if messages may contain
    /// data that must not be logged. The job and its events keep them in any case.
    pub fn log_messages(mut self, logged: bool) -> Self {
        self.messages = match logged {
            true => ErrorMessages::Logged,
            false => ErrorMessages::Hidden,
        };
        self
    }

    /// Whether the messages of errors may leave the program.
    pub(crate) fn logs_messages(&self) -> bool {
        self.messages == ErrorMessages::Logged
    }

    /// Sets what happens after a panic, for a process that stops then.
    pub(crate) fn on_panic(&self, then: impl Fn() + Send + Sync + 'static) -> Self {
        Subscriber {
            hear: self.hear.clone(),
            on_panic: Some(Arc::new(then)),
            messages: self.messages,
        }
    }

    /// Logs an event and passes it to the function.
    pub(crate) fn emit(&self, event: &Event<'_>) {
        logging::log_event(event, self.messages);
        let Some(hear) = &self.hear else { return };
        // A panic must not unwind the thread it runs on: a finisher or a heartbeat must complete
        // what it has started.
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
