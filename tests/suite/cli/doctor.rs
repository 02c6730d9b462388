//! `windlass doctor`: it finds what is wrong, and only that.

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::jobs::{Log, Note};
use crate::support::program::{Windlass, windlass};
use crate::support::wait::until;
use std::collections::BTreeMap;
use std::sync::Arc;
use windlass::{Job as _, NewJob, Registry, Worker};
use windlass_console::Verdict;

on_each_database!(
    a_working_database_is_fine,
    each_fault_is_found_and_named,
    old_tables_are_told_to_be_migrated,
    warnings_count_when_asked,
    a_deployment_that_does_not_run_is_a_problem,
    a_recurring_task_that_nothing_fires_is_a_problem,
    ready_jobs_that_no_worker_takes_are_a_problem,
    verdicts_have_colors_on_a_terminal,
);

crate::through_a_pooler_in_all!(
    a_working_database_is_fine,
    each_fault_is_found_and_named,
    old_tables_are_told_to_be_migrated,
    warnings_count_when_asked,
    a_deployment_that_does_not_run_is_a_problem,
    a_recurring_task_that_nothing_fires_is_a_problem,
    ready_jobs_that_no_worker_takes_are_a_problem,
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
    let conn = &mut db.connection();
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
    let findings = windlass_console::doctor(&mut db.connection()).unwrap();
    let each = findings.into_iter();
    each.map(|finding| (finding.check, (finding.verdict, finding.jobs)))
        .collect()
}

fn a_working_database_is_fine(db: &TestDb) {
    let log = Arc::new(Log::default());
    let conn = &mut db.connection();
    Note::new("a").enqueue(conn).unwrap();
    let later = NewJob::new(&Note::new("b")).unwrap();
    later
        .after(std::time::Duration::from_secs(60))
        .enqueue(conn)
        .unwrap();
    let registry = Registry::new().register::<Note>(Arc::clone(&log));
    let _worker = Worker::new(&db.database, registry).start().unwrap();
    let supervisor =
        windlass::Supervisor::new(&db.database).dispatcher(windlass::Dispatcher::new(&db.database));
    let _supervisor = supervisor.start().unwrap();
    until("all are registered and the job is done", || {
        log.len() == 1 && windlass::processes::list(conn).unwrap().len() == 3
    });
    let found = windlass_console::doctor(conn).unwrap();
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
    assert_eq!(found["processes"].0, Verdict::Problem);
    assert_eq!(found["scheduled"].0, Verdict::Warning);
    for check in ["schema", "database", "transactions"] {
        assert_eq!(found[check].0, Verdict::Fine, "{check}");
    }
    assert_eq!(windlass(&db.url, &["doctor"]).code, Some(3));
}

fn old_tables_are_told_to_be_migrated(db: &TestDb) {
    db.execute("DELETE FROM windlass_schema_migrations WHERE version = '20261128000002'");
    let said = windlass(&db.url, &["doctor"]);
    assert_eq!(said.code, Some(3));
    assert!(
        said.out.contains("not migrated: 20261128000002"),
        "{}",
        said.out
    );
}

fn warnings_count_when_asked(db: &TestDb) {
    // No supervisor would recover what it holds, should it die.
    let registry = Registry::new().register::<Note>(Arc::default());
    let _worker = Worker::new(&db.database, registry).start().unwrap();
    until("it is registered", || db.rows("processes") == 1);
    let said = windlass(&db.url, &["doctor", "--json"]).json();
    assert_eq!(said["verdict"], "warning");
    assert_eq!(windlass(&db.url, &["doctor", "--strict"]).code, Some(3));
}

/// Returns the findings of one check as one text, and checks that `doctor` exits with `code`.
fn says(db: &TestDb, check: &str, code: i32) -> String {
    let said = windlass(&db.url, &["doctor", "--json"]);
    assert_eq!(said.code, Some(code), "{said:?}");
    let found: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    let findings = found["findings"].as_array().unwrap().iter();
    let texts = findings
        .filter(|finding| finding["check"] == check)
        .map(|finding| finding["says"].as_str().unwrap());
    texts.collect::<Vec<_>>().join("\n")
}

fn a_deployment_that_does_not_run_is_a_problem(db: &TestDb) {
    assert_eq!(says(db, "processes", 0), "0 run", "nothing waits");
    let conn = &mut db.connection();
    let later = NewJob::new(&Note::new("b")).unwrap();
    let later = later.after(std::time::Duration::from_secs(3600));
    later.enqueue(conn).unwrap();
    let found = says(db, "processes", 3);
    assert!(found.contains("no dispatcher runs"), "{found}");
    assert!(found.contains("no running worker"), "{found}");
    db.execute("DELETE FROM solid_queue_jobs");
    NewJob::new(&Note::new("a"))
        .unwrap()
        .queue("mail")
        .enqueue(conn)
        .unwrap();
    let found = says(db, "processes", 3);
    assert!(
        found.contains("jobs are ready and no worker runs"),
        "{found}"
    );
    // Those of a paused queue wait on purpose.
    windlass::queues::pause(conn, "mail", "ada", "").unwrap();
    assert_eq!(says(db, "processes", 0), "0 run");
}

fn a_recurring_task_that_nothing_fires_is_a_problem(db: &TestDb) {
    let conn = &mut db.connection();
    let often = windlass::RecurringTask::new("often", "every 45s", &Note::new("a")).unwrap();
    windlass::recurring::schedule(conn, &often).unwrap();
    assert!(says(db, "processes", 3).contains("no scheduler runs"));
    assert!(says(db, "recurring", 3).contains("1 tasks, none is overdue"));
    let ago = if db.is_postgres() {
        "statement_timestamp() AT TIME ZONE 'UTC' - interval '3 minutes'"
    } else {
        "strftime('%Y-%m-%d %H:%M:%f000', 'now', '-3 minutes')"
    };
    let late = format!("UPDATE solid_queue_recurring_tasks SET next_run_at = {ago}");
    db.execute(&late);
    let found = says(db, "recurring", 3);
    assert!(
        found.contains("1 of 1 tasks are overdue, `often`"),
        "{found}"
    );
    assert!(found.contains("no scheduler runs"), "{found}");
    let next = windlass(&db.url, &["recurring", "next", "--count", "1"]);
    assert!(next.out.contains("No scheduler is running"), "{next:?}");
    let _scheduler = windlass::Scheduler::new(&db.database).start().unwrap();
    until("it is fired", || db.rows("jobs") > 0);
    assert!(says(db, "recurring", 3).contains("none is overdue"));
    assert!(!says(db, "processes", 3).contains("no scheduler runs"));
    let next = windlass(&db.url, &["recurring", "next", "--count", "1"]);
    assert!(!next.out.contains("No scheduler is running"), "{next:?}");
    // A scheduler that does not get at it, or that is of another program.
    db.execute("UPDATE solid_queue_recurring_tasks SET declared_at = created_at");
    db.execute(&late);
    let found = says(db, "recurring", 3);
    assert!(
        found.contains("no scheduler that runs declares `often`"),
        "{found}"
    );
}

/// The registry has one class, the worker serves one queue.
fn ready_jobs_that_no_worker_takes_are_a_problem(db: &TestDb) {
    let registry = Registry::new().register::<Note>(Arc::default());
    let worker = Worker::new(&db.database, registry).queues(["mail"]);
    let mut worker = worker.unwrap().start().unwrap();
    let conn = &mut db.connection();
    let classes = || {
        windlass::processes::list(&mut db.connection())
            .unwrap()
            .len()
    };
    until("it is registered", || classes() == 1);
    let enqueue = |class: &str, queue: &str| {
        let job = NewJob::of_class(class, "{}").queue(queue);
        job.enqueue(&mut db.connection()).unwrap().id
    };
    let here = |job: windlass::JobId, seconds: u32| {
        let old = if db.is_postgres() {
            format!("created_at - interval '{seconds} seconds'")
        } else {
            format!("strftime('%Y-%m-%d %H:%M:%f000', created_at, '-{seconds} seconds')")
        };
        let text = format!(
            "UPDATE solid_queue_ready_executions SET created_at = {old} WHERE job_id = {job}"
        );
        assert_eq!(db.execute(&text), 1);
    };
    let unserved = enqueue(Note::NAME, "mial");
    let unknown = enqueue("nobody_has_it", "mail");
    let paused = enqueue(Note::NAME, "resting");
    windlass::queues::pause(conn, "resting", "ada", "a test").unwrap();
    // They may have been enqueued just before the worker that takes them starts.
    let found = verdicts(db);
    assert_eq!((found.get("queues"), found.get("classes")), (None, None));
    for job in [unserved, unknown, paused] {
        here(job, 100);
    }
    let found = verdicts(db);
    assert_eq!(found["queues"], (Verdict::Problem, vec![unserved.0]));
    assert_eq!(found["classes"], (Verdict::Problem, vec![unknown.0]));
    let said = windlass(&db.url, &["doctor"]);
    assert_eq!(said.code, Some(3));
    for says in [
        "no running worker serves the queue `mial`",
        "`nobody_has_it` (queue `mail`)",
    ] {
        assert!(said.out.contains(says), "{says} is not in {}", said.out);
    }
    // `enqueue` warns at once, since a name may be mistyped.
    let said = windlass(&db.url, &["enqueue", Note::NAME, "{}", "--queue", "mial"]);
    assert!(
        said.code == Some(0) && said.err.contains("no running worker serves its queue"),
        "{said:?}"
    );
    let said = windlass(
        &db.url,
        &["enqueue", "nobody_has_it", "{}", "--queue", "mail"],
    );
    assert!(
        said.code == Some(0) && said.err.contains("has its class registered"),
        "{said:?}"
    );
    // Without any worker, that is the one finding.
    worker.stop();
    worker
        .join(crate::support::wait::DEADLINE)
        .expect("it ends");
    let found = verdicts(db);
    assert_eq!((found.get("queues"), found.get("classes")), (None, None));
    let said = windlass(&db.url, &["enqueue", Note::NAME, "{}", "--queue", "mial"]);
    assert_eq!((said.is_done(), &*said.err), (true, ""));
}

fn verdicts_have_colors_on_a_terminal(db: &TestDb) {
    break_everything(db);
    let seen = |no_color: &str| {
        let doctor = Windlass::new(&["doctor"]).env("DATABASE_URL", &db.url);
        let doctor = doctor.env("NO_COLOR", no_color).env("TERM", "xterm");
        doctor.on_a_terminal("").1
    };
    let colored = seen("");
    for verdict in ["32mfine", "1;33mWARNING", "1;31mPROBLEM"] {
        assert!(
            colored.contains(&format!("\x1b[{verdict}\x1b[0m")),
            "{colored}"
        );
    }
    assert!(!seen("1").contains('\x1b'));
    let piped = windlass(&db.url, &["doctor"]).out;
    assert!(!piped.contains('\x1b'), "{piped}");
}
