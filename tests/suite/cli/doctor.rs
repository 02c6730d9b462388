//! `windlass doctor`: it finds what is wrong, and only that.

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::jobs::{Log, Note};
use crate::support::program::windlass;
use crate::support::wait::until;
use std::collections::BTreeMap;
use std::sync::Arc;
use windlass::{Job as _, NewJob, Registry, Verdict, Worker};

on_each_database!(
    a_working_database_is_fine,
    each_fault_is_found_and_named,
    old_tables_are_told_to_be_migrated,
    warnings_count_when_asked,
);

fn now(db: &TestDb) -> &'static str {
    if db.is_postgres() {
        "statement_timestamp() AT TIME ZONE 'UTC'"
    } else {
        "strftime('%Y-%m-%d %H:%M:%f000', 'now')"
    }
}

/// One job astray in every way there is, and a process that is long dead.
pub fn break_everything(db: &TestDb) {
    let conn = &mut db.connect();
    for _ in 0..5 {
        Note::new("x").enqueue(conn).unwrap();
    }
    let now = now(db);
    let old = "'2020-01-01 00:00:00.000000'";
    for statement in [
        "DELETE FROM solid_queue_ready_executions WHERE job_id = 1".to_owned(),
        format!(
            "INSERT INTO solid_queue_failed_executions (job_id, error, created_at) VALUES (2, '{{}}', {now})"
        ),
        format!("UPDATE solid_queue_jobs SET finished_at = {now} WHERE id = 3"),
        "DELETE FROM solid_queue_jobs WHERE id = 4".to_owned(),
        format!(
            "INSERT INTO solid_queue_claimed_executions (job_id, process_id, created_at) VALUES (5, 99, {now})"
        ),
        "DELETE FROM solid_queue_ready_executions WHERE job_id = 5".to_owned(),
        format!(
            "INSERT INTO solid_queue_processes (kind, name, pid, created_at, last_heartbeat_at) \
             VALUES ('Worker', 'worker-a', 1, {old}, {old})"
        ),
        format!(
            "INSERT INTO solid_queue_jobs (id, queue_name, class_name, created_at, updated_at) \
             VALUES (7, 'q', 'c', {now}, {now})"
        ),
        format!(
            "INSERT INTO solid_queue_scheduled_executions (job_id, queue_name, scheduled_at, created_at) \
             VALUES (7, 'q', {old}, {old})"
        ),
    ] {
        db.execute(&statement);
    }
}

fn verdicts(db: &TestDb) -> BTreeMap<&'static str, (Verdict, Vec<i64>)> {
    let findings = windlass::doctor(&mut db.connect()).unwrap();
    let each = findings.into_iter();
    each.map(|finding| (finding.check, (finding.verdict, finding.jobs)))
        .collect()
}

fn a_working_database_is_fine(db: &TestDb) {
    let log = Arc::new(Log::default());
    let conn = &mut db.connect();
    Note::new("a").enqueue(conn).unwrap();
    let later = NewJob::new(&Note::new("b")).unwrap();
    later
        .after(std::time::Duration::from_secs(60))
        .enqueue(conn)
        .unwrap();
    let registry = Registry::new().register::<Note>(Arc::clone(&log));
    let _worker = Worker::new(&db.database, registry).start().unwrap();
    let _supervisor = windlass::Supervisor::new(&db.database).start().unwrap();
    until("both are registered and the job is done", || {
        log.len() == 1 && windlass::processes(conn).unwrap().len() == 2
    });
    let found = windlass::doctor(conn).unwrap();
    assert!(
        found.iter().all(|finding| finding.verdict == Verdict::Fine),
        "{found:#?}"
    );
    assert!(windlass(&db.url, &["doctor", "--strict"]).is_done());
}

fn each_fault_is_found_and_named(db: &TestDb) {
    break_everything(db);
    let found = verdicts(db);
    let problem = |jobs: &[i64]| (Verdict::Problem, jobs.to_vec());
    assert_eq!(found["lost"], problem(&[1]));
    assert_eq!(found["places"], problem(&[2]));
    assert_eq!(found["finished"], problem(&[3]));
    assert_eq!(found["orphans"], problem(&[4]));
    assert_eq!(found["claims"], problem(&[5]));
    for check in ["processes", "scheduled"] {
        assert_eq!(found[check].0, Verdict::Warning, "{check}");
    }
    for check in ["schema", "database", "transactions"] {
        assert_eq!(found[check].0, Verdict::Fine, "{check}");
    }
    assert_eq!(windlass(&db.url, &["doctor"]).code, Some(3));
}

fn old_tables_are_told_to_be_migrated(db: &TestDb) {
    db.execute("DELETE FROM windlass_schema_migrations WHERE version = '20261121000008'");
    let said = windlass(&db.url, &["doctor"]);
    assert_eq!(said.code, Some(3));
    assert!(
        said.out.contains("not migrated: 20261121000008"),
        "{}",
        said.out
    );
}

fn warnings_count_when_asked(db: &TestDb) {
    Note::new("x").enqueue(&mut db.connect()).unwrap();
    let said = windlass(&db.url, &["doctor", "--json"]).json();
    assert_eq!(said["verdict"], "warning");
    assert_eq!(windlass(&db.url, &["doctor", "--strict"]).code, Some(3));
}
