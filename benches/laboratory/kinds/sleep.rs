//! Jobs that sleep: how much of what the threads could do is left.

use crate::clock;
use crate::job::new_job::NewJob;
use crate::laboratory::comparison::{Ceiling, Comparison, FigureValue};
use crate::laboratory::drains;
use crate::laboratory::jobs::Sleep;
use crate::laboratory::run::BenchRun;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The curve, in microseconds.
const SLEEPS: [u64; 9] = [100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000];

/// The time that a measurement takes at best, in microseconds.
const WHOLE: u64 = 500_000;

pub(crate) fn comparisons(run: &BenchRun) -> Vec<Comparison> {
    let single = SLEEPS.iter().map(|&micros| {
        let name = format!("{} ms", micros as f64 / 1e3);
        of(run, name, [micros; SLEEPS.len()])
    });
    let mix = of(run, "a mix".to_owned(), SLEEPS);
    single.chain([mix]).collect()
}

/// Jobs that sleep for each of these times in turn.
fn of(run: &BenchRun, name: String, sleeps: [u64; SLEEPS.len()]) -> Comparison {
    let threads = run.settings.threads;
    let mean = sleeps.iter().sum::<u64>() / sleeps.len() as u64;
    let fitting = WHOLE * u64::from(threads) / mean;
    let jobs = run.jobs(u32::try_from(fitting).unwrap_or(u32::MAX));
    let time = move |number: u64| sleeps[number as usize % sleeps.len()];
    let windlass = move |run: &BenchRun| {
        let make = |number| {
            NewJob::new(&Sleep {
                micros: time(number),
            })
        };
        drains::runs(run, jobs, 1, &make)
    };
    let plain = move |_: &BenchRun| Ok(threads_alone(threads, u64::from(jobs), &time));
    Comparison::new(name, windlass).beside(Ceiling::one("plain threads", plain))
}

/// Threads that take a number each and sleep.
fn threads_alone(threads: u32, jobs: u64, time: &(impl Fn(u64) -> u64 + Sync)) -> Vec<FigureValue> {
    let next = AtomicU64::new(0);
    let begun = clock::instant();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= jobs {
                        return;
                    }
                    clock::nap(Duration::from_micros(time(number)));
                }
            });
        }
    });
    FigureValue::rate("runs/s", jobs, begun.elapsed())
}
