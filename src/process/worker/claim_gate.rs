//! When a worker claims nothing although it could: because it is told to be
//! quiet, or because it makes room for a new one.

use crate::event::events::Event;
use crate::event::subscriber::Subscriber;
use crate::process::base::stop::Stop;
use crate::process::worker::pool::Pool;
use crate::process::worker::recycle::Wear;
use crate::recycle::Recycle;

/// Whether a poller claims.
#[derive(Debug)]
pub(crate) struct Rest {
    pub(crate) wear: Wear,
    threads: usize,
    was_quiet: bool,
    is_retiring: bool,
}

/// What a poller does next.
pub(crate) enum Turn {
    Claim,
    /// Wait for a change.
    Wait,
    /// Nothing runs any more: end the process.
    Recycle,
}

impl Rest {
    pub(crate) fn new(recycle: Recycle, threads: usize) -> Self {
        Rest {
            wear: Wear::new(recycle),
            threads,
            was_quiet: false,
            is_retiring: false,
        }
    }

    pub(crate) fn turn(&mut self, stop: &Stop, pool: &Pool, subscriber: &Subscriber) -> Turn {
        let is_quiet = stop.is_quiet();
        if is_quiet != self.was_quiet {
            self.was_quiet = is_quiet;
            subscriber.emit(&if is_quiet {
                Event::Quieted
            } else {
                Event::Resumed
            });
        }
        if !self.is_retiring
            && let Some(why) = self.wear.reason()
        {
            self.is_retiring = true;
            subscriber.emit(&Event::Recycling { why: &why });
        }
        // Only the poller makes a thread busy: once all are idle, all stay so.
        if self.is_retiring && pool.idle() == self.threads {
            Turn::Recycle
        } else if self.is_retiring || is_quiet {
            Turn::Wait
        } else {
            Turn::Claim
        }
    }
}
