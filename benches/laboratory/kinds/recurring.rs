//! Recurring tasks that are due in the same second, until the jobs of all are enqueued.

use crate::error::{Error, ErrorContext as _, Result};
use crate::event::Event;
use crate::event::logging::Subscriber;
use crate::laboratory::ceilings::{self, ACTION, some};
use crate::laboratory::comparison::{Ceiling, Comparison, FigureValue};
use crate::laboratory::jobs::Nothing;
use crate::laboratory::plain::recurring;
use crate::laboratory::run::BenchRun;
use crate::process::scheduler::Scheduler;
use crate::recurring::task::RecurringTask;
use crate::recurring::tasks;
use crate::{clock, testing};
use crossbeam_channel::{Sender, unbounded};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

pub(crate) fn comparisons(run: &BenchRun) -> Vec<Comparison> {
    let count = run.jobs(1_000);
    let plain = Ceiling::over_batches(move |run, batch| plain_fire(run, count, batch));
    vec![Comparison::new(format!("{count} tasks"), move |run| fire(run, count)).beside(plain)]
}

const DAY: Duration = Duration::from_secs(24 * 3_600);

fn fire(run: &BenchRun, count: u32) -> Result<Vec<FigureValue>> {
    let place = run.place()?;
    let database = place.migrated()?;
    let mut connection = database.connect()?;
    for number in 0..count {
        let nothing = Nothing {
            number: number.into(),
        };
        let task = RecurringTask::new(format!("task-{number}"), "@daily", &nothing)?;
        tasks::schedule(&mut connection, &task)?;
    }
    // The next tick becomes that of this day, which is not too late.
    testing::travel(&mut connection, DAY)?;
    let (sender, times) = unbounded();
    let scheduler = Scheduler::new(&database)
        .grace(2 * DAY)
        .subscriber(subscriber(count, sender))
        .start()?;
    let (begun, done) = match (times.recv(), times.recv_timeout(run.settings.limit)) {
        (Ok(begun), Ok(done)) => (begun, done),
        _ => return Err(silent()),
    };
    scheduler.stop();
    scheduler.wait();
    let took = done.saturating_sub(begun);
    Ok(FigureValue::rate("tasks/s", u64::from(count), took))
}

/// Sends the time of the registration, and that of the last tick.
fn subscriber(count: u32, sender: Sender<Duration>) -> Subscriber {
    let fired = AtomicU32::new(0);
    Subscriber::new(move |event| {
        let is_told = match event {
            Event::Registered { .. } => true,
            Event::Ticked { .. } => fired.fetch_add(1, Ordering::Relaxed) + 1 == count,
            _ => false,
        };
        if is_told {
            let _ = sender.send(clock::since_boot());
        }
    })
}

fn silent() -> Error {
    Error::Io {
        action: "hear from",
        path: "the scheduler of the benchmark; try fewer jobs or a longer limit".into(),
        source: std::io::ErrorKind::TimedOut.into(),
    }
}

fn plain_fire(run: &BenchRun, count: u32, batch: usize) -> Result<Vec<FigureValue>> {
    let place = run.place()?;
    let database = ceilings::database(place.url())?;
    let count = some(count, batch);
    let all: Vec<i64> = (1..=i64::from(count)).collect();
    let mut connection = database.connect()?;
    connection
        .with_write_lock(|conn| recurring::schedule(conn, &all))
        .during(ACTION)?;
    let took = ceilings::at_once(&database, 1, |connection| {
        all.chunks(batch).try_for_each(|tasks| {
            connection
                .with_write_lock(|conn| recurring::fire(conn, tasks))
                .during(ACTION)
        })
    })?;
    Ok(FigureValue::rate("tasks/s", u64::from(count), took))
}
