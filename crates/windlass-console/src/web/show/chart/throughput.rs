//! The chart of the jobs that ended in each bucket of time, by their outcome.

use crate::web::show::chart::{
    self, ChartRow, PathData, chart_rows, grid, hit, picture, row_length,
};
use crate::web::show::{Markup, count, filters, short};
use askama::Template;
use windlass::history::{Bucket, Tally, TimeRange};

const WIDTH: f64 = 600.0;
const HEIGHT: f64 = 120.0;
/// The height of the failures on a scale of their own.
const STRIP: f64 = 28.0;

#[derive(Template)]
#[template(path = "chart/throughput.html")]
struct ThroughputFigure {
    heading: &'static str,
    unit: &'static str,
    sum: Tally,
    scale: [String; 3],
    strip_scale: String,
    bars: Markup,
    strip: Option<Markup>,
    times: Vec<String>,
    by: String,
    rows: Vec<ChartRow>,
}

/// Returns what is not success, and neither failed nor is retried.
fn without_success(tally: &Tally) -> u64 {
    tally.discarded + tally.cancelled
}

fn retried(tally: &Tally) -> u64 {
    tally.retried + tally.crashed
}

/// Returns the chart with its legend and its table.
///
/// # Errors
/// If the template fails.
pub(crate) fn throughput(buckets: &[Bucket], range: TimeRange) -> askama::Result<Markup> {
    let mut sum = Tally::default();
    for bucket in buckets {
        sum.merge(&bucket.tally);
    }
    let most = buckets.iter().map(|bucket| bucket.tally.ended()).max();
    let failed = buckets.iter().map(|bucket| bucket.tally.failed).max();
    let (end, strip_end) = (
        chart::round_up(most.unwrap_or(0) as f64),
        chart::round_up(failed.unwrap_or(0) as f64),
    );
    let starts: Vec<_> = buckets.iter().map(|bucket| bucket.starts_at).collect();
    let figure = ThroughputFigure {
        heading: "Throughput",
        unit: unit(range),
        scale: [short(end), short(end / 2.0), "0".to_owned()],
        strip_scale: short(strip_end),
        bars: bars(buckets, end, range, &sum),
        strip: (sum.failed > 0).then(|| strip(buckets, strip_end, range)),
        times: chart::times(&starts, range),
        by: row_length(buckets.len(), range),
        rows: chart_rows(buckets, range),
        sum,
    };
    figure.render().map(Markup::trusted)
}

fn unit(range: TimeRange) -> &'static str {
    match range {
        TimeRange::Hour => "jobs per minute",
        TimeRange::Day => "jobs per 10 minutes",
        TimeRange::Week => "jobs per hour",
        TimeRange::Month => "jobs per 6 hours",
        TimeRange::Year => "jobs per day",
    }
}

/// Returns stacked bars: finished at the bottom, failed on top.
fn bars(buckets: &[Bucket], end: f64, range: TimeRange, sum: &Tally) -> Markup {
    let step = WIDTH / buckets.len().max(1) as f64;
    type Layer = (&'static str, fn(&Tally) -> u64);
    let layers: [Layer; 4] = [
        ("f-done", |tally| tally.finished),
        ("f-retry", retried),
        ("f-disc", without_success),
        ("f-fail", |tally| tally.failed),
    ];
    let mut content = grid(&[0.0, 0.5, 1.0], WIDTH, HEIGHT);
    let mut below = vec![0.0; buckets.len()];
    for (class, value) in layers {
        let mut path = PathData::default();
        for ((place, bucket), below) in buckets.iter().enumerate().zip(&mut below) {
            let height = value(&bucket.tally) as f64 / end * HEIGHT;
            if height > 0.0 {
                path.bar(place as f64 * step, HEIGHT - *below, step * 0.82, height);
                *below += height;
            }
        }
        content.push_str(&path.element(class));
    }
    content.push_str(&hits(buckets, step, HEIGHT, range));
    let label = format!(
        "{} finished, {} retried, {} discarded or cancelled, {} failed {}",
        count(sum.finished),
        count(retried(sum)),
        count(without_success(sum)),
        count(sum.failed),
        between(buckets, range)
    );
    Markup::trusted(picture(WIDTH, HEIGHT, &label, &content))
}

/// Returns the failures alone.
fn strip(buckets: &[Bucket], end: f64, range: TimeRange) -> Markup {
    let step = WIDTH / buckets.len().max(1) as f64;
    let mut path = PathData::default();
    for (place, bucket) in buckets.iter().enumerate() {
        let height = bucket.tally.failed as f64 / end * STRIP;
        if height > 0.0 {
            path.bar(place as f64 * step, STRIP, step * 0.82, height);
        }
    }
    let most = buckets.iter().map(|bucket| bucket.tally.failed).max();
    let label = format!(
        "Failed only, on a scale of its own: up to {}",
        count(most.unwrap_or(0))
    );
    let content = format!(
        "{}{}{}",
        grid(&[1.0], WIDTH, STRIP),
        path.element("f-fail"),
        hits(buckets, step, STRIP, range)
    );
    Markup::trusted(picture(WIDTH, STRIP, &label, &content))
}

fn hits(buckets: &[Bucket], step: f64, height: f64, range: TimeRange) -> String {
    let titles = buckets.iter().enumerate().map(|(place, bucket)| {
        let tally = &bucket.tally;
        let title = format!(
            "{}: {} finished, {} retried, {} failed",
            chart::moment(bucket.starts_at, range),
            count(tally.finished),
            count(retried(tally)),
            count(tally.failed)
        );
        hit(place as f64 * step, step, height, &title)
    });
    titles.collect()
}

/// Returns `between 13:32 and 14:32`.
pub(crate) fn between(buckets: &[Bucket], range: TimeRange) -> String {
    match (buckets.first(), buckets.last()) {
        (Some(first), Some(last)) => format!(
            "between {} and {}",
            chart::moment(first.starts_at, range),
            chart::moment(last.starts_at, range)
        ),
        _ => String::new(),
    }
}
