//! Charts: SVG that stretches to any width, made on the server.
//!
//! An SVG has geometry attributes and classes only, since the policy of the site allows no styles.
//! Its texts are HTML beside it, and each chart has its numbers in a table.

pub(crate) mod histogram;
pub(crate) mod latency;
pub(crate) mod throughput;

use crate::web::show::{Markup, escaped, short};
use chrono::{DateTime, Utc};
use windlass::history::{Bucket, Tally, TimeRange};

// --- The scales of charts, and the times below them ---

/// Returns the end of a scale for numbers up to `most`: the next round number.
pub(crate) fn round_up(most: f64) -> f64 {
    if most <= 1.0 || !most.is_finite() {
        return 1.0;
    }
    let power = 10_f64.powf(most.log10().floor());
    let steps = [1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0];
    let step = steps.iter().find(|step| **step * power >= most);
    step.unwrap_or(&10.0) * power
}

/// A logarithmic scale of seconds, in whole powers of ten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LogScale {
    /// The power of ten at the bottom.
    bottom: i32,
    /// The power of ten at the top.
    top: i32,
}

impl LogScale {
    /// Returns the scale on which all of these can be seen, of at least two powers of ten. Values
    /// below 1 ms are at the bottom.
    pub(crate) fn of(values: impl Iterator<Item = f64>) -> Self {
        let power = |value: f64| value.clamp(0.001, 1e9).log10();
        let (mut least, mut most) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values {
            least = least.min(power(value));
            most = most.max(power(value));
        }
        if least > most {
            return LogScale { bottom: -3, top: 0 };
        }
        #[allow(
            clippy::cast_possible_truncation,
            reason = "the powers of ten from -3 to 9"
        )]
        let (bottom, top) = (least.floor() as i32, most.ceil() as i32);
        LogScale {
            bottom,
            top: top.max(bottom + 2),
        }
    }

    /// Returns how far from the top a value is, in parts of the height.
    pub(crate) fn below_top(self, seconds: f64) -> f64 {
        let power = seconds.max(0.000_001).log10();
        let (bottom, top) = (f64::from(self.bottom), f64::from(self.top));
        ((top - power) / (top - bottom)).clamp(0.0, 1.0)
    }

    /// Returns the powers of ten from the top to the bottom, in seconds.
    pub(crate) fn lines(self) -> Vec<f64> {
        let powers = (self.bottom..=self.top).rev();
        powers.map(|power| 10_f64.powi(power)).collect()
    }
}

/// Returns a power of ten as it is shown beside a logarithmic scale: `100 ms`, `1,000 s`.
pub(crate) fn power(seconds: f64) -> String {
    match seconds < 0.9 {
        true => format!("{} ms", short(seconds * 1_000.0)),
        false => format!("{} s", short(seconds)),
    }
}

/// Returns five times for the axis below a chart, the first and the last among them.
pub(crate) fn times(starts: &[DateTime<Utc>], range: TimeRange) -> Vec<String> {
    let last = starts.len().saturating_sub(1);
    let positions = (0..5).map(|position| starts.get(position * last / 4));
    positions
        .flatten()
        .map(|start| moment(*start, range))
        .collect()
}

/// Returns the start of a bucket as it is shown with this range.
pub(crate) fn moment(start: DateTime<Utc>, range: TimeRange) -> String {
    let format = match range {
        TimeRange::Hour | TimeRange::Day => "%H:%M",
        TimeRange::Week | TimeRange::Month => "%-d %b %H:%M",
        TimeRange::Year => "%-d %b %Y",
    };
    start.format(format).to_string()
}

// --- The numbers of a chart over time, for the table beside it ---

/// The most rows of a table beside a chart.
const ROWS: usize = 12;

/// The sum of several buckets.
#[derive(Debug)]
pub(crate) struct ChartRow {
    /// The start of the first.
    pub(crate) from: String,
    pub(crate) tally: Tally,
}

/// Adds buckets up to at most twelve rows of equal length; the last may be shorter.
pub(crate) fn chart_rows(buckets: &[Bucket], range: TimeRange) -> Vec<ChartRow> {
    let size = buckets.len().div_ceil(ROWS).max(1);
    let rows = buckets.chunks(size).filter_map(|chunk| {
        let mut tally = Tally::default();
        for bucket in chunk {
            tally.merge(&bucket.tally);
        }
        Some(ChartRow {
            from: moment(chunk.first()?.starts_at, range),
            tally,
        })
    });
    rows.collect()
}

/// Returns how long the time of one row is, in words: `5 minutes`.
pub(crate) fn row_length(buckets: usize, range: TimeRange) -> String {
    let size = buckets.div_ceil(ROWS).max(1) as u64;
    let seconds = range.bucket().as_secs() * size;
    match seconds {
        60 => "minute".to_owned(),
        0..60 | 61..3_600 => format!("{} minutes", seconds / 60),
        3_600 => "hour".to_owned(),
        3_601..86_400 => format!("{} hours", seconds / 3_600),
        _ => format!("{} days", seconds.div_ceil(86_400)),
    }
}

// --- Paths and rectangles ---

/// Returns a coordinate with at most two decimals.
pub(crate) fn number(value: f64) -> String {
    if !value.is_finite() {
        return "0".to_owned();
    }
    let text = format!("{value:.2}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    match text {
        "-0" => "0".to_owned(),
        text => text.to_owned(),
    }
}

/// A path that is built point by point.
#[derive(Debug, Default)]
pub(crate) struct PathData(String);

impl PathData {
    /// Draws a curve through points; where one is missing, the curve is interrupted. A single point is
    /// a short line, since a path of one point is not drawn.
    pub(crate) fn through(points: impl IntoIterator<Item = Option<(f64, f64)>>) -> Self {
        let mut path = PathData::default();
        let mut run: Vec<(f64, f64)> = Vec::new();
        for point in points.into_iter().chain([None]) {
            match point {
                Some(point) => run.push(point),
                None => path.add_run(&std::mem::take(&mut run)),
            }
        }
        path
    }

    fn add_run(&mut self, run: &[(f64, f64)]) {
        let Some((first, rest)) = run.split_first() else {
            return;
        };
        self.0
            .push_str(&format!("M{} {}", number(first.0), number(first.1)));
        if rest.is_empty() {
            self.0.push_str("h1");
        }
        for (x, y) in rest {
            self.0.push_str(&format!(" {} {}", number(*x), number(*y)));
        }
    }

    /// Adds a bar from `bottom` up.
    pub(crate) fn bar(&mut self, x: f64, bottom: f64, width: f64, height: f64) {
        let (x, bottom, width, height) = (number(x), number(bottom), number(width), number(height));
        self.0
            .push_str(&format!("M{x} {bottom}h{width}v-{height}h-{width}z"));
    }

    /// Returns the element, or nothing if nothing was drawn. The class is one of this program.
    pub(crate) fn element(&self, class: &str) -> String {
        match self.0.as_str() {
            "" => String::new(),
            data => format!("<path class=\"{class}\" d=\"{data}\"/>"),
        }
    }
}

/// Returns horizontal lines at these heights, in parts of the whole from the top.
pub(crate) fn grid(heights: &[f64], width: f64, height: f64) -> String {
    let line = |part: &f64| {
        format!(
            "<path class=\"grid\" d=\"M0 {}H{}\"/>",
            number(part * height),
            number(width)
        )
    };
    heights.iter().map(line).collect()
}

/// Returns a transparent rectangle whose title is shown on hover.
pub(crate) fn hit(x: f64, width: f64, height: f64, title: &str) -> String {
    format!(
        "<rect class=\"hit\" x=\"{}\" width=\"{}\" height=\"{}\"><title>{}</title></rect>",
        number(x),
        number(width),
        number(height),
        escaped(title)
    )
}

/// Returns the whole picture, which is stretched to the width of its place.
pub(crate) fn picture(width: f64, height: f64, label: &str, content: &str) -> String {
    format!(
        "<svg viewBox=\"0 0 {} {}\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{}\">{content}</svg>",
        number(width),
        number(height),
        escaped(label)
    )
}

// --- A small curve beside a number ---

/// The height of the picture.
const HEIGHT: f64 = 20.0;

/// The location of a curve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SparkLocation {
    /// Beside a measure.
    Measure,
    /// In a cell of a table.
    Cell,
    /// In a wide cell, of parts of a whole.
    Part,
}

/// Returns a curve from zero up through the values, oldest first; its last point is marked. `label`
/// says what it shows. Returns nothing if there is no value.
pub(crate) fn spark(
    location: SparkLocation,
    values: &[Option<f64>],
    is_bad: bool,
    label: &str,
) -> Markup {
    let (width, least, look) = match location {
        SparkLocation::Measure => (152.0, 0.0, ""),
        SparkLocation::Cell => (96.0, 0.0, ""),
        SparkLocation::Part => (152.0, 1.0, " wide"),
    };
    let known = || {
        values
            .iter()
            .flatten()
            .copied()
            .filter(|value| value.is_finite())
    };
    if known().next().is_none() {
        return Markup::default();
    }
    let most = known().fold(least, f64::max);
    let step = (width - 6.0) / (values.len().max(2) - 1) as f64;
    let height = |value: f64| match most > 0.0 {
        true => HEIGHT - 2.0 - (value / most) * (HEIGHT - 4.0),
        false => HEIGHT - 2.0,
    };
    let point = |(place, value): (usize, &Option<f64>)| {
        let value = value.filter(|value| value.is_finite())?;
        Some((2.0 + place as f64 * step, height(value)))
    };
    let points: Vec<Option<(f64, f64)>> = values.iter().enumerate().map(point).collect();
    let circle = points.iter().flatten().next_back().map(|(x, y)| {
        let (x, y) = (number(*x), number(*y));
        format!("<circle cx=\"{x}\" cy=\"{y}\" r=\"2\"/>")
    });
    let bad = if is_bad { " bad" } else { "" };
    Markup::trusted(format!(
        "<svg class=\"spark{look}{bad}\" viewBox=\"0 0 {width} {HEIGHT}\" role=\"img\" aria-label=\"{}\">{}{}</svg>",
        escaped(label),
        PathData::through(points).element("line"),
        circle.unwrap_or_default(),
    ))
}

// --- The slots of a concurrency key, as small squares ---

/// The most squares: of more slots, only the number is shown.
const MOST: u64 = 12;

/// Returns a square for each slot: full if a process runs its job, half if its job waits, empty if it
/// is free. Returns nothing if there are too many.
pub(crate) fn slots(limit: u64, running: u64, waiting: u64) -> Markup {
    let all = limit.max(running + waiting);
    if all == 0 || all > MOST {
        return Markup::default();
    }
    let squares = (0..all).map(|place| {
        let x = place * 12;
        if place < running {
            format!("<path class=\"f-run\" d=\"M{x} 1h9v10h-9z\"/>")
        } else if place < running + waiting {
            format!(
                "<path class=\"f-run\" d=\"M{x} 6h9v5h-9z\"/><path class=\"o\" d=\"M{x}.5 1.5h8v9h-8z\"/>"
            )
        } else {
            format!("<path class=\"o\" d=\"M{x}.5 1.5h8v9h-8z\"/>")
        }
    });
    let width = all * 12;
    Markup::trusted(format!(
        "<svg class=\"slots\" width=\"{width}\" height=\"12\" viewBox=\"0 0 {width} 12\" aria-hidden=\"true\">{}</svg>\
         <span class=\"vh\">{running} of {limit} run</span>",
        squares.collect::<String>()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_end_with_round_numbers() {
        for (most, end) in [
            (0.0, 1.0),
            (1.0, 1.0),
            (5.0, 5.0),
            (47.0, 50.0),
            (5_595.0, 6_000.0),
            (101.0, 120.0),
            (9_001.0, 10_000.0),
            (f64::NAN, 1.0),
        ] {
            assert!((round_up(most) - end).abs() < 1e-6, "{most}");
        }
    }

    #[test]
    fn all_values_are_on_a_logarithmic_scale() {
        let scale = LogScale::of([0.038, 4.2].into_iter());
        assert_eq!(scale, LogScale { bottom: -2, top: 1 });
        let marks: Vec<String> = scale.lines().into_iter().map(power).collect();
        assert_eq!(marks, ["10 s", "1 s", "100 ms", "10 ms"]);
        assert_eq!(
            (power(0.001), power(1_000.0)),
            ("1 ms".into(), "1,000 s".into())
        );
        assert!((scale.below_top(0.01) - 1.0).abs() < 1e-9);
        assert!(scale.below_top(10.0).abs() < 1e-9);
        assert!((scale.below_top(0.0) - 1.0).abs() < 1e-9);
        let narrow = LogScale::of([0.0, 0.0].into_iter());
        assert_eq!(
            narrow,
            LogScale {
                bottom: -3,
                top: -1
            }
        );
        assert_eq!(
            LogScale::of([].into_iter()),
            LogScale { bottom: -3, top: 0 }
        );
    }

    #[test]
    fn a_curve_is_interrupted_where_a_point_is_missing() {
        let path = PathData::through([Some((0.0, 1.0)), Some((2.0, 1.25)), None, Some((6.0, 3.0))]);
        assert_eq!(
            path.element("curve"),
            "<path class=\"curve\" d=\"M0 1 2 1.25M6 3h1\"/>"
        );
        assert_eq!(PathData::through([None]).element("curve"), "");
    }

    #[test]
    fn numbers_are_short_and_finite() {
        for (value, shown) in [
            (1.0, "1"),
            (1.456, "1.46"),
            (-0.001, "0"),
            (f64::NAN, "0"),
            (f64::INFINITY, "0"),
        ] {
            assert_eq!(number(value), shown);
        }
    }

    #[test]
    fn a_curve_starts_at_zero_and_marks_its_end() {
        let values = [Some(0.0), None, Some(5.0), Some(10.0)];
        let shown = spark(SparkLocation::Cell, &values, true, "a < b").to_string();
        assert!(shown.starts_with("<svg class=\"spark bad\" viewBox=\"0 0 96 20\" role=\"img\""));
        assert!(shown.contains("aria-label=\"a &#60; b\""));
        assert!(shown.contains("d=\"M2 18h1M62 10 92 2\""), "{shown}");
        assert!(shown.contains("<circle cx=\"92\" cy=\"2\" r=\"2\"/>"));
        assert!(spark(SparkLocation::Cell, &[None, None], false, "").is_empty());
        let zero = spark(SparkLocation::Measure, &[Some(0.0)], false, "").to_string();
        assert!(zero.contains("M2 18h1"), "{zero}");
        let part = spark(SparkLocation::Part, &[Some(0.0), Some(0.5)], false, "").to_string();
        assert!(part.contains("M2 18 148 10"), "{part}");
    }
}
