//! apalis on Postgres.

use super::{JOB_CONNECTIONS, postgres};
use anyhow::{Context as _, Result};
use apalis::prelude::*;
use apalis_postgres::{Config, PgPool, PostgresStorage};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use windlass_peers_driver::{BULK, Enqueuer, Running, Start, System, Work, perform};

/// Woken by notifications.
#[derive(Debug)]
pub(crate) struct ApalisPostgres;

/// Its jobs.
const QUEUE: &str = "numbered";

/// The number of jobs that it fetches at once.
const BATCH: usize = 500;

/// The longest time that it sleeps, notified or not.
const INTERVAL: Duration = Duration::from_millis(50);

/// As many as callers or workers use at once, and one to listen.
const CONNECTIONS: u32 = 20;

async fn job(number: u32, pool: Data<PgPool>) -> Result<(), BoxDynError> {
    let performed = perform(number, tokio::time::sleep, async {
        let row = sqlx::query("INSERT INTO effects (number) VALUES ($1)");
        row.bind(i64::from(number)).execute(&*pool).await?;
        Ok(())
    });
    Ok(performed.await?)
}

fn storage(pool: &PgPool) -> PostgresStorage<u32> {
    let config = Config::default()
        .queue(QUEUE)
        .batch_size(BATCH)
        .lock_tasks(false);
    PostgresStorage::new(pool).with_config(config)
}

async fn enqueue(mut storage: PostgresStorage<u32>, jobs: u32) -> Result<()> {
    for number in 0..jobs {
        storage.push(number).await?;
    }
    Ok(())
}

impl System for ApalisPostgres {
    fn migrate(&self, url: &str) -> Result<()> {
        Runtime::new()?
            .block_on(async { Ok(PostgresStorage::setup(&postgres(url, 1, 1).await?).await?) })
    }

    fn enqueue_singly(&self, url: &str, callers: u32, each: u32) -> Result<Duration> {
        Runtime::new()?.block_on(async {
            let storage = storage(&postgres(url, callers, CONNECTIONS).await?);
            let start = Instant::now();
            let callers = (0..callers).map(|_| tokio::spawn(enqueue(storage.clone(), each)));
            for caller in callers.collect::<Vec<_>>() {
                caller.await.context("a task that enqueues")??;
            }
            Ok(start.elapsed())
        })
    }

    fn enqueue_in_bulk(&self, url: &str, jobs: u32) -> Result<Option<Duration>> {
        Runtime::new()?.block_on(async {
            let mut storage = storage(&postgres(url, 1, 1).await?);
            let numbers: Vec<u32> = (0..jobs).collect();
            let start = Instant::now();
            for numbers in numbers.chunks(BULK) {
                storage.push_bulk(numbers.to_vec()).await?;
            }
            Ok(Some(start.elapsed()))
        })
    }

    fn enqueuer(&self, url: &str) -> Result<Enqueuer> {
        let runtime = Runtime::new()?;
        let mut storage = storage(&runtime.block_on(postgres(url, 1, 1))?);
        Ok(Box::new(move || Ok(runtime.block_on(storage.push(0))?)))
    }

    fn worker(&self, url: &str, _: Work, workers: u32) -> Result<Start> {
        let runtime = Runtime::new()?;
        let pool = runtime.block_on(postgres(url, 1, CONNECTIONS))?;
        let jobs_pool = runtime.block_on(postgres(url, 1, JOB_CONNECTIONS))?;
        let backend = storage(&pool).with_pubsub().poll_with_interval(INTERVAL);
        let worker = WorkerBuilder::new("peer")
            .backend(backend)
            .data(jobs_pool)
            .concurrency(workers.try_into()?)
            .retry(RetryPolicy::retries(1))
            .parallelize(tokio::spawn)
            .build(job);
        Ok(Box::new(move || {
            // As in its examples: what runs the worker is the main task.
            Ok(Running::new(std::thread::spawn(move || {
                if let Err(error) = runtime.block_on(worker.run()) {
                    eprintln!("the worker of apalis ended: {error}");
                    std::process::exit(1);
                }
            })))
        }))
    }
}
