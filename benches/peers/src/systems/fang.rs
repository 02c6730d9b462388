//! fang's blocking half, on its own pool of Diesel connections.

use super::{JOB_CONNECTIONS, effects};
use anyhow::{Context as _, Result, anyhow};
use diesel::connection::SimpleConnection as _;
use diesel::pg::PgConnection;
use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, Pool};
use fang::{FangError, Queue, Queueable, Runnable, SleepParams, WorkerPool, typetag};
use serde::{Deserialize, Serialize};
use std::sync::OnceLock;
use std::time::Duration;
use windlass_peers_driver::{Enqueuer, Running, Start, System, Work, at_once, perform_blocking};

/// Removing finished tasks, which is its default.
#[derive(Debug)]
pub(crate) struct Fang;

/// The sleep of a worker that found nothing. Its default is 5 to 15 s.
const SLEEP: Duration = Duration::from_millis(10);

type ConnectionPool = Pool<ConnectionManager<PgConnection>>;

/// For the inserts of its jobs, which get no state from it.
static JOBS_POOL: OnceLock<ConnectionPool> = OnceLock::new();

#[derive(Serialize, Deserialize)]
struct Numbered {
    number: u32,
}

#[typetag::serde]
impl Runnable for Numbered {
    fn run(&self, _: &dyn Queueable) -> Result<(), FangError> {
        let performed = perform_blocking(self.number, || insert(self.number.into()));
        performed.map_err(|error| FangError {
            description: error.to_string(),
        })
    }

    fn backoff(&self, _: u32) -> u32 {
        0
    }
}

fn insert(number: i64) -> Result<()> {
    let mut conn = JOBS_POOL.get().context("a pool for jobs")?.get()?;
    let row = diesel::insert_into(effects::table).values(effects::number.eq(number));
    row.execute(&mut conn)?;
    Ok(())
}

/// With so many connections, all open, which are not asked before each use whether they are well.
fn pool(url: &str, connections: u32) -> Result<ConnectionPool> {
    let pool = Pool::builder()
        .max_size(connections)
        .test_on_check_out(false);
    Ok(pool.build(ConnectionManager::new(url))?)
}

fn queue(url: &str, connections: u32) -> Result<Queue> {
    let pool = pool(url, connections)?;
    Ok(Queue::builder().connection_pool(pool).build())
}

impl System for Fang {
    fn migrate(&self, url: &str) -> Result<()> {
        let migrated = fang::run_migrations_postgres(&mut PgConnection::establish(url)?);
        migrated.map_err(|error| anyhow!("create the tables of fang: {error}"))
    }

    fn enqueue_singly(&self, url: &str, callers: u32, each: u32) -> Result<Duration> {
        let queue = queue(url, callers)?;
        at_once(vec![&queue; callers as usize], |queue| {
            for number in 0..each {
                queue.insert_task(&Numbered { number })?;
            }
            Ok(())
        })
    }

    fn enqueue_in_bulk(&self, _: &str, _: u32) -> Result<Option<Duration>> {
        Ok(None)
    }

    fn fill(&self, url: &str, jobs: u32) -> Result<()> {
        // Each with a time of its own, as if inserted one after the other.
        PgConnection::establish(url)?.batch_execute(&format!(
            "INSERT INTO fang_tasks (metadata, scheduled_at, created_at, updated_at)
             SELECT jsonb_build_object('type', 'Numbered', 'number', number), now, now, now
             FROM (SELECT number, clock_timestamp() AS now
                   FROM generate_series(0, {jobs} - 1) AS number) AS tasks"
        ))?;
        Ok(())
    }

    fn enqueuer(&self, url: &str) -> Result<Enqueuer> {
        let queue = queue(url, 1)?;
        Ok(Box::new(move || {
            queue.insert_task(&Numbered { number: 0 })?;
            Ok(())
        }))
    }

    fn worker(&self, url: &str, work: Work, workers: u32) -> Result<Start> {
        if work == Work::Insert {
            let _ = JOBS_POOL.set(pool(url, JOB_CONNECTIONS)?);
        }
        let mut pool = WorkerPool::<Queue>::builder()
            .queue(queue(url, workers)?)
            .number_of_workers(workers)
            .sleep_params(SleepParams {
                sleep_period: SLEEP,
                max_sleep_period: SLEEP,
                min_sleep_period: SLEEP,
                sleep_step: SLEEP,
            })
            .build();
        Ok(Box::new(move || {
            let started = pool.start();
            started.map_err(|error| anyhow!("start the workers of fang: {error:?}"))?;
            Ok(Running::new(pool))
        }))
    }
}
