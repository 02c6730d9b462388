//! The work of a job, the same in every framework, and how it is counted.

use crate::command::{Answer, Work};
use crate::run::{now, say};
use anyhow::Result;
use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

/// A job fails, as it is meant to.
#[derive(Debug)]
pub struct Failed;

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "this job fails once")
    }
}

impl std::error::Error for Failed {}

static PLAN: OnceLock<Plan> = OnceLock::new();

struct Plan {
    work: Work,
    /// The outcomes that each job has had, by its number.
    seen: Vec<AtomicU8>,
    jobs: AtomicU64,
    runs: AtomicU64,
    /// True while a job of [`Work::Alone`] runs.
    is_busy: AtomicBool,
    /// Jobs that have not succeeded yet never will.
    is_closed: AtomicBool,
}

const FAILED: u8 = 1;
const SUCCEEDED: u8 = 2;

/// Notes what the jobs of this process do, and how many there are.
pub(crate) fn plan(work: Work, jobs: u32) {
    let _ = PLAN.set(Plan {
        work,
        seen: (0..jobs).map(|_| AtomicU8::new(0)).collect(),
        jobs: AtomicU64::new(0),
        runs: AtomicU64::new(0),
        is_busy: AtomicBool::new(false),
        is_closed: AtomicBool::new(false),
    });
}

/// Counts the jobs that have succeeded. Those that have not by then stay as they are, so that the
/// database never knows more successes than were counted.
pub(crate) fn counted() -> Answer {
    if let Some(plan) = PLAN.get() {
        plan.is_closed.store(true, Ordering::SeqCst);
        // Some jobs are between the look and the count.
        std::thread::sleep(Duration::from_millis(10));
    }
    let count = |counter: fn(&Plan) -> &AtomicU64| {
        let plan = PLAN.get();
        plan.map_or(0, |plan| counter(plan).load(Ordering::Relaxed))
    };
    Answer::Counted {
        jobs: count(|plan| &plan.jobs),
        runs: count(|plan| &plan.runs),
    }
}

/// The work that is left for a job that has started.
enum Step {
    End,
    Insert,
    Sleep(Duration),
}

impl Plan {
    fn begin(&self, number: u32) -> Result<Step, Failed> {
        match self.work {
            Work::Nothing => {}
            Work::Insert => return Ok(Step::Insert),
            Work::Sleep(millis) => return Ok(Step::Sleep(Duration::from_millis(millis.into()))),
            Work::FailOnce => {
                let seen = self.seen.get(number as usize);
                if seen.is_some_and(|seen| seen.fetch_or(FAILED, Ordering::Relaxed) & FAILED == 0) {
                    return Err(Failed);
                }
            }
            Work::Alone => {
                if self.is_busy.swap(true, Ordering::SeqCst) {
                    eprintln!("two jobs of one key ran at once");
                    std::process::exit(1);
                }
                // A gap that another one could fall into.
                std::thread::yield_now();
            }
            Work::Stamp => say(Answer::Began(now())),
        }
        Ok(Step::End)
    }

    fn end(&self, number: u32) {
        while self.is_closed.load(Ordering::Relaxed) {
            std::thread::park();
        }
        self.is_busy.store(false, Ordering::SeqCst);
        self.runs.fetch_add(1, Ordering::Relaxed);
        let seen = self.seen.get(number as usize);
        if seen.is_some_and(|seen| seen.fetch_or(SUCCEEDED, Ordering::Relaxed) & SUCCEEDED == 0) {
            let jobs = self.jobs.fetch_add(1, Ordering::Relaxed) + 1;
            if jobs == self.seen.len() as u64 {
                say(Answer::AllSucceeded);
            }
        }
    }
}

/// Performs the job with this number on the calling thread. `insert` inserts the number into the
/// table `effects`.
///
/// # Errors
/// [`Failed`] if the job is to fail, or what `insert` returned.
pub fn perform_blocking(number: u32, insert: impl FnOnce() -> Result<()>) -> Result<()> {
    let Some(plan) = PLAN.get() else {
        return Ok(());
    };
    match plan.begin(number)? {
        Step::End => {}
        Step::Insert => insert()?,
        Step::Sleep(time) => std::thread::sleep(time),
    }
    plan.end(number);
    Ok(())
}

/// The same in a task; `sleep` is that of its runtime.
///
/// # Errors
/// As [`perform_blocking`].
pub async fn perform<S: Future<Output = ()>>(
    number: u32,
    sleep: fn(Duration) -> S,
    insert: impl Future<Output = Result<()>>,
) -> Result<()> {
    let Some(plan) = PLAN.get() else {
        return Ok(());
    };
    match plan.begin(number)? {
        Step::End => {}
        Step::Insert => insert.await?,
        Step::Sleep(time) => sleep(time).await,
    }
    plan.end(number);
    Ok(())
}
