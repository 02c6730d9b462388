//! The text formats of Prometheus: `OpenMetrics` 1.0, and the one before it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// A text format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TextFormat {
    OpenMetrics,
    /// Version 0.0.4, for whatever does not ask for `OpenMetrics`.
    Plain,
}

/// The type of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MetricType {
    Counter,
    Gauge,
    Histogram,
}

/// A metric: what it is called, and what it means.
#[derive(Debug)]
pub(crate) struct Metric {
    pub(crate) name: &'static str,
    pub(crate) of_type: MetricType,
    pub(crate) labels: &'static [&'static str],
    pub(crate) help: &'static str,
}

/// The number of values in each bucket of a histogram, in the order of the bounds, and the sum of
/// all values. The last bucket has no bound.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Distribution {
    pub(crate) counts: Vec<u64>,
    pub(crate) sum: f64,
}

/// A page of metrics.
#[derive(Debug)]
pub(crate) struct Page {
    format: TextFormat,
    text: String,
}

/// The samples of one metric, by their labels. Two samples with equal labels are added up, because a
/// repeated series makes the whole page invalid.
#[derive(Debug)]
pub(crate) struct Samples<T> {
    metric: &'static Metric,
    by_labels: BTreeMap<String, T>,
}

impl TextFormat {
    /// Returns the format that a client accepts, by its header `Accept`.
    pub(crate) fn accepted(accept: Option<&str>) -> Self {
        let kinds = accept.unwrap_or_default().split(',');
        let is_open = |kind: &str| {
            let mut parts = kind.split(';').map(str::trim);
            let is_open = parts.next() == Some("application/openmetrics-text");
            is_open && !parts.any(|part| ["q=0", "q=0.0"].contains(&part))
        };
        if kinds.map(str::trim).any(is_open) {
            TextFormat::OpenMetrics
        } else {
            TextFormat::Plain
        }
    }

    /// Returns the header `Content-Type` of a page.
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            TextFormat::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            TextFormat::Plain => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

impl<T> Samples<T> {
    pub(crate) fn of(metric: &'static Metric) -> Self {
        Samples {
            metric,
            by_labels: BTreeMap::new(),
        }
    }

    /// Adds a sample. `values` are those of the metric's labels, in their order.
    pub(crate) fn add(&mut self, values: &[&str], value: T)
    where
        T: AddUp,
    {
        let labels = labels(self.metric.labels, values);
        match self.by_labels.get_mut(&labels) {
            Some(known) => known.add_up(value),
            None => drop(self.by_labels.insert(labels, value)),
        }
    }
}

/// A value that can be added to another one with the same labels.
pub(crate) trait AddUp {
    fn add_up(&mut self, other: Self);
}

impl AddUp for f64 {
    fn add_up(&mut self, other: Self) {
        *self += other;
    }
}

impl AddUp for u64 {
    fn add_up(&mut self, other: Self) {
        *self = self.saturating_add(other);
    }
}

impl AddUp for Distribution {
    fn add_up(&mut self, other: Self) {
        let counts = self.counts.iter_mut().zip(other.counts);
        counts.for_each(|(count, more)| count.add_up(more));
        self.sum += other.sum;
    }
}

impl Page {
    pub(crate) fn new(format: TextFormat) -> Self {
        Page {
            format,
            text: String::new(),
        }
    }

    /// Writes a counter or a gauge.
    pub(crate) fn write<T: ToString>(&mut self, samples: &Samples<T>) {
        self.head(samples.metric);
        for (labels, value) in &samples.by_labels {
            self.line(samples.metric.name, labels, &value.to_string());
        }
    }

    /// Writes a histogram whose buckets have these upper bounds.
    pub(crate) fn write_histogram(&mut self, samples: &Samples<Distribution>, bounds: &[f64]) {
        let name = samples.metric.name;
        self.head(samples.metric);
        for (labels, distribution) in &samples.by_labels {
            let bounds = bounds.iter().map(|bound| format!("{bound:?}"));
            let bounds = bounds.chain(["+Inf".to_owned()]);
            let mut count = 0;
            for (bound, hits) in bounds.zip(&distribution.counts) {
                count.add_up(*hits);
                let comma = if labels.is_empty() { "" } else { "," };
                let labels = format!("{labels}{comma}le=\"{bound}\"");
                self.line(&format!("{name}_bucket"), &labels, &count.to_string());
            }
            let sum = distribution.sum.to_string();
            self.line(&format!("{name}_sum"), labels, &sum);
            self.line(&format!("{name}_count"), labels, &count.to_string());
        }
    }

    /// Returns the whole page.
    pub(crate) fn end(mut self) -> String {
        if self.format == TextFormat::OpenMetrics {
            self.text.push_str("# EOF\n");
        }
        self.text
    }

    fn head(&mut self, metric: &Metric) {
        let of_type = match metric.of_type {
            MetricType::Counter => "counter",
            MetricType::Gauge => "gauge",
            MetricType::Histogram => "histogram",
        };
        // In OpenMetrics, a counter is called what its samples are, without `_total`.
        let name = match (self.format, metric.of_type) {
            (TextFormat::OpenMetrics, MetricType::Counter) => {
                metric.name.strip_suffix("_total").unwrap_or(metric.name)
            }
            _ => metric.name,
        };
        let help = metric.help.replace('\\', "\\\\").replace('\n', "\\n");
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {of_type}");
        let unit = ["seconds", "bytes"].into_iter();
        let mut unit = unit.filter(|unit| name.ends_with(&format!("_{unit}")));
        if let (TextFormat::OpenMetrics, Some(unit)) = (self.format, unit.next()) {
            let _ = writeln!(self.text, "# UNIT {name} {unit}");
        }
    }

    fn line(&mut self, name: &str, labels: &str, value: &str) {
        let _ = match labels {
            "" => writeln!(self.text, "{name} {value}"),
            labels => writeln!(self.text, "{name}{{{labels}}} {value}"),
        };
    }
}

fn labels(names: &[&str], values: &[&str]) -> String {
    let pairs = names.iter().zip(values);
    let pairs: Vec<String> = pairs
        .map(|(name, value)| format!("{name}=\"{}\"", escaped(value)))
        .collect();
    pairs.join(",")
}

/// Returns the value of a label as it is in a page. A character that parsers end at, or that no
/// terminal shows, becomes U+FFFD.
fn escaped(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    for character in value.chars() {
        match character {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            character if character.is_control() => text.push(char::REPLACEMENT_CHARACTER),
            character => text.push(character),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOBS: Metric = Metric {
        name: "windlass_jobs_total",
        of_type: MetricType::Counter,
        labels: &["queue", "outcome"],
        help: "Jobs.",
    };
    const RUN: Metric = Metric {
        name: "windlass_job_run_seconds",
        of_type: MetricType::Histogram,
        labels: &["queue"],
        help: "Times.",
    };
    const UP: Metric = Metric {
        name: "windlass_up",
        of_type: MetricType::Gauge,
        labels: &[],
        help: "A \\ and\na new line.",
    };

    #[test]
    fn both_formats_of_a_counter() {
        let mut samples = Samples::of(&JOBS);
        samples.add(&["mail", "failed"], 2_u64);
        samples.add(&["mail", "failed"], 3);
        let page = |format| {
            let mut page = Page::new(format);
            page.write(&samples);
            page.end()
        };
        assert_eq!(
            page(TextFormat::Plain),
            "# HELP windlass_jobs_total Jobs.\n# TYPE windlass_jobs_total counter\n\
             windlass_jobs_total{queue=\"mail\",outcome=\"failed\"} 5\n"
        );
        assert_eq!(
            page(TextFormat::OpenMetrics),
            "# HELP windlass_jobs Jobs.\n# TYPE windlass_jobs counter\n\
             windlass_jobs_total{queue=\"mail\",outcome=\"failed\"} 5\n# EOF\n"
        );
    }

    #[test]
    fn a_histogram_adds_up_its_buckets() {
        let mut samples = Samples::of(&RUN);
        let distribution = |counts: &[u64], sum| Distribution {
            counts: counts.to_vec(),
            sum,
        };
        samples.add(&["mail"], distribution(&[1, 0, 2], 7.5));
        samples.add(&["mail"], distribution(&[0, 3, 0], 1.5));
        let mut page = Page::new(TextFormat::OpenMetrics);
        page.write_histogram(&samples, &[0.005, 1.0]);
        assert_eq!(
            page.end(),
            "# HELP windlass_job_run_seconds Times.\n# TYPE windlass_job_run_seconds histogram\n\
             # UNIT windlass_job_run_seconds seconds\n\
             windlass_job_run_seconds_bucket{queue=\"mail\",le=\"0.005\"} 1\n\
             windlass_job_run_seconds_bucket{queue=\"mail\",le=\"1.0\"} 4\n\
             windlass_job_run_seconds_bucket{queue=\"mail\",le=\"+Inf\"} 6\n\
             windlass_job_run_seconds_sum{queue=\"mail\"} 9\n\
             windlass_job_run_seconds_count{queue=\"mail\"} 6\n# EOF\n"
        );
    }

    #[test]
    fn what_would_end_a_line_is_escaped() {
        let mut samples = Samples::of(&UP);
        samples.add(&[], 0.25);
        let mut page = Page::new(TextFormat::Plain);
        page.write(&samples);
        assert_eq!(
            page.end(),
            "# HELP windlass_up A \\\\ and\\na new line.\n# TYPE windlass_up gauge\nwindlass_up 0.25\n"
        );
        assert_eq!(
            labels(&["queue"], &["a\"} 1\nb\\{x=\"\r\0\u{7f}ü"]),
            "queue=\"a\\\"} 1\\nb\\\\{x=\\\"\u{fffd}\u{fffd}\u{fffd}ü\""
        );
    }

    #[test]
    fn prometheus_gets_what_it_asks_for() {
        let prometheus = "application/openmetrics-text;version=1.0.0,\
             application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        for (accept, format) in [
            (Some(prometheus), TextFormat::OpenMetrics),
            (Some("text/html, */*;q=0.8"), TextFormat::Plain),
            (Some("application/openmetrics-text; q=0"), TextFormat::Plain),
            (None, TextFormat::Plain),
        ] {
            assert_eq!(TextFormat::accepted(accept), format, "{accept:?}");
        }
    }
}
