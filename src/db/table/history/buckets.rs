//! `windlass_stats`: the buckets of each series, packed into rows.

use crate::db::conn::connection::Conn;
use crate::db::conn::dialect::{Dialect, id_list};
use crate::db::conn::statement::Statement;
use crate::db::model::history::cell::Resolution;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Binary};

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
    Statement::new(text).bind(keys).unkept().load(conn)
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
                .unkept()
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
        .unkept()
        .changes(conn)
}
