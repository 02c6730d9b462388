//! Takes away what has been kept for long enough, with a bounded load.

use super::lifeline::Lifeline;
use super::link::Link;
use super::stop::Stop;
use crate::clock;
use crate::db::Conn;
use crate::db::clear::{self, Old, Stretch};
use crate::event::{Event, Subscriber};
use crate::retention::Retention;
use diesel::QueryResult;
use std::time::Duration;

/// Jobs of one transaction: some milliseconds of work.
const BATCH: usize = 500;

/// After a batch that took something away, so that others get their turn:
/// clears up to 10,000 jobs a second.
const PAUSE: Duration = Duration::from_millis(50);

/// The clearing thread of a supervisor.
pub(crate) struct Clearing {
    link: Link,
    retention: Retention,
    subscriber: Subscriber,
    stop: Stop,
}

/// What one pass took away.
#[derive(Debug, Default)]
struct Cleared {
    finished: usize,
    failed: usize,
    results: usize,
}

impl Clearing {
    pub(crate) fn new(lifeline: &Lifeline, retention: Retention) -> Self {
        Clearing {
            link: Link::new(lifeline),
            retention,
            subscriber: lifeline.subscriber.clone(),
            stop: lifeline.stop.clone(),
        }
    }

    pub(crate) fn run(mut self) {
        while !self.stop.is_stopped() {
            let mut cleared = Cleared::default();
            let pause = match self.pass(&mut cleared) {
                Ok(()) => clock::jittered(self.retention.every),
                Err(delay) => delay,
            };
            if cleared.finished + cleared.failed + cleared.results > 0 {
                self.subscriber.emit(&Event::Cleared {
                    finished: cleared.finished,
                    failed: cleared.failed,
                    results: cleared.results,
                });
            }
            self.stop.wait(pause);
        }
    }

    fn pass(&mut self, cleared: &mut Cleared) -> Result<(), Duration> {
        self.finished(&mut cleared.finished)?;
        if let Some(age) = self.retention.failed_for {
            self.repeat(&mut cleared.failed, |conn| clear::failed(conn, age, BATCH))?;
        }
        self.repeat(&mut cleared.results, |conn| clear::expired(conn, BATCH))?;
        for table in clear::BESIDE {
            self.walk(&mut 0, |conn, after| {
                clear::orphans(conn, table, after, BATCH)
            })?;
        }
        Ok(())
    }

    fn finished(&mut self, count: &mut usize) -> Result<(), Duration> {
        let retention = self.retention;
        let up_to = match retention.finished_at_most {
            Some(most) => self
                .link
                .write("count finished jobs", |conn| clear::surplus(conn, most))?,
            None => 0,
        };
        if retention.finished_for.is_none() && up_to == 0 {
            return Ok(());
        }
        // Longer ago than any job: so the age takes nothing away.
        const NEVER: Duration = Duration::from_secs(1_000 * 366 * 24 * 3600);
        let old = Old {
            age: retention.finished_for.unwrap_or(NEVER),
            up_to,
        };
        self.walk(count, |conn, after| {
            clear::finished(conn, old, after, BATCH)
        })
    }

    /// Stretch by stretch to the end.
    fn walk(
        &mut self,
        count: &mut usize,
        work: impl Fn(&mut Conn<'_>, i64) -> QueryResult<Stretch>,
    ) -> Result<(), Duration> {
        let mut after = Some(0);
        while let Some(start) = after {
            let stretch = self
                .link
                .write("clear what is old", |conn| work(conn, start))?;
            *count += stretch.cleared;
            after = stretch.reached.filter(|_| !self.rest(stretch.cleared));
        }
        Ok(())
    }

    /// Batch by batch while they are full.
    fn repeat(
        &mut self,
        count: &mut usize,
        work: impl Fn(&mut Conn<'_>) -> QueryResult<usize>,
    ) -> Result<(), Duration> {
        loop {
            let cleared = self.link.write("clear what is old", &work)?;
            *count += cleared;
            if self.rest(cleared) || cleared < BATCH {
                return Ok(());
            }
        }
    }

    /// Lets others have their turn. True: the process is to stop.
    fn rest(&self, cleared: usize) -> bool {
        if cleared == 0 {
            return self.stop.is_stopped();
        }
        self.stop.wait(PAUSE)
    }
}
