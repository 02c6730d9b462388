//! The threads of a worker: how they start and how they end.

use crate::error::Result;
use crate::event::Event;
use crate::job::JobId;
use crate::job::registry::Registry;
use crate::process::base::context::ProcessContext;
use crate::process::base::handle::ProcessEnd;
use crate::process::base::heartbeat::{Heartbeat, HeartbeatGuard};
use crate::process::base::session::Session;
use crate::process::base::stop::{self, Stop};
use crate::process::upkeep::fold;
use crate::process::worker::adjust::{JobThreads, Tuning};
use crate::process::worker::claim::assigner::{Assigner, Handoff};
use crate::process::worker::claim::class_filter::SharedClasses;
use crate::process::worker::claim::plan::ClaimPlan;
use crate::process::worker::claim::poller::{Poller, claim_at_once};
use crate::process::worker::claim::wakeups::{self, Wakeups};
use crate::process::worker::completer::Completer;
use crate::process::worker::completion::{self, PendingCompletion};
use crate::process::worker::in_flight::InFlight;
use crate::process::worker::pool::{Pool, PoolSetup};
use crate::process::worker::release::{self, StopProgress};
use crate::process::worker::settings::WorkerSetup;
use crate::process::worker::slot_passing::SlotPassing;
use crate::process::worker::timeouts::{ForcedExit, Timeouts};
use crate::{clock, mutant};
use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use std::sync::{Arc, Mutex, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The time in which jobs that a stop interrupts may end by themselves.
const FAREWELL: Duration = Duration::from_millis(200);

/// The time limit for saving outcomes once the threads have stopped, or their time is over.
const FLUSH: Duration = Duration::from_secs(2);

/// The longest time that a thread may continue its statement at the stop.
const PATIENCE: Duration = Duration::from_millis(500);

/// The state with which a worker is started, besides its settings.
#[derive(Debug, Default)]
pub(crate) struct CheckedWorker {
    pub(crate) in_flight: Arc<InFlight>,
    pub(crate) tuning: Arc<Tuning>,
}

/// A worker with its threads running.
pub(crate) struct RunningWorker {
    shutdown_timeout: Duration,
    context: ProcessContext,
    heartbeat: Arc<Heartbeat>,
    in_flight: Arc<InFlight>,
    guard: HeartbeatGuard,
    poller: JoinHandle<()>,
    listener: JoinHandle<()>,
    completer: JoinHandle<()>,
    jobs: Arc<JobThreads>,
    timeouts: JoinHandle<()>,
    /// Ends the timeouts thread.
    quit: Stop,
    forced_exit: Option<ForcedExit>,
}

impl RunningWorker {
    /// Starts the threads. The poller is last: nothing is claimed before everything else runs.
    pub(crate) fn start(
        settings: &WorkerSetup,
        CheckedWorker { in_flight, tuning }: CheckedWorker,
        context: &ProcessContext,
        heartbeat: Arc<Heartbeat>,
    ) -> Result<Self> {
        let (stop, registry) = (&context.stop, &settings.registry);
        let (senders, receivers) = pool_channels();
        let pool = Pool::new(pool_setup(settings, &in_flight, context, senders));
        let (assign, jobs) = JobThreads::start(&pool, settings.threads)?;
        let (woken_tx, woken) = bounded(1);
        let by_notification = context.database.listens_by_notification();
        let wakeups = Wakeups::new(receivers.rested, woken, by_notification);
        tuning.attach(settings, &jobs, &heartbeat, woken_tx.clone());
        let classes = shared_classes(registry);
        let plan = ClaimPlan::new(settings, tuning, Arc::clone(&classes));
        let queues = settings.queues.clone();
        let assigner = Arc::new(Assigner::new(Arc::clone(&pool), assign, queues, classes));
        let passing = SlotPassing::new(Arc::downgrade(&assigner), stop);
        let handoff = Handoff::new(assigner);
        let poller = Poller::new(context, &heartbeat, handoff, plan, wakeups);
        let poller = Arc::new(Mutex::new(poller));
        let completer = Completer::new(context, &in_flight, passing, receivers.completed);
        pool.let_write(completer.write_here());
        let forced_exit = settings.forced_exit();
        let timeouts = Timeouts::new(
            context,
            &in_flight,
            registry.clone(),
            receivers.timed,
            forced_exit.clone(),
        );
        let quit = timeouts.quit();
        let guard = start_heartbeat(context, &heartbeat, &in_flight, registry)?;
        Ok(RunningWorker {
            guard,
            listener: start_listener(context, &heartbeat, woken_tx, Arc::downgrade(&poller))?,
            completer: stop::spawn_vital("finisher", stop, move || completer.run())?,
            timeouts: stop::spawn_vital("watchdog", stop, move || timeouts.run())?,
            poller: stop::spawn_vital("poller", stop, move || Poller::run(&poller))?,
            jobs,
            quit,
            forced_exit,
            heartbeat,
            in_flight,
            shutdown_timeout: settings.shutdown_timeout,
            context: context.clone(),
        })
    }

    /// Waits for the stop, then ends everything in order: claiming, claims that have not started,
    /// running jobs, their outcomes, the heartbeat.
    pub(crate) fn run(self, give_up: &Stop) -> ProcessEnd {
        let context = &self.context;
        let _ = context.stop.channel().recv();
        context.subscriber.emit(&Event::Stopping { kind: "Worker" });
        let deadline = clock::deadline(self.shutdown_timeout);
        if mutant::is("heartbeat_stops_at_term") {
            self.heartbeat.quiet();
        }
        let (heartbeat, in_flight) = (&self.heartbeat, &*self.in_flight);
        let mut session = Session::new(context);
        let drains = release::drain(&mut session, &heartbeat.all());
        let polled = let_claim(self.poller, deadline, give_up);
        release::unstarted(in_flight, &mut session);
        // Not while a claim may be under way.
        if polled {
            release::strays(in_flight, &mut session, &heartbeat.all());
        }
        let drained = let_end(in_flight, self.jobs.take(), deadline, give_up);
        let flushed = let_write(in_flight, self.completer, deadline, drained, give_up);
        context.give_up_writing.stop();
        self.quit.stop();
        stop::join_within(vec![self.timeouts], PATIENCE);
        if !drains {
            release::drain(&mut session, &heartbeat.all());
        }
        // In a broken process, the completer may have panicked and ended too.
        let is_complete = drained && flushed && !context.stop.is_broken();
        let stop = StopProgress {
            is_drained: drained,
            leave_overrun: self.forced_exit.is_some(),
        };
        let given_back = (!is_complete).then(|| release::give_back(in_flight, &mut session, stop));
        let unfinished = unfinished(in_flight, given_back.unwrap_or_default());
        drop(self.guard);
        // Draining locked the row. So a claim that the server was still executing, over a
        // connection that broke, has ended by now.
        if polled && release::strays(in_flight, &mut session, &heartbeat.all()) {
            heartbeat.deregister(&mut session);
        }
        release::disown(in_flight);
        stop::join_within(vec![self.listener], PATIENCE);
        if let Some(forced_exit) = self.forced_exit {
            forced_exit.end_if_due();
        }
        ProcessEnd {
            unfinished,
            cut_short: !polled,
        }
    }
}

/// The channels from the job threads to the other threads of a worker.
struct PoolSenders {
    /// To the poller, when so few jobs are left as it requested.
    rested: Sender<()>,
    /// To the completer.
    completed: Sender<PendingCompletion>,
    /// To the timeouts thread, when a job with a timeout starts.
    timed: Sender<()>,
}

/// The other ends of [`PoolSenders`].
struct PoolReceivers {
    rested: Receiver<()>,
    completed: Receiver<PendingCompletion>,
    timed: Receiver<()>,
}

fn pool_channels() -> (PoolSenders, PoolReceivers) {
    let (rested, completed, timed) = (bounded(1), unbounded(), bounded(1));
    let senders = PoolSenders {
        rested: rested.0,
        completed: completed.0,
        timed: timed.0,
    };
    let receivers = PoolReceivers {
        rested: rested.1,
        completed: completed.1,
        timed: timed.1,
    };
    (senders, receivers)
}

/// Returns what the job threads share, and their channels to the poller, the completer and the
/// timeouts thread.
fn pool_setup(
    settings: &WorkerSetup,
    in_flight: &Arc<InFlight>,
    context: &ProcessContext,
    senders: PoolSenders,
) -> PoolSetup {
    PoolSetup {
        registry: settings.registry.clone(),
        database: context.database.clone(),
        in_flight: Arc::clone(in_flight),
        stop: context.stop.clone(),
        subscriber: context.subscriber.clone(),
        rested: senders.rested,
        completed: senders.completed,
        timed: senders.timed,
        finished: settings.finished,
        longest_wait: settings.longest_wait,
        shares: context.shares.clone(),
    }
}

fn shared_classes(registry: &Registry) -> Arc<SharedClasses> {
    let classes = registry.classes().map(str::to_owned).collect();
    Arc::new(SharedClasses::new(classes))
}

/// Starts the thread that is notified of new work. It does not own the poller, with which the threads of the jobs end.
fn start_listener(
    context: &ProcessContext,
    heartbeat: &Arc<Heartbeat>,
    woken: Sender<()>,
    poller: Weak<Mutex<Poller>>,
) -> Result<JoinHandle<()>> {
    let (context, heartbeat) = (context.clone(), Arc::clone(heartbeat));
    let stop = context.stop.clone();
    stop::spawn_vital("listener", &stop, move || {
        wakeups::run(&context, &heartbeat, &woken, || claim_at_once(&poller));
    })
}

/// Starts the heartbeat, which also releases stray claims, stores the classes of the worker, and folds
/// the history where no supervisor does.
fn start_heartbeat(
    context: &ProcessContext,
    heartbeat: &Arc<Heartbeat>,
    in_flight: &Arc<InFlight>,
    registry: &Registry,
) -> Result<HeartbeatGuard> {
    let mut reconcile = release::reconciler(in_flight);
    let mut record = completion::recorder(registry);
    // Before the first claim: of a class that is not stored, every reader hides everything.
    record(&mut Session::new(context));
    let mut fold = fold::in_worker(&context.stop);
    HeartbeatGuard::start(context, heartbeat, move |session, registrations| {
        reconcile(session, registrations);
        record(session);
        fold(session);
    })
}

/// Waits for the claim under way. Returns `false` if it takes too long.
fn let_claim(poller: JoinHandle<()>, deadline: Instant, give_up: &Stop) -> bool {
    stop::join_until(&mut vec![poller], deadline, &Stop::new(), || {
        give_up
            .asked_now_at()
            .is_some_and(|at| at.elapsed() > PATIENCE)
    })
}

/// Returns the jobs that a stop has ended: those released just now, and those that the completer
/// has released; it may still be running.
fn unfinished(in_flight: &InFlight, given_back: Vec<JobId>) -> Vec<JobId> {
    let mut unfinished = given_back;
    unfinished.extend(in_flight.cut_short().into_iter().map(JobId));
    unfinished.sort_unstable();
    unfinished.dedup();
    unfinished
}

/// Waits for the running jobs, and notifies those that still run at the deadline. Returns `true` if
/// all have ended.
fn let_end(
    in_flight: &InFlight,
    mut jobs: Vec<JoinHandle<()>>,
    deadline: Instant,
    give_up: &Stop,
) -> bool {
    // A job that has overrun its timeout is not waited for.
    let is_vain = || in_flight.only_overrun();
    if stop::join_until(&mut jobs, deadline, give_up, is_vain) {
        return true;
    }
    in_flight.call_off();
    let farewell = clock::deadline(FAREWELL);
    stop::join_until(&mut jobs, farewell, give_up, is_vain)
}

/// Waits until outcomes are saved. Returns `true` if all are, and no job runs.
fn let_write(
    in_flight: &InFlight,
    completer: JoinHandle<()>,
    deadline: Instant,
    drained: bool,
    give_up: &Stop,
) -> bool {
    // The completer does not end while a job runs.
    let is_vain = || in_flight.only_overrun() || (!drained && in_flight.are_saved());
    let flush = clock::deadline(FLUSH).max(deadline);
    stop::join_until(&mut vec![completer], flush, give_up, is_vain)
}
