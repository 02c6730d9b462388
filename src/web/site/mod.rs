//! What the threads of a server share.

pub(crate) mod frame;
pub(crate) mod metrics_cache;
pub(crate) mod operations_wake;
pub(crate) mod outage;
pub(crate) mod section;
pub(crate) mod waits;

use crate::admin::now::Promises;
use crate::db::Database;
use crate::process::base::health::Health;
use crate::web::access::settings::Access;
use crate::web::assets::Assets;
use crate::web::live::hub::Hub;
use crate::web::live::seen::SeenPages;
use crate::web::read::watch::Watch;
use crate::web::site::frame::FrameCache;
use crate::web::site::metrics_cache::MetricsCache;
use crate::web::site::operations_wake::OperationsWake;
use crate::web::site::outage::{Outage, SetOnce};
use crate::web::site::section::Section;
use crate::web::site::waits::Waits;
use std::sync::Arc;

/// A database that is served.
#[derive(Debug)]
pub(crate) struct Source {
    /// Its name in addresses: `/db/<name>/..`, for all but the first.
    pub(crate) name: String,
    /// Where changes go.
    pub(crate) database: Database,
    /// Where reads go, if not to `database`.
    pub(crate) replica: Option<Database>,
    pub(crate) frame: FrameCache,
    pub(crate) metrics: MetricsCache,
    /// Whether what is read from is away.
    pub(crate) outage: Outage,
    /// Whether `database` is away, if something else is read from.
    changes_outage: Outage,
    /// Whether the tables were found to be in order.
    pub(crate) tables: SetOnce,
    /// What needs attention.
    pub(crate) watch: Arc<Watch>,
}

impl Source {
    pub(crate) fn new(name: String, database: Database, replica: Option<Database>) -> Self {
        Source {
            name,
            database,
            replica,
            frame: FrameCache::default(),
            metrics: MetricsCache::default(),
            outage: Outage::default(),
            changes_outage: Outage::default(),
            tables: SetOnce::default(),
            watch: Arc::default(),
        }
    }

    /// Returns whether `database` is away.
    pub(crate) fn primary_outage(&self) -> &Outage {
        match self.replica {
            Some(_) => &self.changes_outage,
            None => &self.outage,
        }
    }

    /// Forgets what a change may have changed.
    pub(crate) fn forget(&self) {
        self.watch.forget();
        self.frame.forget();
    }

    /// Returns the database that pages are read from.
    pub(crate) fn to_read(&self) -> &Database {
        self.replica.as_ref().unwrap_or(&self.database)
    }
}

/// Settings of a server that its threads use.
#[derive(Debug, Clone)]
pub(crate) struct SiteSettings {
    /// `/windlass`, or empty.
    pub(crate) base_path: String,
    /// Whether the metrics need no token.
    pub(crate) metrics_open: bool,
    /// How long a job may be ready before its queue is late.
    pub(crate) promises: Promises,
}

/// Everything but the network and the pages.
#[derive(Debug)]
pub(crate) struct Site {
    /// At least one.
    pub(crate) sources: Vec<Source>,
    /// What the navigation shows.
    pub(crate) sections: Vec<Section>,
    pub(crate) settings: SiteSettings,
    pub(crate) access: Access,
    /// The name of the session's cookie: cookies are shared by all ports of a host.
    pub(crate) session_cookie: String,
    /// Wakes the thread that runs operations.
    pub(crate) operations: OperationsWake,
    pub(crate) assets: Assets,
    /// The processes of this program, for which the probes answer.
    pub(crate) processes: Vec<Health>,
    /// The open pages.
    pub(crate) hub: Hub,
    /// The requests that wait for the end of a job.
    pub(crate) waits: Waits,
    /// What pages showed last.
    pub(crate) seen: SeenPages,
}

impl Site {
    /// Returns the path of the cookies.
    pub(crate) fn cookie_path(&self) -> &str {
        match self.settings.base_path.as_str() {
            "" => "/",
            base => base,
        }
    }

    /// Returns a link to a path such as `/queues` of one of the databases.
    pub(crate) fn link(&self, database: usize, path: &str) -> String {
        let base = &self.settings.base_path;
        match self.sources.get(database) {
            Some(source) if database > 0 => format!("{base}/db/{}{path}", source.name),
            _ => format!("{base}{path}"),
        }
    }
}
