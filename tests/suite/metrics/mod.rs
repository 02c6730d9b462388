//! The metrics that Prometheus scrapes, checked by its own `promtool`.

mod access;
mod counts;
mod docs;
mod faults;
mod listen;
mod outage;
mod page;
mod promtool;
mod scrape;

use crate::support::TestDb;
use crate::support::wait::until;
use windlass_console::web::{Probes, RunningServer};

/// An address that serves the metrics of a database.
pub struct Served {
    _server: RunningServer,
    pub address: String,
}

impl Served {
    pub fn of(db: &TestDb) -> Self {
        Self::start(Probes::new(&db.database))
    }

    pub fn start(probes: Probes) -> Self {
        let server = probes.listen("127.0.0.1:0").start().unwrap();
        Served {
            address: server.address().to_string(),
            _server: server,
        }
    }

    /// Scrapes until all figures are there: on a busy machine, a part may be late.
    pub fn scrape(&self) -> scrape::Scrape {
        let mut page = scrape::Scrape::default();
        until("no part is late", || {
            page = scrape::Scrape::of(&self.address);
            page.is_complete()
        });
        page
    }
}
