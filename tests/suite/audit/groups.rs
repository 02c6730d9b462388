//! Failed jobs grouped by what their failures have in common.

use super::{days_ago, enqueue};
use crate::on_each_database;
use crate::support::TestDb;
use crate::support::wait::until;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};
use windlass::failed::{FailedGroup, FailedGroups};
use windlass::jobs::{Change, Jobs};
use windlass::{Context, Job, JobResult, NewJob, Policy, Registry, Supervisor, Worker};

on_each_database!(
    failures_are_grouped_as_they_happen,
    a_retry_that_fails_otherwise_changes_its_group,
    failures_of_others_are_grouped_too,
    a_group_can_be_retried,
    a_hundred_thousand_failures_are_grouped_quickly,
    many_groups_are_said_to_be_more,
    dead_processes_leave_fingerprints,
);

fn groups(db: &TestDb) -> FailedGroups {
    windlass::failed::groups(&mut db.connection(), 100).unwrap()
}

/// Fails each time, with the number of the run.
#[derive(serde::Serialize, serde::Deserialize)]
struct Broken {
    kind: String,
}

impl Job for Broken {
    const NAME: &'static str = "broken";
    type State = AtomicI64;
    type Output = ();

    fn policy() -> Policy {
        Policy::new().max_attempts(1)
    }

    fn perform(self, cx: &Context<'_, AtomicI64>) -> JobResult {
        let run = cx.state().fetch_add(1, Ordering::Relaxed);
        match &*self.kind {
            "panic" => panic!("run {run} of \"it\""),
            kind => Err(format!("{kind} refused 10.0.0.{run}:80").into()),
        }
    }
}

fn worker(db: &TestDb) -> windlass::Handle {
    let state = Arc::new(AtomicI64::new(1));
    Worker::new(&db.database, Registry::new().register::<Broken>(state))
        .start()
        .unwrap()
}

fn stop(mut handle: windlass::Handle) {
    handle.stop();
    handle.join(Duration::from_secs(60)).unwrap();
}

fn enqueue_broken(db: &TestDb, kind: &str) -> i64 {
    let kind = kind.to_owned();
    NewJob::new(&Broken { kind })
        .unwrap()
        .enqueue(&mut db.connection())
        .unwrap()
        .id
        .0
}

fn failures_are_grouped_as_they_happen(db: &TestDb) {
    let worker = worker(db);
    for (count, kind) in ["x", "panic", "x", "y", "panic", "x"]
        .into_iter()
        .enumerate()
    {
        enqueue_broken(db, kind);
        until("it has failed", || {
            db.rows("failed_executions") == count as i64 + 1
        });
    }
    stop(worker);
    let found = groups(db);
    assert!(found.is_complete && found.without_fingerprint == 0);
    let shapes: Vec<_> = found
        .groups
        .iter()
        .map(|group| (&*group.shape, group.count, group.is_exact))
        .collect();
    assert_eq!(
        shapes,
        [
            ("x refused {host}", 3, true),
            ("run {n} of {text}", 2, true),
            ("y refused {host}", 1, true),
        ]
    );
    let [x, panic, _] = &found.groups[..] else {
        unreachable!()
    };
    assert_eq!((&*x.class_name, x.job_id.0), ("broken", 6));
    assert!(x.message.ends_with("refused 10.0.0.6:80"), "{}", x.message);
    assert!(x.first_at < x.last_at);
    assert_eq!(&*panic.kind, "panic");
    assert!(
        panic.place.as_ref().unwrap().contains("groups.rs"),
        "{panic:?}"
    );
    let stored = db.texts("SELECT DISTINCT fingerprint AS t FROM solid_queue_failed_executions");
    assert_eq!(stored.len(), 3);
    assert!(stored.iter().all(|text| text.len() == 16), "{stored:?}");
    assert_eq!(
        windlass::failed::groups(&mut db.connection(), 2)
            .unwrap()
            .groups[..],
        found.groups[..2]
    );
    assert!(
        !windlass::failed::groups(&mut db.connection(), 2)
            .unwrap()
            .is_complete
    );
}

/// An execution that another program has left over is replaced, with its fingerprint.
fn a_retry_that_fails_otherwise_changes_its_group(db: &TestDb) {
    let job = enqueue_broken(db, "x");
    db.execute(&format!(
        "INSERT INTO solid_queue_failed_executions (job_id, error, fingerprint, created_at) \
         VALUES ({job}, '{{}}', 'stale', '2026-01-01')"
    ));
    let worker = worker(db);
    until("it has failed", || {
        groups(db)
            .groups
            .iter()
            .all(|group| group.fingerprint != "stale")
    });
    stop(worker);
    assert_eq!(groups(db).groups[0].shape, "x refused {host}");
}

/// Those of Rails, and of a version before, have no fingerprint.
fn failures_of_others_are_grouped_too(db: &TestDb) {
    enqueue(db, "Import", 6);
    let worker = worker(db);
    enqueue_broken(db, "x");
    until("it has failed", || db.rows("failed_executions") == 1);
    stop(worker);
    let errors = [
        r#"{"exception_class":"Net::OpenTimeout","message":"execution of job 1 expired","backtrace":["app/a.rb:7"]}"#,
        r#"{"exception_class":"Net::OpenTimeout","message":"execution of job 22 expired","backtrace":["app/a.rb:7"]}"#,
        r#"{"exception_class":"KeyError","message":"key not found: :a","backtrace":null}"#,
        "no JSON 7",
        "no JSON 8",
    ];
    for (job, error) in (1..).zip(errors) {
        db.execute(&format!(
            "INSERT INTO solid_queue_failed_executions (job_id, error, created_at) VALUES ({job}, '{error}', '2026-01-0{job} 00:00:00.000000')"
        ));
    }
    db.execute("INSERT INTO solid_queue_failed_executions (job_id, created_at) VALUES (6, '2026-01-06 00:00:00.000000')");
    let found = groups(db);
    assert_eq!(found.without_fingerprint, 6);
    let all = |found: &FailedGroups| -> Vec<(String, String, u64)> {
        let one = |group: &FailedGroup| (group.kind.clone(), group.shape.clone(), group.count);
        found.groups.iter().map(one).collect()
    };
    let before = all(&found);
    let group = |kind: &str, shape: &str, count| (kind.to_owned(), shape.to_owned(), count);
    assert_eq!(
        before[1..],
        [
            group("", "", 1),
            group("", "no JSON {n}", 2),
            group("KeyError", "key not found: :a", 1),
            group("Net::OpenTimeout", "execution of job {n} expired", 2),
        ]
    );
    assert_eq!(found.groups[4].place.as_deref(), Some("app/a.rb:7"));
    assert!(found.groups[4].first_at < found.groups[4].last_at);
    // A supervisor stores the fingerprints, and nothing else changes.
    let mut supervisor = Supervisor::new(&db.database).start().unwrap();
    until("all have fingerprints", || {
        groups(db).without_fingerprint == 0
    });
    supervisor.stop();
    supervisor.join(Duration::from_secs(60)).unwrap();
    assert_eq!(all(&groups(db)), before);
    let same: Vec<String> = found
        .groups
        .iter()
        .map(|group| group.fingerprint.clone())
        .collect();
    let stored: Vec<String> = groups(db)
        .groups
        .into_iter()
        .map(|group| group.fingerprint)
        .collect();
    assert_eq!(stored, same);
}

fn a_group_can_be_retried(db: &TestDb) {
    let worker = worker(db);
    for kind in ["x", "y", "x"] {
        enqueue_broken(db, kind);
    }
    until("they have failed", || db.rows("failed_executions") == 3);
    stop(worker);
    let found = groups(db);
    let x = found.groups.iter().find(|group| group.count == 2).unwrap();
    let jobs = Jobs::failed().fingerprint(&x.fingerprint);
    let conn = &mut db.connection();
    assert_eq!(jobs.count(conn).unwrap(), 2);
    assert_eq!(jobs.list(conn).unwrap().len(), 2);
    assert_eq!(Jobs::failed().kind(&x.kind).count(conn).unwrap(), 3);
    let retry = Change::Retry {
        even_at_most_once: false,
    };
    jobs.in_background(retry).start(conn).unwrap();
    assert_eq!(
        windlass::operations::run(conn, Duration::from_secs(60))
            .unwrap()
            .changed,
        2
    );
    let left = groups(db);
    assert_eq!(left.groups.len(), 1);
    assert_eq!(left.groups[0].shape, "y refused {host}");
}

fn a_hundred_thousand_failures_are_grouped_quickly(db: &TestDb) {
    let numbers = if db.is_postgres() {
        "generate_series(1, 100000) AS n (id)"
    } else {
        "(WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n WHERE id < 100000) SELECT id FROM n)"
    };
    db.execute(&format!(
        "INSERT INTO solid_queue_jobs (id, queue_name, class_name, arguments, created_at, updated_at) \
         SELECT id, 'q', 'import', '{{}}', '2026-01-01', '2026-01-01' FROM {numbers}"
    ));
    let text = |number: &str| {
        format!("'{{\"exception_class\":\"io\",\"message\":\"' || {number} || '\"}}'")
    };
    db.execute(&format!(
        "INSERT INTO solid_queue_failed_executions (job_id, error, created_at, fingerprint) \
         SELECT id, {}, {}, CASE WHEN id % 2 = 0 THEN 'half' ELSE 'group-' || (id % 50) END FROM {numbers}",
        text("id"),
        days_ago(db, 1)
    ));
    groups(db);
    let start = Instant::now();
    let found = groups(db);
    let took = start.elapsed();
    assert_eq!(found.groups.len(), 26);
    let half = found
        .groups
        .iter()
        .find(|group| group.fingerprint == "half")
        .unwrap();
    assert_eq!(
        (half.count, half.is_exact, half.job_id.0),
        (10_000, false, 100_000)
    );
    let other = found
        .groups
        .iter()
        .find(|group| group.fingerprint == "group-7")
        .unwrap();
    assert_eq!((other.count, other.is_exact), (2_000, true));
    eprintln!("grouped in {took:?}");
    // The required time is measured elsewhere; this is a machine full of other tests.
    assert!(took < Duration::from_secs(5), "{took:?}");
}

fn many_groups_are_said_to_be_more(db: &TestDb) {
    enqueue(db, "a", 1_100);
    db.execute(
        "INSERT INTO solid_queue_failed_executions (job_id, error, created_at, fingerprint) \
         SELECT id, '{}', created_at, 'group-' || id FROM solid_queue_jobs",
    );
    let found = windlass::failed::groups(&mut db.connection(), 50).unwrap();
    assert_eq!((found.groups.len(), found.is_complete), (50, false));
    let all = windlass::failed::groups(&mut db.connection(), 5_000).unwrap();
    assert_eq!((all.groups.len(), all.is_complete), (1_001, false));
}

/// Jobs that fail because their process died are recovered by another code than those that return.
fn dead_processes_leave_fingerprints(db: &TestDb) {
    let job = enqueue_broken(db, "x");
    db.execute("UPDATE solid_queue_jobs SET at_most_once = TRUE");
    db.execute(
        "INSERT INTO solid_queue_processes (id, kind, name, pid, heartbeat_seq, created_at, last_heartbeat_at) \
         VALUES (99, 'Worker', 'worker-dead', 1, 3, '2026-01-01 00:00:00.000000', '2026-01-01 00:00:00.000000')",
    );
    db.execute(&format!(
        "INSERT INTO solid_queue_claimed_executions (job_id, process_id, created_at, started_at) VALUES ({job}, 99, '2026-01-01 00:00:00.000000', '2026-01-01 00:00:00.000000')"
    ));
    db.execute("DELETE FROM solid_queue_ready_executions");
    let mut supervisor = Supervisor::new(&db.database)
        .heartbeat_interval(Duration::from_millis(50))
        .alive_threshold(Duration::from_millis(300))
        .start()
        .unwrap();
    until("it is recovered", || db.rows("failed_executions") == 1);
    supervisor.stop();
    supervisor.join(Duration::from_secs(60)).unwrap();
    let found = groups(db);
    assert_eq!(
        (&*found.groups[0].kind, found.without_fingerprint),
        ("outcome_unknown", 0)
    );
}
