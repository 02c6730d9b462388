//! The probes that workers and supervisors answer, as configured.

use crate::config::configuration::Config;
use crate::config::document::Origin;
use crate::db::Database;
use crate::error::Result;
use crate::process::supervisor::Supervisor;
use crate::process::worker::builder::Worker;

/// A process that may answer probes.
pub(crate) trait Probed: Sized {
    #[cfg(feature = "web")]
    fn probed(self, probes: crate::web::Probes) -> Self;
}

impl Probed for Worker {
    #[cfg(feature = "web")]
    fn probed(self, probes: crate::web::Probes) -> Self {
        self.probes(probes)
    }
}

impl Probed for Supervisor {
    #[cfg(feature = "web")]
    fn probed(self, probes: crate::web::Probes) -> Self {
        self.probes(probes)
    }
}

impl Config {
    /// Returns the process with its probes, if it has any.
    #[cfg(feature = "web")]
    pub(crate) fn listening<P: Probed>(
        &self,
        listen: &str,
        _origin: &Origin,
        database: &Database,
        process: P,
    ) -> Result<P> {
        if listen.is_empty() {
            return Ok(process);
        }
        let probes = crate::web::Probes::new(database)
            .listen(listen)
            .metrics_open(self.supervisor.metrics_open);
        Ok(process.probed(probes))
    }

    /// # Errors
    /// If it should listen: this program cannot.
    #[cfg(not(feature = "web"))]
    pub(crate) fn listening<P: Probed>(
        &self,
        listen: &str,
        origin: &Origin,
        _database: &Database,
        process: P,
    ) -> Result<P> {
        if listen.is_empty() {
            return Ok(process);
        }
        let message = "`listen` is set, and this program was built without the feature `web`: build it with it";
        let problem = origin.problem(message.to_owned());
        Err(crate::error::Error::Configuration(vec![problem]))
    }
}
