//! The duties that promote blocked jobs, and find those that no signal has reached.
//!
//! A sweep walks over its rows a stretch at a time, and starts again at their end.

use crate::db::Conn;
use crate::db::model::claim::Cursor;
use crate::db::table::{semaphores, wanted_keys};
use crate::db::transition::flows::{admit, leave};
use crate::db::transition::{gate, promote, unique};
use crate::event::Event;
use crate::process::base::session::Session;
use crate::process::upkeep::{Duty, DutyTurn, NextTurn};
use diesel::QueryResult;
use std::time::Duration;

/// The most concurrency keys, and the most batches, of a stretch.
const SWEPT_KEYS: usize = 200;

/// The most jobs of a stretch that wait for one with the same unique id.
const SWEPT_JOBS: usize = 2_000;

/// The most jobs in batches of a stretch.
const SWEPT_MEMBERS: usize = 500;

/// The most jobs of a stretch that wait for other jobs, for batches or for events.
const SWEPT_FOLLOWERS: usize = 100;

/// The most requests for promotions that a turn notes as waiting.
const NOTED: usize = 500;

/// The time between two stretches where rows that no signal has reached are rare.
const RARELY: Duration = Duration::from_secs(10);

/// The pause after a promotion that the database has refused.
const AFTER_REFUSAL: Duration = Duration::from_millis(50);

/// The most promotions of a turn: each some milliseconds of work.
const PROMOTIONS: usize = 8;

/// Returns the duties for blocked jobs, for a loop that looks again after at most `interval`.
pub(crate) fn duties(interval: Duration) -> Vec<Box<dyn Duty>> {
    vec![
        Box::new(Unblock {
            interval,
            beyond: Cursor::BEGINNING,
        }),
        Box::new(Promote { interval }),
        Box::new(Refill { interval }),
        Box::new(SweepLines {
            interval,
            line: String::new(),
        }),
        Box::new(SweepSlots {
            interval,
            key: String::new(),
        }),
        Box::new(SweepMembers {
            interval,
            member: 0,
        }),
        Box::new(SweepBatches { interval, batch: 0 }),
        Box::new(SweepFollowers {
            interval,
            beyond: Cursor::BEGINNING,
        }),
        Box::new(NoteRequests { interval }),
    ]
}

/// Promotes all blocked jobs that may run, on the connection of a test.
pub(crate) fn promote_all(conn: &mut Conn<'_>) -> QueryResult<()> {
    const KEYS: usize = 500;
    while promote::promote(conn, KEYS)?.is_progress(KEYS) {}
    Ok(())
}

/// Gives free slots to the blocked jobs of the keys that were requested.
struct Promote {
    interval: Duration,
}

impl Duty for Promote {
    fn name(&self) -> &'static str {
        "promote"
    }

    fn interval(&self) -> Duration {
        self.interval
    }

    fn turn(&mut self, session: &mut Session) -> Result<DutyTurn, Duration> {
        for _ in 0..PROMOTIONS {
            if session.promote() {
                continue;
            }
            return match session.refusal() {
                None => Ok(DutyTurn::done()),
                Some(_) => Err(AFTER_REFUSAL),
            };
        }
        Ok(DutyTurn::of(PROMOTIONS, true))
    }
}

/// Lets jobs with rates through whose tokens have come.
struct Refill {
    interval: Duration,
}

impl Duty for Refill {
    fn name(&self) -> &'static str {
        "refill"
    }

    fn interval(&self) -> Duration {
        self.interval
    }

    fn turn(&mut self, session: &mut Session) -> Result<DutyTurn, Duration> {
        let mut next = session.look_for_rate()?;
        let mut changed = 0;
        if next.is_some_and(|left| left.is_zero()) {
            changed = usize::from(session.promote_due());
            next = session.until_rate();
        }
        // A little after it, so that the look does not come just before.
        let next = next.map(|left| (left + SHORTLY).min(self.interval));
        Ok(DutyTurn {
            changed,
            next: next.map_or(NextTurn::Interval, NextTurn::In),
        })
    }
}

/// The time between the tokens of a rate and the look at it.
const SHORTLY: Duration = Duration::from_millis(1);

/// Finds jobs that the end of the job with their unique id did not find, because they were not committed yet.
struct Unblock {
    interval: Duration,
    /// The last job that was checked.
    beyond: Cursor,
}

impl Duty for Unblock {
    fn name(&self) -> &'static str {
        "unblock"
    }

    fn interval(&self) -> Duration {
        self.interval
    }

    fn turn(&mut self, session: &mut Session) -> Result<DutyTurn, Duration> {
        let page = session.run("look for jobs whose turn has come", |conn| {
            unique::sweep(conn, self.beyond, SWEPT_JOBS)
        })?;
        self.beyond = page.reached.unwrap_or(Cursor::BEGINNING);
        Ok(DutyTurn::done())
    }
}

/// Finds slots of concurrency keys with blocked jobs that became free without a signal.
struct SweepSlots {
    interval: Duration,
    /// The last key that was checked.
    key: String,
}

impl Duty for SweepSlots {
    fn name(&self) -> &'static str {
        "sweep slots"
    }

    fn interval(&self) -> Duration {
        self.interval
    }

    fn turn(&mut self, session: &mut Session) -> Result<DutyTurn, Duration> {
        let stretch = session.run("look for free slots", |conn| {
            semaphores::sweep(conn, &self.key, SWEPT_KEYS)
        })?;
        self.key = stretch.reached.unwrap_or_default();
        for key in &stretch.overlooked {
            session.subscriber().emit(&Event::Overlooked { key });
        }
        Ok(DutyTurn::done())
    }
}

/// Finds jobs with rates that wait, and of which no request or rate knows.
struct SweepLines {
    interval: Duration,
    /// The last line that was checked.
    line: String,
}

impl Duty for SweepLines {
    fn name(&self) -> &'static str {
        "sweep lines"
    }

    fn interval(&self) -> Duration {
        self.interval.max(RARELY)
    }

    fn turn(&mut self, session: &mut Session) -> Result<DutyTurn, Duration> {
        let reached = session.run("look for jobs that wait for a rate", |conn| {
            gate::sweep(conn, &self.line, SWEPT_KEYS)
        })?;
        self.line = reached.unwrap_or_default();
        Ok(DutyTurn::done())
    }
}

/// Finds jobs that have ended and have not left their batch.
struct SweepMembers {
    interval: Duration,
    /// The last job that was checked.
    member: i64,
}

impl Duty for SweepMembers {
    fn name(&self) -> &'static str {
        "sweep members"
    }

    fn interval(&self) -> Duration {
        self.interval.max(RARELY)
    }

    fn turn(&mut self, session: &mut Session) -> Result<DutyTurn, Duration> {
        let swept = session.run("look for ended jobs in batches", |conn| {
            leave::sweep(conn, self.member, SWEPT_MEMBERS)
        })?;
        self.member = swept.reached.unwrap_or_default();
        // After one job that has not left its batch, the next ones may not have either.
        Ok(match swept.left {
            0 => DutyTurn::done(),
            left => DutyTurn {
                changed: left,
                next: NextTurn::In(self.interval),
            },
        })
    }
}

/// Finds batches that are over and have not ended.
struct SweepBatches {
    interval: Duration,
    /// The last batch that was checked.
    batch: i64,
}

impl Duty for SweepBatches {
    fn name(&self) -> &'static str {
        "sweep batches"
    }

    fn interval(&self) -> Duration {
        self.interval.max(RARELY)
    }

    fn turn(&mut self, session: &mut Session) -> Result<DutyTurn, Duration> {
        let reached = session.run("look for batches that are over", |conn| {
            leave::request_stalled(conn, self.batch, SWEPT_KEYS)
        })?;
        self.batch = reached.unwrap_or_default();
        Ok(DutyTurn::done())
    }
}

/// Finds jobs that wait although what they waited for has ended.
struct SweepFollowers {
    interval: Duration,
    /// The last job that was checked.
    beyond: Cursor,
}

impl Duty for SweepFollowers {
    fn name(&self) -> &'static str {
        "sweep followers"
    }

    fn interval(&self) -> Duration {
        self.interval.max(RARELY)
    }

    fn turn(&mut self, session: &mut Session) -> Result<DutyTurn, Duration> {
        let reached = session.run("look for jobs that wait in vain", |conn| {
            admit::request_overdue(conn, self.beyond, SWEPT_FOLLOWERS)
        })?;
        self.beyond = reached.unwrap_or(Cursor::BEGINNING);
        Ok(DutyTurn::done())
    }
}

/// Notes which requests for promotions wait, so that the checks of a database can report them.
struct NoteRequests {
    interval: Duration,
}

impl Duty for NoteRequests {
    fn name(&self) -> &'static str {
        "note requests"
    }

    fn interval(&self) -> Duration {
        self.interval.max(RARELY)
    }

    fn turn(&mut self, session: &mut Session) -> Result<DutyTurn, Duration> {
        session.run("look for requests that wait", |conn| {
            wanted_keys::note_waiting(conn, NOTED)
        })?;
        Ok(DutyTurn::done())
    }
}
