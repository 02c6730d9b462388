//! The settings of a server, and its start.

use crate::db::Database;
use crate::error::{Error, Result};
use crate::web::assets::Assets;
use crate::web::http::engine;
use crate::web::http::request::Verb;
use crate::web::http::router::Engine;
use crate::web::pages::now::queues::Promises;
use crate::web::pages::route::Route;
use crate::web::pages::routes::ROUTES;
use crate::web::pages::section::Section;
use crate::web::running::RunningServer;
use crate::web::site::{Site, SiteSettings, Source};
use crate::web::sql::workers;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Where to listen, unless set.
pub(crate) const LISTEN: &str = "127.0.0.1:4040";

/// How many threads read and change the database, unless set.
const THREADS: usize = 3;

/// Serves the web pages of a database.
///
/// ```no_run
/// # fn main() -> windlass::Result<()> {
/// let database = windlass::Database::open("sqlite://jobs.db")?;
/// let server = windlass::web::Server::new(&database)
///     .listen("127.0.0.1:4040")
///     .start()?;
/// println!("http://{}", server.address());
/// server.wait();
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
#[must_use = "a server does nothing until it is started"]
pub struct Server {
    database: Database,
    listen: String,
    read_only: bool,
    threads: usize,
    promises: Promises,
    routes: &'static [Route],
}

impl Server {
    /// Returns a server for a database, on `127.0.0.1:4040`.
    pub fn new(database: &Database) -> Self {
        Server {
            database: database.clone(),
            listen: LISTEN.to_owned(),
            read_only: false,
            threads: THREADS,
            promises: Promises::new(),
            routes: ROUTES,
        }
    }

    /// Sets the address and port to listen on. Port 0 is any free one.
    pub fn listen(mut self, address: impl Into<String>) -> Self {
        self.listen = address.into();
        self
    }

    /// Refuses all changes. Default: `false`.
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }

    /// Sets how long a job may be ready before its queue counts as late. Without it, pages show how
    /// long the jobs of a queue wait, but do not say whether that is too long.
    pub fn max_wait(mut self, queue: impl Into<String>, wait: Duration) -> Self {
        self.promises.insert(queue.into(), wait);
        self
    }

    /// Sets how many threads read and change the database: from 2 to 4. Each has up to two
    /// connections. Default: 3.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// Starts the server on threads of its own.
    ///
    /// # Errors
    /// If the address is not one, or in use, or a thread cannot be started.
    pub fn start(self) -> Result<RunningServer> {
        if !(2..=4).contains(&self.threads) {
            return Err(Error::Settings(format!(
                "a web server has 2 to 4 threads for the database, not {}",
                self.threads
            )));
        }
        let listener = self.bind()?;
        let address = listener
            .local_addr()
            .map_err(|source| self.refused(source))?;
        let site = Arc::new(self.site());
        let (queue, workers) = workers::start(&site, self.routes, self.threads)?;
        let (stop, stopping) = watch::channel(false);
        let engine = Arc::new(Engine { site, queue });
        let network = engine::start(engine, listener, stopping)?;
        Ok(RunningServer::new(address, stop, network, workers))
    }

    fn bind(&self) -> Result<TcpListener> {
        TcpListener::bind(&self.listen).map_err(|source| self.refused(source))
    }

    fn refused(&self, source: std::io::Error) -> Error {
        Error::Io {
            action: "listen on",
            path: PathBuf::from(&self.listen),
            source,
        }
    }

    fn site(&self) -> Site {
        Site {
            sources: vec![Source::new(
                self.database.target(),
                self.database.clone(),
                None,
            )],
            sections: sections(self.routes),
            settings: SiteSettings {
                base_path: String::new(),
                read_only: self.read_only,
                local_name: "local".to_owned(),
                promises: self.promises.clone(),
            },
            assets: Assets::default(),
        }
    }
}

/// Returns the entries of the navigation that have a page.
fn sections(routes: &[Route]) -> Vec<Section> {
    let has_page = |section: &Section| {
        routes
            .iter()
            .any(|route| route.verb == Verb::Get && route.pattern == section.path())
    };
    Section::ALL.into_iter().filter(has_page).collect()
}
