//! The same as [`names`](super::names), with enqueues by SQL. Only on Postgres, where one is a
//! statement of many; on SQLite it holds the write lock, as any other.

use crate::db::conn::connection::Conn;
use crate::db::conn::statement::Statement;
use crate::db::internal_tests::db::TestDb;
use crate::db::internal_tests::interleavings::Play;
use crate::db::internal_tests::interleavings::acts::*;
use crate::db::internal_tests::interleavings::names::{
    a_process, end_named, lot, named, one_behind, one_claim, one_failed, one_ready, plain, put,
};
use crate::db::model::claim::{Cursor, FinishedRow};
use crate::db::model::new_row::OnConflict;
use crate::db::transition::unique;
use diesel::QueryResult;
use diesel::result::Error::RollbackTransaction;
use diesel::sql_types::Text;

#[derive(diesel::QueryableByName)]
struct Outcome {
    #[diesel(sql_type = Text)]
    outcome: String,
}

/// Enqueues by SQL in a transaction of the caller's own, and says what came of it.
fn put_by_sql(conn: &mut Conn<'_>, on_conflict: &str, commit: bool) -> QueryResult<String> {
    let mut said = String::new();
    let result: QueryResult<()> = conn.transaction(|conn| {
        let text = "INSERT INTO windlass_enqueue (class, unique_id, on_conflict) VALUES ('a', 'u', $1) RETURNING outcome";
        let row: Outcome = Statement::new(text).bind(on_conflict).get_result(conn)?;
        said = row.outcome;
        if commit { Ok(()) } else { Err(RollbackTransaction) }
    });
    match result {
        Ok(()) => Ok(said),
        Err(RollbackTransaction) => Ok(format!("{said} undone")),
        Err(error) => Err(error),
    }
}

fn put_and_unblock(conn: &mut Conn<'_>, on_conflict: &str) -> QueryResult<String> {
    let said = put_by_sql(conn, on_conflict, true)?;
    unique::sweep(conn, Cursor::BEGINNING, 10)?;
    Ok(said)
}

/// Enqueues a list by SQL, and says how many ids are those of new jobs.
fn lot_by_sql(conn: &mut Conn<'_>, names: &[&str]) -> QueryResult<String> {
    #[derive(diesel::QueryableByName)]
    struct New {
        #[diesel(sql_type = Text)]
        new: String,
    }
    let jobs = names
        .iter()
        .map(|name| serde_json::json!({ "unique_id": name }));
    let jobs = serde_json::Value::Array(jobs.collect()).to_string();
    let text = "WITH before AS MATERIALIZED (SELECT coalesce(max(id), 0) AS id FROM solid_queue_jobs) \
         SELECT CAST(count(*) FILTER (WHERE job > before.id) AS text) AS new \
         FROM before, windlass_enqueue_many('a', CAST($1 AS json)) AS job";
    let row: New = Statement::new(text).bind(&jobs).get_result(conn)?;
    Ok(row.new)
}

#[test]
fn one_by_sql_and_one_by_rust() {
    Play::new(&TestDb::postgres(), a_process)
        .actor("sql", |c, _| put_by_sql(c, "existing", true))
        .actor("rust", |c, _| put(c, &plain(), true))
        .ends_in(&[
            "sql existing, rust new -> new ready; p1",
            "sql new, rust existing -> new ready; p1",
        ]);
}

#[test]
fn one_of_two_rolls_back() {
    Play::new(&TestDb::postgres(), a_process)
        .actor("sql", |c, _| put_by_sql(c, "existing", false))
        .actor("rust", |c, _| put(c, &plain(), true))
        .ends_in(&[
            "sql existing undone, rust new -> new ready; p1",
            "sql new undone, rust new -> new ready; p1",
        ]);
}

#[test]
fn one_of_two_takes_over_and_rolls_back() {
    Play::new(&TestDb::postgres(), one_failed)
        .actor("rust", |c, _| put(c, &plain(), false))
        .actor("sql", |c, _| put_by_sql(c, "existing", true))
        .ends_in(&[
            "rust existing undone, sql new -> j1 failed, new ready; p1",
            "rust new undone, sql new -> j1 failed, new ready; p1",
        ]);
}

#[test]
fn lists_in_opposite_order() {
    Play::new(&TestDb::postgres(), a_process)
        .actor("sql", |c, _| lot_by_sql(c, &["u", "v", "w"]))
        .actor("rust", |c, _| lot(c, &["w", "v", "u"]))
        .ends_in(&[
            "sql 0, rust 3 -> new ready, new ready, new ready; p1",
            "sql 3, rust 0 -> new ready, new ready, new ready; p1",
        ]);
}

/// Rust inserts a list that names a unique id twice in steps.
#[test]
fn lists_in_opposite_order_one_in_steps() {
    Play::new(&TestDb::postgres(), a_process)
        .actor("sql", |c, _| lot_by_sql(c, &["u", "v", "w"]))
        .actor("rust", |c, _| lot(c, &["w", "v", "u", "w"]))
        .ends_in(&[
            "sql 0, rust 3 -> new ready, new ready, new ready; p1",
            "sql 3, rust 0 -> new ready, new ready, new ready; p1",
            // Rust's jobs were committed while the SQL waited for their unique ids: they are new to its snapshot.
            "sql 3, rust 3 -> new ready, new ready, new ready; p1",
        ]);
}

#[test]
fn claim_and_enqueue() {
    Play::new(&TestDb::postgres(), one_ready)
        .actor("claim", |c, w| claim(c, w, 1))
        .actor("enqueue", |c, _| put_by_sql(c, "existing", true))
        .ends_in(&[
            "claim took 0, enqueue existing -> j1 ready; p1",
            "claim took 1, enqueue existing -> j1 claimed by p1; p1",
        ]);
}

#[test]
fn claim_and_replace() {
    Play::new(&TestDb::postgres(), one_ready)
        .actor("claim", |c, w| claim(c, w, 1))
        .actor("enqueue", |c, _| put_by_sql(c, "replace", true))
        .ends_in(&[
            "claim took 0, enqueue replaced -> j1 ready; p1",
            "claim took 1, enqueue again -> j1 claimed by p1, new blocked; p1",
            "claim took 1, enqueue replaced -> j1 claimed by p1; p1",
        ]);
}

#[test]
fn two_replace() {
    Play::new(&TestDb::postgres(), one_ready)
        .actor("sql", |c, _| put_by_sql(c, "replace", true))
        .actor("rust", |c, _| put(c, &named(OnConflict::Replace), true))
        .ends_in(&["sql replaced, rust replaced -> j1 ready; p1"]);
}

#[test]
fn finish_and_enqueue() {
    Play::new(&TestDb::postgres(), one_claim)
        .actor("finish", |c, w| end_named(c, w, FinishedRow::Keep))
        .actor("enqueue", |c, _| put_by_sql(c, "existing", true))
        .ends_in(&[
            "finish 1, enqueue existing -> j1 finished; p1",
            "finish 1, enqueue new -> j1 finished, new ready; p1",
        ]);
}

#[test]
fn finish_and_run_again() {
    Play::new(&TestDb::postgres(), one_claim)
        .actor("finish", |c, w| end_named(c, w, FinishedRow::Keep))
        .actor("enqueue", |c, _| put_and_unblock(c, "run_again"))
        .ends_in(&[
            "finish 1, enqueue again -> j1 finished, new blocked; p1",
            "finish 1, enqueue again -> j1 finished, new ready; p1",
            "finish 1, enqueue new -> j1 finished, new ready; p1",
        ]);
}

#[test]
fn finish_and_replacement_of_one_behind() {
    Play::new(&TestDb::postgres(), one_behind)
        .coarse()
        .actor("finish", |c, w| end_named(c, w, FinishedRow::Keep))
        .actor("enqueue", |c, _| put_by_sql(c, "replace", true))
        .ends_in(&[
            "finish 1, enqueue replaced -> j1 finished, j2 blocked; p1",
            "finish 1, enqueue replaced -> j1 finished, j2 ready; p1",
        ]);
}

#[test]
fn discard_and_replace() {
    Play::new(&TestDb::postgres(), one_ready)
        .coarse()
        .actor("discard", |c, w| discard(c, w, &[1]))
        .actor("enqueue", |c, _| put_by_sql(c, "replace", true))
        .ends_in(&[
            "discard 0, enqueue replaced -> j1 ready; p1",
            "discard 1, enqueue new -> new ready; p1",
            "discard 1, enqueue replaced -> ; p1",
        ]);
}

#[test]
fn retry_and_enqueue() {
    Play::new(&TestDb::postgres(), one_failed)
        .coarse()
        .actor("retry", |c, w| retry(c, w, &[1]))
        .actor("enqueue", |c, _| put_by_sql(c, "existing", true))
        .ends_in(&[
            "retry 0, enqueue new -> j1 failed, new ready; p1",
            "retry 1, enqueue existing -> j1 ready; p1",
        ]);
}
