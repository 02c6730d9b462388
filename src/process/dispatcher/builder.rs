//! Makes due scheduled executions ready.

use crate::clock;
use crate::db::Database;
use crate::db::model::claim::Cursor;
use crate::db::model::history::tally::CountedEnd;
use crate::db::table::{scheduled, semaphores};
use crate::db::transition::flows::{complete, leave, wake};
use crate::db::transition::{dispatch, expire, unblock};
use crate::error::{Error, Result};
use crate::event::events::Event;
use crate::event::hooks::Hooks;
use crate::event::subscriber::Subscriber;
use crate::job::id::JobId;
use crate::process::base::context::ProcessContext;
use crate::process::base::handle::{Handle, ProcessEnd, Stopped};
use crate::process::base::heartbeat::Heartbeat;
use crate::process::base::registration::Identity;
use crate::process::base::service::{self, RunningLoop, Service, ServiceSettings};
use crate::process::base::session::Session;
use crate::process::base::stop::Stop;
use crate::process::dispatcher::overdue::FollowersWalk;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How many concurrency keys a turn checks.
const SWEPT_KEYS: usize = 200;

/// How many jobs that wait for another a turn checks.
const SWEPT_JOBS: usize = 2_000;

/// How many jobs in batches a turn checks.
const SWEPT_MEMBERS: usize = 1_000;

/// How far the walks have come that take a stretch in each turn.
struct Walks {
    /// The last concurrency key with blocked jobs that was checked.
    key: String,
    /// The last job that was checked of those that wait for another.
    waiting: Cursor,
    batches: BatchWalks,
    followers: FollowersWalk,
    /// When expired jobs were last looked for, and whether any job had an expiry.
    expiries: Option<(Instant, bool)>,
}

/// How far the walks over batches have come.
#[derive(Default)]
struct BatchWalks {
    /// The last batch that was checked.
    batch: i64,
    /// The last job in a batch that was checked.
    member: i64,
    /// When the last stretch was checked, unless the next one follows at once.
    last: Option<Instant>,
}

/// How often expired jobs are looked for.
const EXPIRY_INTERVAL: Duration = Duration::from_secs(5);

/// The first pause after a turn that could not move everything that is due, because other
/// transactions have locked it. It doubles with each such turn.
const AFTER_LOCKED: Duration = Duration::from_millis(50);

/// Makes due scheduled jobs ready, in batches. Any number of dispatchers may run at once, on any
/// host.
#[derive(Debug, Clone)]
#[must_use = "a dispatcher does nothing until `run` or `start`"]
pub struct Dispatcher {
    service: ServiceSettings,
    batch_size: usize,
    polling_interval: Duration,
}

impl Dispatcher {
    /// Creates a dispatcher with batches of 500.
    pub fn new(database: &Database) -> Self {
        Dispatcher {
            service: ServiceSettings::new(database),
            batch_size: 500,
            polling_interval: Duration::from_secs(1),
        }
    }

    /// Sets how many executions a transaction moves at most. Default: 500.
    pub fn batch_size(mut self, jobs: usize) -> Self {
        self.batch_size = jobs;
        self
    }

    /// Sets the longest time between two looks. The dispatcher looks earlier when an earlier due
    /// time is known. Default: 1 s.
    pub fn polling_interval(mut self, interval: Duration) -> Self {
        self.polling_interval = interval;
        self
    }

    /// Sets how often the dispatcher sends a heartbeat. Default: 10 s.
    pub fn heartbeat_interval(mut self, interval: Duration) -> Self {
        self.service.heartbeat.interval = interval;
        self
    }

    /// Sets after how long without a heartbeat it is treated as dead. Default: 60 s.
    pub fn alive_threshold(mut self, threshold: Duration) -> Self {
        self.service.heartbeat.threshold = threshold;
        self
    }

    /// Sets the hooks to call when the dispatcher starts, stops and ends.
    pub fn hooks(mut self, hooks: Hooks) -> Self {
        self.service.hooks = hooks;
        self
    }

    /// Sets the subscriber that receives the dispatcher's events.
    pub fn subscriber(mut self, subscriber: Subscriber) -> Self {
        self.service.subscriber = subscriber;
        self
    }

    /// Dispatches until SIGTERM or SIGINT; see [`Worker::run`](crate::Worker::run).
    ///
    /// # Errors
    /// As for [`start`](Self::start).
    pub fn run(self) -> Result<Stopped> {
        service::run(self)
    }

    /// Starts dispatching on a thread of this program.
    ///
    /// # Errors
    /// Returns an error if the settings are impossible, or the tables are missing or too old.
    pub fn start(self) -> Result<Handle> {
        service::start(self)
    }

    fn dispatch(&self, session: &mut Session, stop: &Stop) {
        let mut walks = Walks {
            key: String::new(),
            waiting: Cursor::BEGINNING,
            batches: BatchWalks::default(),
            expiries: None,
            followers: FollowersWalk::new(),
        };
        let mut locked = AFTER_LOCKED;
        while !stop.is_stopped() {
            session.moves();
            let pause = match self.turn(session, stop, &mut walks, &mut locked) {
                Ok(pause) | Err(pause) => pause,
            };
            session.rests();
            stop.wait(pause);
        }
    }

    /// Dispatches one batch, and returns how long to wait for the next.
    fn turn(
        &self,
        session: &mut Session,
        stop: &Stop,
        walks: &mut Walks,
        locked: &mut Duration,
    ) -> Result<Duration, Duration> {
        let patience = self.expire(session, stop, &mut walks.expiries)?;
        let count = session.run("dispatch", |conn| dispatch::dispatch(conn, self.batch_size))?;
        if count > 0 {
            *locked = AFTER_LOCKED;
            session.subscriber().emit(&Event::Dispatched { count });
        }
        if count == self.batch_size {
            session.promote();
            return Ok(Duration::ZERO);
        }
        // Jobs that the end of another job did not find because they were not committed yet.
        let page = session.run("look for jobs whose turn has come", |conn| {
            unblock::sweep(conn, walks.waiting, SWEPT_JOBS)
        })?;
        walks.waiting = page.reached.unwrap_or(Cursor::BEGINNING);
        while session.promote() && !stop.is_stopped() {}
        self.sweep(session, &mut walks.key)?;
        sweep_batches(session, &mut walks.batches)?;
        walks.followers.go_on(session)?;
        let timeout = self.time_out(session)?;
        let next = session.run("look for due jobs", scheduled::next_due)?;
        let pause = match next {
            // Due executions were skipped because they are locked.
            Some(Duration::ZERO) if count == 0 => {
                let pause = *locked;
                *locked = pause.saturating_mul(2).min(self.polling_interval);
                pause
            }
            // A little after the due time, so that the look does not come just before it.
            Some(next) => {
                *locked = AFTER_LOCKED;
                next + Duration::from_millis(2)
            }
            None => self.polling_interval,
        };
        Ok(pause.min(patience).min(timeout))
    }

    /// Lets jobs run whose waits have timed out, and returns the longest pause before the next turn.
    fn time_out(&self, session: &mut Session) -> Result<Duration, Duration> {
        let timed_out = session.run("look for waits that have timed out", |conn| {
            wake::time_out(conn, self.batch_size)
        })?;
        let next = timed_out.next.unwrap_or(self.polling_interval);
        Ok(match timed_out.woken {
            // Those that are left are locked: this does not look for them all the time.
            0 => next.max(AFTER_LOCKED),
            _ => next,
        })
    }

    /// Discards the jobs that have expired, if it is time for that, and returns the longest pause
    /// before the next turn.
    fn expire(
        &self,
        session: &mut Session,
        stop: &Stop,
        last: &mut Option<(Instant, bool)>,
    ) -> Result<Duration, Duration> {
        let pause = |is_any| match is_any {
            true => self.polling_interval.min(EXPIRY_INTERVAL),
            false => self.polling_interval,
        };
        if let Some((at, is_any)) = *last
            && at.elapsed() < EXPIRY_INTERVAL
        {
            return Ok(pause(is_any));
        }
        loop {
            let expired = session.run("look for expired jobs", |conn| {
                expire::expire(conn, self.batch_size)
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
            if !expired.is_full || stop.is_stopped() {
                *last = Some((clock::instant(), expired.is_any));
                return Ok(pause(expired.is_any));
            }
        }
    }

    /// Walks one stretch over the concurrency keys with blocked jobs, for slots that became free
    /// without a signal.
    fn sweep(&self, session: &mut Session, walk: &mut String) -> Result<(), Duration> {
        let stretch = session.run("look for free slots", |conn| {
            semaphores::sweep(conn, walk, SWEPT_KEYS)
        })?;
        *walk = stretch.reached.unwrap_or_default();
        for key in &stretch.overlooked {
            session.subscriber().emit(&Event::Overlooked { key });
        }
        Ok(())
    }
}

/// Walks one stretch over the batches that are not over, and one over their jobs, once in a while.
fn sweep_batches(session: &mut Session, walks: &mut BatchWalks) -> Result<(), Duration> {
    if walks
        .last
        .is_some_and(|last| last.elapsed() < BATCH_INTERVAL)
    {
        return Ok(());
    }
    let swept = session.run("look for ended jobs in batches", |conn| {
        leave::sweep(conn, walks.member, SWEPT_MEMBERS)
    })?;
    walks.member = swept.reached.unwrap_or_default();
    let reached = session.run("look for batches that are over", |conn| {
        complete::request_stalled(conn, walks.batch, SWEPT_KEYS)
    })?;
    walks.batch = reached.unwrap_or_default();
    // Where one job has not left its batch, the next ones may not have either.
    walks.last = (swept.left == 0).then(clock::instant);
    Ok(())
}

/// How often batches are looked at that ended without a signal.
const BATCH_INTERVAL: Duration = Duration::from_secs(10);

impl Service for Dispatcher {
    const KIND: &'static str = "Dispatcher";
    const NAME: &'static str = "dispatcher";
    type Checked = ();
    type Running = RunningLoop;

    fn settings(&self) -> &ServiceSettings {
        &self.service
    }

    fn settings_mut(&mut self) -> &mut ServiceSettings {
        &mut self.service
    }

    fn check(&self) -> Result<()> {
        if self.batch_size == 0 || self.polling_interval.is_zero() {
            return Err(Error::Settings(
                "a dispatcher needs a batch size and a polling interval above zero".to_owned(),
            ));
        }
        self.service.heartbeat.check()
    }

    fn identity(&self) -> Identity {
        Identity {
            channel: None,
            kind: Self::KIND,
            metadata: serde_json::json!({
                "polling_interval": self.polling_interval.as_secs_f64(),
                "batch_size": self.batch_size,
                "windlass": env!("CARGO_PKG_VERSION"),
            })
            .to_string(),
        }
    }

    fn launch(
        self,
        (): (),
        context: &ProcessContext,
        heartbeat: Arc<Heartbeat>,
    ) -> Result<RunningLoop> {
        RunningLoop::start(context, &heartbeat, move |context, stop| {
            let session = &mut Session::of_loop(context, Self::NAME);
            self.dispatch(session, stop);
        })
    }

    fn work(running: RunningLoop, stop: &Stop) -> ProcessEnd {
        running.work::<Self>(stop)
    }
}
