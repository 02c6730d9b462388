//! The number of workers that an enqueue wakes: as many as there is work for them.

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::jobs::{Gate, Log, Note, Wait};
use crate::support::wait::until;
use crate::wakeup::{is_heard_in_time, soon_after};
use std::sync::Arc;
use std::time::Duration;
use windlass::{Handle, Job, NewJob, Registry, Worker};

const HOUR: Duration = Duration::from_secs(3600);

fn note() -> NewJob {
    NewJob::new(&Note::new("note")).unwrap()
}

/// Rows of workers that are not there, and a session that hears what they were to hear.
#[cfg(feature = "postgres")]
mod rows {
    use super::*;
    use diesel::connection::SimpleConnection;
    use diesel::prelude::*;
    use std::collections::BTreeSet;

    struct Ear(PgConnection);

    impl Ear {
        fn on(db: &TestDb, channels: &[String]) -> Self {
            let mut conn = PgConnection::establish(&db.url).unwrap();
            for channel in channels {
                conn.batch_execute(&format!("LISTEN {channel}")).unwrap();
            }
            Ear(conn)
        }

        /// Returns the channels that were notified until now.
        fn heard(&mut self) -> BTreeSet<String> {
            self.0.batch_execute("SELECT 1").unwrap();
            let heard = self.0.notifications_iter();
            heard.map(|one| one.unwrap().channel).collect()
        }
    }

    fn register(db: &TestDb, channel: &str, columns: &str) {
        db.execute(&format!(
            "INSERT INTO solid_queue_processes (kind, pid, name, channel, listening, heartbeat_seq, last_heartbeat_at, created_at) \
             SELECT 'Worker', 1, 'worker-' || md5(random()::text), {channel}, {columns}, clock.now FROM (SELECT \
             statement_timestamp() AT TIME ZONE 'UTC' AS now) AS clock"
        ));
    }

    const FRESH: &str = "true, 1, clock.now";
    const OLD: &str = "true, 1, clock.now - interval '40 seconds'";
    const BUSY: &str = "false, 1, clock.now";

    fn channels(kind: u64, count: u64) -> Vec<String> {
        let channel = |n| format!("windlass_{kind:016x}_{n:016x}");
        (0..count).map(channel).collect()
    }

    #[test]
    fn one_more_worker_of_each_kind_is_woken_than_there_are_jobs() {
        let db = TestDb::postgres();
        let kinds = [channels(1, 6), channels(2, 6), channels(3, 1)];
        let (old, busy) = (channels(4, 6), channels(5, 6));
        let groups = [(&old[..3], OLD), (&old[3..], FRESH), (&busy[..], BUSY)];
        for channel in kinds.iter().flatten() {
            register(&db, &format!("'{channel}'"), FRESH);
        }
        for (channels, columns) in groups {
            for channel in channels {
                register(&db, &format!("'{channel}'"), columns);
            }
        }
        let mut all = [&kinds.concat()[..], &old, &busy].concat();
        all.push("windlass".to_owned());
        let mut ear = Ear::on(&db, &all);
        let mut seen = BTreeSet::new();
        // By lot: that one of six is left out 200 times has odds of 10 to the power of -35.
        let lots = [1, 3].into_iter().chain(std::iter::repeat_n(1, 200));
        for (place, jobs) in lots.enumerate() {
            if place > 3 && kinds[0].iter().all(|one| seen.contains(one)) {
                break;
            }
            windlass::enqueue_all(&mut db.connection(), (0..jobs).map(|_| note())).unwrap();
            let heard = ear.heard();
            let of =
                |channels: &[String]| channels.iter().filter(|one| heard.contains(*one)).count();
            let counts = [of(&kinds[0]), of(&kinds[1]), of(&kinds[2]), of(&busy)];
            assert_eq!(counts, [jobs + 1, jobs + 1, 1, 0]);
            // Those that may be dead come after the others.
            let (stale, fresh) = (of(&old[..3]), of(&old[3..]));
            assert_eq!(
                (stale, fresh),
                ((jobs + 1).saturating_sub(3), (jobs + 1).min(3))
            );
            assert!(!heard.contains("windlass"));
            seen.extend(heard);
        }
        assert!(
            kinds[0].iter().all(|one| seen.contains(one)),
            "by lot: {seen:?}"
        );
        register(&db, "NULL", FRESH);
        note().enqueue(&mut db.connection()).unwrap();
        assert!(
            ear.heard().contains("windlass"),
            "as an older program listens"
        );
    }

    /// Other tests of this process may enqueue in between, so that each of the two ways is likely only.
    #[test]
    fn the_first_worker_that_listens_is_woken_and_the_first_after_none_did() {
        let db = TestDb::postgres();
        let channels = channels(1, 1);
        let mut ear = Ear::on(&db, &channels);
        let enqueues: [fn(&TestDb); 5] = [
            |db| {
                note().enqueue(&mut db.connection()).unwrap();
            },
            |db| {
                let named = note().unique_id(fastrand::u64(..).to_string());
                named.enqueue(&mut db.connection()).unwrap();
            },
            |db| drop(windlass::enqueue_all(&mut db.connection(), [note(), note()]).unwrap()),
            |db| {
                let named = [0, 1].map(|_| note().unique_id(fastrand::u64(..).to_string()));
                windlass::enqueue_all(&mut db.connection(), named).unwrap();
            },
            |db| {
                let mut connection = db.connection();
                let enqueued = connection.transaction::<_, windlass::Error>(|conn| {
                    note().enqueue(conn)?;
                    Ok(())
                });
                enqueued.unwrap();
            },
        ];
        for enqueue in enqueues {
            for _ in 0..2 {
                enqueue(&db);
                assert!(ear.heard().is_empty(), "no worker listens");
            }
            register(&db, &format!("'{}'", channels[0]), FRESH);
            for _ in 0..2 {
                enqueue(&db);
                assert_eq!(ear.heard().len(), 1);
            }
            db.execute("DELETE FROM solid_queue_processes");
        }
    }
}

fn worker(db: &TestDb, gate: &Arc<Gate>) -> Handle {
    let registry = Registry::new()
        .register::<Wait>(Arc::clone(gate))
        .register::<Note>(Arc::new(Log::default()));
    // Its heartbeat would be a commit that others hear of, too.
    Worker::new(&db.database, registry)
        .threads(1)
        .heartbeat_interval(HOUR)
        .alive_threshold(3 * HOUR)
        .polling_interval(HOUR)
        .start()
        .unwrap()
}

/// A worker that is woken and has no idle thread wakes another.
fn each_idle_worker_gets_a_job(db: &TestDb) {
    const WORKERS: usize = 6;
    is_heard_in_time(|idle| {
        let gate = Arc::new(Gate::default());
        let workers: Vec<Handle> = (0..WORKERS).map(|_| worker(db, &gate)).collect();
        until("all are registered", || {
            db.rows("processes") == WORKERS as i64
        });
        std::thread::sleep(idle);
        let mut connection = db.connect();
        let all = (1..=WORKERS).all(|jobs| {
            Wait.enqueue(&mut connection).unwrap();
            soon_after(idle, || gate.begun() == jobs)
        });
        gate.open();
        drop(workers);
        until("all are gone", || db.rows("processes") == 0);
        db.execute("DELETE FROM solid_queue_ready_executions");
        all
    });
}

/// One that is quiet is not woken in another's stead.
fn work_passes_quiet_workers(db: &TestDb) {
    is_heard_in_time(|idle| {
        let gate = Arc::new(Gate::default());
        let workers: Vec<Handle> = (0..4).map(|_| worker(db, &gate)).collect();
        until("all are registered", || db.rows("processes") == 4);
        workers[1..].iter().for_each(Handle::quiet);
        std::thread::sleep(idle);
        Wait.enqueue(&mut db.connection()).unwrap();
        let is_heard = soon_after(idle, || gate.begun() == 1);
        gate.open();
        drop(workers);
        until("all are gone", || db.rows("processes") == 0);
        db.execute("DELETE FROM solid_queue_ready_executions");
        is_heard
    });
}

on_each_database!(each_idle_worker_gets_a_job, work_passes_quiet_workers);

crate::through_a_pooler_in_all!(each_idle_worker_gets_a_job, work_passes_quiet_workers,);
