//! The classes of a queue.

use crate::db::Conn;
use crate::db::query::load::queue::{self, ClassCount};
use crate::db::query::load::totals::CappedCount;
use crate::error::{Doing as _, Result};
use crate::history::{SeriesTally, TimeRange};
use crate::web::pages::queue::now::QueueDetails;
use crate::web::show::numbers::short;
use std::collections::BTreeMap;
use std::time::Duration;

/// The ready jobs of each class.
#[derive(Debug)]
pub(crate) struct ReadyClasses {
    counts: Vec<ClassCount>,
    /// Whether only the next jobs were counted.
    is_more: bool,
}

/// A class of the queue.
#[derive(Debug, Clone, Default)]
pub(crate) struct ClassLine {
    pub(crate) name: String,
    pub(crate) ready: CappedCount,
    pub(crate) running: u64,
    pub(crate) failed: CappedCount,
    /// Ended jobs per second.
    pub(crate) rate: String,
    pub(crate) p50: Option<Duration>,
    pub(crate) p99: Option<Duration>,
}

/// The most classes that are shown.
const MOST: usize = 50;

/// Counts the ready jobs of a queue by class.
pub(crate) fn read(conn: &mut Conn<'_>, queue: &str) -> Result<ReadyClasses> {
    let counted = queue::ready_classes(conn, queue).doing("count the jobs of each class");
    let (counts, is_more) = counted?;
    Ok(ReadyClasses { counts, is_more })
}

/// Returns the classes with most failed and ready jobs first.
pub(crate) fn lines(
    ready: &ReadyClasses,
    details: Option<&QueueDetails>,
    ended: Option<&[SeriesTally]>,
    range: TimeRange,
) -> Vec<ClassLine> {
    let failed = details.map(|details| &details.failed_classes);
    let empty = |name: &str| ClassLine {
        name: name.to_owned(),
        ready: CappedCount::part(0, ready.is_more),
        failed: CappedCount::part(0, failed.is_none_or(|failed| failed.is_more)),
        rate: "–".to_owned(),
        ..ClassLine::default()
    };
    let mut classes: BTreeMap<String, ClassLine> = BTreeMap::new();
    let mut line = |name: &str, change: &dyn Fn(&mut ClassLine)| {
        let entry = classes.entry(name.to_owned());
        change(entry.or_insert_with(|| empty(name)));
    };
    for class in &ready.counts {
        let jobs = CappedCount::part(class.jobs, ready.is_more);
        line(&class.class_name, &|line| line.ready = jobs);
    }
    for (class, jobs) in failed.map_or(&[][..], |failed| &failed.counts) {
        line(class, &|line| line.failed = *jobs);
    }
    let held = details.map(|details| details.held.as_slice());
    for job in held.unwrap_or_default().iter().filter(|job| !job.is_ahead) {
        line(&job.class_name, &|line| line.running += 1);
    }
    let seconds = range.bucket().as_secs_f64() * range.buckets() as f64;
    for class in ended.unwrap_or_default() {
        line(&class.class, &|line| {
            line.rate = short(class.tally.ended() as f64 / seconds);
            line.p50 = class.tally.run.quantile(0.5);
            line.p99 = class.tally.run.quantile(0.99);
        });
    }
    let mut lines: Vec<ClassLine> = classes.into_values().collect();
    lines.sort_by_key(|line| std::cmp::Reverse((line.failed.count, line.ready.count)));
    lines.truncate(MOST);
    lines
}
