//! Passes the quiet mode of a supervisor on to its children and threads.

use crate::clock;
use crate::event::events::Event;
use crate::event::subscriber::Subscriber;
use crate::process::base::handle::Handle;
use crate::process::supervisor::children::ChildProcess;
use std::time::{Duration, Instant};

/// How often children hear whether they are to be quiet.
const REPEAT: Duration = Duration::from_secs(2);

/// Whether the workers of a supervisor claim nothing.
#[derive(Debug, Default)]
pub(crate) struct QuietMode {
    is_quiet: bool,
    /// When the children hear it again. `None` until it changes first.
    repeat_at: Option<Instant>,
}

impl QuietMode {
    pub(crate) fn is_quiet(&self) -> bool {
        self.is_quiet
    }

    /// Passes on that nothing may be claimed, or that claiming continues. Children hear it again and
    /// again: a script that starts a worker may have read what was written before.
    pub(crate) fn set(
        &mut self,
        is_quiet: bool,
        children: &[ChildProcess],
        threads: &[Handle],
        subscriber: &Subscriber,
    ) {
        let is_changed = self.is_quiet != is_quiet;
        let now = clock::instant();
        if !is_changed && self.repeat_at.is_none_or(|at| now < at) {
            return;
        }
        self.repeat_at = Some(now + REPEAT);
        if !is_changed || is_quiet {
            children.iter().for_each(|child| child.set_quiet(is_quiet));
        } else {
            children.iter().for_each(ChildProcess::resume);
        }
        if !is_changed {
            return;
        }
        self.is_quiet = is_quiet;
        subscriber.emit(&if is_quiet {
            Event::Quieted
        } else {
            Event::Resumed
        });
        for handle in threads {
            if is_quiet {
                handle.quiet();
            } else {
                handle.resume();
            }
        }
    }
}
