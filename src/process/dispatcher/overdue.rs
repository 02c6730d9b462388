//! Looks for jobs that wait although what they waited for has ended.

use crate::clock;
use crate::db::model::claim::Cursor;
use crate::db::transition::flows::admit;
use crate::process::base::session::Session;
use std::time::{Duration, Instant};

/// How often it looks, and at how many jobs.
const INTERVAL: Duration = Duration::from_secs(10);
const PAGE: usize = 100;

/// The walk over the jobs that wait for others.
#[derive(Debug)]
pub(crate) struct FollowersWalk {
    beyond: Cursor,
    last: Option<Instant>,
}

impl FollowersWalk {
    pub(crate) fn new() -> Self {
        FollowersWalk {
            beyond: Cursor::BEGINNING,
            last: None,
        }
    }

    /// Walks one stretch, once in a while.
    pub(crate) fn go_on(&mut self, session: &mut Session) -> Result<(), Duration> {
        if self.last.is_some_and(|last| last.elapsed() < INTERVAL) {
            return Ok(());
        }
        let reached = session.run("look for jobs that wait in vain", |conn| {
            admit::request_overdue(conn, self.beyond, PAGE)
        })?;
        self.beyond = reached.unwrap_or(Cursor::BEGINNING);
        self.last = Some(clock::instant());
        Ok(())
    }
}
