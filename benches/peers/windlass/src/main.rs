//! Drives Windlass, as any program would use it, as `windlass-peers` asks it to.

use anyhow::Result;
use diesel::prelude::*;
use schema::effects;
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};
use windlass::{
    Backoff, Concurrency, Context, Database, DbConnection, Job, JobResult, NewJob, Policy,
};
use windlass::{Registry, Worker};
use windlass_peers_driver::{
    BULK, Enqueuer, Running, Start, System, Work, at_once, perform_blocking,
};

/// With its defaults.
struct Windlass {
    /// True if finished jobs stay, as they do by default.
    keep: bool,
}

mod schema {
    diesel::table! {
        /// The table into which the jobs of `Work::Insert` insert.
        effects (number) {
            number -> BigInt,
        }
    }
}

/// The kind of database, which its jobs have to know.
enum On {
    Postgres,
    Sqlite,
}

#[derive(Serialize, Deserialize)]
struct Numbered {
    number: u32,
}

impl Job for Numbered {
    const NAME: &'static str = "numbered";
    type State = On;
    type Output = ();

    fn policy() -> Policy {
        // One attempt more, at once; the rest is as by default.
        let at_once = Backoff::Fixed(Duration::ZERO);
        Policy::new().max_attempts(2).backoff(at_once)
    }

    fn perform(self, cx: &Context<'_, On>) -> JobResult {
        perform_blocking(self.number, || insert(cx, self.number.into()))?;
        Ok(())
    }
}

fn insert(cx: &Context<'_, On>, number: i64) -> Result<()> {
    let row = diesel::insert_into(effects::table).values(effects::number.eq(number));
    match cx.state() {
        On::Postgres => row.execute(&mut *cx.postgres()?)?,
        On::Sqlite => row.execute(&mut *cx.sqlite()?)?,
    };
    Ok(())
}

impl System for Windlass {
    fn migrate(&self, url: &str) -> Result<()> {
        Database::open(url)?.migrate()?;
        Ok(())
    }

    fn enqueue_singly(&self, url: &str, callers: u32, each: u32) -> Result<Duration> {
        let database = Database::open(url)?;
        let own = (0..callers).map(|_| database.connect());
        let own: Vec<DbConnection> = own.collect::<Result<_, _>>()?;
        at_once(own, |mut conn| {
            for number in 0..each {
                Numbered { number }.enqueue(&mut conn)?;
            }
            Ok(())
        })
    }

    fn enqueue_in_bulk(&self, url: &str, jobs: u32) -> Result<Option<Duration>> {
        let mut conn = Database::open(url)?.connect()?;
        let numbers: Vec<u32> = (0..jobs).collect();
        let start = Instant::now();
        for numbers in numbers.chunks(BULK) {
            let jobs = numbers.iter();
            let jobs = jobs.map(|&number| NewJob::new(&Numbered { number }));
            let jobs = jobs.collect::<Result<Vec<_>, _>>()?;
            windlass::enqueue_all(&mut conn, jobs)?;
        }
        Ok(Some(start.elapsed()))
    }

    fn fill_limited(&self, url: &str, jobs: u32) -> Result<Option<()>> {
        let mut conn = Database::open(url)?.connect()?;
        let numbers: Vec<u32> = (0..jobs).collect();
        for numbers in numbers.chunks(BULK) {
            let jobs = numbers.iter().map(|&number| {
                let job = NewJob::new(&Numbered { number })?;
                Ok(job.concurrency(Concurrency::new("one")))
            });
            let jobs = jobs.collect::<windlass::Result<Vec<_>>>()?;
            windlass::enqueue_all(&mut conn, jobs)?;
        }
        Ok(Some(()))
    }

    fn enqueuer(&self, url: &str) -> Result<Enqueuer> {
        let mut conn = Database::open(url)?.connect()?;
        Ok(Box::new(move || {
            Numbered { number: 0 }.enqueue(&mut conn)?;
            Ok(())
        }))
    }

    fn worker(&self, url: &str, _: Work, workers: u32) -> Result<Start> {
        let database = Database::open(url)?;
        let on = if url.starts_with("sqlite") {
            On::Sqlite
        } else {
            On::Postgres
        };
        let registry = Registry::new().register::<Numbered>(on);
        let worker = Worker::new(&database, registry)
            .threads(workers.try_into()?)
            .keep_finished(self.keep);
        Ok(Box::new(move || Ok(Running::new(worker.start()?))))
    }
}

fn main() -> Result<()> {
    let is_deleting = std::env::args().any(|argument| argument == "windlass-deleting");
    let keep = !is_deleting;
    windlass_peers_driver::run(&Windlass { keep })
}
