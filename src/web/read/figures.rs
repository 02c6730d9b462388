//! The figures of a database, as one scrape reads them.

use crate::admin::doctor::scope::{Finding, Verdict};
use crate::db::query::load::fleet::FleetProcess;
use crate::db::query::load::queues::ReadyJobs;
use crate::db::query::load::totals::{CappedCount, StateTotals};
use crate::history::{HistoryLag, Totals};
use std::collections::BTreeMap;
use std::time::Duration;

/// The parts of the figures, each of which is read by itself.
pub(crate) const PARTS: [&str; 7] = [
    "history",
    "queues",
    "executions",
    "processes",
    "recurring",
    "database",
    "doctor",
];

/// What was read. A part that was late or failed is `None`.
#[derive(Debug, Default)]
pub(crate) struct ScrapedFigures {
    pub(crate) history: Option<HistoryFigures>,
    pub(crate) queues: Option<ScrapedQueues>,
    pub(crate) executions: Option<ExecutionFigures>,
    pub(crate) processes: Option<Vec<FleetProcess>>,
    pub(crate) recurring: Option<RecurringFigures>,
    pub(crate) database: Option<DatabaseFigures>,
    pub(crate) doctor: Option<DoctorFigures>,
    /// How long all of it took.
    pub(crate) took: Duration,
}

/// The history of the fleet.
#[derive(Debug)]
pub(crate) struct HistoryFigures {
    pub(crate) totals: Totals,
    pub(crate) lag: HistoryLag,
}

/// The queues with ready jobs, and those that are paused.
#[derive(Debug, Clone)]
pub(crate) struct ScrapedQueues {
    pub(crate) ready: Vec<ReadyJobs>,
    pub(crate) paused: Vec<String>,
}

/// The jobs in each state.
#[derive(Debug, Clone)]
pub(crate) struct ExecutionFigures {
    pub(crate) totals: StateTotals,
    pub(crate) late: i64,
}

/// The recurring tasks.
#[derive(Debug)]
pub(crate) struct RecurringFigures {
    pub(crate) known: u64,
    pub(crate) overdue: u64,
}

/// What can be wrong with the database, or with what runs on it.
#[derive(Debug)]
pub(crate) struct DatabaseFigures {
    pub(crate) oldest_transaction: Option<f64>,
    pub(crate) wal_bytes: Option<u64>,
    pub(crate) crash_looping: i64,
}

/// How many problems and warnings each check of `doctor` has found.
#[derive(Debug, Default, Clone)]
pub(crate) struct DoctorFigures(pub(crate) BTreeMap<&'static str, FoundByCheck>);

/// What one check has found.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct FoundByCheck {
    pub(crate) problems: u64,
    pub(crate) warnings: u64,
}

impl DoctorFigures {
    pub(crate) fn add(&mut self, findings: &[Finding]) {
        for finding in findings {
            let found = self.0.entry(finding.check).or_default();
            found.problems += u64::from(finding.verdict == Verdict::Problem);
            found.warnings += u64::from(finding.verdict == Verdict::Warning);
        }
    }
}

impl ScrapedFigures {
    /// Returns whether each part is missing, in the order of [`PARTS`].
    pub(crate) fn missing(&self) -> [bool; 7] {
        [
            self.history.is_none(),
            self.queues.is_none(),
            self.executions.is_none(),
            self.processes.is_none(),
            self.recurring.is_none(),
            self.database.is_none(),
            self.doctor.is_none(),
        ]
    }
}

/// Returns a bounded count as it is exposed: one more than its limit if there are more.
pub(crate) fn exposed(count: CappedCount) -> u64 {
    count.count + u64::from(count.is_more)
}
