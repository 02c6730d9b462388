//! The oldest ready job of each queue.

use crate::admin::now::LoadNow;
use crate::db::query::load::totals::CappedCount;
use crate::history::curves::QueueCurves;
use crate::web::read::QueueVerdict;
use crate::web::show::Markup;
use crate::web::show::chart::{SparkPlace, spark};

/// The most queues that are shown.
const MOST_QUEUES: usize = 12;

/// A queue, its oldest ready job, and whether that is in time.
#[derive(Debug, Clone)]
pub(crate) struct QueueRow {
    pub(crate) name: String,
    pub(crate) ready: CappedCount,
    pub(crate) oldest: Option<f64>,
    pub(crate) is_late: bool,
    /// How old the oldest ready job was, within the last hour.
    pub(crate) spark: Markup,
    pub(crate) verdict: Markup,
}

/// Returns the queues, the worst first.
pub(crate) fn of(load: &LoadNow, curves: Option<&QueueCurves>) -> Vec<QueueRow> {
    let queues = load.worst_first().into_iter().take(MOST_QUEUES);
    let rows = queues.map(|queue| {
        let is_late = matches!(queue.verdict, QueueVerdict::Late { .. });
        let curve = curves.and_then(|curves| curves.of(&queue.name));
        let label = format!("oldest ready job of {}, last hour", queue.name);
        QueueRow {
            name: queue.name.clone(),
            ready: queue.ready,
            oldest: queue.oldest_seconds,
            is_late,
            spark: curve.map_or_else(Markup::default, |curve| {
                spark(SparkPlace::Cell, &curve.oldest_seconds, is_late, &label)
            }),
            verdict: queue.verdict.markup(),
        }
    });
    rows.collect()
}
