//! A worker at work: its threads, from the first to the last.

use crate::error::Result;
use crate::event::events::Event;
use crate::job::id::JobId;
use crate::process::base::context::Lifeline;
use crate::process::base::handle::Ending;
use crate::process::base::heartbeat::{Beats, Heart, HoldsClaims};
use crate::process::base::session::Link;
use crate::process::base::stop::Stop;
use crate::process::base::{classes, threads};
use crate::process::worker::claim_gate::Rest;
use crate::process::worker::completer::Finisher;
use crate::process::worker::in_flight::Claims;
use crate::process::worker::poller::{Poller, Progress};
use crate::process::worker::pool::{Assignment, Pool, PoolSetup};
use crate::process::worker::queues::Places;
use crate::process::worker::scan_cursors::Marks;
use crate::process::worker::settings::Settings;
use crate::process::worker::timeouts::{Bite, Watchdog};
use crate::process::worker::{release, wakeup};
use crate::{clock, mutant};
use crossbeam_channel::{Receiver, Sender, bounded};
use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long the jobs that a stop interrupts have to end by themselves.
const FAREWELL: Duration = Duration::from_millis(200);

/// How long the ends of jobs may take to be written, once the threads have
/// stopped, or their time is over.
const FLUSH: Duration = Duration::from_secs(2);

/// For the statement that a thread is at when it is to end.
const PATIENCE: Duration = Duration::from_millis(500);

/// A worker whose threads run.
pub(crate) struct Working {
    shutdown_timeout: Duration,
    lifeline: Lifeline,
    heart: Arc<Heart>,
    claims: Arc<Claims>,
    beats: Beats,
    polls: JoinHandle<()>,
    listens: JoinHandle<()>,
    finishes: JoinHandle<()>,
    jobs: Vec<JoinHandle<()>>,
    watches: JoinHandle<()>,
    /// Ends the watchdog.
    quit: Stop,
    bite: Option<Bite>,
}

/// The loop that claims: `wakes` are an idle thread and new work.
fn poller(
    settings: &Settings,
    lifeline: &Lifeline,
    (heart, claims): (&Arc<Heart>, &Arc<Claims>),
    (pool, assign): (Arc<Pool>, Sender<Assignment>),
    (rested, woken): (Receiver<()>, Receiver<()>),
) -> Poller {
    let by_notification = lifeline.database.listens_by_notification();
    Poller {
        heart: Arc::clone(heart),
        claims: Arc::clone(claims),
        pool,
        assign,
        link: Link::new(lifeline),
        stop: lifeline.stop.clone(),
        places: Places::new(settings.queues.clone()),
        classes: settings.registry.classes().map(str::to_owned).collect(),
        polling_interval: settings.polling_interval,
        rested,
        woken,
        notified: by_notification.then(Default::default),
        is_woken: false,
        idle_since: None,
        marks: Marks::default(),
        cautious: VecDeque::new(),
        progress: Progress::default(),
        rest: Rest::new(settings.recycle, settings.threads),
    }
}

impl Working {
    /// The poller comes last: nothing is claimed before all else runs.
    pub(crate) fn start(settings: Settings, lifeline: Lifeline) -> Result<Self> {
        let (database, stop) = (&lifeline.database, &lifeline.stop);
        let claims = Arc::new(Claims::default());
        let ((rested_tx, rested), (woken_tx, woken)) = (bounded(1), bounded(1));
        let (ended_tx, ended) = crossbeam_channel::unbounded();
        let (limited_tx, limited) = bounded(1);
        let (who, held) = (settings.who(), claims.clone() as Arc<dyn HoldsClaims>);
        let channel = who.channel.clone();
        let heart = Heart::of_worker(&lifeline, settings.pulse, who, Some(held));
        let setup = PoolSetup {
            registry: settings.registry.clone(),
            database: database.clone(),
            claims: Arc::clone(&claims),
            stop: stop.clone(),
            subscriber: lifeline.subscriber.clone(),
            rested: rested_tx,
            ended: ended_tx,
            limited: limited_tx,
            finished: settings.finished,
        };
        let (pool, assign, jobs) = Pool::start(setup, settings.threads)?;
        let poller = poller(
            &settings,
            &lifeline,
            (&heart, &claims),
            (pool, assign),
            (rested, woken),
        );
        let finisher = Finisher::new(&lifeline, &claims, ended);
        let bite = settings
            .is_program
            .then(|| Bite::new(settings.shutdown_timeout));
        let (quit, registry) = (Stop::new(), settings.registry.clone());
        let bites = (quit.clone(), bite.clone());
        let watchdog = Watchdog::new(&lifeline, &claims, registry, limited, bites);
        let mut reconcile = release::reconciler(&claims);
        let mut tell = classes::teller(&settings.registry);
        let beats = heart.start(move |link, registrations| {
            reconcile(link, registrations);
            tell(link);
        })?;
        let listens = threads::spawn_vital("listener", stop, {
            let lifeline = lifeline.clone();
            move || wakeup::run(&lifeline, channel.as_deref(), &woken_tx)
        })?;
        Ok(Working {
            beats,
            listens,
            finishes: threads::spawn_vital("finisher", stop, move || finisher.run())?,
            watches: threads::spawn_vital("watchdog", stop, move || watchdog.run())?,
            polls: threads::spawn_vital("poller", stop, move || poller.run())?,
            jobs,
            quit,
            bite,
            heart,
            claims,
            shutdown_timeout: settings.shutdown_timeout,
            lifeline,
        })
    }

    /// Waits for the stop, then ends everything in order: claiming, what was
    /// claimed and not begun, the running jobs, their endings, the heartbeat.
    pub(crate) fn run(self, give_up: &Stop) -> Ending {
        let lifeline = &self.lifeline;
        let _ = lifeline.stop.channel().recv();
        lifeline
            .subscriber
            .emit(&Event::Stopping { kind: "Worker" });
        let deadline = clock::deadline(self.shutdown_timeout);
        if mutant::is("heartbeat_stops_at_term") {
            self.heart.quiet();
        }
        let (heart, claims, mut link) = (&self.heart, &*self.claims, Link::new(lifeline));
        let drains = release::drain(&mut link, &heart.all());
        let polled = threads::join_until(&mut vec![self.polls], deadline, &Stop::new(), || {
            give_up
                .asked_now_at()
                .is_some_and(|at| at.elapsed() > PATIENCE)
        });
        release::unstarted(claims, &mut link);
        // Not while a claim may be under way.
        if polled {
            release::strays(claims, &mut link, &heart.all());
        }
        let drained = let_end(claims, self.jobs, deadline, give_up);
        let flushed = let_write(claims, self.finishes, (deadline, drained), give_up);
        lifeline.give_up_writing.stop();
        self.quit.stop();
        threads::join_within(vec![self.watches], PATIENCE);
        if !drains {
            release::drain(&mut link, &heart.all());
        }
        let mut unfinished = Vec::new();
        // Broken: a finisher that panicked has ended too.
        if !(drained && flushed) || lifeline.stop.is_broken() {
            let leave_overrun = self.bite.is_some();
            unfinished = release::give_back(claims, &mut link, drained, leave_overrun);
        }
        // Those that the finisher has given back; it may be at it still.
        unfinished.extend(claims.cut_short().into_iter().map(JobId));
        unfinished.sort_unstable();
        unfinished.dedup();
        drop(self.beats);
        // The row was locked for that, so that a claim which the server was
        // still at, over a connection that broke, has come to its end.
        if polled && release::strays(claims, &mut link, &heart.all()) {
            heart.deregister(&mut link);
        }
        release::disown(claims);
        threads::join_within(vec![self.listens], PATIENCE);
        if let Some(bite) = self.bite {
            bite.end_if_due();
        }
        Ending {
            unfinished,
            cut_short: !polled,
        }
    }
}

/// Lets the jobs that run end, and tells those that still run at the deadline.
/// True: all have ended.
fn let_end(
    claims: &Claims,
    mut jobs: Vec<JoinHandle<()>>,
    deadline: Instant,
    give_up: &Stop,
) -> bool {
    // What has overrun its time does not end for being waited for.
    let is_vain = || claims.only_overrun();
    if threads::join_until(&mut jobs, deadline, give_up, is_vain) {
        return true;
    }
    claims.call_off();
    let farewell = clock::deadline(FAREWELL);
    threads::join_until(&mut jobs, farewell, give_up, is_vain)
}

/// Lets the ends of jobs be written. True: all are, and no job runs.
fn let_write(
    claims: &Claims,
    finishes: JoinHandle<()>,
    (deadline, drained): (Instant, bool),
    give_up: &Stop,
) -> bool {
    // As long as a job runs, the finisher does not end.
    let is_vain = || claims.only_overrun() || (!drained && claims.are_settled());
    let flush = clock::deadline(FLUSH).max(deadline);
    threads::join_until(&mut vec![finishes], flush, give_up, is_vain)
}
