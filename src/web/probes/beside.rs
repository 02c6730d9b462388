//! Probes that start and end with a process.

use crate::error::Result;
use crate::process::base::health::{Health, PreparedBeside, RunningBeside, RunsBeside};
use crate::process::base::service::Service as _;
use crate::process::supervisor::Supervisor;
use crate::process::worker::builder::Worker;
use crate::web::probes::server::Probes;
use crate::web::running::RunningServer;
use crate::web::start;
use std::net::TcpListener;
use std::sync::Arc;

impl Worker {
    /// Serves these probes for as long as the worker runs, and answers for it there. They end when the
    /// [`Handle`](crate::Handle) is dropped, or [`run`](Self::run) returns.
    ///
    /// ```no_run
    /// use windlass::web::Probes;
    ///
    /// # fn main() -> windlass::Result<()> {
    /// # let database = windlass::Database::open("jobs.db")?;
    /// # let registry = windlass::Registry::new();
    /// windlass::Worker::new(&database, registry)
    ///     .probes(Probes::new(&database).listen("0.0.0.0:4041"))
    ///     .run()?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`start`](Self::start) and [`run`](Self::run) fail if the address is in use.
    pub fn probes(mut self, probes: Probes) -> Self {
        self.settings_mut().beside = Some(Arc::new(probes));
        self
    }
}

impl Supervisor {
    /// Serves these probes for as long as the supervisor runs, and answers there for it and for what
    /// runs on its threads. Its child programs have probes of their own, if any.
    ///
    /// # Errors
    /// [`start`](Self::start) and [`run`](Self::run) fail if the address is in use.
    pub fn probes(mut self, probes: Probes) -> Self {
        self.settings_mut().beside = Some(Arc::new(probes));
        self
    }
}

#[derive(Debug)]
struct Bound {
    probes: Probes,
    listener: TcpListener,
}

impl RunsBeside for Probes {
    fn prepare(&self) -> Result<Box<dyn PreparedBeside>> {
        Ok(Box::new(Bound {
            listener: start::bind(&self.server)?,
            probes: self.clone(),
        }))
    }
}

impl PreparedBeside for Bound {
    fn start(self: Box<Self>, health: Health) -> Result<Box<dyn RunningBeside>> {
        let server = self.probes.process(health).server;
        let running = start::start_on(&server, self.listener)?;
        let address = running.address();
        log::info!("probes are served on http://{address}");
        Ok(Box::new(running))
    }
}

impl RunningBeside for RunningServer {}
