//! The duties for jobs whose time has come: they become ready, expire, or wait no longer.

use crate::clock;
use crate::db::Conn;
use crate::db::model::history::tally::CountedEnd;
use crate::db::table::scheduled;
use crate::db::transition::dispatch;
use crate::db::transition::flows::wake;
use crate::event::Event;
use crate::job::JobId;
use crate::process::base::session::Session;
use crate::process::upkeep::{Duty, DutyTurn, NextTurn};
use diesel::QueryResult;
use std::time::{Duration, Instant};

/// Returns the duties that make jobs ready, for a loop that looks again after at most `interval`.
pub(crate) fn duties(batch_size: usize, interval: Duration) -> Vec<Box<dyn Duty>> {
    vec![
        Box::new(Expire {
            batch_size,
            interval,
        }),
        Box::new(Dispatch::new(batch_size, interval)),
        Box::new(TimeOut {
            batch_size,
            interval,
        }),
    ]
}

/// Moves the jobs whose time has come, on the connection of a test.
pub(crate) fn make_ready(conn: &mut Conn<'_>) -> QueryResult<()> {
    dispatch::dispatch(conn, AT_ONCE, &[])?;
    while wake::time_out(conn, AT_ONCE)?.woken > 0 {}
    Ok(())
}

/// The most jobs that a test moves at once.
const AT_ONCE: usize = 500;

// --- Makes due scheduled jobs ready ---

/// The first pause after a turn that could not move everything that is due, because other
/// transactions have locked it. It doubles with each such turn.
const AFTER_LOCKED: Duration = Duration::from_millis(50);

struct Dispatch {
    batch_size: usize,
    /// The longest time between two looks.
    interval: Duration,
    refused: RefusedJobs,
    /// The pause after a turn that finds everything due locked.
    locked: Duration,
}

impl Dispatch {
    fn new(batch_size: usize, interval: Duration) -> Self {
        Dispatch {
            batch_size,
            interval,
            refused: RefusedJobs::default(),
            locked: AFTER_LOCKED,
        }
    }

    /// Returns the time of the next turn, which is that of the next due job if it comes first.
    fn next(&mut self, session: &mut Session, has_moved: bool) -> Result<NextTurn, Duration> {
        let next = session.run("look for due jobs", scheduled::next_due)?;
        Ok(match next {
            // Due executions were skipped because they are locked, or were refused.
            Some(Duration::ZERO) if !has_moved => {
                let pause = self.locked.min(self.interval);
                self.locked = pause.saturating_mul(2);
                NextTurn::In(pause)
            }
            // A little after the due time, so that the look does not come just before it.
            Some(next) => {
                self.locked = AFTER_LOCKED;
                NextTurn::In((next + Duration::from_millis(2)).min(self.interval))
            }
            None => NextTurn::Interval,
        })
    }
}

impl Duty for Dispatch {
    fn name(&self) -> &'static str {
        "dispatch"
    }

    fn interval(&self) -> Duration {
        self.interval
    }

    /// Moves one chunk of due jobs. Those with a concurrency limit become ready by a promotion.
    fn turn(&mut self, session: &mut Session) -> Result<DutyTurn, Duration> {
        let count = self.refused.dispatch(session, self.batch_size)?;
        let mut has_more = count >= self.batch_size;
        if count > 0 {
            self.locked = AFTER_LOCKED;
            session.subscriber().emit(&Event::Dispatched { count });
            has_more |= session.promote();
        }
        let next = match has_more {
            true => NextTurn::Now,
            // The jobs that it has moved count, even if this look fails.
            false if count > 0 => self.next(session, true).unwrap_or(NextTurn::Now),
            false => self.next(session, false)?,
        };
        Ok(DutyTurn {
            changed: count,
            next,
        })
    }
}

/// Due jobs that the database has refused to make ready, because of a trigger or constraint of the application. They hold
/// up no other: they are left, and tried again after a while.
#[derive(Debug, Default)]
struct RefusedJobs {
    jobs: Vec<i64>,
    since: Option<Instant>,
}

/// The time for which refused jobs are left.
const RETRIED_AFTER: Duration = Duration::from_secs(10);

/// The most that are known at once. With more, the first are tried again earlier.
const MOST: usize = 10_000;

/// The number of attempts at a chunk of which the database has refused a part.
const ROUNDS: usize = 20;

impl RefusedJobs {
    /// Dispatches a chunk, and returns the number of jobs that were moved.
    ///
    /// # Errors
    /// If the database is away: the time to wait.
    fn dispatch(&mut self, session: &mut Session, chunk: usize) -> Result<usize, Duration> {
        if self.jobs.len() > MOST || self.since.is_some_and(|at| at.elapsed() >= RETRIED_AFTER) {
            *self = RefusedJobs::default();
        }
        let mut count = 0;
        for _ in 0..ROUNDS {
            let action = "dispatch";
            let done = session.run(action, |conn| dispatch::dispatch(conn, chunk, &self.jobs))?;
            count += done.count;
            if let Some(left) = &done.left {
                session.report(action, &format!("the database refuses job {left}"));
            }
            if done.refused.is_empty() || count > 0 {
                self.note(done.refused);
                break;
            }
            self.note(done.refused);
        }
        Ok(count)
    }

    fn note(&mut self, refused: Vec<i64>) {
        if !refused.is_empty() {
            self.since.get_or_insert_with(clock::instant);
            self.jobs.extend(refused);
        }
    }
}

// --- Discards jobs that have expired before they started ---

/// The time between two looks for expired jobs, if any job has an expiry.
const EXPIRY_INTERVAL: Duration = Duration::from_secs(5);

struct Expire {
    batch_size: usize,
    interval: Duration,
}

impl Duty for Expire {
    fn name(&self) -> &'static str {
        "expire"
    }

    fn interval(&self) -> Duration {
        self.interval.max(EXPIRY_INTERVAL)
    }

    fn turn(&mut self, session: &mut Session) -> Result<DutyTurn, Duration> {
        let expired = session.run("look for expired jobs", |conn| {
            dispatch::expire(conn, self.batch_size)
        })?;
        for job in &expired.discarded {
            let (queue, class) = (&job.queue_name, &job.class_name);
            session.history().add(queue, class, CountedEnd::Discarded);
            session.subscriber().emit(&Event::Discarded {
                job: JobId(job.id),
                class: &job.class_name,
                queue: "",
                attempt: 0,
                claim: 0,
                kind: job.kind,
                message: "",
            });
        }
        if let Some(left) = &expired.left {
            session.report("look for expired jobs", left);
        }
        let next = match (expired.is_full, expired.is_any) {
            (true, _) => NextTurn::Now,
            (false, true) => NextTurn::In(EXPIRY_INTERVAL),
            (false, false) => NextTurn::Interval,
        };
        Ok(DutyTurn {
            changed: expired.discarded.len(),
            next,
        })
    }
}

// --- Lets jobs run whose waits have timed out ---

struct TimeOut {
    batch_size: usize,
    interval: Duration,
}

impl Duty for TimeOut {
    fn name(&self) -> &'static str {
        "time out"
    }

    fn interval(&self) -> Duration {
        self.interval
    }

    fn turn(&mut self, session: &mut Session) -> Result<DutyTurn, Duration> {
        let timed_out = session.run("look for waits that have timed out", |conn| {
            wake::time_out(conn, self.batch_size)
        })?;
        let next = timed_out.next.unwrap_or(self.interval);
        let next = match timed_out.woken {
            // Those that are left are locked: this does not look for them all the time.
            0 => next.max(AFTER_LOCKED),
            _ => next,
        };
        let next = next.min(self.interval);
        Ok(DutyTurn {
            changed: timed_out.woken,
            next: NextTurn::In(next),
        })
    }
}
