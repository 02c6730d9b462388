//! The measures of everything: a number, a curve, a verdict.

use crate::read::now::LoadNow;
use crate::read::sql::totals::{self, StateTotals};
use crate::web::read::QueueVerdict;
use crate::web::show::chart::{SparkLocation, spark};
use crate::web::show::{Markup, bounded, count, duration, short, verdict};
use std::time::Duration;
use windlass::history::{Bucket, Tally, Usual};
use windlass::internal::error::ErrorContext as _;
use windlass::{Conn, Result};

/// A row of the measures.
#[derive(Debug, Clone)]
pub(crate) struct Vital {
    pub(crate) name: &'static str,
    /// The class of a state that it counts; empty for none.
    pub(crate) mark: &'static str,
    pub(crate) value: String,
    pub(crate) unit: String,
    pub(crate) spark: Markup,
    pub(crate) verdict: Markup,
}

impl Vital {
    pub(crate) fn new(
        name: &'static str,
        value: impl Into<String>,
        unit: impl Into<String>,
    ) -> Self {
        Vital {
            name,
            mark: "",
            value: value.into(),
            unit: unit.into(),
            spark: Markup::default(),
            verdict: Markup::default(),
        }
    }

    pub(crate) fn spark(mut self, values: &[Option<f64>], is_bad: bool, label: &str) -> Self {
        self.spark = spark(SparkLocation::Measure, values, is_bad, label);
        self
    }

    /// Marks it with the shape of a state.
    pub(crate) fn marked(mut self, class: &'static str) -> Self {
        self.mark = class;
        self
    }

    pub(crate) fn verdict(mut self, verdict: Markup) -> Self {
        self.verdict = verdict;
        self
    }
}

/// The counts that the history does not contain.
#[derive(Debug, Clone, Copy)]
pub(crate) struct VitalFacts {
    totals: StateTotals,
    jobs: u64,
}

/// Counts the jobs.
pub(crate) fn read(conn: &mut Conn<'_>) -> Result<VitalFacts> {
    let action = "count the jobs";
    Ok(VitalFacts {
        totals: totals::totals(conn).during(action)?,
        jobs: totals::estimated_jobs(conn).during(action)?,
    })
}

/// The number of complete minutes that count as now.
const RECENT: usize = 5;

/// Returns what ended in the last five complete minutes.
pub(crate) fn recent(buckets: &[Bucket]) -> Tally {
    let complete = buckets.len().saturating_sub(1);
    let mut sum = Tally::default();
    for bucket in &buckets[complete.saturating_sub(RECENT)..complete] {
        sum.merge(&bucket.tally);
    }
    sum
}

fn curve(buckets: &[Bucket], value: impl Fn(&Bucket) -> Option<f64>) -> Vec<Option<f64>> {
    let complete = buckets.len().saturating_sub(1);
    buckets[..complete].iter().map(value).collect()
}

/// Returns the measures.
pub(crate) fn overview_vitals(
    load: &LoadNow,
    buckets: &[Bucket],
    usual: Option<&Usual>,
    facts: &VitalFacts,
) -> Vec<Vital> {
    let now = recent(buckets);
    let mut vitals = vec![
        throughput(buckets, &now, usual),
        failures(buckets, &now, usual),
    ];
    vitals.push(latency_vital("Wait, half of the jobs", 0.5, buckets, &now));
    vitals.push(
        latency_vital("Wait, 99 % of the jobs", 0.99, buckets, &now).verdict(late_queues(load)),
    );
    vitals.push(threads(load, buckets, facts));
    vitals.push(workers(load, buckets));
    let kept = Vital::new(
        "Jobs kept",
        format!("{}+", count(rounded_down(facts.jobs))),
        "",
    );
    vitals.push(kept.verdict(kept_verdict(facts)));
    vitals
}

fn throughput(buckets: &[Bucket], now: &Tally, usual: Option<&Usual>) -> Vital {
    let rate = now.finished as f64 / (RECENT as f64 * 60.0);
    let finished = curve(buckets, |bucket| Some(bucket.tally.finished as f64));
    let sum: u64 = buckets.iter().map(|bucket| bucket.tally.finished).sum();
    let label = format!("finished jobs per minute, last hour: {} in all", count(sum));
    let told = match usual {
        None => Markup::default(),
        Some(usual) => {
            let (least, most) = usual.finished_range;
            let (least, most) = (least as f64 / 3_600.0, most as f64 / 3_600.0);
            let range = format!("{} to {} /s", short(least), short(most));
            if rate < least / 2.0 {
                verdict("warn", &format!("less than usual for this hour: {range}"))
            } else if rate > most * 2.0 {
                verdict("ok", &format!("more than usual for this hour: {range}"))
            } else {
                verdict("ok", &format!("usual for this hour: {range}"))
            }
        }
    };
    Vital::new("Throughput", short(rate), "/s")
        .spark(&finished, false, &label)
        .verdict(told)
}

/// Returns the share of the jobs that ended by failing, in percent.
fn share_failed(failed: f64, finished: f64) -> f64 {
    let ended = failed + finished;
    if ended > 0.0 {
        failed / ended * 100.0
    } else {
        0.0
    }
}

/// From this share of failed jobs on, in percent, there is a warning, whatever is usual.
const MANY_FAILED: f64 = 10.0;

fn failures(buckets: &[Bucket], now: &Tally, usual: Option<&Usual>) -> Vital {
    let share = share_failed(now.failed as f64, now.finished as f64);
    let of_hour: u64 = buckets.iter().map(|bucket| bucket.tally.failed).sum();
    let of_usual = usual.map(|usual| share_failed(usual.failed_per_hour, usual.finished_per_hour));
    let is_bad = now.failed > 0 && of_usual.is_some_and(|of_usual| share > 2.0 * of_usual + 0.1);
    let mark = match of_usual {
        _ if is_bad => Some("bad"),
        _ if share > MANY_FAILED => Some("warn"),
        None if of_hour > 0 => None,
        _ => Some("ok"),
    };
    let text = match of_hour {
        0 => "no job has failed in the last hour".to_owned(),
        1 => "1 job has failed in the last hour".to_owned(),
        jobs => format!("{} jobs have failed in the last hour", count(jobs)),
    };
    let text = match of_usual {
        Some(share) => format!("{text}; usually {} %", short(share)),
        None => text,
    };
    let failed = curve(buckets, |bucket| {
        let tally = &bucket.tally;
        Some(share_failed(tally.failed as f64, tally.finished as f64))
    });
    Vital::new("Failure rate", short(share), "%")
        .spark(
            &failed,
            matches!(mark, Some("bad" | "warn")),
            "share of failed jobs, last hour",
        )
        .verdict(mark.map_or_else(|| plain(&text), |mark| verdict(mark, &text)))
}

/// Returns a text without a mark: there is nothing to compare with.
fn plain(text: &str) -> Markup {
    Markup::element("span", "q", text)
}

fn seconds(latency: Option<Duration>) -> Option<f64> {
    latency.map(|latency| latency.as_secs_f64())
}

fn latency_vital(name: &'static str, p: f64, buckets: &[Bucket], now: &Tally) -> Vital {
    let value = seconds(now.wait.quantile(p)).map(duration);
    let value = value.unwrap_or_else(|| "–".to_owned());
    let (value, unit) = match value.matches(' ').count() {
        1 => value.split_once(' ').unwrap_or((&value, "")),
        _ => (value.as_str(), ""),
    };
    let latencies = curve(buckets, |bucket| seconds(bucket.tally.wait.quantile(p)));
    let label = format!("{}, last hour", name.to_lowercase());
    Vital::new(name, value, unit).spark(&latencies, false, &label)
}

/// Returns which queues are late. Where nothing is promised, nothing is.
fn late_queues(load: &LoadNow) -> Markup {
    let of = |is_it: fn(&QueueVerdict) -> bool| {
        load.queues
            .values()
            .filter(move |queue| is_it(&queue.verdict))
    };
    let late: Vec<&str> = of(|verdict| matches!(verdict, QueueVerdict::Late { .. }))
        .map(|queue| queue.name.as_str())
        .collect();
    match late.as_slice() {
        [] if of(|verdict| matches!(verdict, QueueVerdict::InTime { .. })).count() > 0 => {
            verdict("ok", "all queues with a promise are in time")
        }
        [] => Markup::default(),
        [one] => verdict("warn", &format!("{one} is late")),
        [first, ..] => verdict(
            "warn",
            &format!("{first} and {} more are late", late.len() - 1),
        ),
    }
}

fn threads(load: &LoadNow, buckets: &[Bucket], facts: &VitalFacts) -> Vital {
    let (threads, busy) = load.fleet.threads();
    let is_full = threads > 0 && busy >= threads && !facts.totals.ready.is_zero();
    let text = match threads {
        0 => String::new(),
        _ if is_full => "no thread is free".to_owned(),
        threads => format!(
            "{:.0} %, {} free",
            busy as f64 / threads as f64 * 100.0,
            count(threads - busy)
        ),
    };
    let at_work = curve(buckets, |bucket| bucket.fleet.map(|fleet| fleet.busy()));
    let told = match text.as_str() {
        "" => Markup::default(),
        text => verdict(if is_full { "warn" } else { "ok" }, text),
    };
    Vital::new(
        "Threads at work",
        count(busy),
        format!("of {}", count(threads)),
    )
    .spark(&at_work, false, "jobs held by workers, last hour")
    .verdict(told)
}

fn workers(load: &LoadNow, buckets: &[Bucket]) -> Vital {
    let all = load.fleet.workers().count();
    let alive = load.fleet.alive_workers().count();
    let dead: Vec<String> = load
        .fleet
        .workers()
        .filter(|one| one.is_dead())
        .map(|one| one.location())
        .collect();
    let told = match (dead.as_slice(), all) {
        ([], 0) => verdict("warn", "no worker is registered"),
        ([], _) => verdict("ok", "all have had a heartbeat within 60 s"),
        ([one], _) => verdict("bad", &format!("{one} is dead")),
        ([first, ..], _) => verdict(
            "bad",
            &format!("{first} and {} more are dead", dead.len() - 1),
        ),
    };
    let registered = curve(buckets, |bucket| bucket.fleet.map(|fleet| fleet.workers()));
    let more = if load.fleet.is_more { "+" } else { "" };
    Vital::new("Workers", count(alive), format!("of {}{more}", count(all)))
        .spark(
            &registered,
            !dead.is_empty(),
            "registered workers, last hour",
        )
        .verdict(told)
}

/// Returns an estimate with its first two digits only.
fn rounded_down(number: u64) -> u64 {
    let digits = number.checked_ilog10().unwrap_or(0);
    let unit = 10_u64.pow(digits.saturating_sub(1));
    number / unit * unit
}

fn kept_verdict(facts: &VitalFacts) -> Markup {
    let totals = &facts.totals;
    let text = format!(
        "estimated; {} ready, {} scheduled, {} blocked, {} failed",
        bounded(totals.ready),
        bounded(totals.scheduled),
        bounded(totals.blocked),
        bounded(totals.failed)
    );
    plain(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_failures_are_a_warning_and_without_a_comparison_there_is_no_mark() {
        let marks = |failed: u64, finished: u64| {
            let now = Tally {
                failed,
                finished,
                ..Tally::default()
            };
            let vital = failures(&[], &now, None);
            vital.verdict.as_str().to_owned()
        };
        assert!(
            marks(100, 0).contains("class=\"v warn\""),
            "{}",
            marks(100, 0)
        );
        assert!(
            marks(1, 99).contains("class=\"v ok\""),
            "none of the last hour"
        );
        let minute = Bucket {
            tally: Tally {
                failed: 3,
                finished: 97,
                ..Tally::default()
            },
            starts_at: chrono::DateTime::default(),
            queue: None,
            fleet: None,
            processes_died: 0,
        };
        let vital = failures(&[minute.clone(), minute], &Tally::default(), None);
        assert!(
            !vital.verdict.as_str().contains("class=\"v "),
            "{:?}",
            vital.verdict
        );
    }

    #[test]
    fn estimates_are_rounded_down() {
        for (number, shown) in [(0, 0), (7, 7), (42, 42), (2_163_204, 2_100_000)] {
            assert_eq!(rounded_down(number), shown);
        }
    }
}
