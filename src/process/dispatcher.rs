//! The dispatcher: makes scheduled jobs ready when they are due, and promotes
//! blocked ones.

use crate::db::Database;
use crate::error::{Error, Result};
use crate::event::hooks::Hooks;
use crate::event::logging::Subscriber;
use crate::process::base::context::ProcessContext;
use crate::process::base::duty_turns::DutyTurns;
use crate::process::base::handle::{Handle, ProcessEnd, Stopped};
use crate::process::base::heartbeat::Heartbeat;
use crate::process::base::registration::Identity;
use crate::process::base::service::{self, RunningLoop, Service, ServiceSettings};
use crate::process::base::session::Session;
use crate::process::base::stop::Stop;
use crate::process::upkeep::{Upkeep, due, sweep};
use std::sync::Arc;
use std::time::Duration;

/// Makes due scheduled jobs ready, in chunks. Any number of dispatchers may run at once, on any
/// host.
///
/// ```no_run
/// use std::time::Duration;
/// use windlass::{Database, Dispatcher};
///
/// # let database = Database::open("sqlite://jobs.db")?;
/// Dispatcher::new(&database).polling_interval(Duration::from_secs(1)).run()?;
/// # Ok::<(), windlass::Error>(())
/// ```
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

impl Dispatcher {
    /// Returns its duties.
    fn upkeep(&self, turns: &DutyTurns) -> Upkeep {
        let mut duties = due::duties(self.batch_size, self.polling_interval);
        duties.extend(sweep::duties(self.polling_interval));
        Upkeep::new(duties, turns)
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
            let mut upkeep = self.upkeep(&context.duties);
            while !stop.is_stopped() {
                session.moves();
                let pause = upkeep.turn(session, stop);
                session.rests();
                stop.wait(pause);
            }
        })
    }

    fn work(running: RunningLoop, stop: &Stop) -> ProcessEnd {
        running.work::<Self>(stop)
    }
}
