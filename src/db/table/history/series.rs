//! `windlass_stats_series`: the names of the series. `windlass_stats`: their buckets and totals.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{Dialect, Id, Lossy, id_list, micros};
use crate::db::conn::statement::Statement;
use crate::db::model::history::cell::Resolution;
use crate::db::model::history::contribution::{BySeries, OTHER};
use crate::db::table::history::epoch;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Binary, Text};
use std::collections::BTreeMap;
use std::time::Duration;

/// The time of the last fold of the history, and the time now, in seconds since 1970.
#[derive(Debug, Clone, Copy, QueryableByName)]
pub(crate) struct FoldTimes {
    #[diesel(sql_type = BigInt)]
    pub(crate) folded: i64,
    #[diesel(sql_type = BigInt)]
    pub(crate) now: i64,
}

fn times(dialect: Dialect, lock: &str) -> String {
    format!(
        "SELECT {} AS folded, {} AS now FROM windlass_stats_series WHERE queue_name = '' AND class_name = ''{lock}",
        epoch(dialect, "folded_at"),
        epoch(dialect, "{now}")
    )
}

/// Returns when the history was last folded. Returns `None` if it never was.
pub(crate) fn fold_times(conn: &mut Conn<'_>) -> QueryResult<Option<FoldTimes>> {
    let text = times(conn.dialect(), "");
    Statement::new(text).uncached().get_result(conn).optional()
}

/// Locks the right to fold, to the end of the transaction. Returns `None` if another process has it.
pub(crate) fn lock(conn: &mut Conn<'_>) -> QueryResult<Option<FoldTimes>> {
    let text = times(conn.dialect(), " {lock skip}");
    Statement::new(text).uncached().get_result(conn).optional()
}

/// Adds the row that is locked to fold, if it is not there.
pub(crate) fn insert_first(conn: &mut Conn<'_>) -> QueryResult<()> {
    let text = "INSERT INTO windlass_stats_series (queue_name, class_name, folded_at) \
         VALUES ('', '', {time '1970-01-01 00:00:00.000000'}) ON CONFLICT (queue_name, class_name) DO NOTHING";
    Statement::new(text).uncached().execute(conn)
}

#[derive(QueryableByName)]
struct SeriesName {
    #[diesel(sql_type = BigInt)]
    id: i64,
    #[diesel(sql_type = Text, deserialize_as = Lossy)]
    queue_name: String,
    #[diesel(sql_type = Text, deserialize_as = Lossy)]
    class_name: String,
    #[diesel(sql_type = BigInt)]
    now: i64,
}

/// The most series of gates, beside that of the `other` ones.
const MOST_GATES: usize = 50;

/// The ids of all series.
#[derive(Debug, Default)]
pub struct SeriesIds {
    /// Of everything.
    pub(crate) all: Option<i64>,
    /// Of whole queues, by name.
    wholes: BTreeMap<String, i64>,
    /// Of a queue and a class.
    pub(crate) pairs: BySeries<i64>,
    /// Of gates for which jobs waited, by kind and key: `rate/api`. They have no queue, and a wait for each sample.
    pub(crate) gates: BTreeMap<String, i64>,
    /// The time now, in seconds since 1970.
    pub now: i64,
}

impl SeriesIds {
    /// Adds a series. Both names are empty for everything, the class for a whole queue, and the queue for a gate.
    pub(crate) fn insert(&mut self, queue: &str, class: &str, id: i64) {
        match (queue, class) {
            ("", "") => self.all = Some(id),
            ("", gate) => drop(self.gates.insert(gate.to_owned(), id)),
            (_, "") => drop(self.wholes.insert(queue.to_owned(), id)),
            _ => self.pairs.insert(queue, class, id),
        }
    }

    /// Returns the series of a whole queue: that of its only class, as long as it has no other.
    pub(crate) fn queue(&self, queue: &str) -> Option<i64> {
        let whole = self.wholes.get(queue).copied();
        whole.or_else(|| self.pairs.only(queue).copied())
    }

    /// Returns the queue, the class and the id of all series: of everything, of whole queues, of classes in queues, and of
    /// gates.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str, i64)> {
        let all = self.all.map(|id| ("", "", id));
        let queues = self.wholes.keys().map(String::as_str);
        let only = self.pairs.queues();
        let queues = queues.chain(only.filter(|queue| !self.wholes.contains_key(*queue)));
        let queues = queues.filter_map(|queue| Some((queue, "", self.queue(queue)?)));
        let pairs = self.pairs.iter();
        let pairs = pairs.map(|(queue, class, id)| (queue, class, *id));
        let gates = self.gates.iter();
        let gates = gates.map(|(gate, id)| ("", gate.as_str(), *id));
        all.into_iter().chain(queues).chain(pairs).chain(gates)
    }

    /// Returns whether a further class of this queue needs a series of the whole queue first.
    pub(crate) fn lacks_whole(&self, queue: &str) -> Option<i64> {
        let only = self.pairs.only(queue).copied();
        only.filter(|_| !self.wholes.contains_key(queue))
    }

    /// Returns whether one more gate may have a series of its own.
    pub(crate) fn has_room_for_gate(&self) -> bool {
        let names = self.gates.keys().filter(|name| *name != OTHER);
        names.count() < MOST_GATES
    }

    /// Returns how many series of whole queues there are.
    pub(crate) fn count_wholes(&self) -> usize {
        self.wholes.len()
    }
}

/// Reads the ids of all series.
pub(crate) fn ids(conn: &mut Conn<'_>) -> QueryResult<SeriesIds> {
    let text = format!(
        "SELECT CAST(0 AS bigint) AS id, '' AS queue_name, '' AS class_name, {} AS now \
         UNION ALL SELECT id, queue_name, class_name, 0 FROM windlass_stats_series",
        epoch(conn.dialect(), "{now}")
    );
    let rows: Vec<SeriesName> = Statement::new(text).uncached().load(conn)?;
    let mut ids = SeriesIds::default();
    for row in rows {
        match row.id {
            0 => ids.now = row.now,
            id => ids.insert(&row.queue_name, &row.class_name, id),
        }
    }
    Ok(ids)
}

/// Adds a series, and returns its id.
pub(crate) fn insert_series(conn: &mut Conn<'_>, queue: &str, class: &str) -> QueryResult<i64> {
    let text = "INSERT INTO windlass_stats_series (queue_name, class_name, folded_at) \
         VALUES ($1, $2, {now}) RETURNING id";
    let row: Id = Statement::new(text)
        .bind(queue)
        .bind(class)
        .uncached()
        .get_result(conn)?;
    Ok(row.id)
}

/// Adds the series of a whole queue, with the total and the buckets of the series of its only class so
/// far. Returns its id.
pub(crate) fn insert_whole(conn: &mut Conn<'_>, queue: &str, only: i64) -> QueryResult<i64> {
    let whole = insert_series(conn, queue, "")?;
    let text = "INSERT INTO windlass_stats (series_id, resolution, starts_at, data) \
         SELECT CAST($1 AS bigint), resolution, starts_at, data FROM windlass_stats WHERE series_id = $2";
    Statement::new(text)
        .bind(whole)
        .bind(only)
        .uncached()
        .execute(conn)?;
    Ok(whole)
}

/// Stores that series were folded now.
pub(crate) fn note_folded(conn: &mut Conn<'_>, ids: &[i64]) -> QueryResult<()> {
    let text = "UPDATE windlass_stats_series SET folded_at = {now} WHERE id IN {in $1}";
    Statement::new(text)
        .bind(id_list(ids))
        .uncached()
        .execute(conn)
}

/// Some series, and the time now.
#[derive(Debug)]
pub(crate) struct SeriesPage {
    pub(crate) ids: Vec<i64>,
    /// In seconds since 1970.
    pub(crate) now: i64,
}

/// Returns series after an id, in order.
pub(crate) fn page(conn: &mut Conn<'_>, after: i64, limit: usize) -> QueryResult<SeriesPage> {
    let text = format!(
        "SELECT id, '' AS queue_name, '' AS class_name, {} AS now FROM windlass_stats_series \
         WHERE id > $1 ORDER BY id LIMIT $2",
        epoch(conn.dialect(), "{now}")
    );
    let rows: Vec<SeriesName> = Statement::new(text)
        .bind(after)
        .bind(limit as i64)
        .uncached()
        .load(conn)?;
    Ok(SeriesPage {
        now: rows.first().map_or(0, |row| row.now),
        ids: rows.into_iter().map(|row| row.id).collect(),
    })
}

/// Returns series of which nothing was folded for `age`. Those that have what belongs to no other
/// series stay.
pub(crate) fn unused(conn: &mut Conn<'_>, age: Duration, chunk: usize) -> QueryResult<Vec<i64>> {
    let text = format!(
        "SELECT id FROM windlass_stats_series WHERE folded_at < {{later $1}} \
         AND queue_name NOT IN ('', '{OTHER}') AND class_name <> '{OTHER}' ORDER BY id LIMIT $2"
    );
    let rows: Vec<Id> = Statement::new(text)
        .bind(-micros(age))
        .bind(chunk as i64)
        .uncached()
        .load(conn)?;
    Ok(rows.into_iter().map(|row| row.id).collect())
}

/// Returns series of gates for which no job has waited for `age`, those for which none has for longest first.
pub(crate) fn idle_gates(conn: &mut Conn<'_>, age: Duration, most: i64) -> QueryResult<Vec<i64>> {
    let text = "SELECT id FROM windlass_stats_series WHERE queue_name = '' AND class_name <> '' \
         AND folded_at < {later $1} ORDER BY folded_at, id LIMIT $2";
    let rows: Vec<Id> = Statement::new(text)
        .bind(-micros(age))
        .bind(most)
        .uncached()
        .load(conn)?;
    Ok(rows.into_iter().map(|row| row.id).collect())
}

/// Deletes series with their buckets and totals.
pub(crate) fn delete(conn: &mut Conn<'_>, ids: &[i64]) -> QueryResult<()> {
    for resolution in Resolution::ALL.into_iter().chain([Resolution::AllTime]) {
        clear(conn, ids, resolution, i64::MAX)?;
    }
    let text = "DELETE FROM windlass_stats_series WHERE id IN {in $1}";
    Statement::new(text)
        .bind(id_list(ids))
        .uncached()
        .execute(conn)
}

// --- `windlass_stats`: the buckets of each series, packed into rows, and its total ---

/// The key of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BucketRow {
    pub(crate) series_id: i64,
    pub(crate) resolution: Resolution,
    /// In seconds since 1970.
    pub(crate) starts_at: i64,
}

/// A row with its packed buckets.
#[derive(Debug, QueryableByName)]
pub(crate) struct PackedRow {
    #[diesel(sql_type = BigInt)]
    pub(crate) series_id: i64,
    #[diesel(sql_type = BigInt)]
    pub(crate) resolution: i64,
    #[diesel(sql_type = BigInt)]
    pub(crate) starts_at: i64,
    #[diesel(sql_type = Binary)]
    pub(crate) data: Vec<u8>,
}

/// Reads the rows that exist of those with these keys.
pub(crate) fn read(conn: &mut Conn<'_>, keys: &[BucketRow]) -> QueryResult<Vec<PackedRow>> {
    let text = "SELECT b.series_id, CAST(b.resolution AS bigint) AS resolution, b.starts_at, b.data FROM \
           (SELECT CAST(value ->> 0 AS bigint) AS series_id, CAST(value ->> 1 AS integer) AS resolution, \
             CAST(value ->> 2 AS bigint) AS starts_at FROM {rows $1}) AS keys \
         CROSS JOIN windlass_stats b WHERE b.series_id = keys.series_id \
         AND b.resolution = keys.resolution AND b.starts_at = keys.starts_at";
    let keys = keys.iter();
    let keys: Vec<(i64, i64, i64)> = keys
        .map(|key| (key.series_id, key.resolution.seconds(), key.starts_at))
        .collect();
    let keys = serde_json::to_string(&keys).unwrap_or_default();
    Statement::new(text).bind(keys).uncached().load(conn)
}

/// Writes rows, each in place of the one that exists.
pub(crate) fn write(conn: &mut Conn<'_>, rows: Vec<(BucketRow, Vec<u8>)>) -> QueryResult<()> {
    match conn.dialect() {
        Dialect::Postgres => {
            let (keys, data): (Vec<BucketRow>, Vec<Vec<u8>>) = rows.into_iter().unzip();
            let column =
                |value: fn(&BucketRow) -> i64| -> Vec<i64> { keys.iter().map(value).collect() };
            let text = "INSERT INTO windlass_stats (series_id, resolution, starts_at, data) \
                 SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bytea[]) ON CONFLICT (series_id, resolution, starts_at) \
                 DO UPDATE SET data = excluded.data";
            Statement::new(text)
                .bind(column(|key| key.series_id))
                .bind(column(|key| key.resolution.seconds()))
                .bind(column(|key| key.starts_at))
                .bind(data)
                .uncached()
                .execute(conn)
        }
        Dialect::Sqlite => {
            let text = "INSERT INTO windlass_stats (series_id, resolution, starts_at, data) \
                 VALUES ($1, $2, $3, $4) ON CONFLICT (series_id, resolution, starts_at) \
                 DO UPDATE SET data = excluded.data";
            for (key, data) in &rows {
                Statement::new(text)
                    .bind(key.series_id)
                    .bind(key.resolution.seconds())
                    .bind(key.starts_at)
                    .bind(&data[..])
                    .execute(conn)?;
            }
            Ok(())
        }
    }
}

/// Deletes the rows of some series that end before a time, in seconds since 1970. Returns how many.
pub(crate) fn clear(
    conn: &mut Conn<'_>,
    series: &[i64],
    resolution: Resolution,
    before: i64,
) -> QueryResult<usize> {
    let text = "DELETE FROM windlass_stats WHERE series_id IN {in $1} \
         AND resolution = CAST($2 AS integer) AND starts_at < $3";
    Statement::new(text)
        .bind(id_list(series))
        .bind(resolution.seconds())
        .bind(before.saturating_sub(resolution.span()))
        .uncached()
        .changes(conn)
}
