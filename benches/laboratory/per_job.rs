//! The interface of `benches/per_job.rs`: the work of a worker for each job apart from the
//! database, with the worker's real parts.
//!
//! This is not part of the public API, and changes with the internals.

use crate::db::conn::connection::AsConn;
use crate::db::model::claim::{
    Begins, ClaimQueues, ClaimRequest, Claimed, Claims as Found, FinishedRow,
};
use crate::db::model::new_row::NewRow;
use crate::db::table::processes::{self, NewProcess};
use crate::db::transition::claim;
use crate::db::{Conn, Database, TestDatabase};
use crate::error::{Error, ErrorContext, Result};
use crate::event::Event;
use crate::event::logging::Subscriber;
use crate::job::JobId;
use crate::job::new_job::NewJob;
use crate::job::new_job::enqueue::enqueue_all;
use crate::job::registry::Registry;
use crate::job::running::Lease;
use crate::process::base::registration::Registration;
use crate::process::base::shares_in_use::SharesInUse;
use crate::process::base::stop::{self, Stop};
use crate::process::worker::adjust::JobThreads;
use crate::process::worker::claim::scan_cursors::ScanCursors;
use crate::process::worker::completion::{PendingCompletion, grouped, pending};
use crate::process::worker::in_flight::InFlight;
use crate::process::worker::pool::{Assignment, Pool, PoolSetup};
use crate::process::worker::ranked::{Rank, RankedSender};
use crossbeam_channel::{Receiver, bounded, unbounded};
use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The data that an enqueue sends.
#[derive(Debug)]
pub struct InsertableRow(#[expect(dead_code, reason = "only made")] NewRow);

/// Checks a job and returns the data that an enqueue sends.
///
/// # Errors
/// If the job exceeds a limit.
pub fn row(job: NewJob) -> Result<InsertableRow> {
    job.into_row().map(InsertableRow)
}

/// Claimed jobs, as a claim returns them.
#[derive(Debug)]
pub struct ClaimedBatch(Vec<Arc<Claimed>>);

/// Jobs that threads have performed.
pub struct Endings(Vec<PendingCompletion>);

/// Jobs whose outcomes are about to be saved, grouped by statement.
pub struct Groups(Vec<Vec<PendingCompletion>>);

/// The rank of all jobs here.
const SAME: Rank = Rank {
    queue: 0,
    priority: 0,
};

/// A worker without a database: its threads, and what they share with the
/// poller and the completer.
pub struct Crew {
    pool: Arc<Pool>,
    in_flight: Arc<InFlight>,
    registration: Arc<Registration>,
    assign: Option<Mutex<RankedSender<Assignment>>>,
    threads: Arc<JobThreads>,
    ended: Receiver<PendingCompletion>,
    /// Claimed jobs that are copied.
    templates: Vec<Claimed>,
    last_claim: AtomicI64,
}

impl Crew {
    /// Starts the threads. The registry must contain the jobs, which are enqueued and claimed once
    /// in a temporary database.
    ///
    /// # Errors
    /// If a job exceeds a limit, or no thread can be started.
    pub fn start(registry: Registry, threads: usize, jobs: Vec<NewJob>) -> Result<Self> {
        let in_flight = Arc::new(InFlight::default());
        let (ended_tx, ended) = unbounded();
        let templates = claim(&registry, jobs)?;
        let setup = PoolSetup {
            registry,
            database: Database::none(),
            in_flight: Arc::clone(&in_flight),
            stop: Stop::new(),
            subscriber: Subscriber::default(),
            rested: bounded(1).0,
            completed: ended_tx,
            timed: bounded(1).0,
            finished: FinishedRow::Keep,
            longest_wait: Duration::MAX,
            shares: SharesInUse::default(),
        };
        let pool = Pool::new(setup);
        let (assign, threads) = JobThreads::start(&pool, threads)?;
        Ok(Crew {
            pool,
            in_flight,
            registration: Arc::new(Registration {
                id: 1,
                name: "worker-benchmarked".to_owned(),
                lease: Arc::new(Lease::new(Duration::from_secs(86_400))),
            }),
            assign: Some(Mutex::new(assign)),
            threads,
            ended,
            templates,
            last_claim: AtomicI64::new(0),
        })
    }

    /// Returns `count` claimed jobs, which repeat the given ones.
    pub fn claimed(&self, count: usize) -> ClaimedBatch {
        let copy = |job: &Claimed| {
            let mut copy = job.clone();
            copy.claim_id = self.last_claim.fetch_add(1, Ordering::Relaxed);
            copy
        };
        let jobs = self.templates.iter().cycle().map(copy).map(Arc::new);
        ClaimedBatch(jobs.take(count).collect())
    }

    /// From a claim's rows to a batch of endings: the jobs are entered, handed
    /// to the threads, performed there, and sent to the completer, and their
    /// claims are forgotten.
    pub fn dispatch(&self, jobs: ClaimedBatch) -> Endings {
        let count = jobs.0.len();
        self.in_flight.enter(&jobs.0, &self.registration);
        self.pool.occupancy().occupy(count);
        if let Some(assign) = &self.assign {
            let mut assign = assign.lock().unwrap_or_else(PoisonError::into_inner);
            let jobs = jobs.0.into_iter();
            let ranked = jobs.map(|job| (SAME, self.assignment(job)));
            assign.send(ranked, self.pool.prefetch.are_short(), 0);
        }
        let endings: Vec<PendingCompletion> = self.ended.iter().take(count).collect();
        let claims: Vec<i64> = endings.iter().map(|one| one.run.job.claim_id).collect();
        self.in_flight.remove(&claims);
        Endings(endings)
    }

    /// Performs each job on this thread, as a worker thread does.
    pub fn perform(&self, jobs: ClaimedBatch) -> Endings {
        let perform = |job| pending(self.pool.perform(self.assignment(job), Arc::default()));
        Endings(jobs.0.into_iter().map(perform).collect())
    }

    fn assignment(&self, job: Arc<Claimed>) -> Assignment {
        Assignment {
            job,
            registration: Arc::clone(&self.registration),
        }
    }

    /// Records how long a job took, and returns how many may be claimed ahead.
    pub fn pace(&self, ran: Duration) -> usize {
        self.pool.prefetch.note(ran);
        self.pool.prefetch.ahead(self.pool.occupancy().threads())
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.assign = None;
        self.threads.take().into_iter().for_each(stop::join);
    }
}

/// Enqueues and claims these jobs.
fn claim(registry: &Registry, jobs: Vec<NewJob>) -> Result<Vec<Claimed>> {
    let (mut database, limit) = (TestDatabase::in_memory()?, jobs.len());
    let mut conn: Conn<'_> = database.as_conn();
    enqueue_all(&mut conn, jobs)?;
    let new = NewProcess {
        name: "worker-benchmarked",
        kind: "Worker",
        pid: 1,
        hostname: "localhost",
        supervisor_id: None,
        metadata: "{}",
        channel: None,
    };
    let process_id = processes::register(&mut conn, &new).during("register a process")?;
    let classes: Vec<String> = registry.classes().map(str::to_owned).collect();
    let want = ClaimRequest {
        process_id,
        queues: &ClaimQueues::All,
        classes: &classes,
        max_jobs: limit,
        begins: Begins::All,
        from: &[],
        wanted_after: 0,
    };
    match claim::claim(&mut conn, &want).during("claim jobs")? {
        Found::Held { jobs, .. } if jobs.len() == limit => Ok(jobs),
        _ => Err(Error::Settings(
            "the registry does not contain all of these jobs".to_owned(),
        )),
    }
}

/// Groups outcomes by statement.
pub fn group(endings: Endings) -> Groups {
    Groups(grouped(endings.0))
}

impl Groups {
    /// Returns the number of statements.
    pub fn count(&self) -> usize {
        self.0.len()
    }
}

/// The positions at which a busy worker's claims start.
#[derive(Debug, Default)]
pub struct CursorSet(ScanCursors);

impl CursorSet {
    /// Records the jobs that a search of these queues, or of all, found.
    pub fn look(&mut self, queues: &[String], jobs: &ClaimedBatch) -> usize {
        self.0.begin(true);
        let from = if queues.is_empty() {
            self.0.from(&ClaimQueues::All)
        } else {
            self.0.from(&ClaimQueues::Named(queues.to_vec()))
        };
        self.0.reach(&jobs.0, jobs.0.len());
        from.len()
    }
}

/// Emits a worker's events for these jobs, without a subscriber.
pub fn tell(jobs: &ClaimedBatch) {
    let nobody = Subscriber::default();
    for job in &jobs.0 {
        let (id, class) = (JobId(job.job_id), &*job.class_name);
        let queue = &*job.queue_name;
        nobody.emit(&Event::Claimed {
            job: id,
            class,
            queue,
            attempt: 1,
            claim: job.claim_id,
        });
        nobody.emit(&Event::Started {
            job: id,
            class,
            queue,
            attempt: 1,
            claim: job.claim_id,
        });
        nobody.emit(&Event::Finished {
            job: id,
            class,
            queue,
            attempt: 1,
            claim: job.claim_id,
            ran: Duration::ZERO,
        });
    }
}

impl fmt::Debug for Crew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Crew").finish_non_exhaustive()
    }
}

impl fmt::Debug for Endings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Endings").field(&self.0.len()).finish()
    }
}

impl fmt::Debug for Groups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Groups").field(&self.0.len()).finish()
    }
}
