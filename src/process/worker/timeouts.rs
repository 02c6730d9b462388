//! Ends the program when a job overran its timeout and does not end, because a thread cannot be
//! ended by itself. The order matters, because the process may die between any two steps:
//!
//! 1. The verdict is written beside the claim, and the process is marked as draining in the same
//!    transaction.
//! 2. The other jobs have the shutdown timeout to end, as at every stop. Jobs that still run then
//!    are released, and this does not count as their crash.
//! 3. The program ends. The claim still exists, so the job cannot have started anywhere else.
//! 4. The supervisor that prunes the process applies the verdict.

use crate::clock;
use crate::db::model::claim::Fence;
use crate::db::model::outcome::{Ending, JobFailure};
use crate::db::transition::end;
use crate::db::transition::recover::{self, ProcessAfter};
use crate::event::Event;
use crate::job::error::{Interrupted, JobError};
use crate::job::policy::Policy;
use crate::job::registry::Registry;
use crate::job::trace::spans;
use crate::job::{JobId, perform};
use crate::process::base::context::ProcessContext;
use crate::process::base::handle::KILL_GRACE;
use crate::process::base::session::Session;
use crate::process::base::stop::{self, BROKEN, Stop, TIMED_OUT};
use crate::process::worker::in_flight::{InFlight, InFlightJob};
use crate::process::worker::pool;
use crossbeam_channel::{Receiver, after, never, select};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The number of refusals of the verdict, by a database that answers, after which the program ends
/// without it: the job itself may hold the lock that is in the way, and keep it.
const MOST_REFUSALS: u32 = 3;

/// The loop that ends jobs which overrun their timeout.
pub(crate) struct Timeouts {
    in_flight: Arc<InFlight>,
    registry: Registry,
    session: Session,
    /// Receives a message when a job with a timeout starts.
    timed: Receiver<()>,
    /// Stops the worker.
    stop: Stop,
    /// Ends this loop.
    quit: Stop,
    /// `None` if this worker must not end the program.
    forced_exit: Option<ForcedExit>,
    refusals: u32,
}

/// The end of the program after the longest time that a stop may take.
#[derive(Debug, Clone)]
pub(crate) struct ForcedExit {
    shutdown_timeout: Duration,
    /// True if the end was decided.
    is_due: Arc<AtomicBool>,
}

impl ForcedExit {
    pub(crate) fn new(shutdown_timeout: Duration) -> Self {
        ForcedExit {
            shutdown_timeout,
            is_due: Arc::default(),
        }
    }

    /// Ends the program after the longest time that a stop may take, even if something that the
    /// stop waits for hangs.
    fn announce(&self) {
        if self.is_due.swap(true, Ordering::SeqCst) {
            return;
        }
        // A moment before the program would end because its stop is overdue.
        let most = self.shutdown_timeout.saturating_add(KILL_GRACE * 9 / 10);
        let _ = stop::spawn("watchdog-end", move || {
            clock::nap(most);
            stop::end_program(TIMED_OUT)
        });
    }

    /// Ends the program if that was decided.
    pub(crate) fn end_if_due(&self) {
        if self.is_due.load(Ordering::SeqCst) {
            log::logger().flush();
            stop::end_program(TIMED_OUT);
        }
    }
}

/// Waits until `next`, until a job with a timeout starts, or until the end.
fn wait(quit: &Stop, timed: &mut Receiver<()>, next: Option<Instant>) {
    let until = next.map_or_else(never, |next| {
        after(next.saturating_duration_since(clock::instant()))
    });
    select! {
        recv(quit.channel()) -> _ => {}
        // The threads have ended, while their last outcomes are still being saved: a channel
        // without a sender would always be ready.
        recv(timed) -> told => if told.is_err() {
            *timed = never();
        },
        recv(until) -> _ => {}
    }
}

impl Timeouts {
    /// Creates the loop. `timed` receives a message when a job with a timeout starts.
    /// Without `forced_exit` the program is never ended.
    pub(crate) fn new(
        context: &ProcessContext,
        in_flight: &Arc<InFlight>,
        registry: Registry,
        timed: Receiver<()>,
        forced_exit: Option<ForcedExit>,
    ) -> Self {
        Timeouts {
            in_flight: Arc::clone(in_flight),
            registry,
            session: Session::of_loop(context, "watchdog"),
            timed,
            stop: context.stop.clone(),
            quit: Stop::new(),
            forced_exit,
            refusals: 0,
        }
    }

    /// Returns what ends the loop.
    pub(crate) fn quit(&self) -> Stop {
        self.quit.clone()
    }

    pub(crate) fn run(mut self) {
        while !self.quit.is_stopped() {
            self.session.moves();
            let next = self.handle_overrun();
            self.session.rests();
            wait(&self.quit, &mut self.timed, next);
        }
    }

    /// Handles the jobs that have overrun their timeout, and returns when to check again.
    fn handle_overrun(&mut self) -> Option<Instant> {
        let (due, mut next) = self.in_flight.overrun(clock::instant());
        for held in due {
            if let Err(delay) = self.write_verdict(&held) {
                let again = clock::deadline(delay);
                next = Some(next.map_or(again, |next| next.min(again)));
            }
        }
        next
    }

    fn write_verdict(&mut self, held: &InFlightJob) -> Result<(), Duration> {
        let policy = pool::policy(&self.registry, &held.job);
        let verdict = self.verdict(held, &policy);
        let last_retry = policy.last_retry(held.job.created_at, held.job.scheduled_at);
        let fence = Fence {
            process_id: held.registration.id,
            claim_id: held.job.claim_id,
        };
        let process_ends = self.forced_exit.is_some();
        if process_ends {
            self.in_flight.close();
        }
        let written = self.session.run("write down that a job timed out", |conn| {
            let verdict = end::final_if_too_late(conn, &verdict, last_retry)?;
            let after = ProcessAfter::ends_if(process_ends);
            recover::record_timeout(conn, fence, &verdict, after)?;
            Ok(verdict)
        });
        // A lost claim makes no difference: the job continues here, and another process may have it
        // too.
        let verdict = match written {
            Ok(verdict) => verdict,
            Err(delay) => {
                // The job may end by itself before the next attempt, and then the process continues.
                // If the write succeeded all the same, the row is marked as draining: the next claim
                // finds that and registers again.
                if process_ends && !self.stop.is_stopped() {
                    self.in_flight.reopen();
                }
                return Err(self.refused(held, delay));
            }
        };
        self.refusals = 0;
        spans::overran(&held.live, &verdict);
        held.live.decide(verdict);
        if let Some(forced_exit) = &self.forced_exit {
            forced_exit.announce();
            self.stop.stop();
        }
        self.session.subscriber().emit(&Event::TimedOut {
            job: JobId(held.job.job_id),
            class: &held.job.class_name,
            queue: &held.job.queue_name,
            attempt: held.job.attempt(),
            claim: held.job.claim_id,
            ran: held.ran(),
            ends_process: self.forced_exit.is_some(),
        });
        Ok(())
    }

    /// Counts a refused verdict, and returns when to try again. While the database is away, no
    /// other process can claim the job, so the verdict can wait. A database that answers and
    /// refuses is not waited for: then the process ends as in a crash, and the job counts it as
    /// one.
    fn refused(&mut self, held: &InFlightJob, delay: Duration) -> Duration {
        if self.session.is_well() {
            self.refusals += 1;
        }
        if self.refusals >= MOST_REFUSALS && self.forced_exit.is_some() {
            let (job, class, queue) = (
                held.job.job_id,
                &*held.job.class_name,
                &*held.job.queue_name,
            );
            let (attempt, claim) = (held.job.attempt(), held.job.claim_id);
            log::error!(job, class, queue, attempt, claim;
                "job {job} ({class}) overran its time, and the database refuses to write that down: this process ends");
            log::logger().flush();
            stop::end_program(BROKEN);
        }
        delay
    }

    /// Returns what is to become of the job when its process has ended.
    fn verdict(&self, held: &InFlightJob, policy: &Policy) -> Ending {
        let job = &held.job;
        let mut error = JobError::from(Interrupted::TimedOut);
        let timeout = policy.time_limit().map(|limit| limit.timeout);
        let timeout = clock::in_units(timeout.unwrap_or_default());
        error.message = format!(
            "the job ran for longer than its timeout of {timeout} and did not end when it was interrupted"
        );
        let ending = perform::judge(
            &self.registry,
            &job.class_name,
            policy,
            job.attempt(),
            &error,
        );
        match ending {
            Ending::Fail(_) | Ending::Retry(..) if policy.leaves_unknown() => {
                Ending::Fail(JobFailure::outcome_unknown(&format!(
                    "had to be ended, as the job overran its timeout of {timeout},"
                )))
            }
            ending => ending,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossbeam_channel::{TryRecvError, bounded};

    #[test]
    fn without_threads_it_does_not_spin() {
        let (threads, mut timed) = bounded(1);
        threads.send(()).unwrap();
        wait(&Stop::new(), &mut timed, None);
        assert_eq!(timed.try_recv(), Err(TryRecvError::Empty));
        drop(threads);
        wait(&Stop::new(), &mut timed, None);
        // A thread that waits for this channel now, sleeps.
        assert_eq!(timed.try_recv(), Err(TryRecvError::Empty));
    }
}
