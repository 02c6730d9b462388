//! Reads a look: each part in a read-only transaction of its own, within its time limit.

use crate::admin::doctor;
use crate::admin::doctor::scope::CheckScope;
use crate::admin::groups::failed_groups;
use crate::admin::now::{Fleet, LoadNow, Member, Promises};
use crate::cli::top::look::{
    FleetLines, HourCurves, LookPart, QueueLines, TopFindings, TopLook, TopQueue,
};
use crate::clock;
use crate::db::conn::reading::{ReadConnection, ReadFailure};
use crate::db::query::load::fleet::{self, HeldJob};
use crate::db::query::load::queues::{self, MOST_QUEUES};
use crate::db::query::load::totals;
use crate::db::schema::migrate;
use crate::db::table::recurring_tasks;
use crate::db::{Conn, Database};
use crate::error::{Doing as _, Result};
use crate::history::rates::{QueueRate, rates};
use crate::history::read::{HistoryFilter, TimeRange, series};
use std::collections::BTreeMap;
use std::time::Duration;

/// The time limit of a part.
const READ: Duration = Duration::from_secs(1);

/// The time limit for connecting.
const CONNECT: Duration = Duration::from_secs(2);

/// Over which time rates are measured.
const RATES: Duration = Duration::from_secs(5 * 60);

/// How many held jobs are read, the oldest.
const HELD: i64 = 1_000;

/// How many groups of failed jobs are read.
const GROUPS: u32 = 50;

/// Reads one database.
#[derive(Debug)]
pub(crate) struct LookReader {
    database: Database,
    connection: Option<ReadConnection>,
}

impl LookReader {
    /// Connects, and checks the tables.
    ///
    /// # Errors
    /// If the database cannot be opened, or its tables are not those of this version.
    pub(crate) fn open(database: &Database) -> Result<Self> {
        let mut connection = database.connect_to_read(CONNECT)?;
        let checked = connection.read(CONNECT, |conn| migrate::check(conn, database));
        checked.map_err(|failure| match failure {
            ReadFailure::Failed(error) => error,
            ReadFailure::Late | ReadFailure::Cut => {
                database.refused(&database.target(), "no answer".to_owned())
            }
            ReadFailure::Lost(reason) => database.refused(&database.target(), reason),
        })?;
        Ok(LookReader {
            database: database.clone(),
            connection: Some(connection),
        })
    }

    /// Looks at everything but the findings.
    ///
    /// # Errors
    /// Why the database is away.
    pub(crate) fn look(&mut self) -> Result<TopLook, String> {
        let at = clock::instant();
        let now = self.part(|conn| recurring_tasks::now(conn).doing("read the time"))?;
        let now = match now {
            LookPart::Read(now) => now,
            LookPart::Late => return Err("no answer within 1 s".to_owned()),
            LookPart::Failed(reason) => return Err(reason),
        };
        let rates = self.part(|conn| rates(conn, RATES))?;
        let known = rates.value().map_or(&[][..], Vec::as_slice);
        Ok(TopLook {
            at,
            now,
            totals: self.part(|conn| totals::totals(conn).doing("count the jobs"))?,
            queues: self.part(|conn| read_queues(conn, known))?,
            fleet: self.part(read_fleet)?,
            curves: self.part(|conn| read_curves(conn, known))?,
            failures: self.part(|conn| failed_groups(conn, GROUPS))?,
        })
    }

    /// Looks at the findings of `doctor` about the newest rows.
    ///
    /// # Errors
    /// Why the database is away.
    pub(crate) fn findings(&mut self) -> Result<TopFindings, String> {
        Ok(TopFindings {
            at: clock::instant(),
            findings: self.part(|conn| doctor::look(conn, CheckScope::Newest))?,
        })
    }

    /// Reads a part.
    ///
    /// # Errors
    /// Why the database is away.
    fn part<T>(
        &mut self,
        work: impl FnOnce(&mut Conn<'_>) -> Result<T>,
    ) -> Result<LookPart<T>, String> {
        let opened = match self.connection.take() {
            Some(connection) => Ok(connection),
            None => self.database.connect_to_read(CONNECT),
        };
        let mut connection = opened.map_err(|error| error.to_string())?;
        let (part, is_kept) = match connection.read(READ, work) {
            Ok(value) => (LookPart::Read(value), true),
            Err(ReadFailure::Late) => (LookPart::Late, true),
            Err(ReadFailure::Cut) => (LookPart::Late, false),
            Err(ReadFailure::Failed(error)) => (LookPart::Failed(error.to_string()), false),
            Err(ReadFailure::Lost(reason)) => return Err(reason),
        };
        self.connection = Some(connection).filter(|_| is_kept);
        Ok(part)
    }
}

/// Reads the queues that have ready, running or lately ended jobs, or are paused.
fn read_queues(conn: &mut Conn<'_>, rates: &[QueueRate]) -> Result<QueueLines> {
    let promises = Promises::new();
    let mut load = LoadNow::read(conn, &promises)?;
    let claimed = queues::claimed(conn).doing("look at the queues")?;
    let most = usize::try_from(MOST_QUEUES).unwrap_or(usize::MAX);
    let others = claimed
        .names()
        .chain(rates.iter().map(|rate| &*rate.queue))
        .take(most);
    for name in others.filter(|name| !name.is_empty()) {
        load.add_empty(name, &promises);
    }
    let rates: BTreeMap<&str, &QueueRate> = rates.iter().map(|rate| (&*rate.queue, rate)).collect();
    let lines = load.worst_first().into_iter().map(|queue| {
        let rate = rates.get(&*queue.name);
        TopQueue {
            running: claimed.of(&queue.name),
            finished: rate.map_or(0.0, |rate| rate.finished_per_minute),
            failed: rate.map_or(0.0, |rate| rate.failed_per_minute),
            queue: queue.clone(),
        }
    });
    Ok(QueueLines {
        lines: lines.collect(),
        is_more: load.is_more,
    })
}

fn read_fleet(conn: &mut Conn<'_>) -> Result<FleetLines> {
    let fleet = Fleet::read(conn)?;
    let held = fleet::oldest(conn, HELD).doing("look at the jobs that run")?;
    let mut by_process: BTreeMap<i64, Vec<HeldJob>> = BTreeMap::new();
    for job in held.into_iter().filter(|job| !job.is_ahead) {
        let process = job.process_id.unwrap_or_default();
        by_process.entry(process).or_default().push(job);
    }
    let (threads, is_more) = (fleet.threads(), fleet.is_more);
    let members = fleet.members.into_iter().map(|member| {
        let jobs = by_process.remove(&member.row.id).unwrap_or_default();
        (member, jobs)
    });
    Ok(FleetLines {
        members: worst_first(members.collect()),
        is_more,
        threads,
    })
}

/// Puts dead processes first, then those that claim nothing more; the others stay as they were
/// registered.
pub(crate) fn worst_first(mut members: Vec<(Member, Vec<HeldJob>)>) -> Vec<(Member, Vec<HeldJob>)> {
    members.sort_by_key(|(member, _)| {
        let is_ending = member.is_quiet() || member.row.draining;
        (!member.is_dead(), !is_ending)
    });
    members
}

fn read_curves(conn: &mut Conn<'_>, rates: &[QueueRate]) -> Result<HourCurves> {
    let buckets = series(conn, &HistoryFilter::all(), TimeRange::Hour)?;
    let millis = |wait: Duration| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
    let sum = |of: fn(&QueueRate) -> f64| rates.iter().map(of).sum();
    Ok(HourCurves {
        finished: buckets.iter().map(|one| one.tally.finished).collect(),
        failed: buckets.iter().map(|one| one.tally.failed).collect(),
        waits: buckets
            .iter()
            .map(|one| one.tally.wait.quantile(0.99).map(millis))
            .collect(),
        finished_now: sum(|rate| rate.finished_per_minute),
        failed_now: sum(|rate| rate.failed_per_minute),
    })
}
