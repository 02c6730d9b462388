//! The present state that several pages show: the processes, and the queues with their verdicts.

pub(crate) mod concerns;

use crate::read::doctor::scope::{Finding, Verdict};
use crate::read::now::{LoadNow, Promises, QueueView};
use crate::read::sql::fleet::FleetProcess;
use crate::read::sql::job_search::StateCounts;
use crate::read::sql::queues::{self, CountsByClass, CountsByQueue};
use crate::read::sql::totals::StateTotals;
use crate::web::cache::Cached;
use crate::web::read::concerns::{Concern, LastHour, UsualRuns};
use crate::web::show::{Markup, duration, state, verdict};
use std::collections::BTreeMap;
use std::time::Duration;
use windlass::failed::FailedGroups;
use windlass::history::{HistoryLag, SeriesTally, Totals};
use windlass::internal::clock;
use windlass::internal::db::query::ready::{CappedCount, ReadyJobs};
use windlass::internal::db::table::rates::RateGroup;
use windlass::internal::db::table::recurring_tasks;
use windlass::internal::error::ErrorContext as _;
use windlass::{Conn, Result};

pub(crate) use crate::read::now::QueueVerdict;

// --- The figures of a database, as one scrape reads them ---

/// The parts of the figures, each of which is read by itself.
pub(crate) const PARTS: [&str; 8] = [
    "history",
    "queues",
    "executions",
    "rates",
    "processes",
    "recurring",
    "database",
    "doctor",
];

/// The figures of a scrape. A part that was late or failed is `None`.
#[derive(Debug, Default)]
pub(crate) struct ScrapedFigures {
    pub(crate) history: Option<HistoryFigures>,
    pub(crate) queues: Option<ScrapedQueues>,
    pub(crate) executions: Option<ExecutionFigures>,
    pub(crate) rates: Option<RateFigures>,
    pub(crate) processes: Option<Vec<FleetProcess>>,
    pub(crate) recurring: Option<RecurringFigures>,
    pub(crate) database: Option<DatabaseFigures>,
    pub(crate) doctor: Option<DoctorFigures>,
    /// The time that the whole read took.
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

/// The groups of keys of rates, and the shared queues with the number of jobs that wait for a share.
#[derive(Debug)]
pub(crate) struct RateFigures {
    pub(crate) groups: BTreeMap<String, RateGroup>,
    pub(crate) shares: Vec<(String, u64)>,
}

/// The recurring tasks.
#[derive(Debug)]
pub(crate) struct RecurringFigures {
    pub(crate) known: u64,
    pub(crate) overdue: u64,
}

/// The figures that show a problem of the database, or of the jobs in it.
#[derive(Debug)]
pub(crate) struct DatabaseFigures {
    pub(crate) oldest_transaction: Option<f64>,
    pub(crate) wal_bytes: Option<u64>,
    pub(crate) crash_looping: i64,
}

/// The numbers of problems and warnings that each check of `doctor` has found.
#[derive(Debug, Default, Clone)]
pub(crate) struct DoctorFigures(pub(crate) BTreeMap<&'static str, CheckCounts>);

/// The numbers of problems and warnings of one check.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct CheckCounts {
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
    pub(crate) fn missing(&self) -> [bool; 8] {
        [
            self.history.is_none(),
            self.queues.is_none(),
            self.executions.is_none(),
            self.rates.is_none(),
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

// --- Reads of several pages, cached for a moment ---

/// The time for which the number of concerns is used.
const CONCERNS: Duration = Duration::from_secs(10);

/// The time for which that number, and the findings of `doctor`, are used if no newer read was in
/// time.
const STALE: Duration = Duration::from_secs(120);

/// The load, and the concerns that were found in it.
pub(crate) type LoadAndConcerns = (LoadNow, Vec<Concern>);

/// The last reads of one database, cached.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    pub(crate) findings: Cached<Vec<Finding>>,
    pub(crate) load: Cached<LoadAndConcerns>,
    pub(crate) counts: Cached<QueueStateCounts>,
    pub(crate) groups: Cached<FailedGroups>,
    pub(crate) states: Cached<StateCounts>,
    pub(crate) figures: Cached<DoctorFigures>,
    pub(crate) scraped: Cached<ScrapedQueues>,
    pub(crate) executions: Cached<ExecutionFigures>,
    pub(crate) hour: Cached<LastHour>,
    pub(crate) busiest: Cached<Vec<SeriesTally>>,
    pub(crate) usual_runs: Cached<UsualRuns>,
    concerns: Cached<u64>,
}

impl Watch {
    /// Reads the load and what needs attention, with the findings of `doctor` of the last two minutes.
    pub(crate) fn read(&self, conn: &mut Conn<'_>, promises: &Promises) -> Result<LoadAndConcerns> {
        let begun = self.concerns.begin(clock::instant());
        let findings = self.findings.get(clock::instant(), STALE);
        let findings = findings.map(|(findings, _)| findings).unwrap_or_default();
        let load = LoadNow::read(conn, promises)?;
        let now = recurring_tasks::now(conn).during("read the time")?;
        let concerns = concerns::find(conn, &load, &findings, now.and_utc())?;
        let count = u64::try_from(concerns.len()).unwrap_or(u64::MAX);
        self.concerns.set(begun, &count, CONCERNS);
        Ok((load, concerns))
    }

    /// Returns the number of concerns, as of at most ten seconds ago.
    pub(crate) fn recent_count(&self) -> Option<u64> {
        let cached = self.concerns.get(clock::instant(), CONCERNS);
        cached.map(|(count, _)| count)
    }

    /// Returns the number of concerns at the last read, if that was within two minutes.
    pub(crate) fn last_count(&self) -> Option<u64> {
        let cached = self.concerns.get(clock::instant(), STALE);
        cached.map(|(count, _)| count)
    }

    /// Forgets what a change may have changed.
    pub(crate) fn forget(&self) {
        self.load.forget();
        self.counts.forget();
        self.groups.forget();
        self.states.forget();
        self.scraped.forget();
        self.executions.forget();
        self.concerns.forget();
    }
}

// --- The executions of each queue that are not ready ---

/// The executions that are not ready, by queue.
#[derive(Debug, Clone, Default)]
pub(crate) struct QueueStateCounts {
    pub(crate) scheduled: CountsByQueue,
    pub(crate) claimed: CountsByQueue,
    pub(crate) blocked: CountsByQueue,
    pub(crate) failed: CountsByQueue,
    /// The failed ones once more, by their class as well.
    failed_classes: CountsByClass,
}

/// The executions of a queue, by class.
#[derive(Debug, Clone)]
pub(crate) struct ClassesOfQueue {
    pub(crate) counts: Vec<(String, CappedCount)>,
    /// True if only the newest of all queues were counted.
    pub(crate) is_more: bool,
}

impl QueueStateCounts {
    pub(crate) fn read(conn: &mut Conn<'_>) -> Result<Self> {
        let action = "count the jobs of each queue";
        let failed_classes = queues::failed(conn).during(action)?;
        Ok(QueueStateCounts {
            scheduled: queues::scheduled(conn).during(action)?,
            claimed: queues::claimed(conn).during(action)?,
            blocked: queues::blocked(conn).during(action)?,
            failed: failed_classes.by_queue(),
            failed_classes,
        })
    }

    /// Returns the jobs of a queue in each state.
    pub(crate) fn with_ready(&self, queue: &QueueView) -> StateTotals {
        let name = queue.name.as_str();
        StateTotals {
            ready: queue.ready,
            scheduled: self.scheduled.of(name),
            claimed: self.claimed.of(name),
            blocked: self.blocked.of(name),
            failed: self.failed.of(name),
        }
    }

    /// Returns the failed jobs of a queue by class.
    pub(crate) fn failed_classes(&self, queue: &str) -> ClassesOfQueue {
        let counts = self.failed_classes.of(queue);
        ClassesOfQueue {
            counts: counts
                .map(|(class, jobs)| (class.to_owned(), jobs))
                .collect(),
            is_more: self.failed.is_more(),
        }
    }

    fn all(&self) -> [&CountsByQueue; 4] {
        [&self.scheduled, &self.claimed, &self.blocked, &self.failed]
    }

    /// Returns the names of the queues, some more than once.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let names = self.all().into_iter().flat_map(CountsByQueue::names);
        names.filter(|name| !name.is_empty())
    }

    /// Returns whether there is more than was counted.
    pub(crate) fn is_more(&self) -> bool {
        self.all().into_iter().any(CountsByQueue::is_more)
    }
}

// --- The verdict about a queue, in HTML ---

impl QueueVerdict {
    /// Returns it in HTML.
    pub(crate) fn markup(self) -> Markup {
        match self {
            QueueVerdict::Late { promise } => {
                verdict("bad", &format!("late: promises {}", promised(promise)))
            }
            QueueVerdict::Unserved => verdict("warn", "no worker serves it"),
            QueueVerdict::Silent => verdict("bad", "its workers are dead"),
            QueueVerdict::Quiet => verdict("warn", "its workers are quiet or stopping"),
            QueueVerdict::Paused => state("pause ink", "paused"),
            QueueVerdict::InTime { promise } => {
                verdict("ok", &format!("in time: promises {}", promised(promise)))
            }
            QueueVerdict::Unjudged => Markup::default(),
            QueueVerdict::Empty => verdict("ok", "empty"),
        }
    }
}

fn promised(promise: Duration) -> String {
    duration(promise.as_secs_f64())
}
