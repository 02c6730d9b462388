//! Clears what the history keeps no longer, in workers that fold because no supervisor does.

use crate::clock;
use crate::db::transition::clear;
use crate::process::base::session::Session;
use crate::process::base::stop::Stop;
use std::time::{Duration, Instant};

/// How often a worker clears.
const EVERY: Duration = Duration::from_secs(3_600);

/// How many contributions are deleted at once.
const BATCH: usize = 1_000;

/// When a worker clears next, and how far its walk over the series has come.
#[derive(Debug)]
pub(crate) struct HistoryClearing {
    next: Instant,
    after: i64,
}

impl HistoryClearing {
    pub(crate) fn new() -> Self {
        HistoryClearing {
            next: clock::instant(),
            after: 0,
        }
    }

    /// Clears about once an hour, until `until` or a stop. The next call goes on with the next series.
    pub(crate) fn turn(
        &mut self,
        session: &mut Session,
        stop: &Stop,
        until: Instant,
    ) -> Result<(), Duration> {
        let now = clock::instant();
        if now < self.next || now >= until {
            return Ok(());
        }
        self.next = now + clock::jittered(EVERY);
        session.run("clear the history", |conn| clear::unused(conn, BATCH))?;
        while !stop.is_stopped() && clock::instant() < until {
            let after = self.after;
            let page = session.run("clear the history", |conn| clear::old_buckets(conn, after))?;
            self.after = page.reached.unwrap_or(0);
            if page.reached.is_none() {
                break;
            }
        }
        Ok(())
    }
}
