//! Transactions beside each other, on Postgres: none waits for another.

use super::{in_one_minute, is_refused, note};
use crate::support::TestDb;
use crate::support::db::{count, execute};
use diesel::connection::{AnsiTransactionManager, TransactionManager};
use diesel::{Connection as _, PgConnection};
use windlass::{Error, Quota, enqueue_all};

fn connect(db: &TestDb) -> PgConnection {
    let mut conn = PgConnection::establish(db.address()).unwrap();
    // A wait would be an error.
    execute(&mut conn, "SET lock_timeout = '20s'");
    conn
}

/// Enqueues a job, and returns whether the quota admitted it.
fn enqueue(conn: &mut PgConnection, quota: &Quota) -> bool {
    !is_refused(&note("a", quota).enqueue(conn))
}

/// The first enqueue of a quota creates the rows of its slots: a refused one does as well.
fn create_slots(conn: &mut PgConnection, quota: &Quota) {
    let too_many = (0..6).map(|_| note("a", quota));
    enqueue_all(conn, too_many).unwrap_err();
}

/// One thread has both transactions: if one waited for the other, neither would end.
#[test]
fn open_transactions_are_counted_and_never_waited_for() {
    let db = &TestDb::postgres();
    let found = in_one_minute(db, |quota| {
        let quota = quota.per_minute(5).waiting(5).per_day(5);
        let (mut one, mut two) = (connect(db), connect(db));
        create_slots(&mut one, &quota);
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
        create_slots(&mut one, &quota);
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
fn a_long_transaction_has_no_advisory_locks() {
    let db = &TestDb::postgres();
    let (quota, mut conn) = (Quota::named("long").waiting(10_000), connect(db));
    AnsiTransactionManager::begin_transaction(&mut conn).unwrap();
    for _ in 0..100 {
        assert!(enqueue(&mut conn, &quota));
    }
    let locks = count(
        &mut conn,
        "SELECT count(*) AS n FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()",
    );
    assert_eq!(locks, 0);
    AnsiTransactionManager::commit_transaction(&mut conn).unwrap();
    let jobs = db.count(
        "SELECT CAST(sum(jobs) AS bigint) AS n FROM windlass_quota_slots WHERE per = 'waiting'",
    );
    assert_eq!(jobs, 100);
}

/// The part of a limit that an open transaction hides is less than 1 % of it.
#[test]
fn an_open_transaction_hides_little() {
    let db = &TestDb::postgres();
    let quota = Quota::named("large").waiting(5_000);
    let (mut one, mut two) = (connect(db), connect(db));
    assert!(enqueue(&mut two, &quota));
    AnsiTransactionManager::begin_transaction(&mut one).unwrap();
    assert!(enqueue(&mut one, &quota));
    let jobs = (0..4_999).map(|_| note("a", &quota));
    let refused = enqueue_all(&mut two, jobs).unwrap_err();
    assert!(matches!(refused, Error::QuotaExceeded { .. }), "{refused}");
    let jobs = (0..4_950).map(|_| note("a", &quota));
    assert_eq!(enqueue_all(&mut two, jobs).unwrap().len(), 4_950);
    AnsiTransactionManager::commit_transaction(&mut one).unwrap();
    let rest = (0..50).filter(|_| enqueue(&mut two, &quota)).count();
    assert_eq!(rest, 48);
}

/// Each writer enqueues until it is refused.
#[test]
fn many_writers_use_the_whole_limit() {
    let db = &TestDb::postgres();
    let quota = &Quota::named("many").waiting(1_200);
    let writer = || {
        let mut conn = connect(db);
        (0..1_200).take_while(|_| enqueue(&mut conn, quota)).count()
    };
    let admitted: usize = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..8).map(|_| scope.spawn(writer)).collect();
        writers.into_iter().map(|one| one.join().unwrap()).sum()
    });
    assert!((1_188..=1_200).contains(&admitted), "{admitted}");
    assert_eq!(db.rows("jobs"), admitted as i64);
    assert_eq!(db.rows_of("windlass_quota_jobs"), admitted as i64);
}
