//! Transactions beside each other, on Postgres: none waits for another.

use super::{in_one_minute, is_refused, note};
use crate::support::TestDb;
use crate::support::db::{count, execute};
use diesel::connection::{AnsiTransactionManager, TransactionManager};
use diesel::{Connection as _, PgConnection};
use windlass::{Error, Quota};

fn connect(db: &TestDb) -> PgConnection {
    let mut conn = PgConnection::establish(db.address()).unwrap();
    // A wait would be an error.
    execute(&mut conn, "SET lock_timeout = '20s'");
    conn
}

/// Whether it was enqueued.
fn enqueue(conn: &mut PgConnection, quota: &Quota) -> bool {
    !is_refused(&note("a", quota).enqueue(conn))
}

/// One thread has both transactions: if one waited for the other, neither would end.
#[test]
fn open_transactions_are_counted_and_never_waited_for() {
    let db = &TestDb::postgres();
    let found = in_one_minute(db, |quota| {
        let quota = quota.per_minute(5).waiting(5).per_day(5);
        let (mut one, mut two) = (connect(db), connect(db));
        AnsiTransactionManager::begin_transaction(&mut one).unwrap();
        AnsiTransactionManager::begin_transaction(&mut two).unwrap();
        let mut found = Vec::new();
        for _ in 0..3 {
            found.push(enqueue(&mut one, &quota));
            found.push(enqueue(&mut two, &quota));
        }
        // Five are in, of which none is committed.
        AnsiTransactionManager::rollback_transaction(&mut one).unwrap();
        for _ in 0..4 {
            found.push(enqueue(&mut two, &quota));
        }
        AnsiTransactionManager::commit_transaction(&mut two).unwrap();
        found.push(enqueue(&mut one, &quota));
        found
    });
    let in_turn = [true, true, true, true, true, false];
    let after = [true, true, true, false, false];
    assert_eq!(found, [&in_turn[..], &after].concat());
}

#[test]
fn a_savepoint_gives_back() {
    let db = &TestDb::postgres();
    let found = in_one_minute(db, |quota| {
        let (quota, mut one, mut two) = (quota.per_minute(2), connect(db), connect(db));
        let mut found = Vec::new();
        let done = one.transaction::<(), Error, _>(|conn| {
            found.push(enqueue(conn, &quota));
            let undone = conn.transaction::<(), Error, _>(|conn| {
                found.push(enqueue(conn, &quota));
                found.push(enqueue(&mut two, &quota));
                Err(diesel::result::Error::RollbackTransaction.into())
            });
            undone.unwrap_err();
            found.push(enqueue(&mut two, &quota));
            found.push(enqueue(conn, &quota));
            Ok(())
        });
        done.unwrap();
        found
    });
    assert_eq!(found, [true, true, false, true, false]);
}

/// The locks of the server are for all of its sessions.
#[test]
fn a_long_transaction_has_few_locks() {
    let db = &TestDb::postgres();
    let (quota, mut conn) = (Quota::named("long").per_day(10_000), connect(db));
    AnsiTransactionManager::begin_transaction(&mut conn).unwrap();
    for _ in 0..450 {
        assert!(enqueue(&mut conn, &quota));
    }
    let locks = count(
        &mut conn,
        "SELECT count(*) AS n FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()",
    );
    // 200, 100 for the next 200, 13 for the rest. Each change of the minute starts again.
    assert!((1..400).contains(&locks), "{locks}");
    AnsiTransactionManager::commit_transaction(&mut conn).unwrap();
    let held = count(
        &mut conn,
        "SELECT count(*) AS n FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()",
    );
    assert_eq!(held, 0);
    let jobs = db.count(
        "SELECT CAST(sum(jobs) AS bigint) AS n FROM windlass_quota_counts WHERE per = 'day'",
    );
    assert_eq!(jobs, 450);
}
