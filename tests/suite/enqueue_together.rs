//! Threads that enqueue at the same time, each on a connection of its own.

use crate::on_each_database;
use crate::support::TestDb;
use std::collections::BTreeMap;
use std::sync::Barrier;
use std::time::Duration;
use windlass::{Concurrency, JobId, NewJob, Result};

const THREADS: u32 = 8;
const EACH: u32 = 60;

/// The job of this number, and the table that its execution belongs into.
fn nth(number: u32) -> (NewJob, &'static str) {
    let class = ["mail", "import", "report"][(number % 3) as usize];
    let job = NewJob::of_class(class, number.to_string()).priority((number % 4) as i32);
    match number % 5 {
        1 => (job.after(Duration::from_secs(3_600)), "scheduled"),
        2 => (job.concurrency(Concurrency::new("one")), "limited"),
        3 => (job.idempotency_key(format!("key {number}")), "ready"),
        4 => (job.tags(["tagged"]), "ready"),
        _ => (job, "ready"),
    }
}

/// Has each thread do this at once, with its number and a connection; returns their results.
fn at_once<T: Send>(
    db: &TestDb,
    work: impl Fn(u32, &mut windlass::DbConnection) -> T + Sync,
) -> Vec<T> {
    let (start, work) = (Barrier::new(THREADS as usize), &work);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (mut conn, start) = (db.connection(), &start);
                scope.spawn(move || {
                    start.wait();
                    work(thread, &mut conn)
                })
            })
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    })
}

fn each_job_is_its_callers(db: &TestDb) {
    let ids = at_once(db, |thread, conn| {
        let numbers = thread * EACH..(thread + 1) * EACH;
        let enqueue = |number| Ok((nth(number).0.enqueue(conn)?.id, number));
        numbers.map(enqueue).collect::<Result<Vec<_>>>().unwrap()
    });
    let ids: BTreeMap<JobId, u32> = ids.into_iter().flatten().collect();
    assert_eq!(ids.len() as u32, THREADS * EACH);
    let rows = db.texts(
        "SELECT j.id || ' ' || j.arguments || ' ' || j.class_name || ' ' || j.priority || ' ' || \
           CASE WHEN r.id IS NOT NULL THEN 'ready' WHEN s.id IS NOT NULL THEN 'scheduled' \
             WHEN b.id IS NOT NULL THEN 'blocked' ELSE 'nowhere' END AS t FROM solid_queue_jobs j \
         LEFT JOIN solid_queue_ready_executions r ON r.job_id = j.id AND r.priority = j.priority \
         LEFT JOIN solid_queue_scheduled_executions s ON s.job_id = j.id AND s.priority = j.priority \
         LEFT JOIN solid_queue_blocked_executions b ON b.job_id = j.id AND b.priority = j.priority",
    );
    assert_eq!(rows.len() as u32, THREADS * EACH);
    let mut ready_of_key = 0;
    for row in rows {
        let parts: Vec<&str> = row.split(' ').collect();
        let number = ids[&JobId(parts[0].parse().unwrap())];
        let class = ["mail", "import", "report"][(number % 3) as usize];
        let stored = (parts[1], parts[2], parts[3]);
        let wanted = (&*number.to_string(), class, &*(number % 4).to_string());
        assert_eq!(stored, wanted, "{row}");
        match nth(number).1 {
            "limited" => ready_of_key += u32::from(parts[4] == "ready"),
            place => assert_eq!(parts[4], place, "{row}"),
        }
    }
    assert!(ready_of_key <= 1, "one key has one slot");
}

/// A transaction of the caller keeps its jobs, whatever other threads commit meanwhile.
fn a_callers_transaction_stays_its_own(db: &TestDb) {
    at_once(db, |thread, conn| {
        for number in 0..EACH {
            let job = NewJob::of_class(if thread < 2 { "gone" } else { "kept" }, "{}");
            if thread >= 2 {
                job.enqueue(conn).unwrap();
                continue;
            }
            let done = conn.transaction(|conn| {
                job.enqueue(conn)?;
                match number % 2 {
                    0 => Err(windlass::Error::from(
                        diesel::result::Error::RollbackTransaction,
                    )),
                    _ => Ok(()),
                }
            });
            assert_eq!(done.is_ok(), number % 2 == 1);
        }
    });
    let count = |class: &str| {
        db.count(&format!(
            "SELECT count(*) AS n FROM solid_queue_jobs WHERE class_name = '{class}'"
        ))
    };
    assert_eq!(count("kept"), i64::from((THREADS - 2) * EACH));
    assert_eq!(count("gone"), i64::from(2 * EACH / 2));
}

/// A job that the database refuses fails alone.
fn a_job_that_is_refused_fails_alone(db: &TestDb) {
    db.execute(&refusal(db));
    let failed = at_once(db, |thread, conn| {
        let enqueue = |number| {
            let class = if number % 10 == thread {
                "refused"
            } else {
                "fine"
            };
            NewJob::of_class(class, "{}").enqueue(conn).is_err()
        };
        (0..EACH).map(enqueue).filter(|failed| *failed).count() as u32
    });
    assert_eq!(failed, vec![EACH / 10; THREADS as usize]);
    let stored = db.rows("jobs");
    assert_eq!(stored, i64::from(THREADS * (EACH - EACH / 10)));
}

fn refusal(db: &TestDb) -> String {
    match db.is_postgres() {
        true => "ALTER TABLE solid_queue_jobs ADD CHECK (class_name <> 'refused')".to_owned(),
        false => "CREATE TRIGGER refuse BEFORE INSERT ON solid_queue_jobs WHEN new.class_name = 'refused' \
                  BEGIN SELECT RAISE(ABORT, 'refused'); END"
            .to_owned(),
    }
}

on_each_database!(
    each_job_is_its_callers,
    a_callers_transaction_stays_its_own,
    a_job_that_is_refused_fails_alone,
);
