//! Runs a worker, alone or with all that its database needs, in one process.

use crate::error::{Error, Result};
use crate::process::base::handle::{Handle, Stopped};
use crate::process::base::service::{self, Service as _};
use crate::process::dispatcher::Dispatcher;
use crate::process::scheduler::Scheduler;
use crate::process::supervisor::Supervisor;
use crate::process::worker::builder::Worker;
use crate::retention::Retention;

impl Worker {
    /// Runs until SIGTERM or SIGINT, or, as a supervisor's child, until its standard input ends.
    /// Call it on the main thread of a program.
    ///
    /// It does not return when a job has overrun its [timeout](crate::Policy::timeout) and does not
    /// end. Then the worker stops, and ends the program with exit code 124; a supervisor starts it
    /// again. With a [`dispatcher`](Self::dispatcher) or [`scheduler`](Self::scheduler), the job keeps its thread instead,
    /// as for [`start`](Self::start).
    ///
    /// # Errors
    /// As for [`start`](Self::start).
    pub fn run(self) -> Result<Stopped> {
        match self.runs_alone() {
            true => service::run(self),
            false => self.supervised()?.run(),
        }
    }

    /// Starts the worker's threads within this program and returns at once. No signal handler is
    /// installed, and the program is never ended: a job that overruns its
    /// [timeout](crate::Policy::timeout) and does not end keeps its thread and its claim until it
    /// does.
    ///
    /// # Errors
    /// Returns an error if the settings are impossible, or the database's tables are missing or too
    /// old. A Postgres server that is down is waited for.
    pub fn start(self) -> Result<Handle> {
        match self.runs_alone() {
            true => service::start(self),
            false => self.supervised()?.start(),
        }
    }

    /// Returns a supervisor that runs the worker, and what it asked for, on threads. Probes ask the supervisor, which has
    /// the others as its parts.
    fn supervised(mut self) -> Result<Supervisor> {
        if self.is_recycled() || self.is_until_idle() {
            return Err(Error::Settings(
                "a worker with a dispatcher or scheduler cannot be recycled, and cannot end when it is idle: \
                 run these in another process"
                    .to_owned(),
            ));
        }
        let parts = self.take_parts();
        let of_supervisor = self.settings().clone();
        self.settings_mut().beside = None;
        let of_part = self.settings().clone();
        let retention = Retention::new().events_for(self.needs_events_for().max(Retention::EVENTS));
        let mut supervisor = Supervisor::new(&of_part.database)
            .shutdown_timeout(self.time_to_stop())
            .retention(retention);
        *supervisor.settings_mut() = of_supervisor;
        if parts.dispatcher {
            let mut dispatcher = Dispatcher::new(&of_part.database);
            *dispatcher.settings_mut() = of_part.clone();
            supervisor = supervisor.dispatcher(dispatcher);
        }
        if parts.scheduler || !parts.tasks.is_empty() {
            let mut scheduler = Scheduler::new(&of_part.database).tasks(parts.tasks);
            *scheduler.settings_mut() = of_part;
            supervisor = supervisor.scheduler(scheduler);
        }
        Ok(supervisor.worker(self))
    }
}
