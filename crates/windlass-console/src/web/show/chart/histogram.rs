//! The chart of run times: a histogram.

use crate::web::show::chart::{PathData, grid, hit, picture, round_up};
use crate::web::show::{Markup, count, duration, escaped, filters, short};
use askama::Template;
use std::time::Duration;
use windlass::history::Histogram;

const WIDTH: f64 = 600.0;
const HEIGHT: f64 = 120.0;

/// A bar of the histogram.
#[derive(Debug)]
pub(crate) struct RunTimes {
    /// `10 ms to 20 ms`
    pub(crate) name: String,
    /// The lower end.
    pub(crate) from: String,
    pub(crate) runs: u64,
    /// `27.4 %`
    pub(crate) share: String,
}

#[derive(Template)]
#[template(path = "chart/histogram.html")]
struct HistogramFigure {
    of: String,
    runs: u64,
    quantiles: Vec<(&'static str, Duration)>,
    scale: String,
    bars: Markup,
    marks: Vec<(String, bool)>,
    rows: Vec<RunTimes>,
}

/// Returns the chart with its numbers and its table. `of` says of when the runs are: `the last hour`.
///
/// # Errors
/// If the template fails.
pub(crate) fn run_times(histogram: &Histogram, of: &str) -> askama::Result<Markup> {
    let rows = rows(histogram);
    let most = rows.iter().map(|row| row.runs).max().unwrap_or(0);
    let end = round_up(most as f64);
    let quantiles = [("p50", 0.5), ("p95", 0.95), ("p99", 0.99)];
    let quantiles = quantiles
        .into_iter()
        .filter_map(|(name, p)| Some((name, histogram.quantile(p)?)));
    let figure = HistogramFigure {
        of: of.to_owned(),
        runs: histogram.count(),
        quantiles: quantiles.collect(),
        scale: short(end),
        bars: bars(&rows, end),
        marks: marks(&rows),
        rows,
    };
    figure.render().map(Markup::trusted)
}

/// Returns the bars from the first to the last that is not empty.
fn rows(histogram: &Histogram) -> Vec<RunTimes> {
    let limits: Vec<f64> = Histogram::limits()
        .map(|limit| limit.as_secs_f64())
        .collect();
    let counts = histogram.counts();
    let first = counts.iter().position(|count| *count > 0).unwrap_or(0);
    let last = counts.iter().rposition(|count| *count > 0).unwrap_or(0);
    let all = histogram.count().max(1) as f64;
    let bar = |place: usize| {
        let low = place.checked_sub(1).and_then(|below| limits.get(below));
        let name = match (low, limits.get(place)) {
            (None, Some(high)) => format!("up to {}", duration(*high)),
            (Some(low), Some(high)) => format!("{} to {}", duration(*low), duration(*high)),
            (low, None) => format!("over {}", duration(low.copied().unwrap_or_default())),
        };
        let runs = counts.get(place).copied().unwrap_or(0);
        RunTimes {
            name,
            from: duration(low.copied().unwrap_or_default()),
            runs,
            share: format!("{:.1} %", runs as f64 / all * 100.0),
        }
    };
    (first..=last).map(bar).collect()
}

fn bars(rows: &[RunTimes], end: f64) -> Markup {
    let step = WIDTH / rows.len().max(1) as f64;
    let mut path = PathData::default();
    let mut hits = String::new();
    for (place, row) in rows.iter().enumerate() {
        let x = place as f64 * step;
        let height = row.runs as f64 / end * HEIGHT;
        if height > 0.0 {
            path.bar(x, HEIGHT, step * 0.92, height);
        }
        let title = format!("{}: {} runs", row.name, count(row.runs));
        hits.push_str(&hit(x, step, HEIGHT, &title));
    }
    let content = format!(
        "{}{}{hits}",
        grid(&[0.0, 1.0], WIDTH, HEIGHT),
        path.element("f-done")
    );
    Markup::trusted(picture(WIDTH, HEIGHT, "Histogram of run times", &content))
}

/// Returns the texts below the bars, and whether each is left out on a narrow screen.
fn marks(rows: &[RunTimes]) -> Vec<(String, bool)> {
    let every = rows.len().div_ceil(6).max(1);
    let kept = rows.iter().step_by(every).enumerate();
    kept.map(|(place, row)| (row.from.clone(), place % 2 == 1))
        .collect()
}

// --- The last ticks of a recurring task, as small marks ---

/// The state of the job of a tick.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TickMark {
    Finished,
    Failed,
    /// Cancelled or discarded.
    Ended,
    Running,
    /// Ready, scheduled or blocked.
    Waiting,
}

impl TickMark {
    pub(crate) fn word(self) -> &'static str {
        match self {
            TickMark::Finished => "finished",
            TickMark::Failed => "failed",
            TickMark::Ended => "discarded or cancelled",
            TickMark::Running => "running",
            TickMark::Waiting => "waiting",
        }
    }

    fn shape(self, x: usize) -> String {
        match self {
            TickMark::Finished => {
                format!("<path class=\"f-done\" d=\"M{} 2h6v12h-6z\"/>", x + 2)
            }
            TickMark::Failed => {
                format!(
                    "<path class=\"cross\" d=\"M{}.5 4.5l7 7m0-7l-7 7\"/>",
                    x + 1
                )
            }
            TickMark::Ended => format!("<path class=\"f-disc\" d=\"M{} 7h6v2h-6z\"/>", x + 2),
            TickMark::Running => format!("<path class=\"f-run\" d=\"M{} 3l7 5-7 5z\"/>", x + 2),
            TickMark::Waiting => {
                format!("<circle class=\"o\" cx=\"{}\" cy=\"8\" r=\"3\"/>", x + 5)
            }
        }
    }
}

/// The most marks.
pub(crate) const MOST: usize = 10;

/// Returns a mark for each tick, the latest on the right. Each has a title, such as the time.
pub(crate) fn ticks(marks: &[(TickMark, String)]) -> Markup {
    if marks.is_empty() {
        return Markup::default();
    }
    let first = MOST.saturating_sub(marks.len());
    let shapes = marks.iter().enumerate().map(|(place, (mark, title))| {
        format!(
            "<g><title>{}</title>{}</g>",
            escaped(title),
            mark.shape((first + place) * 12)
        )
    });
    let label = format!("the last {}, oldest first: {}", marks.len(), sums(marks));
    Markup::trusted(format!(
        "<svg class=\"ticks\" viewBox=\"0 0 120 16\" role=\"img\" aria-label=\"{}\">{}</svg>",
        escaped(&label),
        shapes.collect::<String>()
    ))
}

/// Returns `8 finished, 2 failed`.
pub(crate) fn sums(marks: &[(TickMark, String)]) -> String {
    let all = [
        TickMark::Finished,
        TickMark::Failed,
        TickMark::Ended,
        TickMark::Running,
        TickMark::Waiting,
    ];
    let counts = all.into_iter().filter_map(|kind| {
        let count = marks.iter().filter(|(mark, _)| *mark == kind).count();
        (count > 0).then(|| format!("{count} {}", kind.word()))
    });
    counts.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_counted_and_named() {
        let mark = |mark| (mark, "<1>".to_owned());
        let marks = [
            mark(TickMark::Finished),
            mark(TickMark::Failed),
            mark(TickMark::Finished),
        ];
        assert_eq!(sums(&marks), "2 finished, 1 failed");
        let shown = ticks(&marks).to_string();
        assert!(shown.contains("the last 3, oldest first: 2 finished, 1 failed"));
        assert!(shown.contains("<title>&#60;1&#62;</title>"), "{shown}");
        assert!(
            shown.contains("M110 2h6v12h-6z"),
            "the latest is on the right: {shown}"
        );
        assert!(ticks(&[]).is_empty());
    }
}
