//! One thing that Windlass does, and the ceilings that do the same.

use crate::bench::figures::rate;
use crate::error::Result;
use crate::laboratory::run::BenchRun;
use std::borrow::Cow;
use std::time::Duration;

/// A measurement, which can be made again and again.
pub(crate) type Measure = Box<dyn Fn(&BenchRun) -> Result<Vec<FigureValue>>>;

/// A number that a measurement gave. Windlass and its ceiling are compared by the name.
#[derive(Debug, Clone)]
pub(crate) struct FigureValue {
    /// Empty for the only or most important one.
    pub(crate) name: Cow<'static, str>,
    pub(crate) unit: &'static str,
    pub(crate) value: f64,
}

/// Windlass beside its ceilings, measured in turn.
pub(crate) struct Comparison {
    /// The name of the figure, if its kind has more than one.
    pub(crate) figure: String,
    pub(crate) windlass: Measure,
    pub(crate) ceilings: Vec<Ceiling>,
}

/// Programs that do the same. The best one counts.
pub(crate) struct Ceiling {
    pub(crate) name: &'static str,
    /// The name and the measurement of each.
    pub(crate) variants: Vec<(String, Measure)>,
}

impl Comparison {
    pub(crate) fn new(
        figure: impl Into<String>,
        windlass: impl Fn(&BenchRun) -> Result<Vec<FigureValue>> + 'static,
    ) -> Self {
        Comparison {
            figure: figure.into(),
            windlass: Box::new(windlass),
            ceilings: Vec::new(),
        }
    }

    /// Adds a ceiling.
    pub(crate) fn beside(mut self, ceiling: Ceiling) -> Self {
        self.ceilings.push(ceiling);
        self
    }
}

/// The batches that plain SQL tries.
const BATCHES: [usize; 4] = [1, 10, 100, 1_000];

impl Ceiling {
    /// A single program.
    pub(crate) fn one(
        name: &'static str,
        measure: impl Fn(&BenchRun) -> Result<Vec<FigureValue>> + 'static,
    ) -> Self {
        Ceiling {
            name,
            variants: vec![(String::new(), Box::new(measure))],
        }
    }

    /// Plain SQL in batches, of which the best one counts.
    pub(crate) fn over_batches(
        measure: impl Fn(&BenchRun, usize) -> Result<Vec<FigureValue>> + Clone + 'static,
    ) -> Self {
        let variants = BATCHES.into_iter().map(|batch| {
            let measure = measure.clone();
            let one: Measure = Box::new(move |run| measure(run, batch));
            (format!("batches of {batch}"), one)
        });
        Ceiling {
            name: "plain SQL",
            variants: variants.collect(),
        }
    }

    /// Plain SQL by different numbers of clients, of which the best one counts.
    pub(crate) fn over_clients(
        clients: impl Iterator<Item = u32>,
        measure: impl Fn(&BenchRun, u32) -> Result<Vec<FigureValue>> + Clone + 'static,
    ) -> Self {
        let variants = clients.map(|clients| {
            let measure = measure.clone();
            let one: Measure = Box::new(move |run| measure(run, clients));
            (format!("{clients} clients"), one)
        });
        Ceiling {
            name: "plain SQL",
            variants: variants.collect(),
        }
    }
}

impl FigureValue {
    /// A rate, from a count and the time that it took.
    pub(crate) fn rate(unit: &'static str, count: u64, took: Duration) -> Vec<FigureValue> {
        vec![FigureValue::new("", unit, rate(count, took))]
    }

    pub(crate) fn new(name: impl Into<Cow<'static, str>>, unit: &'static str, value: f64) -> Self {
        FigureValue {
            name: name.into(),
            unit,
            value,
        }
    }
}
