//! N named job threads.

use crate::clock;
use crate::db::model::claim::{Claimed, Fence, FinishedRow};
use crate::db::model::outcome::{self, Ending};
use crate::db::transition::dispatch;
use crate::db::{Database, own};
use crate::error::Doing;
use crate::event::events::Event;
use crate::event::subscriber::Subscriber;
use crate::job::context::{Run, RunTrace};
use crate::job::id::JobId;
use crate::job::perform::{Outcome, perform};
use crate::job::policy::Policy;
use crate::job::registry::Registry;
use crate::job::running::{Live, Signals, Steps};
use crate::process::base::registration::Registration;
use crate::process::base::stop::Stop;
use crate::process::worker::completion::CompletedRun;
use crate::process::worker::in_flight::InFlight;
use crate::process::worker::occupancy::{KeptThread, Occupancy};
use crate::process::worker::prefetch::Prefetch;
use crate::process::worker::ranked::RankedReceiver;
use crossbeam_channel::{Receiver, Sender};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How long a job waits if the database cannot say whether it has expired.
const UNKNOWN_EXPIRY_DELAY: Duration = Duration::from_secs(1);

/// A claim on its way to a thread.
pub(crate) struct Assignment {
    pub(crate) job: Arc<Claimed>,
    pub(crate) registration: Arc<Registration>,
}

/// What the threads share.
pub(crate) struct Pool {
    pub(crate) registry: Registry,
    pub(crate) database: Database,
    pub(crate) in_flight: Arc<InFlight>,
    pub(crate) stop: Stop,
    pub(crate) subscriber: Subscriber,
    pub(crate) prefetch: Prefetch,
    occupancy: Arc<Occupancy>,
    /// How many jobs the threads have started.
    begun: AtomicU64,
    completed: Sender<CompletedRun>,
    /// Notified when a job with a timeout starts.
    limited: Sender<()>,
    /// What happens to the rows of finished jobs whose policy does not say.
    finished: FinishedRow,
    longest_wait: Duration,
}

impl Pool {
    pub(crate) fn occupancy(&self) -> &Occupancy {
        &self.occupancy
    }

    /// Creates what job threads share.
    pub(crate) fn new(setup: PoolSetup) -> Arc<Self> {
        Arc::new(Pool {
            registry: setup.registry,
            database: setup.database,
            in_flight: setup.in_flight,
            stop: setup.stop,
            subscriber: setup.subscriber,
            prefetch: Prefetch::default(),
            occupancy: Arc::new(Occupancy::new(setup.rested)),
            begun: AtomicU64::new(0),
            completed: setup.completed,
            limited: setup.limited,
            finished: setup.finished,
            longest_wait: setup.longest_wait,
        })
    }

    /// Returns how many jobs the threads have started so far.
    pub(crate) fn begun(&self) -> u64 {
        self.begun.load(Ordering::Relaxed)
    }

    /// Returns how many outcomes the completer has not received yet.
    pub(crate) fn unwritten(&self) -> usize {
        self.completed.len()
    }

    /// Performs jobs until there are no more, or a message of `leave` comes.
    pub(crate) fn work(&self, assignments: &RankedReceiver<Assignment>, leave: &Receiver<()>) {
        while let Some(assignment) = assignments.next(leave) {
            // Jobs that a stop finds on their way to a thread are released instead.
            if !self.stop.is_stopped()
                && let Some(live) = self.in_flight.start(assignment.job.claim_id)
            {
                self.begun.fetch_add(1, Ordering::Relaxed);
                let completed = self.perform(assignment, live);
                let keeps_thread = completed.thread.is_some();
                // The send fails only without a completer, and then the process ends.
                let _ = self.completed.send(completed);
                if keeps_thread {
                    continue;
                }
            }
            self.occupancy.rest();
        }
    }

    pub(crate) fn perform(&self, assignment: Assignment, live: Arc<Live>) -> CompletedRun {
        let job = &assignment.job;
        let run = self.prepare(&assignment, &live);
        if let Some(ending) = self.expiry_of(&assignment.job, &run) {
            return self.completed(
                assignment,
                live,
                &run,
                Outcome::Ended(ending),
                Duration::ZERO,
            );
        }
        let limit = run.policy.limit();
        self.subscriber.emit(&Event::Started {
            job: JobId(job.job_id),
            class: &job.class_name,
            queue: &job.queue_name,
            attempt: run.attempt,
            claim: job.claim_id,
        });
        let begun = clock::instant();
        live.begin(limit);
        if limit.is_some() {
            // A full channel holds a notification that the timeouts thread has yet to read.
            let _ = self.limited.try_send(());
        }
        let outcome = perform(&self.registry, &job.arguments, &run);
        let ran = begun.elapsed();
        self.prefetch.note(ran);
        live.end();
        self.completed(assignment, live, &run, outcome, ran)
    }

    fn completed(
        &self,
        assignment: Assignment,
        live: Arc<Live>,
        run: &Run,
        outcome: Outcome,
        ran: Duration,
    ) -> CompletedRun {
        let is_limited = assignment.job.is_limited;
        CompletedRun {
            thread: is_limited.then(|| KeptThread::new(&self.occupancy)),
            job: assignment.job,
            registration: assignment.registration,
            outcome,
            ran,
            finished: run.finished,
            keep_result: run.policy.keep_result,
            last_retry: run.policy.last_retry(run.enqueued_at, run.scheduled_at),
            live,
        }
    }

    /// Returns how a job ends that must not start, because it has expired or the database cannot
    /// say whether it has. Only jobs with an expiry cost a statement.
    fn expiry_of(&self, job: &Claimed, run: &Run) -> Option<Ending> {
        // A job that is left to other programs does not start here.
        if !job.may_expire() || !self.registry.can_perform(run) {
            return None;
        }
        let looked = self.database.get();
        let expired = looked.and_then(|mut conn| {
            dispatch::has_expired(&mut own(&mut conn), job.job_id)
                .doing("look for the expiry of a job")
        });
        match expired {
            Ok(false) => None,
            Ok(true) => Some(Ending::Expire(outcome::expired())),
            Err(error) => {
                let (class, queue, claim) = (&*job.class_name, &*job.queue_name, job.claim_id);
                let (job, attempt) = (job.job_id, run.attempt);
                log::warn!(job, class, queue, attempt, claim; "{error}; job {job} is given back");
                Some(Ending::Snooze(UNKNOWN_EXPIRY_DELAY))
            }
        }
    }

    /// Returns the context in which a job is performed.
    fn prepare(&self, assignment: &Assignment, live: &Arc<Live>) -> Run {
        let job = &assignment.job;
        let policy = policy(&self.registry, job);
        let finished = self.finished(&policy);
        Run {
            policy,
            job_id: job.job_id,
            fence: Fence {
                process_id: assignment.registration.id,
                claim_id: job.claim_id,
            },
            class_name: job.class_name.clone(),
            unique_id: job.unique_id.clone(),
            batch_id: job.batch_id,
            queue_name: job.queue_name.clone(),
            attempt: job.attempt(),
            enqueued_at: job.created_at,
            scheduled_at: job.scheduled_at,
            trace: RunTrace::of(job, self.subscriber.logs_messages()),
            signals: Signals {
                stopping: self.stop.flag(),
                lease: Arc::clone(&assignment.registration.lease),
                live: Arc::clone(live),
            },
            database: self.database.clone(),
            finished,
            steps: Steps::default(),
            longest_wait: self.longest_wait,
        }
    }

    fn finished(&self, policy: &Policy) -> FinishedRow {
        match policy.keep_finished {
            Some(true) => FinishedRow::Keep,
            Some(false) => FinishedRow::Delete,
            None => self.finished,
        }
    }
}

/// Returns the policy of a claimed job, with the defaults of its type and the program.
pub(crate) fn policy(registry: &Registry, job: &Claimed) -> Policy {
    let stored = Policy::of_columns(job.policy.as_deref(), job.max_attempts, job.at_most_once);
    registry.complete(&job.class_name, stored)
}

/// What a pool needs to start.
pub(crate) struct PoolSetup {
    pub(crate) registry: Registry,
    pub(crate) database: Database,
    pub(crate) in_flight: Arc<InFlight>,
    pub(crate) stop: Stop,
    pub(crate) subscriber: Subscriber,
    pub(crate) rested: Sender<()>,
    pub(crate) completed: Sender<CompletedRun>,
    pub(crate) limited: Sender<()>,
    pub(crate) finished: FinishedRow,
    pub(crate) longest_wait: Duration,
}
