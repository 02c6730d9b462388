//! The history, from contributions to buckets: nothing is lost or counted
//! twice, whatever dies, repeats or is damaged.

mod damage;
mod folds;
mod retention;
mod size;
mod times;
mod workers;

use crate::db::conn::connection::{AsConn, Conn};
use crate::db::model::history::contribution::Contribution;
use crate::db::model::history::tally::{CountedEnd, RunSpan};
use crate::db::table::history::deltas::{self, NumberedDelta};
use crate::db::transition::fold::{self, FoldWhen, Folded};
use crate::db::{DbConnection, internal_tests::db::execute};
use crate::history::{self, HistoryFilter, Tally, TimeRange};
use diesel::prelude::*;
use diesel::sql_types::BigInt;
use std::time::Duration;

/// A contribution with so many finished jobs of a queue and a class.
fn finished(queue: &str, class: &str, count: u64) -> Contribution {
    let mut contribution = Contribution::default();
    let tally = contribution.tally(queue, class);
    for _ in 0..count {
        let run = RunSpan {
            waited: Some(Duration::from_millis(7)),
            ran: Duration::from_millis(70),
        };
        tally.add_run(CountedEnd::Finished, run);
    }
    contribution
}

fn numbered(source: &str, seq: i64, contribution: &Contribution) -> NumberedDelta {
    NumberedDelta {
        source: source.to_owned(),
        seq,
        data: contribution.pack(),
    }
}

/// Inserts a contribution as of a time in seconds since 1970.
fn insert_at(conn: &mut Conn<'_>, contribution: &Contribution, seconds: i64) {
    deltas::insert_with(conn, contribution).unwrap();
    let time = chrono::DateTime::from_timestamp(seconds, 0).unwrap();
    let time = time.format("%Y-%m-%d %H:%M:%S.000000");
    execute(
        conn,
        &format!(
            "UPDATE windlass_stats_deltas SET created_at = '{time}' \
             WHERE id = (SELECT max(id) FROM windlass_stats_deltas)"
        ),
    );
}

fn fold_all(conn: &mut Conn<'_>) {
    while let Folded::Done { is_full: true, .. } = fold::fold(conn, FoldWhen::Now, None).unwrap() {}
}

/// Returns the sum of all series.
fn total(conn: &mut DbConnection) -> Tally {
    let mut sum = Tally::default();
    for one in history::totals(conn).unwrap().series {
        sum.merge(&one.tally);
    }
    sum
}

fn sum_of(conn: &mut DbConnection, filter: &HistoryFilter, range: TimeRange) -> Tally {
    let mut sum = Tally::default();
    for bucket in history::series(conn, filter, range).unwrap() {
        sum.merge(&bucket.tally);
    }
    sum
}

#[derive(QueryableByName)]
struct Number {
    #[diesel(sql_type = BigInt)]
    n: i64,
}

fn number(conn: &mut DbConnection, text: &str) -> i64 {
    let conn = &mut conn.as_conn();
    let row: Number = crate::with_conn!(conn, |c| diesel::sql_query(text).get_result(c)).unwrap();
    row.n
}

fn rows(conn: &mut DbConnection, table: &str) -> i64 {
    number(conn, &format!("SELECT count(*) AS n FROM {table}"))
}
