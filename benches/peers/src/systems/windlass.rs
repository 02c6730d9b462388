//! Windlass itself, as any program would use it.

use super::{BULK, Enqueuer, Start, System, at_once};
use crate::place::Address;
use crate::worker;
use anyhow::Result;
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};
use windlass::{Context, Database, DbConnection, Job, JobResult, NewJob, Registry, Worker};

/// With its defaults.
#[derive(Debug)]
pub(crate) struct Windlass {
    /// Whether finished jobs stay, as they do by default.
    pub(crate) keep: bool,
}

#[derive(Serialize, Deserialize)]
struct Nothing {
    number: u32,
}

impl Job for Nothing {
    const NAME: &'static str = "nothing";
    type State = ();
    type Output = ();

    fn perform(self, _: &Context<'_, ()>) -> JobResult {
        worker::performed();
        Ok(())
    }
}

#[derive(Serialize, Deserialize)]
struct Stamp {}

impl Job for Stamp {
    const NAME: &'static str = "stamp";
    type State = ();
    type Output = ();

    fn perform(self, _: &Context<'_, ()>) -> JobResult {
        worker::began();
        Ok(())
    }
}

fn database(address: &Address) -> Result<Database> {
    Ok(Database::open(&address.url_of_schema())?)
}

impl System for Windlass {
    fn migrate(&self, address: &Address) -> Result<()> {
        database(address)?.migrate()?;
        Ok(())
    }

    fn enqueue_singly(&self, address: &Address, callers: u32, each: u32) -> Result<Duration> {
        let database = database(address)?;
        let own = (0..callers).map(|_| database.connect());
        let own: Vec<DbConnection> = own.collect::<Result<_, _>>()?;
        at_once(own, |mut conn| {
            for number in 0..each {
                Nothing { number }.enqueue(&mut conn)?;
            }
            Ok(())
        })
    }

    fn enqueue_in_bulk(&self, address: &Address, jobs: u32) -> Result<Option<Duration>> {
        let mut conn = database(address)?.connect()?;
        let numbers: Vec<u32> = (0..jobs).collect();
        let begun = Instant::now();
        for numbers in numbers.chunks(BULK) {
            let jobs = numbers
                .iter()
                .map(|&number| NewJob::new(&Nothing { number }));
            let jobs = jobs.collect::<Result<Vec<_>, _>>()?;
            windlass::enqueue_all(&mut conn, jobs)?;
        }
        Ok(Some(begun.elapsed()))
    }

    fn fill(&self, address: &Address, jobs: u32) -> Result<()> {
        self.enqueue_in_bulk(address, jobs).map(drop)
    }

    fn enqueuer(&self, address: &Address) -> Result<Enqueuer> {
        let mut conn = database(address)?.connect()?;
        Ok(Box::new(move || {
            Stamp {}.enqueue(&mut conn)?;
            Ok(())
        }))
    }

    fn worker(&self, address: &Address, workers: u32) -> Result<Start> {
        let registry = Registry::new()
            .register::<Nothing>(())
            .register::<Stamp>(());
        let worker = Worker::new(&database(address)?, registry)
            .threads(workers.try_into()?)
            .keep_finished(self.keep);
        Ok(Box::new(move || Ok(Box::new(worker.start()?))))
    }

    fn unfinished(&self) -> &'static str {
        "EXISTS (SELECT 1 FROM solid_queue_ready_executions) \
         OR EXISTS (SELECT 1 FROM solid_queue_claimed_executions)"
    }
}
