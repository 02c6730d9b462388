//! The settings of a server.

use crate::read::now::Promises;
use crate::web::access::viewer::Need;
use crate::web::dispatch::routes::ROUTES;
use crate::web::request::route::Route;
use crate::web::site::Site;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::watch;
use windlass::internal::process::base::stop;
use windlass::processes::Health;
use windlass::{Database, Error, Result};

/// The default address to listen on.
pub(crate) const LISTEN: &str = "127.0.0.1:4040";

/// The default number of threads that read and change the database.
pub(crate) const THREADS: usize = 3;

/// The default time after which an unused session ends.
pub(crate) const SESSION_IDLE: Duration = Duration::from_secs(12 * 3600);

/// The default lifetime of a session.
pub(crate) const SESSION_LIFETIME: Duration = Duration::from_secs(7 * 24 * 3600);

/// Serves the web pages of one or several databases.
///
/// By default only this host can connect, and everyone on it is an operator, until there is a
/// token (`windlass web tokens add`). To be reached from elsewhere, it needs tokens or a proxy that
/// names its users; `docs/web.md` describes both.
///
/// ```no_run
/// # fn main() -> windlass::Result<()> {
/// let database = windlass::Database::open("sqlite://jobs.db")?;
/// let server = windlass_console::web::Server::new(&database)
///     .listen("127.0.0.1:4040")
///     .start()?;
/// println!("http://{}", server.address());
/// // ..
/// server.stop();
/// server.wait();
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
#[must_use = "a server does nothing until it is started"]
pub struct Server {
    pub(crate) databases: Vec<ServedDatabase>,
    pub(crate) listen: String,
    pub(crate) base_path: String,
    pub(crate) hosts: Vec<String>,
    pub(crate) public_origin: Option<String>,
    pub(crate) trusted_proxies: Vec<String>,
    pub(crate) user_header: Option<String>,
    pub(crate) operators: Vec<String>,
    pub(crate) read_only: bool,
    pub(crate) local_name: Option<String>,
    pub(crate) session_idle: Duration,
    pub(crate) session_lifetime: Duration,
    pub(crate) threads: usize,
    pub(crate) promises: Promises,
    pub(crate) routes: &'static [Route],
    pub(crate) processes: Vec<Health>,
    pub(crate) metrics_open: bool,
}

/// One of the databases of a server.
#[derive(Debug, Clone)]
pub(crate) struct ServedDatabase {
    /// Empty: made from its address.
    pub(crate) name: String,
    pub(crate) database: Database,
    pub(crate) replica: Option<Database>,
}

impl ServedDatabase {
    fn new(name: &str, database: &Database) -> Self {
        ServedDatabase {
            name: name.to_owned(),
            database: database.clone(),
            replica: None,
        }
    }
}

impl Server {
    /// Returns a server for a database, on `127.0.0.1:4040`.
    pub fn new(database: &Database) -> Self {
        Server {
            databases: vec![ServedDatabase::new("", database)],
            listen: LISTEN.to_owned(),
            base_path: String::new(),
            hosts: Vec::new(),
            public_origin: None,
            trusted_proxies: Vec::new(),
            user_header: None,
            operators: Vec::new(),
            read_only: false,
            local_name: None,
            session_idle: SESSION_IDLE,
            session_lifetime: SESSION_LIFETIME,
            threads: THREADS,
            promises: Promises::new(),
            routes: ROUTES,
            processes: Vec::new(),
            metrics_open: false,
        }
    }

    /// Serves only these routes, with one thread for the database.
    pub(crate) fn only(mut self, routes: &'static [Route]) -> Self {
        (self.routes, self.threads) = (routes, 1);
        self
    }

    /// Returns whether it serves pages for people, not only what machines ask.
    pub(crate) fn has_pages(&self) -> bool {
        self.routes.iter().any(|route| route.need != Need::Nothing)
    }

    /// Answers `/livez`, `/readyz` and `/startedz` for this process of the program too.
    pub fn process(mut self, health: Health) -> Self {
        self.processes.push(health);
        self
    }

    /// Serves `/metrics` without a token. Default: `false`.
    pub fn metrics_open(mut self, is_open: bool) -> Self {
        self.metrics_open = is_open;
        self
    }

    /// Sets the address and port to listen on. Port 0 is any free one.
    pub fn listen(mut self, address: impl Into<String>) -> Self {
        self.listen = address.into();
        self
    }

    /// Sets the path below which a proxy shows the pages, such as `/windlass`. The proxy may remove
    /// it from the requests that it passes on, or leave it. Default: none.
    pub fn base_path(mut self, path: impl Into<String>) -> Self {
        self.base_path = path.into();
        self
    }

    /// Sets the name of the first database in the pages. Default: made from its address.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        if let Some(first) = self.databases.first_mut() {
            first.name = name.into();
        }
        self
    }

    /// Adds another database, whose pages are below `/db/<name>/`. Tokens and sessions are those of
    /// the first database.
    pub fn database(mut self, name: &str, database: &Database) -> Self {
        self.databases.push(ServedDatabase::new(name, database));
        self
    }

    /// Sets where the pages of the database that was named last are read from: a replica, by its
    /// address. Changes go to the database itself.
    ///
    /// # Errors
    /// If it is not an address of Postgres.
    pub fn replica(mut self, url: &str) -> Result<Self> {
        let replica = Database::open_replica(url)?;
        if let Some(last) = self.databases.last_mut() {
            last.replica = Some(replica);
        }
        Ok(self)
    }

    /// Adds a name by which the server is called, such as `jobs.example.com`. Requests to other names
    /// are refused; `localhost` and addresses are always accepted.
    pub fn host(mut self, name: impl Into<String>) -> Self {
        self.hosts.push(name.into());
        self
    }

    /// Sets the address that browsers show behind a proxy: `https://jobs.example.com`. Its name need
    /// not be set as a [`host`](Self::host).
    pub fn public_origin(mut self, origin: impl Into<String>) -> Self {
        self.public_origin = Some(origin.into());
        self
    }

    /// Adds the address of a proxy before the server, or a range such as `10.0.0.0/8`. What it says
    /// in `X-Forwarded-For`, `X-Forwarded-Proto` and the [`user_header`](Self::user_header) is
    /// believed.
    pub fn trusted_proxy(mut self, address: impl Into<String>) -> Self {
        self.trusted_proxies.push(address.into());
        self
    }

    /// Sets the header in which a trusted proxy names the user that it has signed in, such as
    /// `X-Forwarded-User`. The proxy must remove it from what clients send.
    pub fn user_header(mut self, name: impl Into<String>) -> Self {
        self.user_header = Some(name.into());
        self
    }

    /// Adds a user of the proxy who may change things; `*` is all of them. The others only see.
    pub fn operator(mut self, user: impl Into<String>) -> Self {
        self.operators.push(user.into());
        self
    }

    /// Refuses all changes, also those of operators. Default: `false`.
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }

    /// Sets the name under which those on this host change things, while there are no tokens.
    /// Default: `local@` and the name of the host.
    pub fn local_name(mut self, name: impl Into<String>) -> Self {
        self.local_name = Some(name.into());
        self
    }

    /// Sets after how long without a request a session ends, and how long it lives at most.
    /// Default: 12 hours and 7 days.
    pub fn session_times(mut self, idle: Duration, lifetime: Duration) -> Self {
        self.session_idle = idle;
        self.session_lifetime = lifetime;
        self
    }

    /// Sets how long a job may be ready before its queue counts as late. Without it, pages show how
    /// long the jobs of a queue wait, but do not say whether that is too long.
    pub fn max_wait(mut self, queue: impl Into<String>, wait: Duration) -> Self {
        self.promises.insert(queue.into(), wait);
        self
    }

    /// Sets how many threads read and change the databases: from 2 to 4. Each has up to two
    /// connections to each database. Default: 3.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    pub(crate) fn wrong<T>(&self, message: impl Into<String>) -> Result<T> {
        Err(Error::Settings(message.into()))
    }
}

// --- A server that runs ---

/// The longest wait for the threads of a server that stops.
const STOP: Duration = Duration::from_secs(10);

/// A server that runs on threads of this program. Dropping it stops it.
#[derive(Debug)]
pub struct RunningServer {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    pub(crate) site: Arc<Site>,
    threads: Vec<JoinHandle<()>>,
}

impl RunningServer {
    pub(crate) fn new(
        address: SocketAddr,
        stop: watch::Sender<bool>,
        site: Arc<Site>,
        threads: Vec<JoinHandle<()>>,
    ) -> Self {
        RunningServer {
            address,
            stop,
            site,
            threads,
        }
    }

    /// Returns the address on which it listens, with the real port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Requests a stop and returns at once. Responses that are under way are completed, for up to
    /// 3 s.
    pub fn stop(&self) {
        self.stop.send_replace(true);
        self.site.hub.stop();
        self.site.polls.stop();
        // If one is on its way already, that one wakes it.
        let _ = self.site.operations.try_send(());
    }

    /// Returns whether all its threads run: after a defect, some do not.
    pub fn is_running(&self) -> bool {
        !self.threads.iter().any(JoinHandle::is_finished)
    }

    /// Waits until the server has ended.
    pub fn wait(mut self) {
        for thread in self.threads.drain(..) {
            stop::join(thread);
        }
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        self.stop();
        stop::join_within(self.threads.drain(..).collect(), STOP);
    }
}
