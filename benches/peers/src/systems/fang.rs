//! fang's blocking half, on its own pool of Diesel connections.

use super::{Enqueuer, Start, System, at_once};
use crate::place::Address;
use crate::worker;
use anyhow::{Result, anyhow};
use diesel::connection::{Connection as _, SimpleConnection as _};
use diesel::pg::PgConnection;
use diesel::r2d2::{ConnectionManager, Pool};
use fang::{FangError, Queue, Queueable, Runnable, SleepParams, WorkerPool, typetag};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Removing finished tasks, which is its default.
#[derive(Debug)]
pub(crate) struct Fang {
    /// Whether its workers sleep [`SLEEP`] instead of 5 to 15 s, and whether
    /// its pool gives out connections without asking the server whether they
    /// are well.
    pub(crate) tuned: bool,
}

/// How long a tuned worker sleeps that found nothing.
const SLEEP: Duration = Duration::from_millis(10);

#[derive(Serialize, Deserialize)]
struct Nothing {
    number: u32,
}

#[typetag::serde]
impl Runnable for Nothing {
    fn run(&self, _: &dyn Queueable) -> Result<(), FangError> {
        worker::performed();
        Ok(())
    }
}

#[derive(Serialize, Deserialize)]
struct Stamp {}

#[typetag::serde]
impl Runnable for Stamp {
    fn run(&self, _: &dyn Queueable) -> Result<(), FangError> {
        worker::began();
        Ok(())
    }
}

impl Fang {
    /// With so many connections, all open.
    fn queue(&self, address: &Address, connections: u32) -> Result<Queue> {
        let manager = ConnectionManager::<PgConnection>::new(address.url_with_extensions());
        let pool = Pool::builder()
            .max_size(connections)
            .test_on_check_out(!self.tuned)
            .build(manager)?;
        Ok(Queue::builder().connection_pool(pool).build())
    }

    fn sleep(&self) -> SleepParams {
        if !self.tuned {
            return SleepParams::default();
        }
        SleepParams {
            sleep_period: SLEEP,
            max_sleep_period: SLEEP,
            min_sleep_period: SLEEP,
            sleep_step: SLEEP,
        }
    }
}

impl System for Fang {
    fn migrate(&self, address: &Address) -> Result<()> {
        let mut conn = PgConnection::establish(&address.url_with_extensions())?;
        let migrated = fang::run_migrations_postgres(&mut conn);
        migrated.map_err(|error| anyhow!("create the tables of fang: {error}"))
    }

    fn enqueue_singly(&self, address: &Address, callers: u32, each: u32) -> Result<Duration> {
        let queue = self.queue(address, callers)?;
        at_once(vec![&queue; callers as usize], |queue| {
            for number in 0..each {
                queue.insert_task(&Nothing { number })?;
            }
            Ok(())
        })
    }

    fn enqueue_in_bulk(&self, _: &Address, _: u32) -> Result<Option<Duration>> {
        Ok(None)
    }

    fn fill(&self, address: &Address, jobs: u32) -> Result<()> {
        // Each with a time of its own, as if inserted one after the other.
        address.connect()?.batch_execute(&format!(
            "INSERT INTO fang_tasks (metadata, scheduled_at, created_at, updated_at)
             SELECT jsonb_build_object('type', 'Nothing', 'number', number), now, now, now
             FROM (SELECT number, clock_timestamp() AS now
                   FROM generate_series(0, {jobs} - 1) AS number) AS tasks"
        ))?;
        Ok(())
    }

    fn enqueuer(&self, address: &Address) -> Result<Enqueuer> {
        let queue = self.queue(address, 1)?;
        Ok(Box::new(move || {
            queue.insert_task(&Stamp {})?;
            Ok(())
        }))
    }

    fn worker(&self, address: &Address, workers: u32) -> Result<Start> {
        let mut pool = WorkerPool::<Queue>::builder()
            .queue(self.queue(address, workers)?)
            .number_of_workers(workers)
            .sleep_params(self.sleep())
            .build();
        Ok(Box::new(move || {
            let started = pool.start();
            started.map_err(|error| anyhow!("start the workers of fang: {error:?}"))?;
            Ok(Box::new(pool))
        }))
    }

    fn unfinished(&self) -> &'static str {
        "EXISTS (SELECT 1 FROM fang_tasks)"
    }
}
