//! The saturation of concurrency keys, rates and shared queues over time, on the page of the limits.

use crate::read::curves::{GateCurve, gate_curves};
use crate::web::pages::words;
use crate::web::show::Markup;
use crate::web::show::chart::{SparkLocation, spark};
use std::time::Duration;
use windlass::history::TimeRange;
use windlass::{Conn, Result as WindlassResult};

/// A key or a shared queue in the table.
#[derive(Debug)]
pub(crate) struct SaturationLine {
    pub(crate) key: String,
    pub(crate) kind: &'static str,
    /// `12.5 %`
    pub(crate) part: String,
    pub(crate) curve: Markup,
    pub(crate) waited: Duration,
}

/// Reads what was saturated in a time range. Returns `None` if no sample was taken.
pub(crate) fn read(
    conn: &mut Conn<'_>,
    range: TimeRange,
) -> WindlassResult<Option<Vec<SaturationLine>>> {
    let curves = gate_curves(conn, range)?;
    let line = |curve| line(curve, words::in_words(range));
    Ok(curves.map(|curves| curves.into_iter().map(line).collect()))
}

fn line(curve: GateCurve, range: &str) -> SaturationLine {
    let kind = match &*curve.kind {
        "limit" => "concurrency key",
        "rate" => "rate",
        "share" => "shared queue",
        _ => "all that have no line here",
    };
    let label = format!(
        "{kind} {}, part of the time in which jobs waited, {range}",
        curve.key
    );
    SaturationLine {
        part: format!("{:.1} %", curve.part * 100.0),
        curve: spark(SparkLocation::Part, &curve.parts, false, &label),
        waited: curve.waited,
        key: curve.key,
        kind,
    }
}
