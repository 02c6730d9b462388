//! The loop of a drain, and the runs that a fault meets.

use crate::db::conn::owned::BorrowHook;
use crate::db::model::claim::{ClaimOf, Claimed};
use crate::db::model::decision::Death;
use crate::db::table::jobs;
use crate::db::test_support::{self, LaterJob};
use crate::db::transition::prune;
use crate::db::{AsConn, Conn, Database};
use crate::error::{Error, ErrorContext, Result};
use crate::job::JobId;
use crate::job::context::Run;
use crate::testing::drain::{InlineWorker, PerformedRun};
use crate::testing::drained::{Drained, Performed, RunOutcome};
use crate::testing::fault::{Fault, FaultPoint};
use crossbeam_channel::{Receiver, Sender, bounded};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The time between two checks whether the thread of a job has ended without reaching the fault.
const CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// The jobs that a drain performs beside those that are due.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LaterJobs {
    pub(crate) scheduled: bool,
    pub(crate) retries: bool,
}

/// A drain that is going on.
pub(crate) struct Draining<'a, P> {
    pub(crate) worker: &'a InlineWorker<'a>,
    pub(crate) target: P,
    pub(crate) later: LaterJobs,
    pub(crate) at_most: usize,
    /// The fault that no run has reached yet.
    pub(crate) fault: Option<Fault>,
    pub(crate) drained: Drained,
    /// Jobs that asked to run later, which are left alone from then on.
    pub(crate) snoozed: BTreeSet<i64>,
}

impl<P: DrainTarget> Draining<'_, P> {
    /// Performs jobs as a new process, until none is left.
    pub(crate) fn run(&mut self) -> Result<()> {
        let worker = self.worker;
        let mut process = self.target.with_conn(|conn| worker.register(conn))?;
        while self.drained.runs.len() < self.at_most {
            let Some(job) = self.next(process)? else {
                break;
            };
            if let Some(alive) = self.perform(process, &job)? {
                process = alive;
                continue;
            }
            process = self.target.with_conn(|conn| worker.register(conn))?;
        }
        self.target
            .with_conn(|conn| worker.deregister(conn, process))
    }

    /// Claims the next job. If none is due, the earliest of those that run before their time.
    fn next(&mut self, process: i64) -> Result<Option<Claimed>> {
        let worker = self.worker;
        loop {
            let job = self.target.with_conn(|conn| worker.claim(conn, process))?;
            if job.is_some() || !(self.later.scheduled || self.later.retries) {
                return Ok(job);
            }
            let later = self
                .target
                .with_conn(|conn| test_support::later(conn).during("list the scheduled jobs"))?;
            let Some(job) = later.into_iter().find(|job| self.is_wanted(job)) else {
                return Ok(None);
            };
            self.target.with_conn(|conn| {
                test_support::bring_forward(conn, job.id).during("make a job due")
            })?;
        }
    }

    fn is_wanted(&self, job: &LaterJob) -> bool {
        let is_early = match job.is_retry {
            true => self.later.retries,
            false => self.later.scheduled,
        };
        is_early
            && self.worker.takes(&job.class_name, &job.queue_name)
            && !self.snoozed.contains(&job.id)
    }

    /// Performs a job, and returns the process if it is still alive.
    fn perform(&mut self, process: i64, job: &Claimed) -> Result<Option<i64>> {
        let worker = self.worker;
        if self
            .target
            .with_conn(|conn| worker.has_expired(conn, job))?
        {
            let run = worker.run_of(process, job, self.target.database());
            self.end(job, &InlineWorker::too_late(run))?;
            return Ok(Some(process));
        }
        match self.fault {
            None => {
                let run = self.worker.run_of(process, job, self.target.database());
                let ran = self.worker.carry_out(job, run);
                self.end(job, &ran)?;
                Ok(Some(process))
            }
            Some(Fault::Killed(point)) => self.perform_killed(process, job, point),
            Some(Fault::Frozen(point)) => self.perform_frozen(process, job, point),
            Some(Fault::DatabaseAway(number)) => {
                let borrows = Borrows::default();
                let hook = borrows.hook(move |count| match count >= number {
                    true => Err("a fault of this test: the database is away".to_owned()),
                    false => Ok(()),
                });
                let ran = self
                    .worker
                    .carry_out(job, self.run_with(process, job, hook));
                self.end(job, &ran)?;
                self.note_if(borrows.have_reached(number));
                Ok(Some(process))
            }
            Some(Fault::LostCommit) => {
                self.fault = None;
                let run = self.worker.run_of(process, job, self.target.database());
                let ran = self.worker.carry_out(job, run);
                self.end(job, &ran)?;
                // The answer of the first one counts.
                let worker = self.worker;
                self.target.with_conn(|conn| worker.end(conn, job, &ran))?;
                Ok(Some(process))
            }
        }
    }

    fn perform_killed(
        &mut self,
        process: i64,
        job: &Claimed,
        point: FaultPoint,
    ) -> Result<Option<i64>> {
        match point {
            FaultPoint::Start => {}
            FaultPoint::End => {
                let run = self.worker.run_of(process, job, self.target.database());
                self.worker.carry_out(job, run);
            }
            FaultPoint::Connection(number) => {
                let borrows = Borrows::default();
                let hook = borrows.hook(move |count| match count == number {
                    // The hook for panics is not called.
                    true => std::panic::resume_unwind(Box::new("killed by a fault of this test")),
                    false => Ok(()),
                });
                let ran = self
                    .worker
                    .carry_out(job, self.run_with(process, job, hook));
                if !borrows.have_reached(number) {
                    self.end(job, &ran)?;
                    return Ok(Some(process));
                }
            }
        }
        self.fault = None;
        self.recover(process, "was killed by a fault of a test")?;
        let claim = ClaimOf {
            claim_id: job.claim_id,
            job_id: job.job_id,
        };
        let has_ended_itself = self
            .target
            .with_conn(|conn| jobs::ended_by_owner(conn, claim).during("read a job"))?;
        self.drained.add(Performed {
            id: JobId(job.job_id),
            class_name: job.class_name.clone(),
            outcome: match has_ended_itself {
                true => RunOutcome::Finished,
                false => RunOutcome::Crashed,
            },
            // They die with the process.
            logs: Vec::new(),
        });
        Ok(None)
    }

    fn perform_frozen(
        &mut self,
        process: i64,
        job: &Claimed,
        point: FaultPoint,
    ) -> Result<Option<i64>> {
        let worker = self.worker;
        let ran = match point {
            FaultPoint::Start => {
                let run = worker.run_of(process, job, self.target.database());
                self.overtake(process)?;
                run.signals.lease.lose();
                worker.carry_out(job, run)
            }
            FaultPoint::End => {
                let run = worker.run_of(process, job, self.target.database());
                let ran = worker.carry_out(job, run);
                self.overtake(process)?;
                ran
            }
            FaultPoint::Connection(number) => {
                let frozen = self.freeze_at(number, process, job)?;
                if self.fault.is_some() {
                    self.end(job, &frozen)?;
                    return Ok(Some(process));
                }
                frozen
            }
        };
        self.end(job, &ran)?;
        Ok(None)
    }

    /// Performs a job on a thread that waits at its n-th connection, while another process recovers
    /// and performs the job.
    fn freeze_at(&mut self, number: u32, process: i64, job: &Claimed) -> Result<PerformedRun> {
        let borrows = Borrows::default();
        let (reached, has_reached): (Sender<()>, Receiver<()>) = bounded(1);
        let (thaw, thawed): (Sender<()>, Receiver<()>) = bounded(1);
        let hook = borrows.hook(move |count| {
            if count == number {
                let _ = reached.send(());
                // Also if the drain has panicked.
                let _ = thawed.recv();
            }
            Ok(())
        });
        let run = self.run_with(process, job, hook);
        let (worker, lease) = (self.worker, Arc::clone(&run.signals.lease));
        std::thread::scope(|scope| {
            let thaw = thaw;
            let first = scope.spawn(move || worker.carry_out(job, run));
            while !first.is_finished() {
                if has_reached.recv_timeout(CHECK_INTERVAL).is_ok() {
                    self.overtake(process)?;
                    lease.lose();
                    let _ = thaw.send(());
                    break;
                }
            }
            let joined = first.join();
            Ok(joined.unwrap_or_else(|payload| std::panic::resume_unwind(payload)))
        })
    }

    /// Recovers what the process holds, and performs it and what else is ready as another one.
    fn overtake(&mut self, process: i64) -> Result<()> {
        self.fault = None;
        self.recover(process, "sent no heartbeat for too long")?;
        self.run()
    }

    /// Recovers the claims of a process, as a supervisor does.
    fn recover(&mut self, process: i64, how: &str) -> Result<()> {
        let death = Death {
            is_crash: true,
            how: how.to_owned(),
        };
        self.target.with_conn(|conn| {
            prune::prune(conn, process, None, &death).during("recover the claims of a process")
        })?;
        Ok(())
    }

    fn run_with(&self, process: i64, job: &Claimed, hook: BorrowHook) -> Run {
        let database: Database = self.target.database().with_borrow_hook(hook);
        self.worker.run_of(process, job, &database)
    }

    fn note_if(&mut self, is_reached: bool) {
        if is_reached {
            self.fault = None;
        }
    }

    fn end(&mut self, job: &Claimed, ran: &PerformedRun) -> Result<()> {
        let worker = self.worker;
        let run = self.target.with_conn(|conn| worker.end(conn, job, ran))?;
        if matches!(
            run.outcome,
            RunOutcome::Snoozed(_) | RunOutcome::Interrupted(..)
        ) {
            self.snoozed.insert(job.job_id);
        }
        self.drained.add(run);
        Ok(())
    }
}

/// Counts how often a run has asked for a connection.
#[derive(Default)]
struct Borrows(Arc<AtomicU32>);

impl Borrows {
    fn hook(&self, at: impl Fn(u32) -> Result<(), String> + Send + Sync + 'static) -> BorrowHook {
        let count = Arc::clone(&self.0);
        Arc::new(move || at(count.fetch_add(1, Ordering::Relaxed) + 1))
    }

    fn have_reached(&self, number: u32) -> bool {
        self.0.load(Ordering::Relaxed) >= number
    }
}

// --- The target of a drain ---

/// A test's connection, of which each statement borrows what it needs.
pub(crate) trait DrainTarget {
    /// Runs `work` on the connection.
    fn with_conn<T>(&mut self, work: impl FnOnce(&mut Conn<'_>) -> Result<T>) -> Result<T>;

    /// Returns the database that jobs see.
    fn database(&self) -> &Database;
}

/// The connection of a `TestDatabase`, while its jobs may borrow it.
pub(crate) struct BorrowedTarget<'a>(pub(crate) &'a Database);

impl DrainTarget for BorrowedTarget<'_> {
    fn with_conn<T>(&mut self, work: impl FnOnce(&mut Conn<'_>) -> Result<T>) -> Result<T> {
        let Some(mut connection) = self.0.borrow_for_test() else {
            return Err(Error::Connect {
                target: self.0.target(),
                reason: "a job has kept the connection that it borrowed".to_owned(),
            });
        };
        work(&mut connection.as_conn())
    }

    fn database(&self) -> &Database {
        self.0
    }
}

/// A connection of the application, which jobs cannot borrow.
pub(crate) struct OwnTarget<'a, C: ?Sized> {
    pub(crate) conn: &'a mut C,
    pub(crate) database: Database,
}

impl<C: AsConn + ?Sized> DrainTarget for OwnTarget<'_, C> {
    fn with_conn<T>(&mut self, work: impl FnOnce(&mut Conn<'_>) -> Result<T>) -> Result<T> {
        work(&mut self.conn.as_conn())
    }

    fn database(&self) -> &Database {
        &self.database
    }
}
