//! The chart of the latency of jobs in each bucket of time.

use crate::web::show::chart::{
    self, ChartRow, LogScale, PathData, chart_rows, grid, hit, number, picture, row_length,
};
use crate::web::show::{Markup, duration, filters};
use askama::Template;
use std::time::Duration;
use windlass::history::{Bucket, Histogram, TimeRange};

const WIDTH: f64 = 600.0;
const HEIGHT: f64 = 120.0;

#[derive(Template)]
#[template(path = "chart/waits.html")]
struct LatencyFigure {
    p50: Option<Duration>,
    p99: Option<Duration>,
    promise: Option<Duration>,
    scale: Vec<String>,
    curves: Markup,
    times: Vec<String>,
    by: String,
    rows: Vec<ChartRow>,
}

/// Returns the chart with its legend and its table. What exceeds `promise` is marked. `name` tells it
/// from other charts of the page.
///
/// # Errors
/// If the template fails.
pub(crate) fn latency_chart(
    buckets: &[Bucket],
    range: TimeRange,
    promise: Option<Duration>,
    name: &str,
) -> askama::Result<Markup> {
    let mut all = Histogram::default();
    for bucket in buckets {
        all.merge(&bucket.tally.wait);
    }
    let latencies = |p: f64| {
        buckets
            .iter()
            .map(move |bucket| seconds(&bucket.tally.wait, p))
    };
    let values = latencies(0.5).chain(latencies(0.99)).flatten();
    let promised = promise.map(|promise| promise.as_secs_f64());
    let scale = LogScale::of(values.chain(promised));
    let starts: Vec<_> = buckets.iter().map(|bucket| bucket.starts_at).collect();
    let figure = LatencyFigure {
        p50: all.quantile(0.5),
        p99: all.quantile(0.99),
        promise,
        scale: scale.lines().into_iter().map(chart::power).collect(),
        curves: curves(buckets, range, promised, scale, name),
        times: chart::times(&starts, range),
        by: row_length(buckets.len(), range),
        rows: chart_rows(buckets, range),
    };
    figure.render().map(Markup::trusted)
}

fn seconds(histogram: &Histogram, p: f64) -> Option<f64> {
    histogram.quantile(p).map(|latency| latency.as_secs_f64())
}

fn curves(
    buckets: &[Bucket],
    range: TimeRange,
    promised: Option<f64>,
    scale: LogScale,
    name: &str,
) -> Markup {
    let step = WIDTH / buckets.len().max(1) as f64;
    let curve = |p: f64| {
        let points = buckets.iter().enumerate().map(|(position, bucket)| {
            let latency = seconds(&bucket.tally.wait, p)?;
            Some((
                (position as f64 + 0.5) * step,
                scale.below_top(latency) * HEIGHT,
            ))
        });
        PathData::through(points)
    };
    let (p50, p99) = (curve(0.5), curve(0.99));
    let heights: Vec<f64> = scale
        .lines()
        .iter()
        .map(|line| scale.below_top(*line))
        .collect();
    let mut content = grid(&heights, WIDTH, HEIGHT);
    if let Some(promised) = promised {
        let height = number(scale.below_top(promised) * HEIGHT);
        content.push_str(&format!(
            "<path class=\"curve limit\" d=\"M0 {height}H{WIDTH}\"/>"
        ));
    }
    content.push_str(&p50.element("curve"));
    content.push_str(&p99.element("curve p99"));
    if let Some(promised) = promised {
        let height = number(scale.below_top(promised) * HEIGHT);
        content.push_str(&format!(
            "<clipPath id=\"{name}\"><rect width=\"{WIDTH}\" height=\"{height}\"/></clipPath>\
             <g clip-path=\"url(#{name})\">{}{}</g>",
            p50.element("curve late"),
            p99.element("curve p99 late")
        ));
    }
    let hits = buckets.iter().enumerate().map(|(position, bucket)| {
        let title = title(bucket, range);
        hit(position as f64 * step, step, HEIGHT, &title)
    });
    content.extend(hits);
    Markup::trusted(picture(WIDTH, HEIGHT, &label(buckets), &content))
}

fn title(bucket: &Bucket, range: TimeRange) -> String {
    let at = chart::moment(bucket.starts_at, range);
    let latency = &bucket.tally.wait;
    match (seconds(latency, 0.5), seconds(latency, 0.99)) {
        (Some(p50), Some(p99)) => {
            format!("{at}: p50 {}, p99 {}", duration(p50), duration(p99))
        }
        _ => format!("{at}: no job started"),
    }
}

fn label(buckets: &[Bucket]) -> String {
    let mut all = Histogram::default();
    for bucket in buckets {
        all.merge(&bucket.tally.wait);
    }
    match (seconds(&all, 0.5), seconds(&all, 0.99)) {
        (Some(p50), Some(p99)) => format!(
            "Half of the jobs waited less than {}, 99 % less than {}",
            duration(p50),
            duration(p99)
        ),
        _ => "No job has started in this time".to_owned(),
    }
}
