//! A small curve beside a number.

use crate::web::show::chart::svg::{PathData, number};
use crate::web::show::markup::{Markup, escaped};

/// The height of the picture.
const HEIGHT: f64 = 20.0;

/// The place of a curve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SparkPlace {
    /// Beside a measure.
    Measure,
    /// In a cell of a table.
    Cell,
}

/// Returns a curve from zero up through the values, oldest first; its last point is marked. `label`
/// says what it shows. Returns nothing if there is no value.
pub(crate) fn spark(
    place: SparkPlace,
    values: &[Option<f64>],
    is_bad: bool,
    label: &str,
) -> Markup {
    let width = match place {
        SparkPlace::Measure => 152.0,
        SparkPlace::Cell => 96.0,
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
    let most = known().fold(0.0, f64::max);
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
        "<svg class=\"spark{bad}\" viewBox=\"0 0 {width} {HEIGHT}\" role=\"img\" aria-label=\"{}\">{}{}</svg>",
        escaped(label),
        PathData::through(points).element("line"),
        circle.unwrap_or_default(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_starts_at_zero_and_marks_its_end() {
        let values = [Some(0.0), None, Some(5.0), Some(10.0)];
        let shown = spark(SparkPlace::Cell, &values, true, "a < b").to_string();
        assert!(shown.starts_with("<svg class=\"spark bad\" viewBox=\"0 0 96 20\" role=\"img\""));
        assert!(shown.contains("aria-label=\"a &#60; b\""));
        assert!(shown.contains("d=\"M2 18h1M62 10 92 2\""), "{shown}");
        assert!(shown.contains("<circle cx=\"92\" cy=\"2\" r=\"2\"/>"));
        assert!(spark(SparkPlace::Cell, &[None, None], false, "").is_empty());
        let zero = spark(SparkPlace::Measure, &[Some(0.0)], false, "").to_string();
        assert!(zero.contains("M2 18h1"), "{zero}");
    }
}
