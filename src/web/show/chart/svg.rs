//! Paths and rectangles.

use crate::web::show::markup::escaped;

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

#[cfg(test)]
mod tests {
    use super::*;

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
}
