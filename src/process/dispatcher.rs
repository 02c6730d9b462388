//! The dispatcher: makes scheduled jobs ready when they are due, and promotes
//! blocked ones.

use crate::clock;
use crate::db::Database;
use crate::db::model::claim::Cursor;
use crate::db::model::history::tally::CountedEnd;
use crate::db::table::{scheduled, semaphores, wanted_keys};
use crate::db::transition::flows::{admit, leave, wake};
use crate::db::transition::{dispatch, unique};
use crate::error::{Error, Result};
use crate::event::logging::Subscriber;
use crate::event::{Event, Hooks};
use crate::job::JobId;
use crate::process::base::context::ProcessContext;
use crate::process::base::handle::{Handle, ProcessEnd, Stopped};
use crate::process::base::heartbeat::Heartbeat;
use crate::process::base::registration::Identity;
use crate::process::base::service::{self, RunningLoop, Service, ServiceSettings};
use crate::process::base::session::{RefusedJobs, Session};
use crate::process::base::stop::Stop;
use std::sync::Arc;
use std::time::{Duration, Instant};

// --- Makes due scheduled executions ready ---

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
}

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
            let mut turns = Turns::new(self.batch_size, self.polling_interval);
            while !stop.is_stopped() {
                session.moves();
                let pause = turns.turn(session, stop);
                session.rests();
                stop.wait(pause);
            }
        })
    }

    fn work(running: RunningLoop, stop: &Stop) -> ProcessEnd {
        running.work::<Self>(stop)
    }
}

// --- The turns of a dispatcher: one duty after the other, none of which stops another ---

/// How many concurrency keys a turn checks.
const SWEPT_KEYS: usize = 200;

/// How many jobs that wait for another a turn checks.
const SWEPT_JOBS: usize = 2_000;

/// How many jobs in batches a turn checks.
const SWEPT_MEMBERS: usize = 500;

/// How many requests for promotions a turn notes as waiting.
const NOTED: usize = 500;

/// How often expired jobs are looked for.
const EXPIRY_INTERVAL: Duration = Duration::from_secs(5);

/// How often batches are looked at that ended without a signal.
const BATCH_INTERVAL: Duration = Duration::from_secs(10);

/// How often requests for promotions are noted as waiting.
const NOTE_INTERVAL: Duration = Duration::from_secs(10);

/// The longest time without the other duties while each batch of due jobs is full.
const FULL_BATCHES: Duration = Duration::from_secs(1);

/// How many promotions a turn makes at most: each some milliseconds of work.
const PROMOTIONS: usize = 8;

/// The first pause after a turn that could not move everything that is due, because other
/// transactions have locked it. It doubles with each such turn.
const AFTER_LOCKED: Duration = Duration::from_millis(50);

/// What a dispatcher does in turn, and how far its walks have come that take a stretch in each turn.
pub(crate) struct Turns {
    batch_size: usize,
    polling_interval: Duration,
    refused: RefusedJobs,
    /// How many due jobs this turn has moved.
    dispatched: usize,
    /// The pause after a turn that finds everything due locked.
    locked: Duration,
    /// When all duties were done last.
    whole: Option<Instant>,
    /// The last concurrency key with blocked jobs that was checked.
    key: String,
    /// The last job that was checked of those that wait for another.
    waiting: Cursor,
    batches: BatchWalks,
    followers: FollowersWalk,
    /// When expired jobs were last looked for, and whether any job had an expiry.
    expiries: Option<(Instant, bool)>,
    noted: Option<Instant>,
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

/// Returns how long the next turn may wait for its sake.
type Duty = fn(&mut Turns, &mut Session) -> Result<Duration, Duration>;

const DUTIES: [Duty; 10] = [
    Turns::expire,
    Turns::dispatch,
    Turns::unblock,
    Turns::promote,
    Turns::sweep,
    Turns::sweep_batches,
    Turns::look_for_followers,
    Turns::time_out,
    Turns::note_requests,
    Turns::next_due,
];

impl Turns {
    pub(crate) fn new(batch_size: usize, polling_interval: Duration) -> Self {
        Turns {
            batch_size,
            polling_interval,
            refused: RefusedJobs::default(),
            dispatched: 0,
            locked: AFTER_LOCKED,
            whole: None,
            key: String::new(),
            waiting: Cursor::BEGINNING,
            batches: BatchWalks::default(),
            followers: FollowersWalk::new(),
            expiries: None,
            noted: None,
        }
    }

    /// Does each duty once, and returns how long to wait for the next turn.
    ///
    /// One that fails, which is reported, stops no other, unless the database is away. While each batch of due jobs is full,
    /// most duties come only once in a while.
    pub(crate) fn turn(&mut self, session: &mut Session, stop: &Stop) -> Duration {
        let mut pause = self.polling_interval;
        self.dispatched = 0;
        for duty in DUTIES {
            match duty(self, session) {
                Ok(next) => pause = pause.min(next),
                Err(delay) if !session.is_well() => return delay,
                Err(delay) => pause = pause.min(delay),
            }
            if stop.is_stopped() {
                return pause;
            }
            if self.is_full() && self.whole.is_some_and(|at| at.elapsed() < FULL_BATCHES) {
                session.promote();
                return pause;
            }
        }
        self.whole = Some(clock::instant());
        pause
    }

    fn is_full(&self) -> bool {
        self.dispatched >= self.batch_size
    }

    /// Moves one batch of due jobs.
    fn dispatch(&mut self, session: &mut Session) -> Result<Duration, Duration> {
        let count = self.refused.dispatch(session, self.batch_size)?;
        self.dispatched = count;
        if count > 0 {
            self.locked = AFTER_LOCKED;
            session.subscriber().emit(&Event::Dispatched { count });
        }
        Ok(match self.is_full() {
            true => Duration::ZERO,
            false => self.polling_interval,
        })
    }

    /// Looks when the next job is due.
    fn next_due(&mut self, session: &mut Session) -> Result<Duration, Duration> {
        let next = session.run("look for due jobs", scheduled::next_due)?;
        Ok(match next {
            // Due executions were skipped because they are locked, or were refused.
            Some(Duration::ZERO) if self.dispatched == 0 => {
                let pause = self.locked;
                self.locked = pause.saturating_mul(2).min(self.polling_interval);
                pause
            }
            // A little after the due time, so that the look does not come just before it.
            Some(next) => {
                self.locked = AFTER_LOCKED;
                next + Duration::from_millis(2)
            }
            None => self.polling_interval,
        })
    }

    /// Looks for jobs that the end of another job did not find because they were not committed yet.
    fn unblock(&mut self, session: &mut Session) -> Result<Duration, Duration> {
        let page = session.run("look for jobs whose turn has come", |conn| {
            unique::sweep(conn, self.waiting, SWEPT_JOBS)
        })?;
        self.waiting = page.reached.unwrap_or(Cursor::BEGINNING);
        Ok(self.polling_interval)
    }

    fn promote(&mut self, session: &mut Session) -> Result<Duration, Duration> {
        for _ in 0..PROMOTIONS {
            if !session.promote() {
                return Ok(self.polling_interval);
            }
        }
        Ok(Duration::ZERO)
    }

    /// Walks one stretch over the concurrency keys with blocked jobs, for slots that became free
    /// without a signal.
    fn sweep(&mut self, session: &mut Session) -> Result<Duration, Duration> {
        let stretch = session.run("look for free slots", |conn| {
            semaphores::sweep(conn, &self.key, SWEPT_KEYS)
        })?;
        self.key = stretch.reached.unwrap_or_default();
        for key in &stretch.overlooked {
            session.subscriber().emit(&Event::Overlooked { key });
        }
        Ok(self.polling_interval)
    }

    /// Walks one stretch over the batches that are not over, and one over their jobs, once in a while.
    fn sweep_batches(&mut self, session: &mut Session) -> Result<Duration, Duration> {
        if is_recent(self.batches.last, BATCH_INTERVAL) {
            return Ok(self.polling_interval);
        }
        let walks = &mut self.batches;
        let swept = session.run("look for ended jobs in batches", |conn| {
            leave::sweep(conn, walks.member, SWEPT_MEMBERS)
        })?;
        walks.member = swept.reached.unwrap_or_default();
        let reached = session.run("look for batches that are over", |conn| {
            leave::request_stalled(conn, walks.batch, SWEPT_KEYS)
        })?;
        walks.batch = reached.unwrap_or_default();
        // Where one job has not left its batch, the next ones may not have either.
        walks.last = (swept.left == 0).then(clock::instant);
        Ok(self.polling_interval)
    }

    fn look_for_followers(&mut self, session: &mut Session) -> Result<Duration, Duration> {
        self.followers.go_on(session)?;
        Ok(self.polling_interval)
    }

    /// Lets jobs run whose waits have timed out.
    fn time_out(&mut self, session: &mut Session) -> Result<Duration, Duration> {
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

    /// Notes which requests for promotions wait, once in a while.
    fn note_requests(&mut self, session: &mut Session) -> Result<Duration, Duration> {
        if !is_recent(self.noted, NOTE_INTERVAL) {
            session.run("look for requests that wait", |conn| {
                wanted_keys::note_waiting(conn, NOTED)
            })?;
            self.noted = Some(clock::instant());
        }
        Ok(self.polling_interval)
    }

    /// Discards a batch of the jobs that have expired, if it is time for that.
    fn expire(&mut self, session: &mut Session) -> Result<Duration, Duration> {
        if let Some((at, is_any)) = self.expiries
            && at.elapsed() < EXPIRY_INTERVAL
        {
            return Ok(self.until_expiry(is_any));
        }
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
        if expired.is_full {
            return Ok(Duration::ZERO);
        }
        self.expiries = Some((clock::instant(), expired.is_any));
        Ok(self.until_expiry(expired.is_any))
    }

    fn until_expiry(&self, is_any: bool) -> Duration {
        match is_any {
            true => self.polling_interval.min(EXPIRY_INTERVAL),
            false => self.polling_interval,
        }
    }
}

fn is_recent(last: Option<Instant>, interval: Duration) -> bool {
    last.is_some_and(|last| last.elapsed() < interval)
}

// --- Looks for jobs that wait although what they waited for has ended ---

/// How often it looks, and at how many jobs.
const INTERVAL: Duration = Duration::from_secs(10);
const PAGE: usize = 100;

/// The walk over the jobs that wait for others.
#[derive(Debug)]
pub(crate) struct FollowersWalk {
    beyond: Cursor,
    last: Option<Instant>,
}

impl FollowersWalk {
    pub(crate) fn new() -> Self {
        FollowersWalk {
            beyond: Cursor::BEGINNING,
            last: None,
        }
    }

    /// Walks one stretch, once in a while.
    pub(crate) fn go_on(&mut self, session: &mut Session) -> Result<(), Duration> {
        if self.last.is_some_and(|last| last.elapsed() < INTERVAL) {
            return Ok(());
        }
        let reached = session.run("look for jobs that wait in vain", |conn| {
            admit::request_overdue(conn, self.beyond, PAGE)
        })?;
        self.beyond = reached.unwrap_or(Cursor::BEGINNING);
        self.last = Some(clock::instant());
        Ok(())
    }
}
