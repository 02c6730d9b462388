//! The scales of charts, and the times below them.

use crate::history::TimeRange;
use crate::web::show::numbers::short;
use chrono::{DateTime, Utc};

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
    let places = (0..5).map(|place| starts.get(place * last / 4));
    places
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
}
