//! Rows that a Rails app wrote with nothing but Solid Queue's own columns.

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::events::Events;
use crate::support::jobs::{Log, Note};
use crate::support::solid_queue;
use crate::support::wait::until;
use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use windlass::jobs::{self, Cancelled, Change, Jobs, Obstacle, Reason};
use windlass::{
    Concurrency, Context, Dispatcher, Job, JobId, JobResult, NewJob, RecurringTask, Registry,
    Supervisor, Worker,
};

/// Rails notifies nobody, so Postgres has to be polled.
const POLLING: Duration = Duration::from_millis(20);

/// Fields that all may be missing: decoding the envelope itself would do.
#[derive(Debug, Serialize, Deserialize)]
struct Optional {
    file: Option<String>,
    #[serde(default)]
    lines: u32,
}

impl Job for Optional {
    const NAME: &'static str = "Optional";
    type State = Log;
    type Output = ();

    fn perform(self, cx: &Context<'_, Log>) -> JobResult {
        cx.add(format!("{:?} {}", self.file, self.lines));
        Ok(())
    }
}

fn a_job_from_rails_is_performed(db: &TestDb) {
    let log = Arc::new(Log::default());
    let registry = Registry::new().register::<Note>(Arc::clone(&log));
    let _worker = Worker::new(&db.database, registry)
        .polling_interval(POLLING)
        .start()
        .unwrap();
    solid_queue::enqueue(
        db,
        "note",
        r#"[{"text":"it's from Ruby ✓","_aj_symbol_keys":["text"]}]"#,
    );
    until("the job is done", || log.len() == 1);
    solid_queue::enqueue(
        db,
        "note",
        r#"[{"text":"by keyword","_aj_ruby2_keywords":["text"]}]"#,
    );
    until("the other is done", || log.len() == 2);
    assert_eq!(log.lines(), ["it's from Ruby ✓", "by keyword"]);
    until("both are finished", || {
        db.count("SELECT count(*) AS n FROM solid_queue_jobs WHERE finished_at IS NOT NULL") == 2
    });
}

fn a_scheduled_job_from_rails_is_dispatched(db: &TestDb) {
    let log = Arc::new(Log::default());
    let registry = Registry::new().register::<Note>(Arc::clone(&log));
    solid_queue::schedule(
        db,
        "note",
        r#"[{"text":"due"}]"#,
        "2026-01-01 00:00:00.000001",
    );
    solid_queue::schedule(
        db,
        "note",
        r#"[{"text":"not yet"}]"#,
        "2999-01-01 00:00:00.000001",
    );
    let _worker = Worker::new(&db.database, registry)
        .polling_interval(POLLING)
        .start()
        .unwrap();
    let _dispatcher = Dispatcher::new(&db.database).start().unwrap();
    until("the due job is done", || log.len() == 1);
    assert_eq!(log.lines(), ["due"]);
    assert_eq!(db.rows("scheduled_executions"), 1);
}

fn the_envelope_is_opened_even_if_every_field_may_be_missing(db: &TestDb) {
    let log = Arc::new(Log::default());
    let registry = Registry::new().register::<Optional>(Arc::clone(&log));
    let _worker = Worker::new(&db.database, registry)
        .polling_interval(POLLING)
        .start()
        .unwrap();
    solid_queue::enqueue(db, "Optional", r#"[{"file":"users.csv","lines":7}]"#);
    until("the job is done", || log.len() == 1);
    assert_eq!(log.lines(), [r#"Some("users.csv") 7"#]);
}

/// The worker cannot see the class before it has claimed the row.
fn a_class_that_only_rails_knows_is_given_back(db: &TestDb) {
    let log = Arc::new(Log::default());
    let events = Events::default();
    let registry = Registry::new().register::<Note>(Arc::clone(&log));
    let _worker = Worker::new(&db.database, registry)
        .polling_interval(POLLING)
        .subscriber(events.subscriber())
        .start()
        .unwrap();
    solid_queue::enqueue(db, "ReportJob", "[1]");
    solid_queue::enqueue(db, "note", r#"[{"text":"known"}]"#);
    until("the known job is done", || log.len() == 1);
    until("the unknown one is given back", || {
        db.rows("scheduled_executions") == 1
    });
    assert_eq!(db.rows("failed_executions"), 0);
    assert_eq!(events.count("Failed"), 0);
    until("it is told", || events.count("Released") == 1);
    // Nobody's attempt, and not due before others had their chance.
    let soon = if db.is_postgres() {
        "(statement_timestamp() AT TIME ZONE 'UTC') + interval '15 seconds'"
    } else {
        "strftime('%Y-%m-%d %H:%M:%f000', 'now', '15 seconds')"
    };
    assert_eq!(
        db.count(&format!(
            "SELECT count(*) AS n FROM solid_queue_scheduled_executions s JOIN solid_queue_jobs j ON j.id = s.job_id \
             WHERE j.class_name = 'ReportJob' AND j.attempts = 0 AND s.scheduled_at > {soon}"
        )),
        1
    );
    // A worker that has the class gets it when it is due again.
    db.execute(
        "UPDATE solid_queue_scheduled_executions SET scheduled_at = '2026-01-01 00:00:00.000000'",
    );
    let _dispatcher = Dispatcher::new(&db.database).start().unwrap();
    until("it is ready", || db.rows("ready_executions") == 1);
    assert_eq!(
        db.texts("SELECT class_name AS t FROM solid_queue_ready_executions"),
        ["ReportJob"]
    );
}

/// Runs at most one of its key at a time, and notes how many ran at once.
#[derive(Debug, Serialize, Deserialize)]
struct Alone {
    number: u32,
}

#[derive(Debug, Default)]
struct Gauge {
    running: AtomicUsize,
    most: AtomicUsize,
    done: AtomicUsize,
}

impl Job for Alone {
    const NAME: &'static str = "Alone";
    type State = Gauge;
    type Output = ();

    fn concurrency(&self) -> Option<Concurrency> {
        Some(Concurrency::new("one").limit(1))
    }

    fn perform(self, cx: &Context<'_, Gauge>) -> JobResult {
        let running = cx.running.fetch_add(1, Ordering::SeqCst) + 1;
        cx.most.fetch_max(running, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(20));
        cx.running.fetch_sub(1, Ordering::SeqCst);
        cx.done.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

/// Makes jobs ready as Solid Queue does: those that are due, and those that failed and are tried again. Only Solid
/// Queue's own columns are named.
fn made_ready_by_ruby(db: &TestDb, from: &str) {
    db.in_transaction(&[
        &format!(
            "INSERT INTO solid_queue_ready_executions (job_id, queue_name, priority, created_at) \
             SELECT j.id, j.queue_name, j.priority, j.created_at FROM solid_queue_jobs j \
             JOIN solid_queue_{from}_executions e ON e.job_id = j.id ORDER BY j.id"
        ),
        &format!("DELETE FROM solid_queue_{from}_executions"),
    ]);
}

fn limits_hold_for_what_ruby_makes_ready(db: &TestDb) {
    let later = Duration::from_secs(3_600);
    for number in 0..20 {
        let job = NewJob::new(&Alone { number }).unwrap();
        job.after(later).enqueue(&mut db.connection()).unwrap();
    }
    db.execute(
        "INSERT INTO solid_queue_failed_executions (job_id, error, created_at) \
         SELECT job_id, '{}', created_at FROM solid_queue_scheduled_executions WHERE job_id > 10",
    );
    db.execute("DELETE FROM solid_queue_scheduled_executions WHERE job_id > 10");
    made_ready_by_ruby(db, "scheduled");
    made_ready_by_ruby(db, "failed");
    // A job without a limit behind them is not held up.
    solid_queue::enqueue(db, "note", r#"[{"text":"behind"}]"#);
    let (gauge, log) = (Arc::new(Gauge::default()), Arc::new(Log::default()));
    let registry = Registry::new()
        .register::<Alone>(Arc::clone(&gauge))
        .register::<Note>(Arc::clone(&log));
    let _worker = Worker::new(&db.database, registry)
        .threads(4)
        .polling_interval(POLLING)
        .start()
        .unwrap();
    until("all have run", || {
        gauge.done.load(Ordering::SeqCst) == 20 && log.len() == 1
    });
    assert_eq!(gauge.most.load(Ordering::SeqCst), 1);
    until("nothing is left", || {
        ["ready", "blocked", "claimed"]
            .iter()
            .all(|place| db.rows(&format!("{place}_executions")) == 0)
    });
}

/// Returns the error of a job with these arguments, which must fail.
fn refused(db: &TestDb, arguments: &str) -> String {
    let log = Arc::new(Log::default());
    let registry = Registry::new().register::<Note>(Arc::clone(&log));
    solid_queue::enqueue(db, "note", arguments);
    let _worker = Worker::new(&db.database, registry)
        .polling_interval(POLLING)
        .start()
        .unwrap();
    until("the job has failed or run", || {
        db.rows("failed_executions") == 1 || log.len() == 1
    });
    assert_eq!(log.len(), 0, "it ran");
    let error = db
        .texts("SELECT error AS t FROM solid_queue_failed_executions")
        .remove(0);
    db.execute("DELETE FROM solid_queue_failed_executions");
    assert!(error.contains("undecodable_arguments"), "{error}");
    error
}

fn further_arguments_are_refused_and_not_dropped(db: &TestDb) {
    let error = refused(db, r#"[{"text":"first"},"dropped",2]"#);
    assert!(error.contains("Ruby passed 3 arguments"), "{error}");
    let error = refused(
        db,
        r#"[{"text":"first"},{"b":2,"_aj_ruby2_keywords":["b"]}]"#,
    );
    assert!(error.contains("Ruby passed 2 arguments"), "{error}");
}

fn an_array_is_not_taken_for_the_fields(db: &TestDb) {
    let error = refused(db, r#"[["not the text"]]"#);
    assert!(error.contains("Ruby passed an array"), "{error}");
}

/// Mission Control passes the items of the list on, when asked to run a task.
fn recurring_arguments_are_a_list_as_ruby_keeps_them(db: &TestDb) {
    let log = Arc::new(Log::default());
    let registry = Registry::new().register::<Note>(Arc::clone(&log));
    let mut conn = db.connect();
    let task = RecurringTask::new("note", "0 0 1 1 *", &Note::new("of the task")).unwrap();
    windlass::recurring::schedule(&mut conn, &task).unwrap();
    let arguments = "SELECT arguments AS t FROM solid_queue_recurring_tasks";
    assert_eq!(db.texts(arguments), [r#"[{"text":"of the task"}]"#]);
    let _worker = Worker::new(&db.database, registry)
        .polling_interval(POLLING)
        .start()
        .unwrap();
    windlass::recurring::run_now(&mut conn, "note").unwrap();
    until("it has run", || log.len() == 1);
    solid_queue::enqueue(db, "note", &db.texts(arguments)[0]);
    until("it has run for Ruby", || log.len() == 2);
    // As earlier versions kept them.
    db.execute(r#"UPDATE solid_queue_recurring_tasks SET arguments = '{"text":"of before"}'"#);
    windlass::recurring::run_now(&mut conn, "note").unwrap();
    until("it has run once more", || log.len() == 3);
    assert_eq!(log.lines(), ["of the task", "of the task", "of before"]);
}

/// Mission Control's page of recurring tasks asks `fugit` for the next time of each: a text that it cannot read is an error
/// page.
fn schedules_are_stored_as_ruby_reads_them(db: &TestDb) {
    let mut conn = db.connect();
    let daily = "30 3 * * 1-5 Europe/Berlin";
    for (key, schedule, in_ruby) in [
        ("berlin", "0 30 3 ? * 2-6 Europe/Berlin", daily),
        ("changed", "every 1h 30m", "1h30m"),
        ("plain", "*/10 * * * *", "*/10 * * * * UTC"),
        ("timing", "@timing dawn", "0 0 1 1 * UTC"),
    ] {
        let mut task = RecurringTask::new(key, schedule, &Note::new("of the task")).unwrap();
        if key == "timing" {
            task = task.timing(Arc::new(|after: DateTime<Utc>| {
                Some(after + TimeDelta::days(1))
            }));
        }
        windlass::recurring::schedule(&mut conn, &task).unwrap();
        let stored =
            format!("SELECT schedule AS t FROM solid_queue_recurring_tasks WHERE key = '{key}'");
        assert_eq!(db.texts(&stored), [in_ruby], "{schedule}");
    }
    let tasks = windlass::recurring::list(&mut conn).unwrap();
    let schedules: Vec<&str> = tasks.iter().map(|task| &*task.schedule).collect();
    assert_eq!(
        schedules,
        [
            "0 30 3 ? * 2-6",
            "every 1h 30m",
            "*/10 * * * *",
            "@timing dawn"
        ]
    );
    let task = RecurringTask::new("changed", "every 45s", &Note::new("of the task")).unwrap();
    windlass::recurring::schedule(&mut conn, &task).unwrap();
    let stored = "SELECT schedule AS t FROM solid_queue_recurring_tasks WHERE key = 'changed'";
    assert_eq!(db.texts(stored), ["45s"]);
}

/// Fails the claims of a process as Ruby's supervisor does when it takes the process for dead, of Ruby or not.
fn failed_by_ruby(db: &TestDb, kind: &str, condition: &str) {
    let error = format!(
        r#"{{"exception_class":"{kind}","message":"Process was found dead","backtrace":null}}"#
    );
    db.execute(&format!(
        "INSERT INTO solid_queue_failed_executions (job_id, error, created_at) \
         SELECT id, '{error}', created_at FROM solid_queue_jobs WHERE {condition}"
    ));
}

fn what_ruby_took_for_dead_is_taken_back(db: &TestDb) {
    for number in 0..3 {
        let job = Alone { number };
        job.enqueue(&mut db.connection()).unwrap();
    }
    for text in ["again", "too often", "at most once", "a failure of its own"] {
        Note::new(text).enqueue(&mut db.connection()).unwrap();
    }
    solid_queue::enqueue(db, "ReportJob", "[1]");
    for place in ["ready", "blocked"] {
        db.execute(&format!("DELETE FROM solid_queue_{place}_executions"));
    }
    db.execute("UPDATE solid_queue_jobs SET crash_count = 3 WHERE arguments LIKE '%too often%'");
    db.execute(
        "UPDATE solid_queue_jobs SET at_most_once = (1 = 1) WHERE arguments LIKE '%at most once%'",
    );
    failed_by_ruby(
        db,
        "SolidQueue::Processes::ProcessPrunedError",
        "id NOT IN (1, 7)",
    );
    failed_by_ruby(db, "SolidQueue::Processes::ProcessMissingError", "id = 1");
    failed_by_ruby(db, "NoMethodError", "id = 7");
    let supervisor = Supervisor::new(&db.database)
        .heartbeat_interval(Duration::from_millis(50))
        .alive_threshold(Duration::from_millis(500))
        .start()
        .unwrap();
    until("they are taken back", || db.rows("failed_executions") == 4);
    // It would take a worker for dead that has no time for a heartbeat.
    drop(supervisor);
    let (gauge, log) = (Arc::new(Gauge::default()), Arc::new(Log::default()));
    let registry = Registry::new()
        .register::<Alone>(Arc::clone(&gauge))
        .register::<Note>(Arc::clone(&log));
    let _worker = Worker::new(&db.database, registry).start().unwrap();
    until("they have run again", || {
        gauge.done.load(Ordering::SeqCst) == 3 && log.len() == 1
    });
    assert_eq!(gauge.most.load(Ordering::SeqCst), 1);
    assert_eq!(log.lines(), ["again"]);
    let crashes = "SELECT count(*) AS n FROM windlass_attempts WHERE kind = 'crashed' AND outcome = 'crashed'";
    assert_eq!(db.count(crashes), 4);
    let failed = |kind: &str, job: i64| {
        db.count(&format!(
            "SELECT count(*) AS n FROM solid_queue_failed_executions WHERE job_id = {job} AND error LIKE '%\"{kind}\"%'"
        )) == 1
    };
    assert!(failed("crashed", 5));
    assert!(failed("outcome_unknown", 6));
    assert!(failed("NoMethodError", 7));
    assert!(failed("SolidQueue::Processes::ProcessPrunedError", 8));
    assert_eq!(db.rows("failed_executions"), 4);
}

/// A process of Ruby's supervisor, which counts no heartbeats.
fn ruby_process(db: &TestDb, kind: &str, metadata: &str) {
    let now = if db.is_postgres() {
        "CURRENT_TIMESTAMP AT TIME ZONE 'UTC'"
    } else {
        "strftime('%Y-%m-%d %H:%M:%f000', 'now')"
    };
    db.execute(&format!(
        "INSERT INTO solid_queue_processes (kind, last_heartbeat_at, pid, hostname, metadata, name, created_at) \
         VALUES ('{kind}', {now}, 1, 'here', '{metadata}', '{kind}-1', {now})"
    ));
}

fn enqueue_by_ruby(db: &TestDb) -> JobId {
    solid_queue::enqueue(db, "ReportJob", "[1]");
    JobId(db.count("SELECT max(id) AS n FROM solid_queue_jobs"))
}

fn workers_of_ruby_count_for_jobs_of_ruby(db: &TestDb) {
    let job = enqueue_by_ruby(db);
    let ours = NewJob::new(&Note::new("ours")).unwrap();
    let ours = ours.enqueue(&mut db.connection()).unwrap().id;
    let obstacles = |job: JobId| match jobs::explain(&mut db.connection(), job)
        .unwrap()
        .unwrap()
        .reason
    {
        Reason::Ready { obstacles, .. } => obstacles,
        other => panic!("{other:?}"),
    };
    assert_eq!(obstacles(job), [Obstacle::NoWorkerForQueue]);
    ruby_process(
        db,
        "Worker",
        r#"{"polling_interval":0.1,"queues":"*","thread_pool_size":3}"#,
    );
    assert_eq!(obstacles(job), []);
    assert_eq!(obstacles(ours), [Obstacle::NoWorkerForQueue]);
}

fn a_dispatcher_of_ruby_dispatches_all(db: &TestDb) {
    let later = NewJob::new(&Note::new("later"))
        .unwrap()
        .after(Duration::from_secs(3600));
    let later = later.enqueue(&mut db.connection()).unwrap().id;
    let obstacles = || match jobs::explain(&mut db.connection(), later)
        .unwrap()
        .unwrap()
        .reason
    {
        Reason::Scheduled { obstacles, .. } => obstacles,
        other => panic!("{other:?}"),
    };
    assert!(obstacles().contains(&Obstacle::NoDispatcher));
    ruby_process(
        db,
        "Dispatcher",
        r#"{"polling_interval":1,"batch_size":500}"#,
    );
    assert!(!obstacles().contains(&Obstacle::NoDispatcher));
}

fn what_runs_in_ruby_cannot_be_cancelled(db: &TestDb) {
    let job = enqueue_by_ruby(db);
    ruby_process(db, "Worker", "{}");
    db.in_transaction(&[
        "DELETE FROM solid_queue_ready_executions",
        "INSERT INTO solid_queue_claimed_executions (job_id, process_id, created_at) \
         SELECT j.id, p.id, j.created_at FROM solid_queue_jobs j, solid_queue_processes p",
    ]);
    let cancelled = jobs::cancel(&mut db.connection(), job).unwrap();
    assert_eq!(cancelled, Cancelled::InRuby);
    let all = Jobs::waiting_or_running();
    let changed = all.change(&mut db.connection(), Change::Cancel).unwrap();
    assert_eq!(
        (changed.in_ruby, changed.running, changed.passed_over),
        (1, 0, 0)
    );
    let asked = "SELECT count(*) AS n FROM solid_queue_claimed_executions WHERE cancel_requested_at IS NOT NULL";
    assert_eq!(db.count(asked), 0);
}

on_each_database!(
    workers_of_ruby_count_for_jobs_of_ruby,
    a_dispatcher_of_ruby_dispatches_all,
    what_runs_in_ruby_cannot_be_cancelled,
    what_ruby_took_for_dead_is_taken_back,
    limits_hold_for_what_ruby_makes_ready,
    further_arguments_are_refused_and_not_dropped,
    an_array_is_not_taken_for_the_fields,
    recurring_arguments_are_a_list_as_ruby_keeps_them,
    schedules_are_stored_as_ruby_reads_them,
    a_job_from_rails_is_performed,
    a_scheduled_job_from_rails_is_dispatched,
    the_envelope_is_opened_even_if_every_field_may_be_missing,
    a_class_that_only_rails_knows_is_given_back,
);
