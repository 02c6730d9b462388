//! The reads that pages share. On a large database they cost much, and its numbers are bounds anyway;
//! on a small one they are read each time, so that a page shows what has just changed.

use crate::admin::doctor;
use crate::admin::doctor::scope::{CheckScope, Finding};
use crate::admin::groups::{FailedGroups, failed_groups};
use crate::db::query::pages::job_search::{self, StateCounts};
use crate::error::Doing as _;
use crate::history::SeriesTally;
use crate::web::read::last_hour::{self, LastHour};
use crate::web::read::places::PlaceCounts;
use crate::web::read::watch::Found;
use crate::web::reads::shared::{SharedRead, affordable};
use std::time::Duration;

/// The most groups of failed jobs that are read, those that failed last.
const MOST_GROUPS: u32 = 200;

/// How old the history may be in a page that is brought up to date: its buckets are minutes.
const HISTORY: Duration = Duration::from_secs(10);

/// What needs attention, and the load.
pub(crate) static LOOK: SharedRead<Found> = SharedRead {
    place: |source| &source.watch.look,
    read: |conn, source, settings| source.watch.look(conn, &settings.promises),
    lifetime: |(load, _), took| {
        let is_large = load.queues.values().any(|queue| queue.ready.is_more);
        lifetime(is_large || load.is_more, took)
    },
    live: Duration::ZERO,
};

/// How long the findings of `doctor` are used.
const CHECKS: Duration = Duration::from_secs(60);

/// The findings of `doctor` for the newest rows.
pub(crate) static FINDINGS: SharedRead<Vec<Finding>> = SharedRead {
    place: |source| &source.watch.findings,
    read: |conn, _, _| doctor::look(conn, CheckScope::Newest),
    lifetime: |_, _| CHECKS,
    live: CHECKS,
};

/// The executions that are not ready, by queue.
pub(crate) static PLACES: SharedRead<PlaceCounts> = SharedRead {
    place: |source| &source.watch.places,
    read: |conn, _, _| PlaceCounts::read(conn),
    lifetime: |counts, took| lifetime(counts.is_more(), took),
    live: Duration::ZERO,
};

/// The groups of failed jobs.
pub(crate) static GROUPS: SharedRead<FailedGroups> = SharedRead {
    place: |source| &source.watch.groups,
    read: |conn, _, _| failed_groups(conn, MOST_GROUPS),
    lifetime: |groups, took| {
        let is_large = groups.groups.iter().any(|group| !group.is_exact);
        lifetime(is_large || !groups.is_complete, took)
    },
    live: Duration::ZERO,
};

/// The number of jobs in each state.
pub(crate) static STATE_COUNTS: SharedRead<StateCounts> = SharedRead {
    place: |source| &source.watch.states,
    read: |conn, _, _| job_search::counts(conn).doing("count the jobs"),
    lifetime: |counts, took| lifetime(counts.is_more(), took),
    live: Duration::ZERO,
};

/// The history of the last hour.
pub(crate) static LAST_HOUR: SharedRead<LastHour> = SharedRead {
    place: |source| &source.watch.hour,
    read: |conn, _, _| LastHour::read(conn),
    lifetime: |_, _| Duration::ZERO,
    live: HISTORY,
};

/// The classes of which most jobs have ended in the last hour.
pub(crate) static BUSIEST: SharedRead<Vec<SeriesTally>> = SharedRead {
    place: |source| &source.watch.busiest,
    read: |conn, _, _| last_hour::busiest_classes(conn),
    lifetime: |_, _| Duration::ZERO,
    live: HISTORY,
};

fn lifetime(is_large: bool, took: Duration) -> Duration {
    if is_large {
        affordable(took)
    } else {
        Duration::ZERO
    }
}
