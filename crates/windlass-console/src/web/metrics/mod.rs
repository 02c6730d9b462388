//! `/metrics`: what Prometheus scrapes. The counters come from the history, so one address has the whole
//! fleet, and none goes back when a process ends.

mod page;
mod text;

use crate::read::doctor::processes as doctor_processes;
use crate::read::doctor::scope::CheckScope;
use crate::read::sql::doctor::{self, Rule};
use crate::read::sql::frame;
use crate::read::sql::{fleet, tasks, totals};
use crate::web::access::viewer::Need;
use crate::web::http::{PageError, Response};
use crate::web::metrics::text::TextFormat;
use crate::web::read::{
    DatabaseFigures, DoctorFigures, ExecutionFigures, HistoryFigures, RateFigures,
    RecurringFigures, ScrapedFigures, ScrapedQueues,
};
use crate::web::reads::{CachedRead, affordable};
use crate::web::request::panels::Panel;
use crate::web::request::route::Cx;
use std::time::Duration;
use windlass::internal::clock;
use windlass::internal::db::ping;
use windlass::internal::db::query::ready as ready_jobs;
use windlass::internal::db::table::{pauses, rates, shares};
use windlass::internal::error::ErrorContext as _;
use windlass::{Conn, Result};

/// Answers a scrape.
pub(crate) fn show(cx: &mut Cx<'_>) -> Result<Response, PageError> {
    cx.without_alone();
    let (site, processes) = (cx.site, &cx.site.processes);
    let format = TextFormat::accepted(Some(&cx.request.accept));
    let is_allowed = site.settings.metrics_open || Need::Viewer.is_met_by(cx.viewer.role);
    // Without the database, no token can be looked up, and the page has nothing of it either.
    if !is_allowed && is_readable(cx) {
        let says = "The metrics need a token, as `Authorization: Bearer TOKEN`.\n";
        let response = Response::text(says).with_status(401);
        return Ok(response.with_header("www-authenticate", "Bearer"));
    }
    let text = if cx.query().get("only") == Some("process") {
        page::own_page(format, processes)
    } else {
        let source = site.sources.get(cx.request.database);
        let source = source.filter(|_| is_allowed);
        let figures = source.and_then(|source| source.metrics.figures(|| collect(cx)));
        page::page(format, processes, figures.as_deref())
    };
    let response = Response::of_type(format.content_type(), text.into_bytes());
    Ok(response.with_header("vary", "accept, accept-encoding"))
}

// --- Reads the figures of a database, part by part ---

/// A scheduled job counts as late when it has been due for this many seconds.
const LATE_JOB: u32 = 10;

/// A recurring task counts as overdue when it has been due for this many seconds.
const LATE_TASK: u32 = 60;

/// The most overdue tasks that are counted.
const MOST_TASKS: i64 = 1_000;

/// The most paused queues that are shown.
const MOST_PAUSES: i64 = 1_000;

/// Returns whether the database answers, and has its tables.
pub(crate) fn is_readable(cx: &mut Cx<'_>) -> bool {
    cx.read(|conn| ping(conn).during("reach the database"))
        .is_ok()
}

/// The least time between two runs of the checks of `doctor`.
const DOCTOR: Duration = Duration::from_secs(60);

/// The numbers of problems and warnings that `doctor` finds.
static FIGURES: CachedRead<DoctorFigures> = CachedRead {
    slot: |source| &source.watch.figures,
    read: |conn, _, _| findings(conn),
    lifetime: |_, _| DOCTOR,
    live: Duration::ZERO,
};

/// The queues, which are counted up to a bound.
static QUEUES: CachedRead<ScrapedQueues> = CachedRead {
    slot: |source| &source.watch.scraped,
    read: |conn, _, _| queues_now(conn),
    lifetime: |queues, took| {
        let is_large = queues.ready.iter().any(|queue| queue.ready.is_more);
        if is_large {
            affordable(took)
        } else {
            Duration::ZERO
        }
    },
    live: Duration::ZERO,
};

/// The jobs in each state, which are counted up to a bound.
static EXECUTIONS: CachedRead<ExecutionFigures> = CachedRead {
    slot: |source| &source.watch.executions,
    read: |conn, _, _| executions(conn),
    lifetime: |figures, took| {
        let is_large = figures.totals.is_more();
        if is_large {
            affordable(took)
        } else {
            Duration::ZERO
        }
    },
    live: Duration::ZERO,
};

/// Reads all figures. Returns `None` if the database is away, or has no tables.
pub(crate) fn collect(cx: &mut Cx<'_>) -> Option<ScrapedFigures> {
    let start = clock::instant();
    if !is_readable(cx) {
        return None;
    }
    let queues = cx.cached_panel("the queues", &QUEUES);
    let executions = cx.cached_panel("the jobs by state", &EXECUTIONS);
    let mut figures = ScrapedFigures {
        history: part(cx, "the history", history)?,
        queues: ready(cx, queues)?.map(|(queues, _)| queues),
        executions: ready(cx, executions)?.map(|(executions, _)| executions),
        rates: part(cx, "the rates", |conn| {
            let groups = rates::groups(conn).during("count the jobs at rates")?;
            let shares = shares::waiting_jobs(conn).during("count the jobs of tenants")?;
            Ok(RateFigures { groups, shares })
        })?,
        processes: part(cx, "the processes", |conn| {
            fleet::processes(conn).during("list the processes")
        })?,
        recurring: part(cx, "the recurring tasks", recurring)?,
        database: part(cx, "the state of the database", database)?,
        ..ScrapedFigures::default()
    };
    let doctor = cx.cached_panel("the findings of doctor", &FIGURES);
    figures.doctor = ready(cx, doctor)?.map(|(found, _)| found);
    figures.took = clock::instant() - start;
    Some(figures)
}

/// Reads a part. Returns `None` if the database is away, and `Some(None)` if the part is missing.
fn part<T>(
    cx: &mut Cx<'_>,
    what: &'static str,
    work: impl FnOnce(&mut Conn<'_>) -> Result<T>,
) -> Option<Option<T>> {
    let part = cx.panel(what, work);
    ready(cx, part)
}

fn ready<T>(cx: &Cx<'_>, part: Panel<T>) -> Option<Option<T>> {
    let part = match part {
        Panel::Ready(part) => Some(part),
        Panel::Missing(_) => None,
    };
    (!cx.is_away()).then_some(part)
}

fn history(conn: &mut Conn<'_>) -> Result<HistoryFigures> {
    Ok(HistoryFigures {
        totals: windlass::history::totals(conn)?,
        lag: windlass::history::lag(conn)?,
    })
}

fn queues_now(conn: &mut Conn<'_>) -> Result<ScrapedQueues> {
    let paused = pauses::list_pauses(conn, MOST_PAUSES).during("list the paused queues")?;
    Ok(ScrapedQueues {
        ready: ready_jobs::ready(conn).during("count the ready jobs")?,
        paused: paused.into_iter().map(|one| one.queue_name).collect(),
    })
}

fn executions(conn: &mut Conn<'_>) -> Result<ExecutionFigures> {
    Ok(ExecutionFigures {
        totals: totals::totals(conn).during("count the jobs by state")?,
        late: frame::late_scheduled(conn, LATE_JOB).during("count the late jobs")?,
    })
}

fn recurring(conn: &mut Conn<'_>) -> Result<RecurringFigures> {
    let counts = tasks::totals(conn).during("count the recurring tasks")?;
    let overdue = tasks::overdue(conn, LATE_TASK, MOST_TASKS);
    let overdue = overdue.during("look for overdue tasks")?;
    Ok(RecurringFigures {
        known: counts.known.count.saturating_sub(counts.paused.count),
        overdue: overdue.len() as u64,
    })
}

fn database(conn: &mut Conn<'_>) -> Result<DatabaseFigures> {
    let version = doctor::version(conn).during("look at the database")?;
    let log = (!version.file.is_empty()).then(|| format!("{}-wal", version.file));
    Ok(DatabaseFigures {
        oldest_transaction: frame::oldest_transaction(conn)
            .during("look for the oldest transaction")?,
        // Without a log, nothing was written yet.
        wal_bytes: log.map(|log| std::fs::metadata(log).map_or(0, |file| file.len())),
        crash_looping: frame::crash_looping(conn).during("look for jobs that crash")?,
    })
}

/// Runs the checks of `doctor` that cost little: its rules for the newest rows only, and what it
/// says of the processes.
fn findings(conn: &mut Conn<'_>) -> Result<DoctorFigures> {
    let mut figures = DoctorFigures::default();
    for rule in Rule::ALL {
        let wrong = totals::inconsistent(conn, rule).during("check the newest rows")?;
        let found = figures.0.entry(rule.check()).or_default();
        found.problems = u64::try_from(wrong.count).unwrap_or(0);
    }
    figures.add(&doctor_processes::check(conn, CheckScope::Newest)?);
    Ok(figures)
}
