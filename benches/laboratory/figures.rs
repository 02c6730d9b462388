//! The samples of all rounds: medians, spread, and ratios to the best ceiling.

use crate::bench::figures::{least, median, most};
use crate::laboratory::comparison::FigureValue;
use serde::Serialize;

/// One figure of Windlass and of every ceiling, one sample a round.
#[derive(Debug)]
struct Series {
    kind: String,
    figure: String,
    unit: &'static str,
    samples: Vec<f64>,
    ceilings: Vec<CeilingSeries>,
}

#[derive(Debug)]
struct CeilingSeries {
    name: &'static str,
    variant: String,
    samples: Vec<f64>,
}

/// All samples, in the order in which they were first taken.
#[derive(Debug, Default)]
pub(crate) struct Figures(Vec<Series>);

/// One line of the results.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Row {
    pub(crate) kind: String,
    pub(crate) figure: String,
    pub(crate) unit: &'static str,
    /// The medians.
    pub(crate) windlass: f64,
    pub(crate) windlass_min: f64,
    pub(crate) windlass_max: f64,
    #[serde(flatten)]
    pub(crate) ceiling: Option<Beside>,
}

/// The best ceiling of its name.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Beside {
    pub(crate) ceiling: f64,
    /// The name of this ceiling, with its variant.
    pub(crate) of: String,
    /// The speed of Windlass relative to it, taken round by round.
    pub(crate) ratio: f64,
    pub(crate) ratio_min: f64,
    pub(crate) ratio_max: f64,
}

impl Figures {
    /// Records values of Windlass in a round.
    pub(crate) fn note(&mut self, kind: &str, figure: &str, values: &[FigureValue]) {
        for value in values {
            let figure = named(figure, &value.name);
            match self.find(kind, &figure) {
                Some(series) => series.samples.push(value.value),
                None => self.0.push(Series {
                    kind: kind.to_owned(),
                    figure,
                    unit: value.unit,
                    samples: vec![value.value],
                    ceilings: Vec::new(),
                }),
            }
        }
    }

    /// Records values of a ceiling in the same round.
    pub(crate) fn note_ceiling(
        &mut self,
        (kind, figure): (&str, &str),
        (name, variant): (&'static str, &str),
        values: &[FigureValue],
    ) {
        for value in values {
            let Some(series) = self.find(kind, &named(figure, &value.name)) else {
                continue;
            };
            let mut ceilings = series.ceilings.iter_mut();
            match ceilings.find(|other| other.name == name && other.variant == variant) {
                Some(ceiling) => ceiling.samples.push(value.value),
                None => series.ceilings.push(CeilingSeries {
                    name,
                    variant: variant.to_owned(),
                    samples: vec![value.value],
                }),
            }
        }
    }

    fn find(&mut self, kind: &str, figure: &str) -> Option<&mut Series> {
        self.0
            .iter_mut()
            .find(|series| series.kind == kind && series.figure == figure)
    }

    pub(crate) fn rows(&self) -> Vec<Row> {
        self.0.iter().flat_map(Series::rows).collect()
    }
}

fn named(figure: &str, name: &str) -> String {
    match (figure, name) {
        (figure, "") => figure.to_owned(),
        ("", name) => name.to_owned(),
        (figure, name) => format!("{figure}: {name}"),
    }
}

impl Series {
    /// One row for each ceiling of another name, or one without.
    fn rows(&self) -> Vec<Row> {
        let mut names: Vec<&str> = Vec::new();
        for ceiling in &self.ceilings {
            if !names.contains(&ceiling.name) {
                names.push(ceiling.name);
            }
        }
        if names.is_empty() {
            return vec![self.row(None)];
        }
        let best = names.into_iter().map(|name| self.best(name));
        best.map(|best| self.row(best)).collect()
    }

    fn row(&self, best: Option<&CeilingSeries>) -> Row {
        Row {
            kind: self.kind.clone(),
            figure: self.figure.clone(),
            unit: self.unit,
            windlass: median(self.samples.clone()),
            windlass_min: least(&self.samples),
            windlass_max: most(&self.samples),
            ceiling: best.map(|ceiling| self.beside(ceiling)),
        }
    }

    /// Returns true if the values are times, of which the shortest is the best.
    fn is_time(&self) -> bool {
        self.unit == "ms"
    }

    fn best(&self, name: &str) -> Option<&CeilingSeries> {
        let variants = self.ceilings.iter().filter(|ceiling| ceiling.name == name);
        let key = |ceiling: &CeilingSeries| median(ceiling.samples.clone());
        if self.is_time() {
            variants.min_by(|a, b| key(a).total_cmp(&key(b)))
        } else {
            variants.max_by(|a, b| key(a).total_cmp(&key(b)))
        }
    }

    fn beside(&self, ceiling: &CeilingSeries) -> Beside {
        // The ratio is taken within each round, since a disturbed round disturbs both.
        let pairs = self.samples.iter().zip(&ceiling.samples);
        let ratios: Vec<f64> = pairs
            .map(|(&value, &most)| {
                if self.is_time() {
                    most.max(RESOLUTION) / value.max(RESOLUTION)
                } else {
                    value / most.max(f64::MIN_POSITIVE)
                }
            })
            .collect();
        let of = match ceiling.variant.as_str() {
            "" => ceiling.name.to_owned(),
            variant => format!("{}, {variant}", ceiling.name),
        };
        Beside {
            ceiling: median(ceiling.samples.clone()),
            of,
            ratio: median(ratios.clone()),
            ratio_min: least(&ratios),
            ratio_max: most(&ratios),
        }
    }
}

/// A shorter time counts as none, in ms.
const RESOLUTION: f64 = 0.001;

#[cfg(test)]
mod tests {
    use super::*;

    fn value(value: f64, unit: &'static str) -> [FigureValue; 1] {
        [FigureValue::new("", unit, value)]
    }

    #[test]
    fn ratios_are_taken_round_by_round_to_the_best_ceiling() {
        let mut figures = Figures::default();
        for (slow, fast, ours) in [(1.0, 100.0, 50.0), (2.0, 10.0, 9.0), (3.0, 1000.0, 700.0)] {
            figures.note("noop", "kept", &value(ours, "runs/s"));
            for (variant, rate) in [("batches of 1", slow), ("batches of 10", fast)] {
                let rate = value(rate, "runs/s");
                figures.note_ceiling(("noop", "kept"), ("plain SQL", variant), &rate);
            }
        }
        let rows = figures.rows();
        assert_eq!(rows.len(), 1);
        let beside = rows[0].ceiling.as_ref().unwrap();
        assert_eq!(beside.of, "plain SQL, batches of 10");
        assert_eq!((rows[0].windlass, beside.ceiling), (50.0, 100.0));
        assert_eq!(
            (beside.ratio, beside.ratio_min, beside.ratio_max),
            (0.7, 0.5, 0.9)
        );
    }

    #[test]
    fn of_times_the_shortest_is_the_best() {
        let mut figures = Figures::default();
        figures.note("pickup", "", &value(2.0, "ms"));
        for (variant, time) in [("a", 1.0), ("b", 4.0)] {
            let time = value(time, "ms");
            figures.note_ceiling(("pickup", ""), ("plain SQL", variant), &time);
        }
        let rows = figures.rows();
        assert_eq!(rows[0].ceiling.as_ref().unwrap().ratio, 0.5);
    }
}
