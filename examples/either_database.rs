//! One program for SQLite and Postgres: an order and the job that ships it, in one transaction.
//!
//! ```text
//! cargo run --example either_database                                 # on the SQLite file `shop.db`
//! cargo run --example either_database --features postgres -- postgres://localhost/shop
//! cargo test --example either_database                                # its tests, on SQLite in memory
//! ```
//!
//! With `SHOP_TEST_POSTGRES`, the address of a migrated database, the tests run on Postgres too.

#![expect(clippy::print_stdout, reason = "it is a program")]
#![allow(missing_docs, reason = "`table!` makes public items")]

use diesel::connection::SimpleConnection as _;
use diesel::prelude::*;
use serde::{Deserialize, Serialize};
use windlass::{AsConn, Context, Database, Job, JobResult, Registry, with_conn};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

diesel::table! {
    orders (id) {
        id -> Integer,
        item -> Text,
        shipped -> Bool,
    }
}

#[derive(Serialize, Deserialize)]
struct Ship {
    order: i32,
}

impl Job for Ship {
    const NAME: &'static str = "ship";
    type State = ();
    type Output = ();

    fn perform(self, cx: &Context<'_, ()>) -> JobResult {
        let order = orders::table.find(self.order);
        let conn = &mut cx.connection()?;
        with_conn!(conn, |c| diesel::update(order)
            .set(orders::shipped.eq(true))
            .execute(c))?;
        Ok(())
    }
}

/// Creates the application's own table.
fn create_tables(conn: &mut impl AsConn) -> QueryResult<()> {
    with_conn!(conn, |c| {
        c.batch_execute(
        "CREATE TABLE IF NOT EXISTS orders (id integer PRIMARY KEY, item text NOT NULL, shipped boolean NOT NULL)"
    )
    })
}

/// Both the order and the job that ships it, or neither.
fn place_order(conn: &mut impl AsConn, id: i32, item: &str) -> Result {
    windlass::transaction(conn, |conn| {
        let row = (
            orders::id.eq(id),
            orders::item.eq(item),
            orders::shipped.eq(false),
        );
        with_conn!(conn, |c| diesel::insert_into(orders::table)
            .values(row)
            .execute(c))?;
        Ship { order: id }.enqueue(conn)?;
        if item.is_empty() {
            return Err("an order has an item".into()); // takes the order and the job back
        }
        Ok(())
    })
}

fn not_shipped(conn: &mut impl AsConn) -> QueryResult<i64> {
    let open = orders::table.filter(orders::shipped.eq(false)).count();
    with_conn!(conn, |c| open.get_result(c))
}

fn main() -> Result {
    let url = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "sqlite://shop.db".into());
    let database = Database::open(&url)?;
    database.migrate()?;
    let conn = &mut database.connect()?;
    create_tables(conn)?;
    let next = with_conn!(conn, |c| orders::table.count().get_result::<i64>(c))? + 1;
    place_order(conn, i32::try_from(next)?, "tea")?;
    println!(
        "{} orders wait for a worker with `Ship`",
        not_shipped(conn)?
    );
    let _for_the_worker = Registry::new().register::<Ship>(());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass::testing::{self, TestDatabase};

    /// Runs a test on each database that there is.
    #[expect(
        clippy::disallowed_methods,
        reason = "there is no other way to name a server for tests"
    )]
    fn on_each(test: impl Fn(&mut TestDatabase) -> Result) {
        let urls = std::env::var("SHOP_TEST_POSTGRES").into_iter();
        let databases = urls
            .map(|url| TestDatabase::open(&url))
            .chain([TestDatabase::in_memory()]);
        for mut db in databases.map(std::result::Result::unwrap) {
            create_tables(&mut db).unwrap();
            test(&mut db).unwrap();
        }
    }

    #[test]
    fn an_order_is_shipped() {
        on_each(|db| {
            let mut inline = db.inline(&Registry::new().register::<Ship>(()));
            place_order(&mut inline, 1, "tea")?; // `Ship` runs after the commit
            inline.drained().assert_all_finished(1);
            assert_eq!(not_shipped(&mut inline)?, 0);
            Ok(())
        });
    }

    #[test]
    fn nothing_is_left_of_a_refused_order() {
        on_each(|db| {
            assert!(place_order(db, 1, "").is_err());
            assert_eq!(not_shipped(db)?, 0);
            testing::assert_not_enqueued::<Ship>(db);
            Ok(())
        });
    }
}
