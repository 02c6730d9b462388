//! `/livez`, `/readyz` and `/startedz`: for containers and load balancers. They report nothing secret, so
//! they need no token.

use crate::web::access::viewer::Need;
use crate::web::request::route::Route;
use crate::web::server::{RunningServer, Server};
use crate::web::{metrics, readiness, start};
use std::net::TcpListener;
use windlass::internal::process::base::health::{PreparedBeside, RunningBeside, RunsBeside};
use windlass::processes::Health;
use windlass::{Database, Result};

// --- Probes that start and end with a process ---

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

// --- A server with probes and metrics only ---

/// The routes for machines, here and on a server with pages.
pub(crate) const ROUTES: &[Route] = &[
    Route::get("/metrics", metrics::show).needs(Need::Nothing),
    Route::get("/readyz", readiness::ready).needs(Need::Nothing),
];

/// Serves `/livez`, `/readyz`, `/startedz` and `/metrics` for the processes of a program, and no pages.
///
/// `/livez` and `/startedz` are answered from memory, whatever the database does, and so is `/readyz`
/// if there is a process. The metrics are those of the whole fleet, whichever process is asked.
///
/// ```no_run
/// use windlass_console::web::Probes;
///
/// # fn main() -> windlass::Result<()> {
/// # let database = windlass::Database::open("jobs.db")?;
/// # let registry = windlass::Registry::new();
/// let worker = windlass::Worker::new(&database, registry).start()?;
/// let probes = Probes::new(&database)
///     .process(worker.health())
///     .listen("127.0.0.1:4041")
///     .start()?;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
#[must_use = "probes do nothing until they are started"]
pub struct Probes {
    pub(crate) server: Server,
}

/// The default address to listen on.
const LISTEN: &str = "127.0.0.1:4041";

impl Probes {
    /// Returns probes of no process, on `127.0.0.1:4041`.
    pub fn new(database: &Database) -> Self {
        Probes {
            server: Server::new(database).listen(LISTEN).only(ROUTES),
        }
    }

    /// Answers for this process too. A probe fails if one of the processes does not pass.
    pub fn process(mut self, health: Health) -> Self {
        self.server = self.server.process(health);
        self
    }

    /// Sets the address and port to listen on. Port 0 is any free one.
    ///
    /// On an address that other hosts can reach, the probes are open to all, and the metrics need a
    /// token, unless [`metrics_open`](Self::metrics_open) is set.
    pub fn listen(mut self, address: impl Into<String>) -> Self {
        self.server = self.server.listen(address);
        self
    }

    /// Serves the metrics without a token, which shows the names of queues and classes to everyone
    /// who reaches the address. Default: `false`.
    pub fn metrics_open(mut self, is_open: bool) -> Self {
        self.server = self.server.metrics_open(is_open);
        self
    }

    /// Starts it on two threads of its own: one for the network, and one for the database.
    ///
    /// # Errors
    /// If the address is not one, or in use, or a thread cannot be started.
    pub fn start(self) -> Result<RunningServer> {
        self.server.start()
    }
}
