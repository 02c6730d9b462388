//! Runs a worker, alone or with all that its database needs, in one process.

use crate::error::Result;
use crate::process::base::handle::{Handle, Stopped};
use crate::process::base::service::{self, Service as _, ServiceSettings};
use crate::process::dispatcher::Dispatcher;
use crate::process::scheduler::Scheduler;
use crate::process::supervisor::Supervisor;
use crate::process::worker::builder::Worker;

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
            false => self.supervised().run(),
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
            false => self.supervised().start(),
        }
    }

    /// Returns a supervisor that runs the worker, and what it asked for, on threads.
    fn supervised(mut self) -> Supervisor {
        let (parts, shutdown_timeout) = (self.take_parts(), self.time_to_stop());
        let service = self.settings().clone();
        let with = |settings: &mut ServiceSettings| *settings = service.clone();
        let mut supervisor = Supervisor::new(&service.database).shutdown_timeout(shutdown_timeout);
        with(supervisor.settings_mut());
        if parts.dispatcher {
            let mut dispatcher = Dispatcher::new(&service.database);
            with(dispatcher.settings_mut());
            supervisor = supervisor.dispatcher(dispatcher);
        }
        if parts.scheduler {
            let mut scheduler = Scheduler::new(&service.database).tasks(parts.tasks);
            with(scheduler.settings_mut());
            supervisor = supervisor.scheduler(scheduler);
        }
        supervisor.worker(self)
    }
}
