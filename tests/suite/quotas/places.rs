//! Places are neither lost nor given twice, whatever happens at once.

use super::note;
use crate::on_each_database;
use crate::support::TestDb;
use crate::support::jobs::{Log, Note};
use crate::support::wait::{until, until_none_is_left};
use std::sync::Arc;
use std::time::Duration;
use windlass::processes::Retention;
use windlass::{Error, Quota, Registry, Supervisor, Worker, enqueue_all};

on_each_database!(places_are_neither_lost_nor_given_twice);

const LIMIT: u64 = 30;

/// One enqueue of many kinds. A database that another has locked for too long decides nothing.
fn enqueue(db: &TestDb, quota: &Quota, step: usize) {
    crate::with_own_connection!(db, |conn| {
        let enqueued = match step % 6 {
            0 => enqueue_all(&mut conn, (0..5).map(|_| note("bulk", quota))).map(drop),
            1 => {
                let shed = (0..4).map(|_| note("shed", &quota.clone().shed()));
                enqueue_all(&mut conn, shed).map(drop)
            }
            2 => conn.transaction::<(), Error, _>(|conn| {
                note("undone", quota).enqueue(conn)?;
                Err(diesel::result::Error::RollbackTransaction.into())
            }),
            3 => {
                let id = (step % 7).to_string();
                let job = note("unique", quota).unique_id(&id).idempotency_key(&id);
                job.enqueue(&mut conn).map(drop)
            }
            4 => note("later", quota)
                .after(Duration::from_millis(50))
                .enqueue(&mut conn)
                .map(drop),
            _ => note("single", quota).enqueue(&mut conn).map(drop),
        };
        match enqueued {
            Ok(()) | Err(Error::QuotaExceeded { .. }) => (),
            Err(Error::Query { source, .. }) => {
                let text = source.to_string();
                assert!(text.contains("lock") || step % 6 == 2, "{text}");
            }
            Err(error) => panic!("{error}"),
        }
    });
    let noted = db.rows_of("windlass_quota_jobs");
    assert!(noted <= LIMIT as i64, "{noted} jobs have places");
}

fn places_are_neither_lost_nor_given_twice(db: &TestDb) {
    let quota = &Quota::named("places").waiting(LIMIT);
    let every = Retention::default().every(Duration::from_millis(100));
    let supervisor = Supervisor::new(&db.database).retention(every);
    let _supervisor = supervisor.start().unwrap();
    let dispatcher = windlass::Dispatcher::new(&db.database);
    let _dispatcher = dispatcher.start().unwrap();
    let registry = Registry::new().register::<Note>(Arc::new(Log::default()));
    let worker = Worker::new(&db.database, registry).threads(2);
    let _worker = worker.start().unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || (0..40).for_each(|step| enqueue(db, quota, thread * 7 + step)));
        }
    });
    let waiting = "SELECT (SELECT count(*) FROM solid_queue_ready_executions) + \
         (SELECT count(*) FROM solid_queue_scheduled_executions) + \
         (SELECT count(*) FROM solid_queue_claimed_executions) AS n";
    until_none_is_left("all jobs have ended", || db.count(waiting));
    until("no place is taken any more", || {
        let taken = "SELECT CAST(coalesce(sum(jobs), 0) AS bigint) AS n FROM windlass_quota_slots";
        db.rows_of("windlass_quota_jobs") == 0 && db.count(taken) == 0
    });
    let all = (0..LIMIT).map(|_| note("again", quota).after(Duration::from_secs(3600)));
    assert_eq!(enqueue_all(&mut db.connection(), all).unwrap().len(), 30);
    let more = note("more", quota).enqueue(&mut db.connection());
    assert!(matches!(more, Err(Error::QuotaExceeded { .. })), "{more:?}");
}
