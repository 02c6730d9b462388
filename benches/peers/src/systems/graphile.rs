//! `graphile_worker`, on tokio and sqlx.

use super::{JOB_CONNECTIONS, postgres};
use anyhow::{Context as _, Result};
use graphile_worker::{
    IntoTaskHandlerResult, JobSpec, LocalQueueConfig, TaskHandler, Worker, WorkerContext,
    WorkerOptions, WorkerShutdownConfig, WorkerUtils,
};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use windlass_peers_driver::{BULK, Enqueuer, Running, Start, System, Work, perform};

/// Fetching, completing and failing jobs in batches. It always deletes finished jobs.
#[derive(Debug)]
pub(crate) struct Graphile;

/// The number of jobs that a worker fetches at once, as in the benchmark that comes with it.
const LOCAL_QUEUE: usize = 5_000;

/// The time for which it waits for more completed or failed jobs, as its documentation advises.
const BATCH_DELAY: Duration = Duration::from_millis(5);

/// Its own default.
const CONNECTIONS: u32 = 20;

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Numbered {
    number: u32,
}

impl TaskHandler for Numbered {
    const IDENTIFIER: &'static str = "numbered";

    async fn run(self, cx: WorkerContext) -> impl IntoTaskHandlerResult {
        perform(self.number, tokio::time::sleep, async {
            let row = sqlx::query("INSERT INTO effects (number) VALUES ($1)");
            let pool: &PgPool = cx.get_ext().context("a pool for jobs")?;
            row.bind(i64::from(self.number)).execute(pool).await?;
            Ok(())
        })
        .await
    }
}

/// Creates its tables, too.
async fn init(url: &str, work: Work, workers: u32) -> Result<Worker> {
    let signals = WorkerShutdownConfig::default().listen_os_shutdown_signals(false);
    let at_most = CONNECTIONS.max(workers);
    let mut options = WorkerOptions::default()
        .pg_pool(postgres(url, workers.min(CONNECTIONS), at_most).await?)
        .concurrency(workers.try_into()?)
        .worker_shutdown(signals)
        .complete_job_batch_delay(BATCH_DELAY)
        .fail_job_batch_delay(BATCH_DELAY)
        .local_queue(LocalQueueConfig::default().with_size(LOCAL_QUEUE))
        .define_job::<Numbered>();
    if work == Work::Insert {
        options = options.add_extension(postgres(url, JOB_CONNECTIONS, JOB_CONNECTIONS).await?);
    }
    Ok(options.init().await?)
}

/// A runtime, and on it what enqueues.
fn utils(url: &str, callers: u32) -> Result<(Runtime, WorkerUtils)> {
    let runtime = Runtime::new()?;
    let worker = runtime.block_on(init(url, Work::Nothing, callers))?;
    Ok((runtime, worker.create_utils()))
}

async fn enqueue_many(utils: &WorkerUtils, jobs: u32, spec: JobSpec) -> Result<()> {
    let numbers: Vec<u32> = (0..jobs).collect();
    for numbers in numbers.chunks(BULK) {
        let jobs = numbers.iter().map(|&number| (Numbered { number }, &spec));
        utils.add_jobs(&jobs.collect::<Vec<_>>()).await?;
    }
    Ok(())
}

async fn enqueue(utils: WorkerUtils, jobs: u32) -> Result<()> {
    for number in 0..jobs {
        let job = Numbered { number };
        utils.add_job(job, JobSpec::default()).await?;
    }
    Ok(())
}

impl System for Graphile {
    fn migrate(&self, url: &str) -> Result<()> {
        utils(url, 1).map(drop)
    }

    fn enqueue_singly(&self, url: &str, callers: u32, each: u32) -> Result<Duration> {
        let (runtime, utils) = utils(url, callers)?;
        runtime.block_on(async {
            let start = Instant::now();
            let callers = (0..callers).map(|_| tokio::spawn(enqueue(utils.clone(), each)));
            for caller in callers.collect::<Vec<_>>() {
                caller.await.context("a task that enqueues")??;
            }
            Ok(start.elapsed())
        })
    }

    fn enqueue_in_bulk(&self, url: &str, jobs: u32) -> Result<Option<Duration>> {
        let (runtime, utils) = utils(url, 1)?;
        runtime.block_on(async {
            let start = Instant::now();
            enqueue_many(&utils, jobs, JobSpec::default()).await?;
            Ok(Some(start.elapsed()))
        })
    }

    fn fill_limited(&self, url: &str, jobs: u32) -> Result<Option<()>> {
        let (runtime, utils) = utils(url, 1)?;
        // Jobs of one named queue run one after the other.
        let spec = JobSpec::builder().queue_name("one").build();
        runtime.block_on(enqueue_many(&utils, jobs, spec))?;
        Ok(Some(()))
    }

    fn enqueuer(&self, url: &str) -> Result<Enqueuer> {
        let (runtime, utils) = utils(url, 1)?;
        Ok(Box::new(move || {
            let job = Numbered { number: 0 };
            runtime.block_on(utils.add_job(job, JobSpec::default()))?;
            Ok(())
        }))
    }

    fn worker(&self, url: &str, work: Work, workers: u32) -> Result<Start> {
        let runtime = Runtime::new()?;
        let worker = runtime.block_on(init(url, work, workers))?;
        Ok(Box::new(move || {
            runtime.spawn(async move {
                if let Err(error) = worker.run().await {
                    eprintln!("the worker of graphile_worker ended: {error}");
                    std::process::exit(1);
                }
            });
            Ok(Running::new(runtime))
        }))
    }
}
