//! `graphile_worker`, on tokio and sqlx, its defaults.

use super::{BULK, Enqueuer, Start, System};
use crate::place::Address;
use crate::worker;
use anyhow::{Context as _, Result};
use graphile_worker::{
    IntoTaskHandlerResult, JobSpec, LocalQueueConfig, TaskHandler, Worker, WorkerContext,
    WorkerOptions, WorkerShutdownConfig, WorkerUtils,
};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

/// It always deletes finished jobs.
#[derive(Debug)]
pub(crate) struct Graphile {
    /// Whether it fetches and completes jobs in batches, and whether its pool
    /// gives out connections without asking the server whether they are well.
    pub(crate) tuned: bool,
}

/// How many jobs a tuned worker fetches at once, as in the benchmark that
/// comes with it.
const LOCAL_QUEUE: usize = 5_000;

/// How long it waits for more completed jobs, as its documentation advises.
const COMPLETION_DELAY: Duration = Duration::from_millis(5);

/// Its own default.
const CONNECTIONS: u32 = 20;

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Nothing {
    number: u32,
}

impl TaskHandler for Nothing {
    const IDENTIFIER: &'static str = "nothing";

    async fn run(self, _: WorkerContext) -> impl IntoTaskHandlerResult {
        worker::performed();
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Stamp {}

impl TaskHandler for Stamp {
    const IDENTIFIER: &'static str = "stamp";

    async fn run(self, _: WorkerContext) -> impl IntoTaskHandlerResult {
        worker::began();
    }
}

impl Graphile {
    /// With so many connections open, so that none is opened later.
    async fn pool(&self, address: &Address, connections: u32) -> Result<PgPool> {
        let pool = PgPoolOptions::new()
            .max_connections(CONNECTIONS.max(connections))
            .test_before_acquire(!self.tuned)
            .connect(&address.url)
            .await?;
        let mut held = Vec::new();
        for _ in 0..connections {
            held.push(pool.acquire().await?);
        }
        Ok(pool)
    }

    /// Creates its tables, too.
    async fn init(&self, address: &Address, workers: u32) -> Result<Worker> {
        let signals = WorkerShutdownConfig::default().listen_os_shutdown_signals(false);
        let mut options = WorkerOptions::default()
            .schema(address.schema.clone())
            .pg_pool(self.pool(address, workers.min(CONNECTIONS)).await?)
            .concurrency(workers.try_into()?)
            .worker_shutdown(signals)
            .define_job::<Nothing>()
            .define_job::<Stamp>();
        if self.tuned {
            options = options
                .complete_job_batch_delay(COMPLETION_DELAY)
                .local_queue(LocalQueueConfig::default().with_size(LOCAL_QUEUE));
        }
        Ok(options.init().await?)
    }

    /// A runtime, and on it what enqueues.
    fn utils(&self, address: &Address, callers: u32) -> Result<(Runtime, WorkerUtils)> {
        let runtime = Runtime::new()?;
        let utils = runtime
            .block_on(self.init(address, callers))?
            .create_utils();
        Ok((runtime, utils))
    }
}

async fn enqueue(utils: WorkerUtils, jobs: u32) -> Result<()> {
    for number in 0..jobs {
        utils
            .add_job(Nothing { number }, JobSpec::default())
            .await?;
    }
    Ok(())
}

impl System for Graphile {
    fn migrate(&self, address: &Address) -> Result<()> {
        self.utils(address, 1).map(drop)
    }

    fn enqueue_singly(&self, address: &Address, callers: u32, each: u32) -> Result<Duration> {
        let (runtime, utils) = self.utils(address, callers)?;
        runtime.block_on(async {
            let begun = Instant::now();
            let callers = (0..callers).map(|_| tokio::spawn(enqueue(utils.clone(), each)));
            for caller in callers.collect::<Vec<_>>() {
                caller.await.context("a task that enqueues")??;
            }
            Ok(begun.elapsed())
        })
    }

    fn enqueue_in_bulk(&self, address: &Address, jobs: u32) -> Result<Option<Duration>> {
        let (runtime, utils) = self.utils(address, 1)?;
        let numbers: Vec<u32> = (0..jobs).collect();
        let spec = JobSpec::default();
        runtime.block_on(async {
            let begun = Instant::now();
            for numbers in numbers.chunks(BULK) {
                let jobs = numbers.iter().map(|&number| (Nothing { number }, &spec));
                utils.add_jobs(&jobs.collect::<Vec<_>>()).await?;
            }
            Ok(Some(begun.elapsed()))
        })
    }

    fn fill(&self, address: &Address, jobs: u32) -> Result<()> {
        self.enqueue_in_bulk(address, jobs).map(drop)
    }

    fn enqueuer(&self, address: &Address) -> Result<Enqueuer> {
        let (runtime, utils) = self.utils(address, 1)?;
        Ok(Box::new(move || {
            runtime.block_on(utils.add_job(Stamp {}, JobSpec::default()))?;
            Ok(())
        }))
    }

    fn worker(&self, address: &Address, workers: u32) -> Result<Start> {
        let runtime = Runtime::new()?;
        let worker = runtime.block_on(self.init(address, workers))?;
        Ok(Box::new(move || {
            runtime.spawn(async move {
                if let Err(error) = worker.run().await {
                    eprintln!("the worker of graphile_worker ended: {error}");
                    std::process::exit(1);
                }
            });
            Ok(Box::new(runtime))
        }))
    }

    fn unfinished(&self) -> &'static str {
        "EXISTS (SELECT 1 FROM _private_jobs)"
    }
}
