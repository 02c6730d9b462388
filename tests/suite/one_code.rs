//! One code for SQLite and Postgres: a query of the application and a job in one transaction, also in tests.

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::jobs::Log;
use diesel::prelude::*;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use windlass::testing::{self, TestDatabase};
use windlass::{AsConn, Context, DbConnection, Job, JobResult, Registry, with_conn};

on_each_database!(
    a_function_of_any_connection_writes_a_row_and_a_job,
    a_function_of_the_own_type_takes_a_test_database,
    inline_mode_waits_for_the_commit,
    inline_mode_forgets_what_was_rolled_back,
    a_savepoint_is_no_commit,
);

diesel::table! {
    orders (item) { item -> Text, }
}

#[derive(Serialize, Deserialize)]
struct Ship(String);

impl Job for Ship {
    const NAME: &'static str = "ship";
    type State = Log;
    type Output = ();

    fn perform(self, cx: &Context<'_, Log>) -> JobResult {
        let shipped = count(&mut cx.connection()?)?;
        cx.add(format!("{} of {shipped}", self.0));
        Ok(())
    }
}

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The application's own functions.
fn place(conn: &mut impl AsConn, item: &str) -> Result {
    windlass::transaction(conn, |conn| {
        let row = orders::item.eq(item);
        with_conn!(conn, |c| diesel::insert_into(orders::table)
            .values(row)
            .execute(c))?;
        Ship(item.to_owned()).enqueue(conn)?;
        if item.is_empty() {
            return Err("an order has an item".into());
        }
        Ok(())
    })
}

fn place_owned(conn: &mut DbConnection, item: &str) -> Result {
    conn.transaction(|conn| place(conn, item))
}

fn count(conn: &mut impl AsConn) -> QueryResult<i64> {
    with_conn!(conn, |c| orders::table.count().get_result(c))
}

fn orders(db: &TestDb) -> (TestDatabase, Registry, Arc<Log>) {
    with_conn!(&mut db.database.connect().unwrap(), |c| {
        diesel::sql_query("CREATE TABLE orders (item text NOT NULL)").execute(c)
    })
    .unwrap();
    let log = Arc::new(Log::default());
    let registry = Registry::new().register::<Ship>(Arc::clone(&log));
    (TestDatabase::open(&db.url).unwrap(), registry, log)
}

fn a_function_of_any_connection_writes_a_row_and_a_job(db: &TestDb) {
    let (mut test, registry, log) = orders(db);
    place(&mut test, "tea").unwrap();
    place(&mut test, "").unwrap_err();
    place(&mut test.as_conn(), "milk").unwrap();
    assert_eq!(count(&mut test).unwrap(), 2);
    test.drain(&registry).unwrap().assert_all_finished(2);
    assert_eq!(log.lines(), ["tea of 2", "milk of 2"]);
    drop(test);
    let conn = &mut db.database.connect().unwrap();
    place(conn, "salt").unwrap();
    place(&mut db.database.get().unwrap(), "").unwrap_err();
    assert_eq!(count(conn).unwrap(), 1);
    assert_eq!(testing::enqueued::<Ship>(conn).unwrap().len(), 1);
}

fn a_function_of_the_own_type_takes_a_test_database(db: &TestDb) {
    let (mut test, registry, log) = orders(db);
    place_owned(&mut test, "tea").unwrap();
    place_owned(&mut test, "").unwrap_err();
    assert_eq!(count(&mut *test).unwrap(), 1);
    let mut inline = test.inline(&registry);
    place_owned(&mut inline, "milk").unwrap();
    inline.drained().assert_all_finished(2);
    assert_eq!(log.lines(), ["tea of 2", "milk of 2"]);
}

fn inline_mode_waits_for_the_commit(db: &TestDb) {
    let (mut test, registry, log) = orders(db);
    let mut inline = test.inline(&registry);
    windlass::transaction(&mut inline, |conn| -> Result {
        Ship("tea".into()).enqueue(conn)?;
        windlass::enqueue_all(conn, [windlass::NewJob::new(&Ship("milk".into()))?])?;
        assert!(log.lines().is_empty());
        Ok(())
    })
    .unwrap();
    assert_eq!(log.lines(), ["tea of 0", "milk of 0"]);
    inline.drained().assert_all_finished(2);
    // Without a transaction, at once.
    Ship("salt".into()).enqueue(&mut *inline).unwrap();
    assert_eq!(log.lines()[2..], ["salt of 0"]);
}

fn inline_mode_forgets_what_was_rolled_back(db: &TestDb) {
    let (mut test, registry, log) = orders(db);
    let mut inline = test.inline(&registry);
    place(&mut inline, "").unwrap_err();
    assert_eq!(inline.drained().runs.len(), 0);
    place(&mut inline, "tea").unwrap();
    assert_eq!(log.lines(), ["tea of 1"]);
    drop(inline);
    place(&mut test, "milk").unwrap();
    assert_eq!(log.lines().len(), 1);
}

fn a_savepoint_is_no_commit(db: &TestDb) {
    let (mut test, registry, log) = orders(db);
    let mut inline = test.inline(&registry);
    inline
        .transaction(|conn| -> Result {
            place_owned(conn, "tea")?;
            place(conn, "").unwrap_err();
            assert!(log.lines().is_empty());
            Ok(())
        })
        .unwrap();
    assert_eq!(log.lines(), ["tea of 1"]);
}
