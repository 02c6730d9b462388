//! The maintenance: each process shows its duties, and one process may have all of them.

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::jobs::{Log, Note};
use crate::support::program::{Windlass, windlass};
use crate::support::wait::{DEADLINE, until};
use rustix::process::Signal;
use serde_json::Value;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use windlass::{
    Dispatcher, Error, Handle, Job as _, NewJob, RecurringTask, Registry, Supervisor, Worker,
};
use windlass_console::Verdict;

on_each_database!(
    processes_show_their_duties,
    a_late_duty_is_found,
    one_process_does_everything,
    one_process_that_is_killed_recovers_its_own_jobs,
    parts_that_do_not_fit_are_refused,
    probes_ask_all_of_one_process,
);

crate::through_a_pooler_in_all!(processes_show_their_duties, one_process_does_everything);

const BEAT: Duration = Duration::from_millis(100);

const THRESHOLD: Duration = Duration::from_millis(600);

/// The duties in the JSON of `windlass processes`, by name.
fn duties(db: &TestDb) -> Vec<Value> {
    let shown = windlass(&db.url, &["processes", "--json"]).json();
    shown["duties"].as_array().unwrap().clone()
}

fn names(duties: &[Value]) -> Vec<&str> {
    let names = duties.iter().map(|duty| duty["name"].as_str());
    names.collect::<Option<_>>().unwrap()
}

fn processes_show_their_duties(db: &TestDb) {
    assert_eq!(duties(db), [Value::Null; 0]);
    let dispatcher = Dispatcher::new(&db.database).heartbeat_interval(BEAT);
    let supervisor = Supervisor::new(&db.database)
        .heartbeat_interval(BEAT)
        .dispatcher(dispatcher);
    let _running = supervisor.start().unwrap();
    let expected = [
        "clear finished jobs",
        "dispatch",
        "expire",
        "fold",
        "operate",
        "promote",
        "prune",
        "sweep slots",
        "time out",
        "unblock",
    ];
    until("all duties are shown", || {
        let duties = duties(db);
        let names = names(&duties);
        expected.iter().all(|duty| names.contains(duty))
    });
    for duty in duties(db) {
        assert_eq!(duty["processes"], 1, "{duty}");
        assert_eq!(duty["late_seconds"], Value::Null, "{duty}");
    }
    let text = windlass(&db.url, &["processes"]).out;
    assert!(text.contains("DUTY") && text.contains("prune"), "{text}");
    let findings = windlass_console::doctor(&mut db.connection()).unwrap();
    assert!(findings.iter().all(|finding| finding.check != "duties"));
}

/// Registers a process by SQL, whose heartbeats are as new as possible.
fn register(db: &TestDb, name: &str, metadata: &str) {
    let now = match db.is_postgres() {
        true => "statement_timestamp() AT TIME ZONE 'UTC'",
        false => "strftime('%Y-%m-%d %H:%M:%f000', 'now')",
    };
    db.execute(&format!(
        "INSERT INTO solid_queue_processes (kind, name, pid, metadata, heartbeat_seq, created_at, last_heartbeat_at) \
         VALUES ('Supervisor', '{name}', 1, '{metadata}', 1, {now}, {now})"
    ));
}

fn late(db: &TestDb) -> Option<String> {
    let findings = windlass_console::doctor(&mut db.connection()).unwrap();
    let mut late = findings
        .into_iter()
        .filter(|finding| finding.check == "duties");
    let found = late.next()?;
    assert_eq!(found.verdict, Verdict::Warning);
    Some(found.says)
}

fn a_late_duty_is_found(db: &TestDb) {
    let turns = |ago: f64| {
        format!(
            r#"{{"windlass": "0", "duties": {{"prune": {{"ago": {ago}, "every": 10.0}}, "fold": {{"ago": 1.0, "every": 20.0}}}}}}"#
        )
    };
    register(db, "supervisor-a", &turns(300.0));
    let says = late(db).unwrap();
    assert!(
        says.contains("`prune` (300 s ago)") && !says.contains("fold"),
        "{says}"
    );
    let found = duties(db);
    assert_eq!(names(&found), ["fold", "prune"]);
    assert_eq!(found[1]["late_seconds"], 290.0);
    assert_eq!(found[0]["late_seconds"], Value::Null);

    register(db, "supervisor-b", &turns(2.0));
    assert_eq!(late(db), None, "another process does it");
    register(db, "supervisor-c", r#"{"duties": ["other programs"]}"#);
    assert_eq!(late(db), None);
}

fn worker(db: &TestDb, log: &Arc<Log>) -> Worker {
    let registry = Registry::new().register::<Note>(Arc::clone(log));
    Worker::new(&db.database, registry)
        .heartbeat_interval(BEAT)
        .alive_threshold(THRESHOLD)
}

fn stop(mut handle: Handle) {
    handle.stop();
    assert!(handle.join(DEADLINE).unwrap().is_drained());
}

fn one_process_does_everything(db: &TestDb) {
    let log = Arc::new(Log::default());
    let mut conn = db.connect();
    // The claim of a process that has died.
    Note::new("recovered").enqueue(&mut conn).unwrap();
    register(db, "supervisor-dead", "{}");
    for statement in [
        "INSERT INTO solid_queue_claimed_executions (job_id, process_id, created_at) \
         SELECT r.job_id, p.id, r.created_at FROM solid_queue_ready_executions r CROSS JOIN solid_queue_processes p",
        "DELETE FROM solid_queue_ready_executions",
    ] {
        db.execute(statement);
    }
    let later = NewJob::new(&Note::new("later")).unwrap();
    let later = later.after(Duration::from_millis(300));
    later.enqueue(&mut conn).unwrap();
    let often = RecurringTask::new("often", "every 1s", &Note::new("ticked")).unwrap();
    let handle = worker(db, &log).dispatcher(true).task(often).start();
    let handle = handle.unwrap();
    until("all three have run", || {
        let notes = log.lines();
        let has = |note: &str| notes.iter().any(|one| one == note);
        has("recovered") && has("later") && has("ticked")
    });
    stop(handle);
    let left = "SELECT count(*) AS n FROM solid_queue_processes";
    assert_eq!(db.count(left), 0);
}

/// Nothing but the same program, started again, takes up what it has left.
fn one_process_that_is_killed_recovers_its_own_jobs(db: &TestDb) {
    let program = Path::new(env!("CARGO_BIN_EXE_alone"));
    let start = || Windlass::at(program, &[&db.url]).start();
    let claims = || db.rows("claimed_executions");
    let long = NewJob::of_class("nap", "600000");
    long.enqueue(&mut db.connection()).unwrap();
    let first = start();
    until("the long job runs", || claims() == 1);
    first.signal(Signal::KILL);
    assert_eq!(first.said().code, None, "a signal has ended it");
    assert_eq!(claims(), 1, "no other process has noticed");

    db.execute("UPDATE solid_queue_jobs SET arguments = '1'");
    let second = start();
    let finished = "SELECT count(*) AS n FROM solid_queue_jobs WHERE finished_at IS NOT NULL";
    until("it has run again", || db.count(finished) == 1);
    second.signal(Signal::TERM);
    let said = second.said();
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!((claims(), db.rows("processes")), (0, 0));
}

/// The server of the probes listens once, for all processes on threads of the program.
fn probes_ask_all_of_one_process(db: &TestDb) {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap().to_string();
    drop(free);
    let probes = windlass_console::web::Probes::new(&db.database).listen(address);
    let worker = worker(db, &Arc::new(Log::default())).probes(probes);
    let handle = worker.dispatcher(true).scheduler(true).start().unwrap();
    until("all are registered", || db.rows("processes") == 4);
    let health = handle.health();
    until("all are ready", || health.is_ready());
    assert_eq!(health.kind(), "supervisor");
    stop(handle);
}

fn parts_that_do_not_fit_are_refused(db: &TestDb) {
    let log = Arc::new(Log::default());
    let why = |refused: windlass::Result<Handle>| match refused {
        Err(Error::Settings(why)) => why,
        other => panic!("{other:?}"),
    };
    let idle = worker(db, &log).until_idle().dispatcher(true);
    assert!(why(idle.start()).contains("cannot end when it is idle"));
    let own = worker(db, &log).scheduler(true);
    let supervisor = Supervisor::new(&db.database).worker(own);
    assert!(why(supervisor.start()).contains("give these to the supervisor"));
    // `false` takes back what was asked for.
    let plain = worker(db, &log).dispatcher(true).dispatcher(false);
    stop(plain.start().unwrap());
}
