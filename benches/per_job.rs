//! The cost of each job beside the database, on its way from the enqueue to
//! its end: `cargo bench -p windlass-benches`. `docs/performance.md` tells
//! how to compare two versions.

use criterion::measurement::WallTime;
use criterion::{BatchSize, BenchmarkGroup, Criterion, Throughput};
use serde::{Deserialize, Serialize};
use std::hint::black_box;
use std::time::Duration;
use windlass_internal::laboratory::per_job::{Crew, CursorSet, group, row, tell};
use windlass_internal::{Backoff, Context, Job, JobResult, NewJob, Policy, Registry, Result};

/// As in a mail to one user.
#[derive(Serialize, Deserialize)]
struct Small {
    user: u64,
    template: String,
}

impl Small {
    fn new() -> Self {
        Small {
            user: 4_711,
            template: "welcome".to_owned(),
        }
    }
}

impl Job for Small {
    const NAME: &'static str = "small";
    type State = ();
    type Output = ();
    fn perform(self, _: &Context<'_, ()>) -> JobResult {
        black_box(self.user + self.template.len() as u64);
        Ok(())
    }
}

/// 4 KiB of JSON: a list of lines with text, numbers and something to escape.
#[derive(Serialize, Deserialize)]
struct Large {
    lines: Vec<Line>,
}

#[derive(Serialize, Deserialize)]
struct Line {
    article: u64,
    price: f64,
    text: String,
}

impl Large {
    fn new() -> Self {
        let line = |number: u32| Line {
            article: u64::from(1_000_000 + number),
            price: 12.5 * f64::from(number),
            text: format!("a \"line\" of some order, number {number}"),
        };
        Large {
            lines: (0..47).map(line).collect(),
        }
    }
}

impl Job for Large {
    const NAME: &'static str = "large";
    type State = ();
    type Output = usize;
    fn policy() -> Policy {
        let second = Duration::from_secs(1);
        Policy::new()
            .max_attempts(5)
            .backoff(Backoff::Fixed(second))
    }
    fn perform(self, _: &Context<'_, ()>) -> JobResult<usize> {
        Ok(black_box(self.lines.len()))
    }
}

fn registry() -> Registry {
    Registry::new().register::<Small>(()).register::<Large>(())
}

/// From a job to what its enqueue sends, checked.
fn encode(criterion: &mut Criterion) -> Result<()> {
    let mut group = criterion.benchmark_group("encode");
    group.throughput(Throughput::Elements(1));
    let (small, large) = (Small::new(), Large::new());
    group.bench_function("small", |b| {
        b.iter(|| NewJob::new(black_box(&small)).and_then(row));
    });
    group.bench_function("4 KiB", |b| {
        b.iter(|| NewJob::new(black_box(&large)).and_then(row));
    });
    group.bench_function("1000 small", |b| {
        let all = || (0..1_000).map(|_| NewJob::new(black_box(&small)).and_then(row));
        b.iter(|| all().collect::<Result<Vec<_>>>());
    });
    group.finish();
    Ok(())
}

/// Jobs of one claim.
const BATCH: usize = 500;

fn batches(group: &mut BenchmarkGroup<'_, WallTime>, name: &str, crew: &Crew, way: Way) {
    group.bench_function(name, |b| {
        let claimed = || crew.claimed(BATCH);
        match way {
            Way::Here => {
                b.iter_batched(claimed, |jobs| crew.perform(jobs), BatchSize::PerIteration)
            }
            Way::Pool => {
                b.iter_batched(claimed, |jobs| crew.dispatch(jobs), BatchSize::PerIteration)
            }
        }
    });
}

#[derive(Clone, Copy)]
enum Way {
    Here,
    Pool,
}

/// The work of a thread on a claimed job: policy, decoding, the job, its output.
fn perform(criterion: &mut Criterion) -> Result<()> {
    let mut group = criterion.benchmark_group("perform");
    group.throughput(Throughput::Elements(BATCH as u64));
    let small = Crew::start(registry(), 1, vec![NewJob::new(&Small::new())?])?;
    batches(&mut group, "small", &small, Way::Here);
    let large = Crew::start(registry(), 1, vec![NewJob::new(&Large::new())?])?;
    batches(&mut group, "4 KiB", &large, Way::Here);
    group.finish();
    Ok(())
}

/// From the rows of a claim to a batch of endings, through the threads.
fn dispatch(criterion: &mut Criterion) -> Result<()> {
    let mut group = criterion.benchmark_group("dispatch");
    group.throughput(Throughput::Elements(BATCH as u64));
    for threads in [1, 4, 16] {
        let crew = Crew::start(registry(), threads, vec![NewJob::new(&Small::new())?])?;
        batches(&mut group, &format!("{threads} threads"), &crew, Way::Pool);
    }
    group.finish();
    Ok(())
}

/// Endings, sorted into statements.
fn finish(criterion: &mut Criterion) -> Result<()> {
    let mut measured = criterion.benchmark_group("finish");
    measured.throughput(Throughput::Elements(BATCH as u64));
    let small = || NewJob::new(&Small::new());
    let large = || NewJob::new(&Large::new());
    let delete = || Policy::new().keep_finished(false);
    let mixed = vec![
        small()?,
        large()?,
        small()?.policy(delete()),
        large()?.policy(delete()),
    ];
    for (name, jobs) in [("one kind", vec![small()?]), ("four kinds", mixed)] {
        let kinds = jobs.len();
        let crew = Crew::start(registry(), 1, jobs)?;
        let endings = || crew.perform(crew.claimed(BATCH));
        assert_eq!(group(endings()).count(), kinds, "{name}");
        measured.bench_function(name, |b| {
            b.iter_batched(endings, group, BatchSize::PerIteration)
        });
    }
    measured.finish();
    Ok(())
}

/// The state that is kept between claims, and events without a subscriber.
fn beside(criterion: &mut Criterion) -> Result<()> {
    let queues: Vec<String> = (0..10).map(|number| format!("queue-{number}")).collect();
    let on = |queue: &String| Ok(NewJob::new(&Small::new())?.queue(queue));
    let crew = |queues: &[String]| {
        let jobs = queues.iter().map(on).collect::<Result<_>>()?;
        Crew::start(registry(), 1, jobs)
    };
    let (first, crew) = (crew(&queues[..1])?, crew(&queues)?);
    let (of_one, jobs) = (first.claimed(BATCH), crew.claimed(BATCH));
    let mut group = criterion.benchmark_group("beside");
    group.throughput(Throughput::Elements(1));
    group.bench_function("pace", |b| {
        b.iter(|| crew.pace(black_box(Duration::from_micros(20))));
    });
    group.throughput(Throughput::Elements(BATCH as u64));
    for (name, queues, jobs) in [
        ("marks of all queues", &[][..], &jobs),
        ("marks of one queue", &queues[..1], &of_one),
        ("marks of 10 queues", &queues, &jobs),
    ] {
        let mut places = CursorSet::default();
        group.bench_function(name, |b| b.iter(|| places.look(queues, jobs)));
    }
    group.bench_function("events unheard", |b| b.iter(|| tell(black_box(&jobs))));
    group.finish();
    Ok(())
}

fn main() -> Result<()> {
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_secs(1))
        .measurement_time(Duration::from_secs(3))
        // The noise of a busy machine.
        .noise_threshold(0.1)
        .without_plots()
        .configure_from_args();
    for all in [encode, perform, dispatch, finish, beside] {
        all(&mut criterion)?;
    }
    criterion.final_summary();
    Ok(())
}
