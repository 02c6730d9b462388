//! Connections in Diesel's own types, and transactions on them.

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::wait::until;
use diesel::prelude::*;
use serde::{Deserialize, Serialize};
// Both globs: no name may be ambiguous.
#[allow(clippy::wildcard_imports, unused_imports)]
use windlass::*;

on_each_database!(
    a_job_gets_the_connection_of_its_database,
    a_transaction_is_all_or_nothing,
    a_job_finishes_in_a_transaction_of_its_connection,
);

crate::through_a_pooler_in_all!(
    a_job_gets_the_connection_of_its_database,
    a_transaction_is_all_or_nothing,
    a_job_finishes_in_a_transaction_of_its_connection,
);

/// Writes what both typed connections give.
#[derive(Serialize, Deserialize)]
struct Look;

impl Job for Look {
    const NAME: &'static str = "look";
    type State = ();
    type Output = Vec<String>;

    fn perform(self, cx: &Context<'_, ()>) -> JobResult<Vec<String>> {
        let insert = "INSERT INTO typed (name) VALUES ('a')";
        let postgres = cx.postgres().map(|mut conn| {
            let done = diesel::sql_query(insert).execute(&mut *conn);
            done.expect("it is a connection to Postgres")
        });
        let sqlite = match cx.sqlite() {
            Ok(mut conn) => Ok(diesel::sql_query(insert).execute(&mut *conn)?),
            Err(error) => Err(error),
        };
        let told = [postgres, sqlite].map(|done| match done {
            Ok(rows) => format!("{rows} row"),
            Err(error) => error.to_string(),
        });
        Ok(told.to_vec())
    }
}

fn table(db: &TestDb) {
    db.execute("CREATE TABLE typed (name text)");
}

fn names(db: &TestDb) -> i64 {
    db.count("SELECT count(*) AS n FROM typed")
}

fn a_job_gets_the_connection_of_its_database(db: &TestDb) {
    table(db);
    let registry = Registry::new().register::<Look>(());
    let _worker = Worker::new(&db.database, registry).start().unwrap();
    let job = Look.enqueue(&mut db.connection()).unwrap().id;
    let ended = jobs::wait_for(&db.database, job, crate::support::wait::DEADLINE).unwrap();
    let told: Vec<String> = ended.unwrap().result_as().unwrap().unwrap();
    let (is, wanted) = if db.is_postgres() {
        ("Postgres", "SQLite")
    } else {
        ("SQLite", "Postgres")
    };
    let refusal = format!("this is a connection to {is}, not to {wanted}");
    let [postgres, sqlite] = &told[..] else {
        panic!("{told:?}")
    };
    let (done, refused) = if db.is_postgres() {
        (postgres, sqlite)
    } else {
        (sqlite, postgres)
    };
    assert_eq!(done, "1 row");
    assert!(refused.starts_with(&refusal), "{refused}");
    assert_eq!(names(db), 1);
}

/// Inserts a name through Diesel's own type.
fn insert(conn: &mut DbConnection) -> QueryResult<usize> {
    let query = diesel::sql_query("INSERT INTO typed (name) VALUES ('b')");
    match conn.sqlite() {
        Ok(conn) => query.execute(conn),
        Err(_) => query.execute(conn.postgres().unwrap()),
    }
}

fn a_transaction_is_all_or_nothing(db: &TestDb) {
    table(db);
    let mut conn = db.connect();
    let refused = conn.transaction(|conn| {
        insert(conn)?;
        Look.enqueue(conn).unwrap();
        // An inner one is undone alone.
        let inner = conn.transaction(|conn| {
            insert(conn)?;
            Err::<(), _>(diesel::result::Error::RollbackTransaction)
        });
        assert!(inner.is_err());
        Err::<(), _>(diesel::result::Error::NotFound)
    });
    assert_eq!(refused, Err(diesel::result::Error::NotFound));
    assert_eq!((names(db), db.rows("jobs")), (0, 0));
    conn.transaction(|conn| {
        insert(conn)?;
        Look.enqueue(conn).unwrap();
        let _ = conn.transaction(|conn| {
            insert(conn)?;
            Err::<(), _>(diesel::result::Error::RollbackTransaction)
        });
        Ok::<_, diesel::result::Error>(())
    })
    .unwrap();
    assert_eq!((names(db), db.rows("jobs")), (1, 1));
}

/// Ends together with a row of its own.
#[derive(Serialize, Deserialize)]
struct Finish;

impl Job for Finish {
    const NAME: &'static str = "finish";
    type State = ();
    type Output = ();

    fn perform(self, cx: &Context<'_, ()>) -> JobResult {
        cx.connection()?.transaction(|conn| {
            insert(conn)?;
            cx.finish_in(conn)
        })
    }
}

fn a_job_finishes_in_a_transaction_of_its_connection(db: &TestDb) {
    table(db);
    let registry = Registry::new().register::<Finish>(());
    let _worker = Worker::new(&db.database, registry).start().unwrap();
    Finish.enqueue(&mut db.connection()).unwrap();
    until("it has finished", || {
        db.count("SELECT count(*) AS n FROM solid_queue_jobs WHERE finished_at IS NOT NULL") == 1
    });
    assert_eq!(names(db), 1);
}
