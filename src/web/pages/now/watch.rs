//! What needs attention, kept for a moment: each page counts it, and looking is not free.

use crate::admin::doctor::{self, CheckScope};
use crate::admin::finding::Finding;
use crate::clock;
use crate::db::Conn;
use crate::db::table::recurring_tasks;
use crate::error::{Doing as _, Result};
use crate::web::pages::now::concern::Concern;
use crate::web::pages::now::concerns;
use crate::web::pages::now::queues::{LoadNow, Promises};
use crate::web::sql::kept::Kept;
use std::time::Duration;

/// How long the findings of `doctor` are used.
const FINDINGS: Duration = Duration::from_secs(60);

/// How long the number of concerns is used.
const CONCERNS: Duration = Duration::from_secs(10);

/// How long it is used if no newer look was in time.
const STALE: Duration = Duration::from_secs(120);

/// The last looks at one database.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    findings: Kept<Vec<Finding>>,
    concerns: Kept<u64>,
}

impl Watch {
    /// Returns the findings of `doctor` for the newest rows, at most a minute old, and their age.
    pub(crate) fn findings(&self, conn: &mut Conn<'_>) -> Result<(Vec<Finding>, Duration)> {
        if let Some(kept) = self.findings.get(clock::instant(), FINDINGS) {
            return Ok(kept);
        }
        let findings = doctor::look(conn, CheckScope::Newest)?;
        self.findings.set(clock::instant(), &findings);
        Ok((findings, Duration::ZERO))
    }

    /// Looks at the load and at what needs attention.
    pub(crate) fn look(
        &self,
        conn: &mut Conn<'_>,
        promises: &Promises,
    ) -> Result<(LoadNow, Vec<Concern>)> {
        let (findings, _) = self.findings(conn)?;
        let load = LoadNow::read(conn, promises)?;
        let now = recurring_tasks::now(conn).doing("read the time")?;
        let concerns = concerns::find(conn, &load, &findings, now.and_utc())?;
        let count = u64::try_from(concerns.len()).unwrap_or(u64::MAX);
        self.concerns.set(clock::instant(), &count);
        Ok((load, concerns))
    }

    /// Returns how many things need attention, as of at most ten seconds ago.
    pub(crate) fn kept_count(&self) -> Option<u64> {
        let kept = self.concerns.get(clock::instant(), CONCERNS);
        kept.map(|(count, _)| count)
    }

    /// Returns how many things needed attention at the last look, if that was within two minutes.
    pub(crate) fn last_count(&self) -> Option<u64> {
        let kept = self.concerns.get(clock::instant(), STALE);
        kept.map(|(count, _)| count)
    }
}
