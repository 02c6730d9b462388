//! Reads a snapshot: each part in a read-only transaction of its own, within its time limit.

use crate::read::doctor;
use crate::read::doctor::scope::{CheckScope, Finding};
use crate::read::now::{Fleet, LoadNow, Member, Promises, QueueView};
use crate::read::sql::fleet::{self, HeldJob};
use crate::read::sql::queues;
use crate::read::sql::totals::{self, StateTotals};
use chrono::NaiveDateTime;
use crossbeam_channel::{Receiver, Sender, bounded};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use windlass::failed::FailedGroups;
use windlass::history::{HistoryFilter, QueueRate, TimeRange, rates, series};
use windlass::internal::clock;
use windlass::internal::db::conn::reading::{ReadConnection, ReadFailure};
use windlass::internal::db::query::ready::{CappedCount, MOST_QUEUES};
use windlass::internal::db::schema::migrate;
use windlass::internal::db::table::recurring_tasks;
use windlass::internal::error::ErrorContext as _;
use windlass::internal::process::base::stop;
use windlass::{Conn, Database, Result, failed};

/// The time limit of a part.
const READ: Duration = Duration::from_secs(1);

/// The time limit for connecting.
const CONNECT: Duration = Duration::from_secs(2);

/// Over which time rates are measured.
const RATES: Duration = Duration::from_secs(5 * 60);

/// The most held jobs that are read, the oldest.
const HELD: i64 = 1_000;

/// The most groups of failed jobs that are read.
const GROUPS: u32 = 50;

/// Reads one database.
#[derive(Debug)]
pub(crate) struct SnapshotReader {
    database: Database,
    connection: Option<ReadConnection>,
}

impl SnapshotReader {
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
        Ok(SnapshotReader {
            database: database.clone(),
            connection: Some(connection),
        })
    }

    /// Reads everything but the findings.
    ///
    /// # Errors
    /// Why the database is away.
    pub(crate) fn snapshot(&mut self) -> Result<Snapshot, String> {
        let at = clock::instant();
        let now = self.part(|conn| recurring_tasks::now(conn).during("read the time"))?;
        let now = match now {
            ReadPart::Read(now) => now,
            ReadPart::Late => return Err("no answer within 1 s".to_owned()),
            ReadPart::Failed(reason) => return Err(reason),
        };
        let rates = self.part(|conn| rates(conn, RATES))?;
        let known = rates.value().map_or(&[][..], Vec::as_slice);
        Ok(Snapshot {
            at,
            now,
            totals: self.part(|conn| totals::totals(conn).during("count the jobs"))?,
            queues: self.part(|conn| read_queues(conn, known))?,
            fleet: self.part(read_fleet)?,
            curves: self.part(|conn| read_curves(conn, known))?,
            failures: self.part(|conn| failed::groups(conn, GROUPS))?,
        })
    }

    /// Reads the findings of `doctor` about the newest rows.
    ///
    /// # Errors
    /// Why the database is away.
    pub(crate) fn findings(&mut self) -> Result<TopFindings, String> {
        Ok(TopFindings {
            at: clock::instant(),
            findings: self.part(|conn| doctor::check(conn, CheckScope::Newest))?,
        })
    }

    /// Reads a part.
    ///
    /// # Errors
    /// Why the database is away.
    fn part<T>(
        &mut self,
        work: impl FnOnce(&mut Conn<'_>) -> Result<T>,
    ) -> Result<ReadPart<T>, String> {
        let opened = match self.connection.take() {
            Some(connection) => Ok(connection),
            None => self.database.connect_to_read(CONNECT),
        };
        let mut connection = opened.map_err(|error| error.to_string())?;
        let (part, is_usable) = match connection.read(READ, work) {
            Ok(value) => (ReadPart::Read(value), true),
            Err(ReadFailure::Late) => (ReadPart::Late, true),
            Err(ReadFailure::Cut) => (ReadPart::Late, false),
            Err(ReadFailure::Failed(error)) => (ReadPart::Failed(error.to_string()), false),
            Err(ReadFailure::Lost(reason)) => return Err(reason),
        };
        self.connection = Some(connection).filter(|_| is_usable);
        Ok(part)
    }
}

/// Reads the queues that have ready, running or lately ended jobs, or are paused.
fn read_queues(conn: &mut Conn<'_>, rates: &[QueueRate]) -> Result<QueueLines> {
    let promises = Promises::new();
    let mut load = LoadNow::read(conn, &promises)?;
    let claimed = queues::claimed(conn).during("look at the queues")?;
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
    let held = fleet::oldest(conn, HELD).during("look at the jobs that run")?;
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

// --- The result of one read of the database ---

/// A part of a snapshot.
#[derive(Debug, Clone)]
pub(crate) enum ReadPart<T> {
    Read(T),
    /// It was not read within its time limit.
    Late,
    /// It failed, for this reason.
    Failed(String),
}

impl<T> ReadPart<T> {
    pub(crate) fn value(&self) -> Option<&T> {
        match self {
            ReadPart::Read(value) => Some(value),
            ReadPart::Late | ReadPart::Failed(_) => None,
        }
    }

    /// Returns why the part is missing.
    pub(crate) fn problem(&self) -> Option<String> {
        match self {
            ReadPart::Read(_) => None,
            ReadPart::Late => Some("not read within 1 s".to_owned()),
            ReadPart::Failed(reason) => Some(reason.clone()),
        }
    }
}

/// The figures that were read at one moment.
#[derive(Debug, Clone)]
pub(crate) struct Snapshot {
    /// The time of its start.
    pub(crate) at: Instant,
    /// The database's time.
    pub(crate) now: NaiveDateTime,
    pub(crate) totals: ReadPart<StateTotals>,
    pub(crate) queues: ReadPart<QueueLines>,
    pub(crate) fleet: ReadPart<FleetLines>,
    pub(crate) curves: ReadPart<HourCurves>,
    pub(crate) failures: ReadPart<FailedGroups>,
}

/// The queues, the worst first.
#[derive(Debug, Clone, Default)]
pub(crate) struct QueueLines {
    pub(crate) lines: Vec<TopQueue>,
    /// True if there are more queues.
    pub(crate) is_more: bool,
}

/// A queue.
#[derive(Debug, Clone)]
pub(crate) struct TopQueue {
    pub(crate) queue: QueueView,
    pub(crate) running: CappedCount,
    /// Finished jobs per minute.
    pub(crate) finished: f64,
    /// Permanently failed jobs per minute.
    pub(crate) failed: f64,
}

/// The processes, each with the jobs that it holds.
#[derive(Debug, Clone, Default)]
pub(crate) struct FleetLines {
    pub(crate) members: Vec<(Member, Vec<HeldJob>)>,
    /// True if there are more processes.
    pub(crate) is_more: bool,
    /// The threads of living workers, and how many of them run a job.
    pub(crate) threads: (u64, u64),
}

/// The last 60 minutes, the oldest first; the last one has not ended.
#[derive(Debug, Clone, Default)]
pub(crate) struct HourCurves {
    pub(crate) finished: Vec<u64>,
    pub(crate) failed: Vec<u64>,
    /// In milliseconds, the time that 99 % of the jobs waited at most. `None` where none started.
    pub(crate) waits: Vec<Option<u64>>,
    /// Per minute, over the last five minutes.
    pub(crate) finished_now: f64,
    pub(crate) failed_now: f64,
}

/// The findings of `doctor`, and when they were read.
#[derive(Debug, Clone)]
pub(crate) struct TopFindings {
    pub(crate) at: Instant,
    pub(crate) findings: ReadPart<Vec<Finding>>,
}

// --- The thread that reads ---

/// A request to the thread that reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadRequest {
    Snapshot,
    Findings,
}

/// The result of a read, or the reason why the database is away.
#[derive(Debug, Clone)]
pub(crate) enum ReadAnswer {
    Snapshot(Box<Snapshot>),
    Findings(TopFindings),
    Away(String),
}

/// The thread, by its channels.
#[derive(Debug)]
pub(crate) struct Sampler {
    requests: Sender<ReadRequest>,
    answers: Receiver<ReadAnswer>,
}

/// The most requests under way, and the most answers: one of each kind.
const UNDER_WAY: usize = 2;

impl Sampler {
    /// Starts the thread. It ends when this is dropped; nothing waits for it.
    ///
    /// # Errors
    /// If the system refuses a thread.
    pub(crate) fn start(mut reader: SnapshotReader) -> Result<Self> {
        let (requests, incoming) = bounded(UNDER_WAY);
        let (outgoing, answers) = bounded(UNDER_WAY);
        stop::spawn("top-reader", move || {
            for request in &incoming {
                let answer = match request {
                    ReadRequest::Snapshot => reader
                        .snapshot()
                        .map(|snapshot| ReadAnswer::Snapshot(Box::new(snapshot))),
                    ReadRequest::Findings => reader.findings().map(ReadAnswer::Findings),
                };
                if outgoing
                    .send(answer.unwrap_or_else(ReadAnswer::Away))
                    .is_err()
                {
                    return;
                }
            }
        })?;
        Ok(Sampler { requests, answers })
    }

    /// Asks for something. Returns whether the thread could take the request.
    pub(crate) fn ask(&self, request: ReadRequest) -> bool {
        self.requests.try_send(request).is_ok()
    }

    /// Returns an answer, if there is one.
    pub(crate) fn answer(&self) -> Option<ReadAnswer> {
        self.answers.try_recv().ok()
    }
}
