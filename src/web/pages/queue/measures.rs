//! The measures of a queue: a number, a curve, a verdict.

use crate::history::Bucket;
use crate::web::pages::overview::vitals::Vital;
use crate::web::pages::queue::now::QueueDetails;
use crate::web::read::verdict::QueueVerdict;
use crate::web::show::markup::{Markup, verdict};
use crate::web::show::numbers::{bounded, count, short};
use crate::web::show::times::duration;

/// How many minutes the growth is taken of.
const MINUTES: usize = 10;

/// Returns the measures of a queue.
pub(crate) fn of(details: &QueueDetails, hour: Option<&[Bucket]>) -> Vec<Vital> {
    let hour = hour.unwrap_or_default();
    let ready: Vec<Option<f64>> = hour
        .iter()
        .map(|bucket| bucket.queue.map(|gauge| f64::from(gauge.ready)))
        .collect();
    let is_late = matches!(details.queue.verdict, QueueVerdict::Late { .. });
    let failed: Vec<Option<f64>> = hour
        .iter()
        .map(|bucket| Some(bucket.tally.failed as f64))
        .collect();
    vec![
        Vital::new("Ready", bounded(details.queue.ready), "")
            .marked("ready")
            .spark(&ready, is_late, "ready jobs, last hour")
            .verdict(growth(&ready, is_late)),
        Vital::new("Running", count(details.running()), "")
            .marked("run")
            .verdict(threads(details)),
        Vital::new("Scheduled", bounded(details.scheduled.count), "")
            .marked("sched")
            .verdict(next(details)),
        Vital::new("Blocked", bounded(details.blocked), "")
            .marked("block")
            .verdict(match details.blocked.is_zero() {
                true => Markup::default(),
                false => verdict(
                    "ok",
                    "they wait for a slot of their concurrency key, or for another job",
                ),
            }),
        Vital::new("Failed", bounded(details.failed), "")
            .marked("fail")
            .spark(&failed, false, "jobs that failed per minute, last hour")
            .verdict(failures(hour)),
    ]
}

/// Returns how many threads are free.
fn threads(details: &QueueDetails) -> Markup {
    let (threads, busy) = details.threads();
    let is_full = busy >= threads && !details.queue.ready.is_zero();
    match (threads, is_full) {
        (0, _) => Markup::default(),
        (threads, true) => verdict("warn", &format!("all {} threads are busy", count(threads))),
        (threads, false) => {
            let free = count(threads.saturating_sub(busy));
            verdict(
                "ok",
                &format!("{free} of {} threads are free", count(threads)),
            )
        }
    }
}

/// Returns by how much the number of ready jobs changes.
fn growth(ready: &[Option<f64>], is_late: bool) -> Markup {
    let known: Vec<(usize, f64)> = ready
        .iter()
        .enumerate()
        .rev()
        .take(MINUTES + 1)
        .filter_map(|(minute, ready)| Some((minute, (*ready)?)))
        .collect();
    let (Some((last, now)), Some((first, before))) = (known.first(), known.last()) else {
        return Markup::default();
    };
    if first == last {
        return Markup::default();
    }
    let change = (now - before) / (last - first) as f64;
    let text = format!("{} a minute", short(change.abs()));
    if change >= 0.5 {
        verdict(
            if is_late { "bad" } else { "ok" },
            &format!("grows by {text}"),
        )
    } else if change <= -0.5 {
        verdict("ok", &format!("shrinks by {text}"))
    } else {
        verdict("ok", "about the same for some minutes")
    }
}

fn next(details: &QueueDetails) -> Markup {
    match details.scheduled.next_seconds {
        None => Markup::default(),
        Some(seconds) if seconds < -60.0 => verdict(
            "warn",
            &format!(
                "one has been due for {}: no dispatcher makes it ready",
                duration(-seconds)
            ),
        ),
        Some(seconds) if seconds < 0.0 => verdict("ok", "one is due"),
        Some(seconds) => verdict("ok", &format!("next in {}", duration(seconds))),
    }
}

fn failures(hour: &[Bucket]) -> Markup {
    match hour.iter().map(|bucket| bucket.tally.failed).sum::<u64>() {
        0 => verdict("ok", "none in the last hour"),
        1 => verdict("warn", "1 in the last hour"),
        jobs => verdict("warn", &format!("{} in the last hour", count(jobs))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_taken_of_the_last_minutes() {
        let growing: Vec<Option<f64>> =
            (0..60).map(|minute| Some(f64::from(minute * 54))).collect();
        let shown = growth(&growing, true).to_string();
        assert_eq!(shown, "<span class=\"v bad\">grows by 54 a minute</span>");
        let falling = [Some(10.0), None, Some(4.0)];
        assert!(
            growth(&falling, false)
                .to_string()
                .contains("shrinks by 3 a minute")
        );
        for unknown in [&[][..], &[None, None], &[Some(3.0)]] {
            assert!(growth(unknown, false).is_empty());
        }
        assert!(
            growth(&[Some(3.0), Some(3.0)], false)
                .to_string()
                .contains("about the same")
        );
    }
}
