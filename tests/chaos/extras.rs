//! The jobs and batches that are enqueued beside the ordinary jobs, and their amounts.

use crate::gates::{self, Conflicting, Daily, Raised, Rationed};
use crate::jobs::{Log, Work};
use crate::place::{Place, count};
use crate::rates::Paced;
use crate::shares::Turn;
use crate::{Result, batches, flows, waits};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use windlass::{DbConnection, Error, NewJob, Registry};

/// The amount of each.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, clap::Args)]
pub struct Amounts {
    /// The number of small batches that are enqueued beside the jobs. The faults go on until these, and all of the next
    /// five, are enqueued: at most ten times `seconds`.
    #[arg(long, default_value_t = 0)]
    pub batches: u32,
    /// The number of jobs in flows: they wait for others of two to six.
    #[arg(long, default_value_t = 200)]
    pub flows: u32,
    /// The number of jobs that undo their steps when they fail.
    #[arg(long, default_value_t = 40)]
    pub sagas: u32,
    /// The number of jobs that wait for an event.
    #[arg(long, default_value_t = 100)]
    pub waits: u32,
    /// The number of jobs that have a limit, and do not wait for a slot.
    #[arg(long, default_value_t = 500)]
    pub discards: u32,
    /// The number of jobs with one key, of which the limit changes; at most 50,000 of them wait at once.
    #[arg(long, default_value_t = 500)]
    pub raised: u32,
    /// The number of jobs a day that one quota admits; another admits ten a second.
    #[arg(long, default_value_t = 50)]
    pub quota: u32,
    /// The number of jobs with two rates.
    #[arg(long, default_value_t = 500)]
    pub paced: u32,
}

/// Of one kind: how many are wanted, the query that counts them, how many are enqueued at once, and how.
struct Extra {
    wanted: u32,
    counted: String,
    at_once: u32,
    enqueue: fn(&mut DbConnection, u32, killers: u32) -> Result<(), Error>,
}

/// Counts the jobs of a class.
pub fn of_class(class: &str) -> String {
    format!("SELECT count(*) AS n FROM solid_queue_jobs WHERE class_name = '{class}'")
}

impl Amounts {
    fn each(self) -> [Extra; 7] {
        let extra = |wanted, counted, at_once, enqueue| Extra {
            wanted,
            counted,
            at_once,
            enqueue,
        };
        [
            extra(
                self.batches,
                batches::BATCHES.to_owned(),
                20,
                batches::enqueue,
            ),
            extra(self.flows, of_class("chaos_link"), 40, flows::enqueue),
            extra(self.sagas, of_class("chaos_saga"), 20, flows::enqueue_sagas),
            extra(self.waits, of_class("chaos_waiter"), 20, waits::enqueue),
            extra(
                self.discards,
                of_class("chaos_conflicting"),
                1_000,
                |conn, n, _| bulk(conn, n, |n| NewJob::new(&Conflicting(n))),
            ),
            extra(
                self.raised,
                of_class("chaos_raised"),
                1_000,
                |conn, n, _| match gates::is_crowded(conn) {
                    true => Ok(()),
                    false => bulk(conn, n, |n| NewJob::new(&Raised(n))),
                },
            ),
            extra(self.paced, of_class("chaos_paced"), 100, |conn, n, _| {
                bulk(conn, n, |n| NewJob::new(&Paced(n)))
            }),
        ]
    }

    /// Enqueues some of one kind, if it is not `done`: all of a part, or none. What got no answer is not repeated.
    pub fn enqueue_some(
        self,
        conn: &mut DbConnection,
        killers: u32,
        done: &mut [bool; 7],
    ) -> Result<()> {
        let drawn = fastrand::usize(..done.len());
        if done[drawn] {
            return Ok(());
        }
        let extra = &self.each()[drawn];
        let lacking = i64::from(extra.wanted) - count(conn, &extra.counted)?;
        done[drawn] = lacking <= 0;
        if lacking > 0 {
            let some = lacking.min(i64::from(extra.at_once)) as u32;
            (extra.enqueue)(conn, some, killers)?;
        }
        Ok(())
    }

    /// Returns true if something is still to be enqueued.
    pub fn are_lacking(self, place: &Place) -> bool {
        let lacks = |extra: &Extra| {
            extra.wanted > 0
                && place.count(&extra.counted).unwrap_or_default() < i64::from(extra.wanted)
        };
        self.each().iter().any(lacks)
    }
}

fn bulk(
    conn: &mut DbConnection,
    n: u32,
    job: impl Fn(u64) -> Result<NewJob, Error>,
) -> Result<(), Error> {
    // Behind the other jobs: these are so many.
    let jobs = (0..n).map(|_| Ok(job(fastrand::u64(..1 << 40))?.priority(3)));
    windlass::enqueue_all(conn, jobs.collect::<Result<Vec<NewJob>, Error>>()?).map(drop)
}

/// Registers all of their jobs.
pub fn register(registry: Registry, log: &Arc<Log>) -> Registry {
    registry
        .register::<batches::Adds>(Arc::clone(log))
        .register::<flows::Link>(Arc::clone(log))
        .register::<flows::Saga>(Arc::clone(log))
        .register::<flows::Undo>(Arc::clone(log))
        .register::<waits::Waiter>(Arc::clone(log))
        .register::<Conflicting>(Arc::clone(log))
        .register::<Raised>(Arc::clone(log))
        .register::<Daily>(Arc::clone(log))
        .register::<Rationed>(Arc::clone(log))
        .register::<Paced>(Arc::clone(log))
        .register::<Turn>(Arc::clone(log))
        .register::<Work>(Arc::clone(log))
}
