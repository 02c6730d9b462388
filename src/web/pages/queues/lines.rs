//! The rows of the table of queues.

use crate::admin::now::{LoadNow, QueueNow};
use crate::db::query::load::totals::CappedCount;
use crate::history::curves::QueueCurves;
use crate::web::read::concerns::who_and_why;
use crate::web::read::places::PlaceCounts;
use crate::web::read::verdict::QueueVerdict;
use crate::web::show::chart::spark::{SparkPlace, spark};
use crate::web::show::markup::{Markup, escaped};
use crate::web::show::numbers::{count, short};
use crate::web::show::times::ago;

/// A queue in the table.
#[derive(Debug, Clone)]
pub(crate) struct QueueLine {
    pub(crate) name: String,
    pub(crate) verdict: Markup,
    /// What explains the verdict.
    pub(crate) sub: String,
    pub(crate) is_late: bool,
    pub(crate) is_paused: bool,
    pub(crate) oldest: Option<f64>,
    pub(crate) ready: CappedCount,
    pub(crate) scheduled: CappedCount,
    pub(crate) running: CappedCount,
    pub(crate) blocked: CappedCount,
    pub(crate) failed: CappedCount,
    /// Ended jobs per second.
    pub(crate) rate: String,
    pub(crate) spark: Markup,
}

/// Returns the rows: the worst first, or sorted as `sort` says.
pub(crate) fn of(
    load: &LoadNow,
    counts: &PlaceCounts,
    curves: Option<&QueueCurves>,
    sort: &str,
) -> Vec<QueueLine> {
    let mut queues = load.worst_first();
    match sort {
        "oldest" => queues.sort_by(|one, other| {
            let age = |queue: &QueueNow| queue.oldest_seconds.unwrap_or(-1.0);
            age(other).total_cmp(&age(one))
        }),
        "ready" => queues.sort_by_key(|queue| std::cmp::Reverse(queue.ready.count)),
        "name" => queues.sort_by(|one, other| one.name.cmp(&other.name)),
        _ => {}
    }
    queues
        .into_iter()
        .map(|queue| line(queue, counts, curves))
        .collect()
}

/// How many minutes the rate is taken of.
const MINUTES: usize = 5;

fn line(queue: &QueueNow, counts: &PlaceCounts, curves: Option<&QueueCurves>) -> QueueLine {
    let name = queue.name.as_str();
    let curve = curves.and_then(|curves| curves.of(name));
    let ended: Vec<Option<f64>> = curve.map_or_else(Vec::new, |curve| {
        let complete = curve.ended.len().saturating_sub(1);
        let ended = curve.ended[..complete].iter();
        ended.map(|jobs| Some(*jobs as f64 / 60.0)).collect()
    });
    let recent: f64 = ended.iter().rev().take(MINUTES).flatten().sum();
    let label = format!("{name}, ended jobs per second, last hour");
    QueueLine {
        verdict: queue.verdict.markup(),
        sub: sub(queue),
        is_late: matches!(queue.verdict, QueueVerdict::Late { .. }),
        is_paused: queue.pause.is_some(),
        oldest: queue.oldest_seconds,
        ready: queue.ready,
        scheduled: counts.scheduled.of(name),
        running: counts.claimed.of(name),
        blocked: counts.blocked.of(name),
        failed: counts.failed.of(name),
        rate: match ended.is_empty() {
            true => "–".to_owned(),
            false => short(recent / MINUTES as f64),
        },
        spark: spark(SparkPlace::Cell, &ended, false, &label),
        name: name.to_owned(),
    }
}

fn sub(queue: &QueueNow) -> String {
    match &queue.pause {
        Some(pause) => {
            let who = who_and_why(pause.paused_by.as_deref(), pause.pause_reason.as_deref());
            let since = ago(pause.paused_seconds);
            format!("{since}{who}")
        }
        None => String::new(),
    }
}

/// The sums of the columns.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct QueueSums {
    pub(crate) ready: CappedCount,
    pub(crate) scheduled: CappedCount,
    pub(crate) running: CappedCount,
    pub(crate) blocked: CappedCount,
    pub(crate) failed: CappedCount,
}

impl QueueSums {
    pub(crate) fn of(load: &LoadNow, counts: &PlaceCounts) -> Self {
        let sum = |of: &dyn Fn(&QueueNow) -> CappedCount| {
            let mut sum = CappedCount {
                count: 0,
                is_more: load.is_more,
            };
            for queue in load.queues.values() {
                let one = of(queue);
                sum.count += one.count;
                sum.is_more |= one.is_more;
            }
            sum
        };
        QueueSums {
            ready: sum(&|queue| queue.ready),
            scheduled: sum(&|queue| counts.scheduled.of(&queue.name)),
            running: sum(&|queue| counts.claimed.of(&queue.name)),
            blocked: sum(&|queue| counts.blocked.of(&queue.name)),
            failed: sum(&|queue| counts.failed.of(&queue.name)),
        }
    }
}

/// The most queues that the sentence names.
const NAMED: usize = 3;

/// Returns the sentence on top: which queues need attention.
pub(crate) fn lead(load: Option<&LoadNow>) -> Markup {
    let Some(load) = load else {
        return Markup::default();
    };
    let bad: Vec<&QueueNow> = load
        .worst_first()
        .into_iter()
        .filter(|queue| queue.verdict.is_bad())
        .collect();
    let all = format!(
        "{}{}",
        count(load.queues.len()),
        if load.is_more { "+" } else { "" }
    );
    if load.queues.is_empty() {
        return Markup::trusted("No job is on any queue.".to_owned());
    }
    if bad.is_empty() {
        let text = match load.queues.len() {
            1 => "The queue does not need attention.".to_owned(),
            _ => format!("None of the {all} queues needs attention."),
        };
        return Markup::trusted(text);
    }
    let named = bad.iter().take(NAMED).map(|queue| clause(queue));
    let mut parts: Vec<String> = named.collect();
    if bad.len() > NAMED {
        let more = bad.len() - NAMED;
        let (verb, plural) = if more == 1 {
            ("needs", "")
        } else {
            ("need", "s")
        };
        parts.push(format!("{} other{plural} {verb} attention", count(more)));
    }
    let last = parts.pop().unwrap_or_default();
    let text = match parts.as_slice() {
        [] => last,
        parts => format!("{} and {last}", parts.join(", ")),
    };
    Markup::trusted(format!("Of {all} queues, {text}."))
}

fn clause(queue: &QueueNow) -> String {
    let (class, text) = match queue.verdict {
        QueueVerdict::Late { .. } => ("bad", "is late"),
        QueueVerdict::Unserved => ("warn", "has no worker"),
        QueueVerdict::Silent => ("bad", "has only dead workers"),
        QueueVerdict::Quiet => ("warn", "has only quiet or stopping workers"),
        _ => ("warn", "is paused"),
    };
    format!("<b class=\"{class}\">{} {text}</b>", escaped(&queue.name))
}
