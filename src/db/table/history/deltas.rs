//! `windlass_stats_deltas`: what processes have added up, until it is folded.

use crate::db::conn::connection::{Conn, age};
use crate::db::conn::dialect::{id_list, micros};
use crate::db::conn::statement::Statement;
use crate::db::model::history::contribution::Contribution;
use crate::db::table::history::epoch;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Binary, Double, Nullable, Text};
use std::collections::BTreeMap;
use std::time::Duration;

/// A contribution of a process, which it may have to insert again because no answer came.
#[derive(Debug)]
pub(crate) struct NumberedDelta {
    /// The process, by a name that no other process has.
    pub(crate) source: String,
    /// Grows with each contribution of the process.
    pub(crate) seq: i64,
    pub(crate) data: Vec<u8>,
}

/// Inserts the contribution of a process, unless it is there already.
///
/// A process inserts one contribution after the other, so only its newest can be inserted again.
/// Folding leaves the row of that one, without its data; so the repetition of an insert whose COMMIT
/// got no answer is always refused, also if the row was folded meanwhile.
pub(crate) fn insert_delta(conn: &mut Conn<'_>, delta: &NumberedDelta) -> QueryResult<()> {
    let text = "INSERT INTO windlass_stats_deltas (source, seq, created_at, data) VALUES ($1, $2, {now}, $3) \
         ON CONFLICT (source, seq) DO NOTHING";
    Statement::new(text)
        .bind(&delta.source)
        .bind(delta.seq)
        .bind(&delta.data[..])
        .uncached()
        .execute(conn)
}

/// Inserts what a transaction contributes that does more than this: it is there if and only if the
/// rest is.
pub(crate) fn insert_with(conn: &mut Conn<'_>, contribution: &Contribution) -> QueryResult<()> {
    if contribution.is_empty() {
        return Ok(());
    }
    let text = "INSERT INTO windlass_stats_deltas (created_at, data) VALUES ({now}, $1)";
    Statement::new(text)
        .bind(&contribution.pack()[..])
        .uncached()
        .execute(conn)
}

/// A contribution that is not folded.
#[derive(Debug, QueryableByName)]
pub(crate) struct UnfoldedDelta {
    #[diesel(sql_type = BigInt)]
    pub(crate) id: i64,
    #[diesel(sql_type = Nullable<Text>)]
    pub(crate) source: Option<String>,
    #[diesel(sql_type = Nullable<BigInt>)]
    pub(crate) seq: Option<i64>,
    /// The time of its insertion, in seconds since 1970.
    #[diesel(sql_type = BigInt)]
    pub(crate) seconds: i64,
    #[diesel(sql_type = Binary)]
    pub(crate) data: Vec<u8>,
}

/// Returns contributions that are not folded, after an id.
pub(crate) fn unfolded(
    conn: &mut Conn<'_>,
    after: i64,
    limit: usize,
) -> QueryResult<Vec<UnfoldedDelta>> {
    let text = format!(
        "SELECT id, source, seq, {} AS seconds, data FROM windlass_stats_deltas \
         WHERE data IS NOT NULL AND id > $1 ORDER BY id LIMIT $2",
        epoch(conn.dialect(), "created_at")
    );
    Statement::new(text)
        .bind(after)
        .bind(limit as i64)
        .uncached()
        .load(conn)
}

/// Deletes contributions that were folded. Of each process, the row of the newest stays, without its
/// data.
pub(crate) fn note_folded(conn: &mut Conn<'_>, folded: &[UnfoldedDelta]) -> QueryResult<()> {
    let mut newest: BTreeMap<&str, (i64, i64)> = BTreeMap::new();
    for delta in folded {
        if let (Some(source), Some(seq)) = (delta.source.as_deref(), delta.seq) {
            let newest = newest.entry(source).or_insert((seq, delta.id));
            *newest = (seq, delta.id).max(*newest);
        }
    }
    let kept: Vec<i64> = newest.values().map(|(_, id)| *id).collect();
    let rest = folded.iter().map(|delta| delta.id);
    let rest: Vec<i64> = rest.filter(|id| !kept.contains(id)).collect();
    let text = "DELETE FROM windlass_stats_deltas WHERE id IN {in $1}";
    Statement::new(text)
        .bind(id_list(&rest))
        .uncached()
        .execute(conn)?;
    let text = "UPDATE windlass_stats_deltas SET data = NULL WHERE id IN {in $1}";
    Statement::new(text)
        .bind(id_list(&kept))
        .uncached()
        .execute(conn)?;
    // One by one, by the index: for a list of them, Postgres may read the whole table.
    let text = "DELETE FROM windlass_stats_deltas WHERE source = $1 AND seq < $2 AND data IS NULL";
    for (source, (seq, _)) in newest {
        Statement::new(text)
            .bind(source)
            .bind(seq)
            .uncached()
            .execute(conn)?;
    }
    Ok(())
}

/// Deletes, of the `chunk` oldest rows, those that were folded and are older than `folded`, and those
/// that are older than `unreadable` and were still not folded, although something was within a day.
/// Returns how many.
pub(crate) fn clear(
    conn: &mut Conn<'_>,
    folded: Duration,
    unreadable: Duration,
    chunk: usize,
) -> QueryResult<usize> {
    let text = "DELETE FROM windlass_stats_deltas WHERE id IN (SELECT id FROM \
           (SELECT id, created_at, data FROM windlass_stats_deltas WHERE id > 0 ORDER BY id LIMIT $3) AS oldest \
         WHERE data IS NULL AND created_at < {later $1} OR created_at < {later $2} \
           AND EXISTS (SELECT 1 FROM windlass_stats_series WHERE queue_name = '' AND class_name = '' \
             AND folded_at > {later $4}))";
    Statement::new(text)
        .bind(-micros(folded))
        .bind(-micros(unreadable))
        .bind(chunk as i64)
        .bind(-micros(Duration::from_secs(24 * 3600)))
        .uncached()
        .changes(conn)
}

/// The backlog of contributions that are not folded.
#[derive(Debug, QueryableByName)]
pub struct FoldBacklog {
    /// The number of contributions that are not folded; at most 10,000 are counted.
    #[diesel(sql_type = BigInt)]
    pub unfolded: i64,
    /// Seconds since the oldest of them was inserted.
    #[diesel(sql_type = Nullable<Double>)]
    pub oldest: Option<f64>,
    /// Seconds since something was last folded.
    #[diesel(sql_type = Nullable<Double>)]
    pub folded: Option<f64>,
}

/// Returns how far folding is behind.
pub fn backlog(conn: &mut Conn<'_>) -> QueryResult<FoldBacklog> {
    let (oldest, folded) = (age(conn, "created_at"), age(conn, "folded_at"));
    let text = format!(
        "SELECT (SELECT count(*) FROM (SELECT 1 FROM windlass_stats_deltas WHERE data IS NOT NULL AND id > 0 LIMIT 10000) AS counted) AS unfolded, \
         (SELECT {oldest} FROM windlass_stats_deltas WHERE data IS NOT NULL AND id > 0 ORDER BY id LIMIT 1) AS oldest, \
         (SELECT {folded} FROM windlass_stats_series WHERE queue_name = '' AND class_name = '') AS folded"
    );
    Statement::new(text).uncached().get_result(conn)
}
