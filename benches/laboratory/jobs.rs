//! The jobs that a benchmark enqueues.

use crate::clock;
use crate::db::AsConn as _;
use crate::error::Result;
use crate::job::class::Job;
use crate::job::context::Context;
use crate::job::error::{JobError, JobResult};
use crate::job::new_job::NewJob;
use crate::job::policy::backoff::Backoff;
use crate::job::policy::{Delivery, Policy};
use crate::job::registry::Registry;
use crate::laboratory::plain::enqueue::CLASS;
use crate::laboratory::plain::outcome::insert_effect;
use crossbeam_channel::Sender;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Makes the job with this number.
pub(crate) type Make<'a> = dyn Fn(u64) -> Result<NewJob> + 'a;

/// A job that does nothing.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Nothing {
    pub(crate) number: u64,
}

impl Job for Nothing {
    const NAME: &'static str = CLASS;
    type State = ();
    type Output = ();

    fn perform(self, _: &Context<'_, ()>) -> JobResult {
        Ok(())
    }
}

/// Makes a job that does nothing.
pub(crate) fn nothing(number: u64) -> Result<NewJob> {
    NewJob::new(&Nothing { number })
}

/// A job that reports when it started.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Stamp {}

impl Job for Stamp {
    const NAME: &'static str = "windlass_bench_stamp";
    const PRIORITY: i32 = -1;
    type State = Sender<Duration>;
    type Output = ();

    fn perform(self, cx: &Context<'_, Sender<Duration>>) -> JobResult {
        let _ = cx.state().send(clock::since_boot());
        Ok(())
    }
}

/// A job that sleeps.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Sleep {
    pub(crate) micros: u64,
}

impl Job for Sleep {
    const NAME: &'static str = "windlass_bench_sleep";
    type State = ();
    type Output = ();

    fn perform(self, _: &Context<'_, ()>) -> JobResult {
        clock::nap(Duration::from_micros(self.micros));
        Ok(())
    }
}

/// The effect of a job on the queue's database.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) enum Effect {
    Insert,
    Step,
    FinishIn,
}

/// A job that inserts a row.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Insert {
    pub(crate) effect: Effect,
}

impl Job for Insert {
    const NAME: &'static str = "windlass_bench_insert";
    type State = ();
    type Output = ();

    fn perform(self, cx: &Context<'_, ()>) -> JobResult {
        let job = cx.job_id().0;
        let mut connection = cx.connection()?;
        match self.effect {
            Effect::Insert => connection.with_write_lock(|conn| insert_effect(conn, job))?,
            Effect::Step => cx.step(&mut connection, "insert", |connection| {
                Ok(insert_effect(&mut connection.as_conn(), job)?)
            })?,
            Effect::FinishIn => connection.transaction(|connection| {
                insert_effect(&mut connection.as_conn(), job)?;
                cx.finish_in(connection)
            })?,
        }
        Ok(())
    }
}

/// A job that fails once, and succeeds at the next attempt, which follows at once.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Retry {}

impl Job for Retry {
    const NAME: &'static str = "windlass_bench_retry";
    type State = ();
    type Output = ();

    fn policy() -> Policy {
        let at_once = Backoff::Fixed(Duration::ZERO);
        Policy::new().max_attempts(2).backoff(at_once)
    }

    fn perform(self, cx: &Context<'_, ()>) -> JobResult {
        match cx.attempt() {
            1 => Err("it was to fail".into()),
            _ => Ok(()),
        }
    }
}

/// A job that fails permanently.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Fail {}

impl Job for Fail {
    const NAME: &'static str = "windlass_bench_fail";
    type State = ();
    type Output = ();

    fn perform(self, _: &Context<'_, ()>) -> JobResult {
        Err("it was to fail".into())
    }
}

/// A job that runs again at once, one time.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Snooze {}

impl Job for Snooze {
    const NAME: &'static str = "windlass_bench_snooze";
    /// The jobs that have run.
    type State = Mutex<HashSet<i64>>;
    type Output = ();

    fn perform(self, cx: &Context<'_, Mutex<HashSet<i64>>>) -> JobResult {
        let mut seen = cx.state().lock().unwrap_or_else(PoisonError::into_inner);
        if seen.insert(cx.job_id().0) {
            Err(JobError::snooze(Duration::ZERO))
        } else {
            Ok(())
        }
    }
}

/// A job that is discarded.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Discard {}

impl Job for Discard {
    const NAME: &'static str = "windlass_bench_discard";
    type State = ();
    type Output = ();

    fn perform(self, _: &Context<'_, ()>) -> JobResult {
        Err(JobError::from("it is not needed").discard())
    }
}

/// A job whose result is kept.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Answer {}

impl Job for Answer {
    const NAME: &'static str = "windlass_bench_answer";
    type State = ();
    type Output = u64;

    fn policy() -> Policy {
        Policy::new().keep_result(Duration::from_secs(3_600))
    }

    fn perform(self, _: &Context<'_, ()>) -> JobResult<u64> {
        Ok(1)
    }
}

/// A job that runs at most once.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Once {}

impl Job for Once {
    const NAME: &'static str = "windlass_bench_once";
    type State = ();
    type Output = ();

    fn policy() -> Policy {
        Policy::new().delivery(Delivery::AtMostOnce)
    }

    fn perform(self, _: &Context<'_, ()>) -> JobResult {
        Ok(())
    }
}

/// Returns all of them, with the channel of the stamps.
pub(crate) fn registry(stamps: Sender<Duration>) -> Registry {
    Registry::new()
        .register::<Nothing>(())
        .register::<Stamp>(stamps)
        .register::<Sleep>(())
        .register::<Insert>(())
        .register::<Retry>(())
        .register::<Fail>(())
        .register::<Snooze>(Mutex::default())
        .register::<Discard>(())
        .register::<Answer>(())
        .register::<Once>(())
}
