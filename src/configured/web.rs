//! A server as `[web]` of a configuration describes it.

use crate::config::configuration::Config;
use crate::db::Database;
use crate::error::Result;
use crate::web::server::Server;

impl Config {
    /// Returns the server of the web pages, as `[web]` describes it, for this database and the others
    /// that are named there.
    ///
    /// ```no_run
    /// # fn main() -> windlass::Result<()> {
    /// let config = windlass::Config::find()?;
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
            .name(web.name.value.0.clone())
            .listen(web.listen.value.0.clone())
            .base_path(web.base_path.value.0.clone())
            .read_only(web.read_only.value)
            .metrics_open(web.metrics_open.value)
            .session_times(web.session_idle.value.0, web.session_lifetime.value.0)
            .threads(web.threads.value.0 as usize);
        for promise in &self.queues {
            server = server.max_wait(&promise.queue, promise.max_wait);
        }
        if !web.replica.value.0.is_empty() {
            server = server.replica(&web.replica.value.0)?;
        }
        for (name, address) in &web.databases.value.0 {
            server = server.database(name, &Database::open(address)?);
        }
        server.hosts = web.hosts.value.0.clone();
        server.trusted_proxies = web.trusted_proxies.value.0.clone();
        server.operators = web.operators.value.0.clone();
        let set = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        server.public_origin = set(&web.public_origin.value.0);
        server.user_header = set(&web.user_header.value.0);
        Ok(server)
    }
}
