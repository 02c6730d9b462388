//! apalis on SQLite.

use anyhow::{Context as _, Result};
use apalis::prelude::*;
use apalis_sqlite::{Config, SqlitePool, SqliteStorage};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use windlass_peers_driver::{BULK, Enqueuer, Running, Start, System, Work, perform};

/// Woken by SQLite's update hook, which sees the writes of its own process.
#[derive(Debug)]
pub(crate) struct ApalisSqlite;

/// Its jobs.
const QUEUE: &str = "numbered";

/// The number of jobs that it fetches at once.
const BATCH: usize = 500;

/// The longest time that it sleeps, woken or not.
const INTERVAL: Duration = Duration::from_millis(50);

async fn job(number: u32, pool: Data<SqlitePool>) -> Result<(), BoxDynError> {
    let performed = perform(number, tokio::time::sleep, async {
        let row = sqlx::query("INSERT INTO effects (number) VALUES (?1)");
        row.bind(i64::from(number)).execute(&*pool).await?;
        Ok(())
    });
    Ok(performed.await?)
}

fn storage(pool: &SqlitePool) -> SqliteStorage<u32> {
    let config = Config::default()
        .queue(QUEUE)
        .batch_size(BATCH)
        .lock_tasks(false);
    SqliteStorage::new(pool).with_config(config)
}

async fn enqueue(mut storage: SqliteStorage<u32>, jobs: u32) -> Result<()> {
    for number in 0..jobs {
        storage.push(number).await?;
    }
    Ok(())
}

impl System for ApalisSqlite {
    fn migrate(&self, url: &str) -> Result<()> {
        Runtime::new()?.block_on(async {
            let pool = SqlitePool::connect(url).await?;
            Ok(SqliteStorage::setup(&pool).await?)
        })
    }

    fn enqueue_singly(&self, url: &str, callers: u32, each: u32) -> Result<Duration> {
        Runtime::new()?.block_on(async {
            let storage = storage(&SqlitePool::connect(url).await?);
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
            let mut storage = storage(&SqlitePool::connect(url).await?);
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
        let mut storage = storage(&runtime.block_on(SqlitePool::connect(url))?);
        Ok(Box::new(move || Ok(runtime.block_on(storage.push(0))?)))
    }

    fn worker(&self, url: &str, _: Work, workers: u32) -> Result<Start> {
        let runtime = Runtime::new()?;
        let (pool, listener) = {
            let _guard = runtime.enter();
            SqliteStorage::connect_with_callback(url)?
        };
        let strategy = Strategy::new().stream(listener).interval(INTERVAL);
        let backend = storage(&pool).poll_with_strategy(strategy);
        let mut own = storage(&pool);
        let worker = WorkerBuilder::new("peer")
            .backend(backend)
            .data(pool)
            .concurrency(workers.try_into()?)
            .retry(RetryPolicy::retries(1))
            .parallelize(tokio::spawn)
            .build(job);
        Ok(Box::new(move || {
            let handle = runtime.handle().clone();
            // As in its examples: what runs the worker is the main task.
            let thread = std::thread::spawn(move || {
                if let Err(error) = runtime.block_on(worker.run()) {
                    eprintln!("the worker of apalis ended: {error}");
                    std::process::exit(1);
                }
            });
            Ok(Running {
                alive: Box::new(thread),
                enqueuer: Some(Box::new(move || Ok(handle.block_on(own.push(0))?))),
            })
        }))
    }
}
