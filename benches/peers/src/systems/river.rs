//! River's Rust edition, on tokio and sqlx, on both databases.

use super::{JOB_CONNECTIONS, postgres};
use anyhow::{Context as _, Result};
use riverqueue::jiff::Timestamp;
use riverqueue::migrate::{PostgresMigrator, SqliteMigrator};
use riverqueue::sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions};
use riverqueue::sqlx::{self, PgPool, SqlitePool};
use riverqueue::{
    Client, ClientBuilder, InsertOpts, Job, JobArgs, JobRow, QueueConfig, RetryPolicy, WorkContext,
    WorkError, WorkOutcome, Workers,
};
use serde::{Deserialize, Serialize};
use std::str::FromStr as _;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;
use windlass_peers_driver::{BULK, Enqueuer, Running, Start, System, Work, perform};

/// It keeps finished jobs for a day, and completes them in batches in both settings.
#[derive(Debug)]
pub(crate) enum River {
    /// As its own benchmark, `riverqueue bench`.
    Benchmark,
    /// As the quick start of its README.
    Defaults,
}

/// The jobs that its benchmark has at once. Here most of them wait for a permit.
const MAX_WORKERS: usize = 2_000;

/// The connections of its benchmark.
const CONNECTIONS: u32 = 50;

/// The shortest and the longest time between two fetches of its benchmark.
const COOLDOWN: Duration = Duration::from_millis(2);
const POLL: Duration = Duration::from_millis(20);

#[derive(Clone, Debug, Serialize, Deserialize, JobArgs)]
#[river(kind = "numbered")]
struct Numbered {
    number: u32,
}

/// Instead of a second, the shortest pause of its own policy.
struct AtOnce;

impl RetryPolicy for AtOnce {
    fn next_retry(&self, _: &JobRow, _: &WorkError, _: Timestamp) -> Duration {
        Duration::ZERO
    }
}

#[derive(Debug, Clone)]
enum Pool {
    Postgres(PgPool),
    Sqlite(SqlitePool),
}

impl Pool {
    fn client(&self) -> ClientBuilder {
        match self {
            Pool::Postgres(pool) => Client::builder(pool),
            Pool::Sqlite(pool) => Client::builder(pool),
        }
    }

    async fn migrate(&self) -> Result<()> {
        match self {
            Pool::Postgres(pool) => {
                PostgresMigrator::new(pool.clone()).migrate_up().await?;
            }
            Pool::Sqlite(pool) => {
                SqliteMigrator::new(pool.clone()).migrate_up().await?;
            }
        }
        Ok(())
    }

    async fn insert(&self, number: u32) -> Result<()> {
        let row = "INSERT INTO effects (number) VALUES ($1)";
        let number = i64::from(number);
        match self {
            Pool::Postgres(pool) => {
                sqlx::query(row).bind(number).execute(pool).await?;
            }
            Pool::Sqlite(pool) => {
                sqlx::query(row).bind(number).execute(pool).await?;
            }
        }
        Ok(())
    }

    /// By one statement, because `insert_many` takes a minute for 250,000 jobs.
    async fn fill(&self, jobs: u32) -> Result<()> {
        match self {
            Pool::Postgres(pool) => {
                let fill = sqlx::query(
                    "INSERT INTO river_job (args, kind, max_attempts, created_at, scheduled_at)
                     SELECT jsonb_build_object('number', number), 'numbered', 25, now, now
                     FROM (SELECT number, clock_timestamp() AS now
                           FROM generate_series(0, $1 - 1) AS number) AS jobs",
                );
                fill.bind(i64::from(jobs)).execute(pool).await?;
            }
            Pool::Sqlite(pool) => {
                let fill = sqlx::query(
                    "INSERT INTO river_job (args, kind, created_at, scheduled_at)
                     WITH RECURSIVE jobs (number) AS
                         (SELECT 0 UNION ALL SELECT number + 1 FROM jobs WHERE number + 1 < $1)
                     SELECT jsonb_object('number', number), 'numbered',
                         datetime('now', 'subsec'), datetime('now', 'subsec') FROM jobs",
                );
                fill.bind(i64::from(jobs)).execute(pool).await?;
            }
        }
        Ok(())
    }
}

/// As in its README, WAL included.
async fn sqlite(url: &str) -> Result<SqlitePool> {
    let options = SqliteConnectOptions::from_str(url)?
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .busy_timeout(Duration::from_secs(5));
    let pool = SqlitePoolOptions::new().max_connections(5);
    Ok(pool.connect_with(options).await?)
}

/// The state that its jobs share.
struct Cx {
    /// As many as jobs that may run at once, if River would run more.
    permits: Option<Semaphore>,
    pool: Pool,
}

async fn job(job: Job<Numbered>, cx: Arc<Cx>) -> Result<WorkOutcome> {
    let _permit = match &cx.permits {
        Some(permits) => Some(permits.acquire().await?),
        None => None,
    };
    let number = job.args.number;
    perform(number, tokio::time::sleep, cx.pool.insert(number)).await?;
    Ok(WorkOutcome::Complete)
}

async fn enqueue(client: Client, jobs: u32) -> Result<()> {
    for number in 0..jobs {
        client.insert(Numbered { number }).await?;
    }
    Ok(())
}

impl River {
    /// With so many connections open, if they need not be as by default.
    async fn pool(&self, url: &str, connections: u32) -> Result<Pool> {
        if url.starts_with("sqlite") {
            return Ok(Pool::Sqlite(sqlite(url).await?));
        }
        let pool = match self {
            River::Benchmark => postgres(url, connections, CONNECTIONS).await?,
            River::Defaults => PgPool::connect(url).await?,
        };
        Ok(Pool::Postgres(pool))
    }

    /// The pause between two fetches counts for notifications of enqueued jobs, too.
    fn client(&self, pool: &Pool) -> ClientBuilder {
        match self {
            River::Benchmark => pool.client().fetch_cooldown(COOLDOWN),
            River::Defaults => pool.client(),
        }
    }

    /// A runtime, and on it a client that only enqueues.
    fn inserting(&self, url: &str, callers: u32) -> Result<(Runtime, Client)> {
        let runtime = Runtime::new()?;
        let client = runtime.block_on(async {
            let pool = self.pool(url, callers).await?;
            anyhow::Ok(self.client(&pool).build()?)
        })?;
        Ok((runtime, client))
    }

    async fn working(&self, url: &str, work: Work, workers: u32) -> Result<Client> {
        let workers = usize::try_from(workers)?;
        let pool = self.pool(url, 8).await?;
        let jobs_pool = match (&pool, work) {
            (Pool::Postgres(_), Work::Insert) => {
                Pool::Postgres(postgres(url, JOB_CONNECTIONS, JOB_CONNECTIONS).await?)
            }
            _ => pool.clone(),
        };
        let (queue, permits) = match self {
            River::Benchmark => {
                let queue = QueueConfig::new(MAX_WORKERS);
                let queue = queue.with_fetch_poll_interval(POLL);
                (queue, Some(Semaphore::new(workers)))
            }
            River::Defaults => (QueueConfig::new(workers), None),
        };
        let client = self.client(&pool);
        let cx = Arc::new(Cx {
            permits,
            pool: jobs_pool,
        });
        let mut registered = Workers::new();
        registered.add_fn(move |_: WorkContext, it| job(it, cx.clone()))?;
        let client = client.workers(registered);
        let client = client.queue(riverqueue::QUEUE_DEFAULT, queue);
        let client = match self {
            River::Benchmark => client.retry_policy(AtOnce),
            River::Defaults => client,
        };
        Ok(client.build()?)
    }
}

impl System for River {
    fn migrate(&self, url: &str) -> Result<()> {
        Runtime::new()?.block_on(async { self.pool(url, 1).await?.migrate().await })
    }

    fn enqueue_singly(&self, url: &str, callers: u32, each: u32) -> Result<Duration> {
        let (runtime, client) = self.inserting(url, callers)?;
        runtime.block_on(async {
            let start = Instant::now();
            let callers = (0..callers).map(|_| tokio::spawn(enqueue(client.clone(), each)));
            for caller in callers.collect::<Vec<_>>() {
                caller.await.context("a task that enqueues")??;
            }
            Ok(start.elapsed())
        })
    }

    fn enqueue_in_bulk(&self, url: &str, jobs: u32) -> Result<Option<Duration>> {
        let (runtime, client) = self.inserting(url, 1)?;
        let numbers: Vec<u32> = (0..jobs).collect();
        runtime.block_on(async {
            let start = Instant::now();
            for numbers in numbers.chunks(BULK) {
                let jobs = numbers.iter();
                let jobs = jobs.map(|&number| (Numbered { number }, InsertOpts::default()));
                client.insert_many(jobs).await?;
            }
            Ok(Some(start.elapsed()))
        })
    }

    fn fill(&self, url: &str, jobs: u32) -> Result<()> {
        Runtime::new()?.block_on(async { self.pool(url, 1).await?.fill(jobs).await })
    }

    fn enqueuer(&self, url: &str) -> Result<Enqueuer> {
        let (runtime, client) = self.inserting(url, 1)?;
        Ok(Box::new(move || {
            runtime.block_on(async { client.insert(Numbered { number: 0 }).await })?;
            Ok(())
        }))
    }

    fn worker(&self, url: &str, work: Work, workers: u32) -> Result<Start> {
        let runtime = Runtime::new()?;
        let client = runtime.block_on(self.working(url, work, workers))?;
        Ok(Box::new(move || {
            let running = {
                let _guard = runtime.enter();
                client.start()?
            };
            Ok(Running::new((running, client, runtime)))
        }))
    }
}
