//! Deletes rows past their retention, with a bounded load.

use crate::clock;
use crate::db::Conn;
use crate::db::table::flows::events;
use crate::db::table::operators::{audit, operations};
use crate::db::table::{classes, web};
use crate::db::transition::clear::{self, ClearLimits, ClearedPage, expired};
use crate::db::transition::fold::FoldWhen;
use crate::db::transition::operators;
use crate::event::Event;
use crate::event::logging::Subscriber;
use crate::operation::{OperationTurns, pause_after};
use crate::process::base::context::ProcessContext;
use crate::process::base::history::fold_due;
use crate::process::base::session::Session;
use crate::process::base::stop::Stop;
use crate::retention::Retention;
use diesel::QueryResult;
use std::time::{Duration, Instant};

/// The number of rows in one step.
const BATCH: usize = 1_000;

/// The bounds of the pause after a step that deleted something, so that other statements can run.
/// Within them it is half as long as the step took, which is two thirds of one connection's time.
const PAUSE: (Duration, Duration) = (Duration::from_millis(1), Duration::from_secs(1));

/// How long a class is kept that no worker names any more.
const CLASSES_FOR: Duration = Duration::from_secs(30 * 24 * 3600);

/// How long operations are kept after their end.
const OPERATIONS_FOR: Duration = Duration::from_secs(30 * 24 * 3600);

/// The clearing thread of a supervisor, which also runs the operations.
pub(crate) struct RetentionTask {
    session: Session,
    turns: OperationTurns,
    retention: Retention,
    subscriber: Subscriber,
    stop: Stop,
}

/// What one pass deleted.
#[derive(Debug, Default)]
struct Cleared {
    finished: usize,
    failed: usize,
    results: usize,
    others: usize,
}

impl RetentionTask {
    pub(crate) fn new(context: &ProcessContext, retention: Retention) -> Self {
        RetentionTask {
            session: Session::of_loop(context, "clearing"),
            turns: OperationTurns::default(),
            retention,
            subscriber: context.subscriber.clone(),
            stop: context.stop.clone(),
        }
    }

    pub(crate) fn run(mut self) {
        while !self.stop.is_stopped() {
            self.session.moves();
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
            self.session.rests();
            let until = clock::deadline(pause);
            run_until(&mut self.session, &mut self.turns, &self.stop, until);
        }
    }

    /// Walks over all rows once, the kinds of rows in turn, so that none waits for another. A kind
    /// that the database refuses is left until the next pass.
    fn pass(&mut self, cleared: &mut Cleared) -> Result<(), Duration> {
        let mut kinds = self.kinds()?;
        while !kinds.is_empty() {
            let mut going = Vec::new();
            for mut kind in kinds {
                let start = clock::instant();
                let work = |conn: &mut Conn<'_>| (kind.look)(conn, kind.after);
                match self.session.run(kind.action, work) {
                    Ok(stretch) => {
                        if let Some(left) = &stretch.left {
                            self.session.report(kind.action, left);
                        }
                        *cleared.count(kind.of) += stretch.cleared;
                        if self.rest(stretch.cleared, start.elapsed()) {
                            return Ok(());
                        }
                        if let Some(reached) = stretch.reached {
                            kind.after = reached;
                            going.push(kind);
                        }
                    }
                    Err(delay) if !self.session.is_well() => return Err(delay),
                    Err(_) => {}
                }
            }
            kinds = going;
            // A long pass does not delay the operations.
            turn(&mut self.session, &mut self.turns, &self.stop)?;
        }
        Ok(())
    }

    /// Returns the kinds of rows to walk over.
    fn kinds(&mut self) -> Result<Vec<RowKind>, Duration> {
        let mut kinds = Vec::new();
        if let Some(old) = self.old()? {
            kinds.push(RowKind::new(
                "clear finished jobs",
                Of::Finished,
                move |conn, after| clear::finished(conn, old, after, BATCH),
            ));
            kinds.push(RowKind::new(
                "clear batches",
                Of::Others,
                move |conn, after| clear::over(conn, old.age, after, BATCH),
            ));
        }
        if let Some(age) = self.retention.failed_for {
            kinds.push(RowKind::new(
                "clear failed jobs",
                Of::Failed,
                move |conn, after| clear::failed(conn, age, after, BATCH),
            ));
        }
        let [results, waiters] = expired::EXPIRING;
        kinds.push(RowKind::new(
            "clear results",
            Of::Results,
            move |conn, _| expired::delete(conn, results, BATCH),
        ));
        kinds.push(RowKind::new("clear waiters", Of::Others, move |conn, _| {
            expired::delete(conn, waiters, BATCH)
        }));
        kinds.extend(RowKind::beside_jobs());
        if let Some(age) = self.retention.events_for {
            kinds.push(RowKind::new("clear events", Of::Others, move |conn, _| {
                let cleared = events::clear(conn, age, BATCH)?;
                Ok(ClearedPage {
                    reached: (cleared >= BATCH).then_some(0),
                    cleared,
                    left: None,
                })
            }));
        }
        kinds.extend(self.audit());
        Ok(kinds)
    }

    /// Returns the kinds of rows that operators left, and the failures without a fingerprint.
    fn audit(&self) -> Vec<RowKind> {
        let page = |cleared: usize| ClearedPage {
            reached: (cleared >= BATCH).then_some(0),
            cleared,
            left: None,
        };
        let mut kinds = vec![
            RowKind::new("clear operations", Of::Others, move |conn, _| {
                operations::clear(conn, OPERATIONS_FOR, BATCH).map(page)
            }),
            RowKind::new("fingerprint failed jobs", Of::Others, |conn, _| {
                operators::fill(conn, BATCH)
            }),
        ];
        if let Some(age) = self.retention.audit_for {
            kinds.push(RowKind::new(
                "clear the audit",
                Of::Others,
                move |conn, _| audit::clear(conn, age, BATCH).map(page),
            ));
        }
        kinds
    }

    /// Returns which finished jobs to delete, if any.
    fn old(&mut self) -> Result<Option<ClearLimits>, Duration> {
        let retention = self.retention;
        let up_to = match retention.finished_at_most {
            Some(most) => {
                let counted = self
                    .session
                    .run("count finished jobs", |conn| clear::surplus(conn, most));
                match counted {
                    Ok(up_to) => up_to,
                    Err(delay) if !self.session.is_well() => return Err(delay),
                    // The old ones are deleted all the same.
                    Err(_) => 0,
                }
            }
            None => 0,
        };
        // Longer ago than any job, so that the age deletes nothing.
        const NEVER: Duration = Duration::from_secs(1_000 * 366 * 24 * 3600);
        let old = ClearLimits {
            age: retention.finished_for.unwrap_or(NEVER),
            up_to,
            of_ruby: retention.jobs_of_ruby,
        };
        Ok(Some(old).filter(|old| retention.finished_for.is_some() || old.up_to > 0))
    }

    /// Pauses for other statements. Returns `true` if the process must stop.
    fn rest(&self, cleared: usize, took: Duration) -> bool {
        if cleared == 0 {
            return self.stop.is_stopped();
        }
        self.stop.wait((took / 2).clamp(PAUSE.0, PAUSE.1))
    }
}

fn web_sessions() -> RowKind {
    RowKind::new("clear web sessions", Of::Others, |conn, _| {
        let cleared = web::clear(conn, BATCH)?;
        Ok(ClearedPage {
            reached: (cleared >= BATCH).then_some(0),
            cleared,
            left: None,
        })
    })
}

/// The counter of deleted rows.
#[derive(Debug, Clone, Copy)]
enum Of {
    Finished,
    Failed,
    Results,
    Others,
}

impl Cleared {
    fn count(&mut self, of: Of) -> &mut usize {
        match of {
            Of::Finished => &mut self.finished,
            Of::Failed => &mut self.failed,
            Of::Results => &mut self.results,
            Of::Others => &mut self.others,
        }
    }
}

type ClearFn = dyn Fn(&mut Conn<'_>, i64) -> QueryResult<ClearedPage>;

/// One kind of rows, and how far the walk over it has come.
struct RowKind {
    action: &'static str,
    of: Of,
    after: i64,
    look: Box<ClearFn>,
}

impl RowKind {
    fn new(
        action: &'static str,
        of: Of,
        look: impl Fn(&mut Conn<'_>, i64) -> QueryResult<ClearedPage> + 'static,
    ) -> Self {
        RowKind {
            action,
            of,
            after: 0,
            look: Box::new(look),
        }
    }

    /// Returns the kinds that have no retention of the user's own.
    fn beside_jobs() -> Vec<Self> {
        let mut kinds = vec![RowKind::new("clear classes", Of::Others, |conn, _| {
            Ok(ClearedPage {
                reached: None,
                cleared: classes::forget(conn, CLASSES_FOR)?,
                left: None,
            })
        })];
        kinds.push(RowKind::new("clear quotas", Of::Others, |conn, _| {
            let cleared = clear::clear(conn, BATCH)?;
            Ok(ClearedPage {
                reached: (cleared >= BATCH).then_some(0),
                cleared,
                left: None,
            })
        }));
        kinds.push(web_sessions());
        kinds.push(RowKind::new(
            "clear the history",
            Of::Others,
            clear::old_buckets,
        ));
        kinds.push(RowKind::new("clear the history", Of::Others, |conn, _| {
            clear::unused(conn, BATCH)
        }));
        for rows in expired::OWNED {
            kinds.push(RowKind::new(
                "clear what jobs and batches left behind",
                Of::Others,
                move |conn, after| expired::delete_orphans(conn, rows, after, BATCH),
            ));
        }
        kinds
    }
}

// --- Folds the history once a minute ---

/// How often it looks. The first supervisor that looks in a minute of the database's clock folds.
const LOOK_EVERY: Duration = Duration::from_secs(20);

/// The thread of a supervisor that folds the history.
pub(crate) struct FoldTask {
    session: Session,
    stop: Stop,
}

impl FoldTask {
    pub(crate) fn new(context: &ProcessContext) -> Self {
        FoldTask {
            session: Session::new(context),
            stop: context.stop.clone(),
        }
    }

    pub(crate) fn run(mut self) {
        while !self.stop.is_stopped() {
            let until = clock::deadline(clock::NEVER);
            let (when, stop) = (FoldWhen::OnceAMinute, &self.stop);
            let folded = fold_due(&mut self.session, when, stop, until);
            let pause = folded.map_or_else(|delay| delay, |_| clock::jittered(LOOK_EVERY));
            self.stop.wait(pause);
        }
    }
}

// --- Runs operations on many jobs, between clearing ---

/// How often it looks for operations.
const LOOK: Duration = Duration::from_secs(2);

/// Runs operations until this time, or until the process must stop.
pub(crate) fn run_until(
    session: &mut Session,
    turns: &mut OperationTurns,
    stop: &Stop,
    until: Instant,
) {
    while !stop.is_stopped() {
        let pause = match turn(session, turns, stop) {
            Ok(true) => Duration::ZERO,
            Ok(false) => LOOK,
            Err(delay) => delay,
        };
        let left = until.saturating_duration_since(clock::instant());
        if left.is_zero() || stop.wait(pause.min(left)) {
            return;
        }
    }
}

/// Runs one batch of each open operation. Returns whether there was one to run. An operation that fails
/// does not delay the others.
///
/// # Errors
/// If the database is away: how long to wait.
pub(crate) fn turn(
    session: &mut Session,
    turns: &mut OperationTurns,
    stop: &Stop,
) -> Result<bool, Duration> {
    let open = session.run("look for operations", |conn| turns.open(conn))?;
    let mut has_run = false;
    for id in open {
        let start = clock::instant();
        match session.run("run an operation", |conn| turns.step(conn, id)) {
            Ok(advance) => has_run |= advance.is_some(),
            Err(delay) if !session.is_well() => return Err(delay),
            Err(_) => {}
        }
        if stop.wait(pause_after(start.elapsed())) {
            break;
        }
    }
    Ok(has_run)
}
