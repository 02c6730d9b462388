//! A server as `[web]` of a configuration describes it.

use crate::config::configuration::Config;
use crate::web::server::Server;
use windlass::{Database, Result};

impl Config {
    /// Returns the server of the web pages, as `[web]` describes it, for this database and the others
    /// that are named there.
    ///
    /// ```no_run
    /// # fn main() -> windlass::Result<()> {
    /// let config = windlass_console::Config::find()?;
    /// let server = config.web(&config.database()?)?.start()?;
    /// # server.wait();
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// If an address is wrong.
    pub fn web(&self, database: &Database) -> Result<Server> {
        let web = &self.web;
        let mut server = Server::new(database)
            .name(web.name.clone())
            .listen(web.listen.clone())
            .base_path(web.base_path.clone())
            .read_only(web.read_only)
            .metrics_open(web.metrics_open)
            .session_times(web.session_idle, web.session_lifetime)
            .threads(web.threads as usize);
        for settings in &self.queues {
            if let Some((max_wait, _)) = settings.max_wait {
                server = server.max_wait(&settings.queue, max_wait);
            }
        }
        if !web.replica.is_empty() {
            server = server.replica(&web.replica)?;
        }
        for (name, address) in &web.databases {
            server = server.database(name, &Database::open(address)?);
        }
        server.hosts = web.hosts.clone();
        server.trusted_proxies = web.trusted_proxies.clone();
        server.operators = web.operators.clone();
        let set = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        server.public_origin = set(&web.public_origin);
        server.user_header = set(&web.user_header);
        Ok(server)
    }
}
