//! The reads of the history. Each result includes what is not folded yet, and comes from one
//! statement, so that a fold between two reads neither hides nor repeats anything.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{Dialect, Lossy, id_list};
use crate::db::conn::statement::Statement;
use crate::db::model::history::cell::{self, Cell, Resolution};
use crate::db::model::history::contribution::{BySeries, Contribution};
use crate::db::model::history::tally::Tally;
use crate::db::table::history::epoch;
use crate::db::table::history::series::SeriesIds;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Binary, Text};
use std::collections::BTreeMap;

/// The most contributions that a read includes of those that are not folded. There are more only if nothing has folded
/// for a long time.
const MOST_UNFOLDED: usize = 5_000;

/// A time span, in seconds since 1970; the end is not in it.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seconds {
    pub from: i64,
    pub(crate) to: i64,
}

impl Seconds {
    fn contains(self, seconds: i64) -> bool {
        (self.from..self.to).contains(&seconds)
    }
}

/// The cells of a series by the start of their bucket, in seconds since 1970.
pub type CellsByTime = BTreeMap<i64, Cell>;

/// The cells of series by queue and class. Both are empty for everything, the class for a whole queue, and the queue for a
/// gate.
pub(crate) type SeriesCells = BTreeMap<(String, String), CellsByTime>;

#[derive(QueryableByName)]
struct HistoryRow {
    /// 0 for what is not folded.
    #[diesel(sql_type = BigInt)]
    series_id: i64,
    #[diesel(sql_type = BigInt)]
    seconds: i64,
    #[diesel(sql_type = Binary)]
    data: Vec<u8>,
}

/// Reads the buckets of the series whose queue and class are `wanted`, also of series without any.
///
/// Not both a queue and its classes may be wanted: the only class of a queue has the same series. Rows that cannot be
/// read are skipped; `doctor` reports them.
pub fn buckets(
    conn: &mut Conn<'_>,
    ids: &SeriesIds,
    resolution: Resolution,
    span: Seconds,
    wanted: impl Fn(&str, &str) -> bool,
) -> QueryResult<SeriesCells> {
    let series = ids.iter().filter(|(queue, class, _)| wanted(queue, class));
    let series: BTreeMap<i64, (&str, &str)> = series
        .map(|(queue, class, id)| (id, (queue, class)))
        .collect();
    let wanted_ids: Vec<i64> = series.keys().copied().collect();
    let (mut read, step) = (SeriesCells::new(), resolution.seconds());
    for name in series.values() {
        cells_of(&mut read, *name);
    }
    for row in rows(conn, &wanted_ids, resolution, span)? {
        let Some(name) = series.get(&row.series_id) else {
            let start = row.seconds.div_euclid(step) * step;
            if let (true, Ok(more)) = (span.contains(start), Contribution::unpack(&row.data)) {
                add_unfolded(&mut read, ids, start, &more, &wanted);
            }
            continue;
        };
        let cells = cells_of(&mut read, *name);
        for (bucket, cell) in cell::unpack(&row.data).unwrap_or_default() {
            let start = row.seconds + i64::from(bucket) * step;
            if span.contains(start) {
                cells.entry(start).or_default().merge(&cell);
            }
        }
    }
    Ok(read)
}

fn cells_of<'r>(read: &'r mut SeriesCells, (queue, class): (&str, &str)) -> &'r mut CellsByTime {
    read.entry((queue.to_owned(), class.to_owned()))
        .or_default()
}

/// Adds a contribution to the same series as the next fold.
fn add_unfolded(
    read: &mut SeriesCells,
    ids: &SeriesIds,
    start: i64,
    more: &Contribution,
    wanted: impl Fn(&str, &str) -> bool,
) {
    for (queue, class, tally) in more.series.iter() {
        let (queue, class) = ids.pairs.counted_names(queue, class);
        for name in [(queue, class), (queue, ""), ("", "")] {
            if wanted(name.0, name.1) {
                let cells = cells_of(read, name);
                cells.entry(start).or_default().tally.merge(tally);
            }
        }
    }
    if more.died > 0 && wanted("", "") {
        let all = cells_of(read, ("", "")).entry(start).or_default();
        all.died = all.died.saturating_add(more.died);
    }
}

/// Returns the rows of some series at a resolution, and the contributions that are not folded.
fn rows(
    conn: &mut Conn<'_>,
    ids: &[i64],
    resolution: Resolution,
    span: Seconds,
) -> QueryResult<Vec<HistoryRow>> {
    let text = format!(
        "SELECT series_id, starts_at AS seconds, data FROM windlass_stats WHERE series_id IN {{in $1}} \
           AND resolution = CAST($2 AS integer) AND starts_at > $3 AND starts_at < $4 \
         UNION ALL SELECT 0, seconds, data FROM (SELECT {} AS seconds, data FROM windlass_stats_deltas \
           WHERE data IS NOT NULL AND id > 0 ORDER BY id DESC LIMIT {MOST_UNFOLDED}) AS unfolded",
        epoch(conn.dialect(), "created_at")
    );
    Statement::new(text)
        .bind(id_list(ids))
        .bind(resolution.seconds())
        .bind(span.from - resolution.span())
        .bind(span.to)
        .load(conn)
}

#[derive(QueryableByName)]
struct SumRow {
    /// 0 for what is not folded.
    #[diesel(sql_type = BigInt)]
    id: i64,
    #[diesel(sql_type = Text, deserialize_as = Lossy)]
    queue_name: String,
    #[diesel(sql_type = Text, deserialize_as = Lossy)]
    class_name: String,
    #[diesel(sql_type = Binary)]
    data: Vec<u8>,
}

/// The sums of all time.
#[derive(Debug, Default)]
pub(crate) struct HistorySums {
    pub(crate) series: BySeries<Tally>,
    pub(crate) died: u64,
}

/// Reads the sums of all time by queue and class. They never become less: where too much is not
/// folded to read all of it, the oldest is included, which is folded first.
pub(crate) fn sums(conn: &mut Conn<'_>) -> QueryResult<HistorySums> {
    let totals = of_each_series(conn.dialect(), "resolution = 0 AND starts_at = 0");
    let text = format!(
        "SELECT s.id, s.queue_name, s.class_name, b.data FROM {totals} \
           AND (s.class_name <> '' OR s.queue_name = '') \
         UNION ALL SELECT 0, '', '', data FROM (SELECT data FROM windlass_stats_deltas \
           WHERE data IS NOT NULL AND id > 0 ORDER BY id LIMIT {MOST_UNFOLDED}) AS unfolded"
    );
    let rows: Vec<SumRow> = Statement::new(text).load(conn)?;
    let mut sums = HistorySums::default();
    let (unfolded, folded): (Vec<SumRow>, Vec<SumRow>) =
        rows.into_iter().partition(|row| row.id == 0);
    for row in folded {
        let cells = cell::unpack(&row.data).unwrap_or_default();
        let Some(cell) = cells.into_values().next() else {
            continue;
        };
        if row.queue_name.is_empty() {
            sums.died = sums.died.saturating_add(cell.died);
        } else {
            sums.series
                .insert(&row.queue_name, &row.class_name, cell.tally);
        }
    }
    for row in unfolded {
        let Ok(more) = Contribution::unpack(&row.data) else {
            continue;
        };
        sums.died = sums.died.saturating_add(more.died);
        // Added to the same series as by the next fold.
        for (queue, class, tally) in more.series.iter() {
            sums.series.entry(queue, class).merge(tally);
        }
    }
    Ok(sums)
}

/// Returns the series `s` with their rows `b` of this condition, and the start of a condition: one series after the
/// other, by the primary key.
fn of_each_series(dialect: Dialect, condition: &str) -> String {
    match dialect {
        Dialect::Postgres => format!(
            "windlass_stats_series s CROSS JOIN LATERAL \
             (SELECT data FROM windlass_stats WHERE series_id = s.id AND {condition} LIMIT 1000) AS b WHERE true"
        ),
        Dialect::Sqlite => format!(
            "windlass_stats_series s CROSS JOIN windlass_stats AS b WHERE b.series_id = s.id AND {condition}"
        ),
    }
}

/// The rows of each series that are looked at for ones that cannot be read.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LookBack {
    /// Those of the last two days.
    TwoDays,
    /// The newest two of each resolution, which the folds of the last minutes have written.
    NewestRows,
}

/// Counts the rows of the history that cannot be read: of the contributions that are not folded, of the
/// totals, and of the newest buckets.
pub fn unreadable(conn: &mut Conn<'_>, back: LookBack) -> QueryResult<usize> {
    let dialect = conn.dialect();
    let now = epoch(dialect, "{now}");
    let buckets = Resolution::ALL.map(|resolution| {
        let back = match back {
            LookBack::TwoDays => 172_800,
            LookBack::NewestRows => 2 * resolution.span(),
        };
        let lately = format!(
            "resolution = {} AND starts_at > {now} - {back}",
            resolution.seconds()
        );
        let rows = of_each_series(dialect, &lately);
        format!("UNION ALL SELECT s.id, 0, b.data FROM {rows}")
    });
    let text = format!(
        "SELECT s.id AS series_id, CAST(0 AS bigint) AS seconds, b.data FROM {totals} \
         UNION ALL SELECT 0, 0, data FROM (SELECT data FROM windlass_stats_deltas \
           WHERE data IS NOT NULL AND id > 0 ORDER BY id LIMIT {MOST_UNFOLDED}) AS unfolded {buckets}",
        totals = of_each_series(dialect, "resolution = 0 AND starts_at = 0"),
        buckets = buckets.join(" "),
    );
    let rows: Vec<HistoryRow> = Statement::new(text).uncached().load(conn)?;
    let is_unreadable = |row: &HistoryRow| match row.series_id {
        0 => Contribution::unpack(&row.data).is_err(),
        _ => cell::unpack(&row.data).is_err(),
    };
    Ok(rows.iter().filter(|row| is_unreadable(row)).count())
}
