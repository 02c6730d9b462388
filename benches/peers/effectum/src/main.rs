//! Drives effectum, as `windlass-peers` asks it to.

use anyhow::{Context as _, Result, anyhow};
use deadpool_sqlite::{Pool, PoolConfig, Runtime as PoolRuntime};
use effectum::{Job, JobRunner, Queue, RunningJob, Worker};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;
use windlass_peers_driver::{BULK, Enqueuer, Running, Start, System, Work, perform};

/// With its defaults. It keeps finished jobs, and syncs less often than `synchronous=FULL` does.
struct Effectum;

/// Its jobs.
const NAME: &str = "numbered";

/// Jobs that it has at once, most of which wait to be started, or for their completion to be written.
const MAX_CONCURRENCY: u16 = 512;

/// For the inserts of its jobs: one for each of 16 workers.
const JOB_CONNECTIONS: usize = 16;

#[derive(Debug, Serialize, Deserialize)]
struct Numbered {
    number: u32,
}

async fn job(job: RunningJob, cx: Arc<Cx>) -> Result<()> {
    let _permit = cx.permits.acquire().await;
    let pool = &cx.pool;
    let Numbered { number } = job.json_payload()?;
    perform(number, tokio::time::sleep, async {
        let conn = pool.get().await?;
        let inserted = conn.interact(move |conn| {
            let mut row = conn.prepare_cached("INSERT INTO effects (number) VALUES (?1)")?;
            row.execute([i64::from(number)])
        });
        inserted.await.map_err(|error| anyhow!("{error}"))??;
        Ok(())
    })
    .await
}

/// The state that its jobs share.
#[derive(Debug)]
struct Cx {
    /// As many as jobs that may run at once.
    permits: Semaphore,
    pool: Pool,
}

fn file(url: &str) -> Result<&Path> {
    let path = url.strip_prefix("sqlite://");
    Ok(Path::new(path.context("an address of SQLite")?))
}

async fn queue(url: &str) -> Result<Queue> {
    Ok(Queue::new(file(url)?).await?)
}

fn pool(url: &str) -> Result<Pool> {
    let mut config = deadpool_sqlite::Config::new(file(url)?);
    config.pool = Some(PoolConfig::new(JOB_CONNECTIONS));
    Ok(config.builder(PoolRuntime::Tokio1)?.build()?)
}

fn new_job(number: u32) -> Result<Job> {
    let job = Job::builder(NAME)
        .json_payload(&Numbered { number })?
        .backoff_initial_interval(Duration::ZERO)
        // A failure counts against every job in the table.
        .max_retries(i32::MAX.unsigned_abs());
    Ok(job.build())
}

async fn enqueue(queue: Arc<Queue>, jobs: u32) -> Result<()> {
    for number in 0..jobs {
        queue.add_job(new_job(number)?).await?;
    }
    Ok(())
}

async fn worker(queue: &Queue, pool: Pool, workers: u32) -> Result<Worker> {
    let permits = Semaphore::new(workers.try_into()?);
    let worker = Worker::builder(queue, Arc::new(Cx { permits, pool }))
        .jobs([JobRunner::builder(NAME, job).build()])
        .min_concurrency(MAX_CONCURRENCY / 2)
        .max_concurrency(MAX_CONCURRENCY);
    Ok(worker.build().await?)
}

impl System for Effectum {
    fn migrate(&self, url: &str) -> Result<()> {
        Runtime::new()?.block_on(async { queue(url).await.map(drop) })
    }

    fn enqueue_singly(&self, url: &str, callers: u32, each: u32) -> Result<Duration> {
        Runtime::new()?.block_on(async {
            let queue = Arc::new(queue(url).await?);
            let start = Instant::now();
            let callers = (0..callers).map(|_| tokio::spawn(enqueue(queue.clone(), each)));
            for caller in callers.collect::<Vec<_>>() {
                caller.await.context("a task that enqueues")??;
            }
            Ok(start.elapsed())
        })
    }

    fn enqueue_in_bulk(&self, url: &str, jobs: u32) -> Result<Option<Duration>> {
        Runtime::new()?.block_on(async {
            let queue = queue(url).await?;
            let numbers: Vec<u32> = (0..jobs).collect();
            let start = Instant::now();
            for numbers in numbers.chunks(BULK) {
                let jobs = numbers.iter().map(|&number| new_job(number));
                queue.add_jobs(jobs.collect::<Result<_>>()?).await?;
            }
            Ok(Some(start.elapsed()))
        })
    }

    fn enqueuer(&self, url: &str) -> Result<Enqueuer> {
        let runtime = Runtime::new()?;
        let queue = runtime.block_on(queue(url))?;
        Ok(Box::new(move || {
            runtime.block_on(queue.add_job(new_job(0)?))?;
            Ok(())
        }))
    }

    fn worker(&self, url: &str, _: Work, workers: u32) -> Result<Start> {
        let runtime = Runtime::new()?;
        let queue = runtime.block_on(queue(url))?;
        let pool = {
            let _guard = runtime.enter();
            pool(url)?
        };
        Ok(Box::new(move || {
            let worker = runtime.block_on(worker(&queue, pool, workers))?;
            let handle = runtime.handle().clone();
            Ok(Running {
                alive: Box::new((worker, runtime)),
                // Only the process that enqueues wakes its workers.
                enqueuer: Some(Box::new(move || {
                    handle.block_on(queue.add_job(new_job(0)?))?;
                    Ok(())
                })),
            })
        }))
    }
}

fn main() -> Result<()> {
    windlass_peers_driver::run(&Effectum)
}
