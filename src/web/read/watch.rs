//! What several pages show of a database, kept for a moment: looking is not free.

use crate::admin::doctor::scope::Finding;
use crate::admin::groups::FailedGroups;
use crate::admin::now::{LoadNow, Promises};
use crate::clock;
use crate::db::Conn;
use crate::db::query::pages::job_search::StateCounts;
use crate::db::table::recurring_tasks;
use crate::error::{Doing as _, Result};
use crate::history::SeriesTally;
use crate::web::kept::Kept;
use crate::web::read::concern::Concern;
use crate::web::read::concerns;
use crate::web::read::figures::{DoctorFigures, ExecutionFigures, ScrapedQueues};
use crate::web::read::last_hour::{LastHour, UsualRuns};
use crate::web::read::places::PlaceCounts;
use std::time::Duration;

/// How long the number of concerns is used.
const CONCERNS: Duration = Duration::from_secs(10);

/// How long that, and the findings of `doctor`, are used if no newer look was in time.
const STALE: Duration = Duration::from_secs(120);

/// What needs attention, and the load that it was found in.
pub(crate) type Found = (LoadNow, Vec<Concern>);

/// The last looks at one database.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    pub(crate) findings: Kept<Vec<Finding>>,
    pub(crate) look: Kept<Found>,
    pub(crate) places: Kept<PlaceCounts>,
    pub(crate) groups: Kept<FailedGroups>,
    pub(crate) states: Kept<StateCounts>,
    pub(crate) figures: Kept<DoctorFigures>,
    pub(crate) scraped: Kept<ScrapedQueues>,
    pub(crate) executions: Kept<ExecutionFigures>,
    pub(crate) hour: Kept<LastHour>,
    pub(crate) busiest: Kept<Vec<SeriesTally>>,
    pub(crate) usual_runs: Kept<UsualRuns>,
    concerns: Kept<u64>,
}

impl Watch {
    /// Looks at the load and at what needs attention; of what `doctor` finds, at what it found within
    /// the last two minutes.
    pub(crate) fn look(&self, conn: &mut Conn<'_>, promises: &Promises) -> Result<Found> {
        let begun = self.concerns.begin(clock::instant());
        let findings = self.findings.get(clock::instant(), STALE);
        let findings = findings.map(|(findings, _)| findings).unwrap_or_default();
        let load = LoadNow::read(conn, promises)?;
        let now = recurring_tasks::now(conn).doing("read the time")?;
        let concerns = concerns::find(conn, &load, &findings, now.and_utc())?;
        let count = u64::try_from(concerns.len()).unwrap_or(u64::MAX);
        self.concerns.set(begun, &count, CONCERNS);
        Ok((load, concerns))
    }

    /// Returns the number of concerns, as of at most ten seconds ago.
    pub(crate) fn kept_count(&self) -> Option<u64> {
        let kept = self.concerns.get(clock::instant(), CONCERNS);
        kept.map(|(count, _)| count)
    }

    /// Returns the number of concerns at the last look, if that was within two minutes.
    pub(crate) fn last_count(&self) -> Option<u64> {
        let kept = self.concerns.get(clock::instant(), STALE);
        kept.map(|(count, _)| count)
    }

    /// Forgets what a change may have changed.
    pub(crate) fn forget(&self) {
        self.look.forget();
        self.places.forget();
        self.groups.forget();
        self.states.forget();
        self.scraped.forget();
        self.executions.forget();
        self.concerns.forget();
    }
}
