//! Runs the processes that a configuration describes.

mod web;

use crate::config::configuration::Config;
use crate::config::document::Origin;
use crate::config::settings::WorkerSettings;
use crate::config::value::{FILE_VARIABLE, WORKER_VARIABLE};
use crate::web::Probes;
use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;
use windlass::errors::Problem;
use windlass::{
    Child, Database, Dispatcher, Error, Registry, Result, Scheduler, Stopped, Supervisor, Worker,
};

/// Runs a program as the configuration describes.
///
/// ```no_run
/// use windlass::Registry;
/// use windlass_console::Config;
///
/// # fn registry() -> Registry { Registry::new() }
/// fn main() -> std::process::ExitCode {
///     match Config::find().and_then(|config| config.run(registry())) {
///         Ok(stopped) => stopped.exit_code(),
///         Err(error) => {
///             eprintln!("{error}");
///             std::process::ExitCode::FAILURE
///         }
///     }
/// }
/// ```
impl Config {
    /// Runs a supervisor whose workers are this same program, started again with the same
    /// arguments. In such a worker process, it runs the worker.
    ///
    /// Call it on the main thread; it returns after SIGTERM or SIGINT.
    ///
    /// # Errors
    /// As for [`Supervisor::start`] and [`Worker::start`]. Also if no database is set, or a
    /// recurring task does not match the program: see [`knowing`](Self::knowing).
    pub fn run(&self, registry: Registry) -> Result<Stopped> {
        if self.entry.is_some() {
            return self.worker(&self.database()?, registry)?.run();
        }
        let config = self.knowing(&registry)?;
        let database = config.database()?;
        let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
        let again = Child::this_program(arguments)?;
        config.supervisor(&database, again)?.run()
    }

    /// Returns the database, with a pool that is large enough for the worker that this process is,
    /// or for any of them.
    ///
    /// # Errors
    /// If no database is set.
    pub fn database(&self) -> Result<Database> {
        let Some(url) = self.url() else {
            return Err(wrong(
                "no database is set: set `url` in `[database]`, or WINDLASS_DATABASE_URL"
                    .to_owned(),
            ));
        };
        let workers = self.workers.iter();
        let largest = workers.map(|worker| self.pool_of(worker)).max();
        let own = self.own().map(|worker| self.pool_of(worker));
        self.pooled(Database::open_with_pool(
            url,
            own.or(largest).unwrap_or(10),
        )?)
    }

    /// Returns the database with what the settings say about its pooler.
    pub(crate) fn pooled(&self, database: Database) -> Result<Database> {
        let database = database.pooling(self.database.pooling);
        match self.database.listen_url.as_str() {
            "" => Ok(database),
            url => database.listen_url(url),
        }
    }

    /// Returns the worker as which a supervisor started this process; otherwise the first worker of
    /// the configuration, with queues [shared](windlass::tenants) as `[queues]` says.
    ///
    /// # Errors
    /// If the configuration has no worker. If `[queues]` is about shares, and the database does not answer or has no tables.
    pub fn worker(&self, database: &Database, registry: Registry) -> Result<Worker> {
        let Some(settings) = self.own().or(self.workers.first()) else {
            return Err(wrong("there are no `[[workers]]`".to_owned()));
        };
        // A supervisor has done so for its children.
        if self.entry.is_none() {
            self.share_queues(database)?;
        }
        let selectors = settings.queues.iter().map(ToString::to_string);
        let worker = Worker::new(database, registry)
            .queues(selectors)?
            .threads(settings.threads as usize)
            .polling_interval(settings.polling_interval)
            .heartbeat_interval(self.supervisor.heartbeat_interval)
            .alive_threshold(self.supervisor.alive_threshold)
            .shutdown_timeout(self.supervisor.shutdown_timeout)
            .keep_finished(settings.keep_finished)
            .longest_wait(self.retention.events_for.unwrap_or(Duration::MAX))
            .recycle(settings.recycle)
            .hooks(self.hooks.clone())
            .subscriber(self.subscribed());
        Ok(match self.probes(&settings.listen, database) {
            Some(probes) => worker.probes(probes),
            None => worker,
        })
    }

    /// Shares the threads of queues as the configuration says.
    fn share_queues(&self, database: &Database) -> Result<()> {
        let mut shared = self.queues.iter().filter(|queue| queue.is_about_shares());
        let Some(first) = shared.next() else {
            return Ok(());
        };
        let conn = &mut database.connect()?;
        first.apply(conn)?;
        shared.try_for_each(|queue| queue.apply(conn))
    }

    /// Returns a supervisor with its dispatchers, its scheduler if enabled, and its workers as
    /// children. Queues are [shared](windlass::tenants) as `[queues]` says.
    ///
    /// `program` is run for workers that set no program of their own; it should call
    /// [`worker`](Self::worker).
    ///
    /// # Errors
    /// If a worker in the configuration has no program. If `[queues]` is about shares, and the database does not answer or
    /// has no tables.
    pub fn supervisor(
        &self,
        database: &Database,
        program: impl Into<Option<Child>>,
    ) -> Result<Supervisor> {
        let program = program.into();
        let settings = &self.supervisor;
        let (interval, threshold) = (settings.heartbeat_interval, settings.alive_threshold);
        let mut supervisor = Supervisor::new(database)
            .heartbeat_interval(interval)
            .alive_threshold(threshold)
            .shutdown_timeout(settings.shutdown_timeout)
            .retention(self.retention())
            .hooks(self.hooks.clone())
            .subscriber(self.subscribed());
        if !settings.pidfile.as_os_str().is_empty() {
            supervisor = supervisor.pidfile(&settings.pidfile);
        }
        for settings in &self.dispatchers {
            let dispatcher = Dispatcher::new(database)
                .batch_size(settings.batch_size as usize)
                .polling_interval(settings.polling_interval)
                .heartbeat_interval(interval)
                .alive_threshold(threshold)
                .hooks(self.hooks.clone())
                .subscriber(self.subscribed());
            supervisor = supervisor.dispatcher(dispatcher);
        }
        if self.scheduler.enabled {
            supervisor = supervisor.scheduler(self.scheduler(database));
        }
        for (index, settings) in self.workers.iter().enumerate() {
            let is_assumed = settings.origin == Origin::Default;
            if is_assumed && program.is_none() && settings.program.is_empty() {
                continue;
            }
            supervisor = supervisor.child(self.child(index + 1, settings, program.clone())?);
        }
        self.share_queues(database)?;
        Ok(match self.probes(&settings.listen, database) {
            Some(probes) => supervisor.probes(probes),
            None => supervisor,
        })
    }

    /// Returns the probes that a process serves, if it has an address for them.
    fn probes(&self, listen: &str, database: &Database) -> Option<Probes> {
        let probes = Probes::new(database).metrics_open(self.supervisor.metrics_open);
        (!listen.is_empty()).then(|| probes.listen(listen))
    }

    /// Returns a scheduler for the configuration's recurring tasks and those scheduled at run time,
    /// even if it is not enabled. [`supervisor`](Self::supervisor) includes it.
    pub fn scheduler(&self, database: &Database) -> Scheduler {
        let settings = &self.scheduler;
        let mut scheduler = Scheduler::new(database);
        for (name, timing) in &self.timings {
            scheduler = scheduler.timing(name, Arc::clone(timing));
        }
        let deployment = settings.deployment.as_str();
        if !deployment.is_empty() {
            scheduler = scheduler.deployment(deployment);
        }
        scheduler
            .tasks(self.tasks().cloned())
            .in_zone(settings.time_zone)
            .polling_interval(settings.polling_interval)
            .grace(settings.grace)
            .revision(settings.revision)
            .heartbeat_interval(self.supervisor.heartbeat_interval)
            .alive_threshold(self.supervisor.alive_threshold)
            .hooks(self.hooks.clone())
            .subscriber(self.subscribed())
    }

    fn child(
        &self,
        number: usize,
        settings: &WorkerSettings,
        program: Option<Child>,
    ) -> Result<Child> {
        let named = settings.program.split_first();
        let named = named.map(|(program, arguments)| Child::program(program, arguments));
        let Some(mut child) = named.or(program) else {
            return Err(Error::Configuration(vec![
                settings.origin.problem(
                    "this worker has no program: set `program = [\"PROGRAM\", \"ARGUMENT\"]`, \
                 or name one on the command line"
                        .to_owned(),
                ),
            ]));
        };
        if let Some(file) = &self.file {
            // Absolute, because the child may change its directory.
            let file = std::path::absolute(file).unwrap_or_else(|_| file.clone());
            child = child.env(FILE_VARIABLE, file);
        }
        Ok(child
            .env(WORKER_VARIABLE, number.to_string())
            .processes(settings.processes as usize))
    }

    /// Returns the settings of the worker that this process is.
    fn own(&self) -> Option<&WorkerSettings> {
        self.workers.get(self.entry?.checked_sub(1)?)
    }
}

fn wrong(message: String) -> Error {
    Error::Configuration(vec![Problem::new(None, None, message)])
}
