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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seconds {
    pub(crate) from: i64,
    pub(crate) to: i64,
}

impl Seconds {
    fn contains(self, seconds: i64) -> bool {
        (self.from..self.to).contains(&seconds)
    }
}

/// The cells of series by the start of their bucket, in seconds since 1970.
pub(crate) type CellsByTime = BTreeMap<i64, Cell>;

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

/// The history of some series: their buckets, and the contributions of all series that are not folded.
#[derive(Debug, Default)]
pub(crate) struct HistoryPart {
    /// By the id of the series.
    pub(crate) folded: BTreeMap<i64, CellsByTime>,
    /// By the start of the bucket.
    pub(crate) unfolded: BTreeMap<i64, Contribution>,
}

/// Reads the buckets of series at a resolution. Rows that cannot be read are skipped; `doctor`
/// reports them.
pub(crate) fn part(
    conn: &mut Conn<'_>,
    ids: &[i64],
    resolution: Resolution,
    span: Seconds,
) -> QueryResult<HistoryPart> {
    let text = format!(
        "SELECT series_id, starts_at AS seconds, data FROM windlass_stats WHERE series_id IN {{in $1}} \
           AND resolution = CAST($2 AS integer) AND starts_at > $3 AND starts_at < $4 \
         UNION ALL SELECT 0, seconds, data FROM (SELECT {} AS seconds, data FROM windlass_stats_deltas \
           WHERE data IS NOT NULL AND id > 0 ORDER BY id DESC LIMIT {MOST_UNFOLDED}) AS unfolded",
        epoch(conn.dialect(), "created_at")
    );
    let rows: Vec<HistoryRow> = Statement::new(text)
        .bind(id_list(ids))
        .bind(resolution.seconds())
        .bind(span.from - resolution.span())
        .bind(span.to)
        .load(conn)?;
    let mut part = HistoryPart::default();
    let step = resolution.seconds();
    for row in rows {
        if row.series_id == 0 {
            let start = row.seconds.div_euclid(step) * step;
            if let (true, Ok(more)) = (span.contains(start), Contribution::unpack(&row.data)) {
                part.unfolded.entry(start).or_default().merge(&more);
            }
            continue;
        }
        let cells = part.folded.entry(row.series_id).or_default();
        for (bucket, cell) in cell::unpack(&row.data).unwrap_or_default() {
            let start = row.seconds + i64::from(bucket) * step;
            if span.contains(start) {
                cells.entry(start).or_default().merge(&cell);
            }
        }
    }
    Ok(part)
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
    let text = format!(
        "SELECT id, queue_name, class_name, total AS data FROM windlass_stats_series \
         WHERE class_name <> '' OR queue_name = '' \
         UNION ALL SELECT 0, '', '', data FROM (SELECT data FROM windlass_stats_deltas \
           WHERE data IS NOT NULL AND id > 0 ORDER BY id LIMIT {MOST_UNFOLDED}) AS unfolded"
    );
    let rows: Vec<SumRow> = Statement::new(text).load(conn)?;
    let mut sums = HistorySums::default();
    let (unfolded, folded): (Vec<SumRow>, Vec<SumRow>) =
        rows.into_iter().partition(|row| row.id == 0);
    for row in folded {
        let Ok(cell) = cell::unpack_one(&row.data) else {
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

/// Counts the rows of the history that cannot be read: of the contributions that are not folded, of the
/// totals, and of the buckets of the last two days.
pub(crate) fn unreadable(conn: &mut Conn<'_>) -> QueryResult<usize> {
    let lately = format!(
        "resolution IN (60, 600, 3600) AND starts_at > {} - 172800",
        epoch(conn.dialect(), "{now}")
    );
    // One series after the other, by the primary key.
    let buckets = match conn.dialect() {
        Dialect::Postgres => format!(
            "CROSS JOIN LATERAL (SELECT data FROM windlass_stats WHERE series_id = s.id AND {lately} LIMIT 1000) AS b"
        ),
        Dialect::Sqlite => {
            format!("CROSS JOIN windlass_stats AS b WHERE b.series_id = s.id AND {lately}")
        }
    };
    let text = format!(
        "SELECT CAST(1 AS bigint) AS series_id, {now} AS seconds, total AS data FROM windlass_stats_series \
         UNION ALL SELECT 0, 0, data FROM (SELECT data FROM windlass_stats_deltas \
           WHERE data IS NOT NULL AND id > 0 ORDER BY id LIMIT {MOST_UNFOLDED}) AS unfolded \
         UNION ALL SELECT 2, 0, b.data FROM windlass_stats_series s {buckets}",
        now = epoch(conn.dialect(), "{now}")
    );
    let rows: Vec<HistoryRow> = Statement::new(text).unkept().load(conn)?;
    let is_unreadable = |row: &HistoryRow| match row.series_id {
        0 => Contribution::unpack(&row.data).is_err(),
        1 => cell::unpack_one(&row.data).is_err(),
        _ => cell::unpack(&row.data).is_err(),
    };
    Ok(rows.iter().filter(|row| is_unreadable(row)).count())
}

impl SeriesIds {
    /// Returns the series with this queue, class, or both.
    pub(crate) fn of(&self, queue: Option<&str>, class: Option<&str>) -> Vec<i64> {
        match (queue, class) {
            (None, None) => self.all.into_iter().collect(),
            (Some(queue), None) => self.queue(queue).into_iter().collect(),
            (Some(queue), Some(class)) => {
                self.pairs.get(queue, class).copied().into_iter().collect()
            }
            (None, Some(class)) => {
                let pairs = self.pairs.iter();
                let of_class = pairs.filter(|(_, name, _)| *name == class);
                of_class.map(|(.., id)| *id).collect()
            }
        }
    }
}
