//! The duties that delete rows past their retention.

use crate::clock;
use crate::db::Conn;
use crate::db::table::flows::events;

use crate::db::table::{audit, classes, operations, web};
use crate::db::transition::clear::{self, ClearLimits, ClearedPage, expired};
use crate::db::transition::fingerprint;

use crate::event::Event;
use crate::process::base::session::Session;
use crate::process::upkeep::{Duty, DutyTurn, NextTurn};
use crate::retention::Retention;
use diesel::QueryResult;
use std::time::Duration;

/// The most rows of one turn.
const CHUNK: usize = 500;

/// The number of deleted rows after which they are reported before the end of the walk.
const REPORTED: usize = 10_000;

/// The time for which a class is kept that no worker names any more.
const CLASSES_FOR: Duration = Duration::from_secs(30 * 24 * 3600);

/// The time for which operations are kept after their end.
const OPERATIONS_FOR: Duration = Duration::from_secs(30 * 24 * 3600);

/// Deletes the rows of one kind that are kept no longer: a walk over them, a chunk a turn.
struct ClearRows {
    name: &'static str,
    /// The time between two walks.
    every: Duration,
    counted: Counted,
    /// The last row that was checked.
    after: i64,
    /// The number of rows that this walk has deleted and not reported.
    cleared: usize,
    delete: Box<DeleteFn>,
}

/// Deletes the next chunk of rows after an id.
type DeleteFn = dyn FnMut(&mut Conn<'_>, i64) -> QueryResult<ClearedPage> + Send;

/// The count of an [`Event::Cleared`] to which deleted rows are added.
#[derive(Clone, Copy)]
enum Counted {
    Finished,
    Failed,
    Results,
    Nowhere,
}

impl Duty for ClearRows {
    fn name(&self) -> &'static str {
        self.name
    }

    fn interval(&self) -> Duration {
        self.every
    }

    fn turn(&mut self, session: &mut Session) -> Result<DutyTurn, Duration> {
        let page = session.run(self.name, |conn| (self.delete)(conn, self.after))?;
        if let Some(left) = &page.left {
            session.report(self.name, left);
        }
        self.cleared += page.cleared;
        self.after = page.reached.unwrap_or(0);
        if self.cleared >= REPORTED {
            self.report_cleared(session);
        }
        let next = match page.reached {
            Some(_) => NextTurn::Now,
            None => {
                self.report_cleared(session);
                // Processes that were started together do not clear together.
                NextTurn::In(clock::jittered(self.every))
            }
        };
        Ok(DutyTurn {
            changed: page.cleared,
            next,
        })
    }
}

impl ClearRows {
    /// Reports the rows that the walk has deleted since the last report.
    fn report_cleared(&mut self, session: &Session) {
        let cleared = std::mem::take(&mut self.cleared);
        let (mut finished, mut failed, mut results) = (0, 0, 0);
        match self.counted {
            Counted::Finished => finished = cleared,
            Counted::Failed => failed = cleared,
            Counted::Results => results = cleared,
            Counted::Nowhere => {}
        }
        if finished + failed + results > 0 {
            session.subscriber().emit(&Event::Cleared {
                finished,
                failed,
                results,
            });
        }
    }
}

/// A list of duties that clear at one interval.
struct Clearing {
    every: Duration,
    duties: Vec<Box<dyn Duty>>,
}

impl Clearing {
    /// Adds a walk over rows.
    fn walk(
        &mut self,
        name: &'static str,
        counted: Counted,
        delete: impl FnMut(&mut Conn<'_>, i64) -> QueryResult<ClearedPage> + Send + 'static,
    ) {
        self.duties.push(Box::new(ClearRows {
            name,
            every: self.every,
            counted,
            after: 0,
            cleared: 0,
            delete: Box::new(delete),
        }));
    }

    /// Adds a delete of up to [`CHUNK`] rows, until there are none.
    fn in_chunks(
        &mut self,
        name: &'static str,
        mut delete: impl FnMut(&mut Conn<'_>) -> QueryResult<usize> + Send + 'static,
    ) {
        self.walk(name, Counted::Nowhere, move |conn, _| {
            let cleared = delete(conn)?;
            Ok(ClearedPage {
                reached: (cleared >= CHUNK).then_some(0),
                cleared,
                left: None,
            })
        });
    }

    /// Adds the rows of ended jobs, and of batches.
    fn ended(&mut self, retention: Retention) {
        let of_ruby = retention.jobs_of_ruby;
        if let Some(age) = retention.finished_for {
            let old = ClearLimits {
                age,
                up_to: 0,
                of_ruby,
            };
            self.walk(
                "clear finished jobs",
                Counted::Finished,
                move |conn, after| clear::finished(conn, old, after, CHUNK),
            );
            self.walk("clear batches", Counted::Nowhere, move |conn, after| {
                clear::clear_ended_batches(conn, age, after, CHUNK)
            });
        }
        if let Some(most) = retention.finished_at_most {
            let mut up_to = 0;
            self.walk(
                "clear finished jobs above the maximum",
                Counted::Finished,
                move |conn, after| {
                    if after == 0 {
                        up_to = clear::surplus(conn, most)?;
                    }
                    surplus(conn, up_to, of_ruby, after)
                },
            );
        }
        if let Some(age) = retention.failed_for {
            self.walk("clear failed jobs", Counted::Failed, move |conn, after| {
                clear::failed(conn, age, after, CHUNK)
            });
        }
    }

    /// Adds the rows that stand beside jobs.
    fn beside_jobs(&mut self, retention: Retention) {
        let [results, waiters] = expired::EXPIRING;
        self.walk("clear results", Counted::Results, move |conn, _| {
            expired::delete(conn, results, CHUNK)
        });
        self.walk("clear waiters", Counted::Nowhere, move |conn, _| {
            expired::delete(conn, waiters, CHUNK)
        });
        for rows in expired::OWNED {
            self.walk(
                "clear what jobs and batches left behind",
                Counted::Nowhere,
                move |conn, after| expired::delete_orphans(conn, rows, after, CHUNK),
            );
        }
        if let Some(age) = retention.events_for {
            self.in_chunks("clear events", move |conn| events::clear(conn, age, CHUNK));
        }
    }

    /// Adds the rows that no job owns.
    fn others(&mut self, retention: Retention) {
        self.walk("clear classes", Counted::Nowhere, |conn, _| {
            Ok(ClearedPage {
                reached: None,
                cleared: classes::forget(conn, CLASSES_FOR)?,
                left: None,
            })
        });
        self.in_chunks("clear quotas", |conn| clear::clear(conn, CHUNK));
        self.in_chunks("clear web sessions", |conn| web::clear(conn, CHUNK));
        self.history();
        self.in_chunks("clear operations", |conn| {
            operations::clear(conn, OPERATIONS_FOR, CHUNK)
        });
        self.walk("fingerprint failed jobs", Counted::Nowhere, |conn, _| {
            fingerprint::fill(conn, CHUNK)
        });
        if let Some(age) = retention.audit_for {
            self.in_chunks("clear the audit", move |conn| {
                audit::clear(conn, age, CHUNK)
            });
        }
    }

    /// Adds the buckets and the series of the history.
    fn history(&mut self) {
        self.walk("clear the history", Counted::Nowhere, clear::old_buckets);
        self.walk(
            "clear series of the history",
            Counted::Nowhere,
            |conn, _| clear::unused(conn, CHUNK),
        );
    }
}

/// Returns the duties that delete the rows that are kept no longer.
pub(crate) fn duties(retention: Retention) -> Vec<Box<dyn Duty>> {
    let mut clearing = Clearing {
        every: retention.every,
        duties: Vec::new(),
    };
    clearing.ended(retention);
    clearing.beside_jobs(retention);
    clearing.others(retention);
    clearing.duties
}

/// Returns the duties that clear the history.
pub(crate) fn of_history(every: Duration) -> Vec<Box<dyn Duty>> {
    let mut clearing = Clearing {
        every,
        duties: Vec::new(),
    };
    clearing.history();
    clearing.duties
}

/// Deletes finished jobs up to an id, whatever their age.
fn surplus(conn: &mut Conn<'_>, up_to: i64, of_ruby: bool, after: i64) -> QueryResult<ClearedPage> {
    // Longer ago than any job, so that the age deletes nothing.
    const NEVER: Duration = Duration::from_secs(1_000 * 366 * 24 * 3600);
    if up_to == 0 {
        return Ok(ClearedPage {
            reached: None,
            cleared: 0,
            left: None,
        });
    }
    let old = ClearLimits {
        age: NEVER,
        up_to,
        of_ruby,
    };
    clear::finished(conn, old, after, CHUNK)
}
