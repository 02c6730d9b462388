//! Drives awa, as `windlass-peers` asks it to.

use anyhow::{Context as _, Result};
use awa::{
    Client, InsertOpts, JobArgs, JobError, JobResult, QueueConfig, QueueStorage, QueueStorageConfig,
};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;
use windlass_peers_driver::{BULK, Enqueuer, Failed, Running, Start, System, Work, perform};

/// Its queue storage with its defaults, and the settings of its own benchmarks for the rest.
struct Awa;

/// Its jobs.
const QUEUE: &str = "numbered";

/// As many as callers or workers use at once, and some for its own tasks.
const CONNECTIONS: u32 = 24;

/// For the inserts of its jobs: one for each of 16 workers.
const JOB_CONNECTIONS: u32 = 16;

/// Jobs that it has at once, most of which wait to be started, or for their completion to be written:
/// as many as it claims at once.
const MAX_WORKERS: u32 = 512;

/// The longest time that it sleeps, notified or not.
const POLL: Duration = Duration::from_millis(50);

#[derive(Debug, Serialize, Deserialize, JobArgs)]
struct Numbered {
    number: u32,
}

async fn job(job: Numbered, cx: Cx) -> Result<JobResult, JobError> {
    let _permit = cx.permits.acquire().await;
    let pool = cx.pool;
    let performed = perform(job.number, tokio::time::sleep, async {
        let row = sqlx::query("INSERT INTO effects (number) VALUES ($1)");
        let pool = pool.as_ref().context("a pool for jobs")?;
        row.bind(i64::from(job.number)).execute(pool).await?;
        Ok(())
    });
    match performed.await {
        Ok(()) => Ok(JobResult::Completed),
        Err(error) if error.is::<Failed>() => Ok(JobResult::RetryAfter(Duration::ZERO)),
        Err(error) => Err(JobError::retryable_msg(error.to_string())),
    }
}

/// The state that its jobs share.
#[derive(Clone)]
struct Cx {
    /// As many as jobs that may run at once.
    permits: Arc<Semaphore>,
    pool: Option<PgPool>,
}

async fn pool(url: &str, at_most: u32) -> Result<PgPool> {
    let pool = PgPoolOptions::new()
        .max_connections(at_most)
        .test_before_acquire(false);
    Ok(pool.connect(url).await?)
}

fn opts() -> InsertOpts {
    InsertOpts {
        queue: QUEUE.to_owned(),
        ..InsertOpts::default()
    }
}

async fn client(url: &str, work: Work, workers: u32) -> Result<Client> {
    let config = QueueConfig {
        max_workers: MAX_WORKERS,
        poll_interval: POLL,
        // Without a deadline, claims and completions are batches: "receipts" in its documentation.
        deadline_duration: Duration::ZERO,
        ..QueueConfig::default()
    };
    let mut cx = Cx {
        permits: Arc::new(Semaphore::new(workers.try_into()?)),
        pool: None,
    };
    if work == Work::Insert {
        cx.pool = Some(pool(url, JOB_CONNECTIONS).await?);
    }
    let client = Client::builder(pool(url, CONNECTIONS).await?)
        .queue(QUEUE, config)
        .register::<Numbered, _, _>(move |args, _| job(args, cx.clone()));
    Ok(client.build()?)
}

async fn enqueue(pool: PgPool, jobs: u32) -> Result<()> {
    for number in 0..jobs {
        awa::insert_with(&pool, &Numbered { number }, opts()).await?;
    }
    Ok(())
}

impl System for Awa {
    fn migrate(&self, url: &str) -> Result<()> {
        Runtime::new()?.block_on(async {
            awa::migrations::run(&pool(url, 2).await?).await?;
            // The first client of a new database turns on its queue storage.
            let client = client(url, Work::Nothing, 1).await?;
            client.start().await?;
            client.shutdown(Duration::from_secs(5)).await;
            Ok(())
        })
    }

    fn enqueue_singly(&self, url: &str, callers: u32, each: u32) -> Result<Duration> {
        Runtime::new()?.block_on(async {
            let pool = pool(url, CONNECTIONS).await?;
            let start = Instant::now();
            let callers = (0..callers).map(|_| tokio::spawn(enqueue(pool.clone(), each)));
            for caller in callers.collect::<Vec<_>>() {
                caller.await.context("a task that enqueues")??;
            }
            Ok(start.elapsed())
        })
    }

    fn enqueue_in_bulk(&self, url: &str, jobs: u32) -> Result<Option<Duration>> {
        Runtime::new()?.block_on(async {
            let pool = pool(url, 2).await?;
            let storage = QueueStorage::new(QueueStorageConfig::default())?;
            let numbers: Vec<u32> = (0..jobs).collect();
            let start = Instant::now();
            for numbers in numbers.chunks(BULK) {
                let jobs = numbers.iter();
                let jobs =
                    jobs.map(|&number| awa::insert::params_with(&Numbered { number }, opts()));
                let jobs = jobs.collect::<Result<Vec<_>, _>>()?;
                storage.enqueue_params_copy(&pool, &jobs).await?;
            }
            Ok(Some(start.elapsed()))
        })
    }

    fn enqueuer(&self, url: &str) -> Result<Enqueuer> {
        let runtime = Runtime::new()?;
        let pool = runtime.block_on(pool(url, 1))?;
        Ok(Box::new(move || {
            let job = Numbered { number: 0 };
            runtime.block_on(awa::insert_with(&pool, &job, opts()))?;
            Ok(())
        }))
    }

    fn worker(&self, url: &str, work: Work, workers: u32) -> Result<Start> {
        let runtime = Runtime::new()?;
        let client = runtime.block_on(client(url, work, workers))?;
        Ok(Box::new(move || {
            runtime.block_on(client.start())?;
            Ok(Running::new((client, runtime)))
        }))
    }
}

fn main() -> Result<()> {
    windlass_peers_driver::run(&Awa)
}
