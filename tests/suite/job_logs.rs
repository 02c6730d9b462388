//! The lines that jobs log about themselves.

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::db::execute;
use crate::support::events::Events;
use crate::support::program::windlass;
use crate::support::wait::{DEADLINE, until};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use windlass::hooks::Subscriber;
use windlass::jobs::{Change, JobLog, Jobs};
use windlass::processes::Retention;
use windlass::testing::{drain, travel};
use windlass::{
    Context, Event, Function, Handle, JobError, JobResult, Policy, Registry, Supervisor, Worker,
};

on_each_database!(
    lines_are_there_when_the_job_has_ended,
    each_attempt_has_its_lines,
    a_heartbeat_stores_the_lines_of_a_running_job,
    only_the_newest_lines_and_runs_are_kept,
    a_lost_claim_adds_no_lines,
    a_job_that_finishes_itself_keeps_its_lines,
    lines_go_with_their_job,
    lines_go_at_once_with_a_job_that_is_discarded,
    the_program_shows_them_on_request,
);

crate::through_a_pooler_in_all!(
    lines_are_there_when_the_job_has_ended,
    each_attempt_has_its_lines,
    a_heartbeat_stores_the_lines_of_a_running_job,
    only_the_newest_lines_and_runs_are_kept,
    a_lost_claim_adds_no_lines,
    a_job_that_finishes_itself_keeps_its_lines,
    lines_go_with_their_job,
    lines_go_at_once_with_a_job_that_is_discarded,
    the_program_shows_them_on_request,
);

/// Not heard of before the end of a test.
const SELDOM: Duration = Duration::from_secs(600);

const CHAT: Function<String> = Function::new("chat");

fn chat(db: &TestDb) -> windlass::JobId {
    let hello = "hello".to_owned();
    CHAT.enqueue(&mut db.connection(), &hello).unwrap().id
}

fn registry(
    body: impl Fn(&str, &Context<'_, ()>) -> JobResult + Send + Sync + 'static,
) -> Registry {
    Registry::new().function(CHAT, move |text: String, cx| body(&text, cx))
}

fn worker(db: &TestDb, registry: Registry, heartbeat: Duration, events: &Events) -> Handle {
    Worker::new(&db.database, registry)
        .threads(1)
        .heartbeat_interval(heartbeat)
        .alive_threshold(3 * SELDOM)
        .subscriber(events.subscriber())
        .start()
        .unwrap()
}

fn texts(log: &JobLog) -> Vec<&str> {
    log.lines.iter().map(|line| &*line.text).collect()
}

fn rows(db: &TestDb) -> i64 {
    db.count("SELECT count(*) AS n FROM windlass_job_logs")
}

/// Holds a job until the test has done something.
#[derive(Clone, Default)]
struct Hold(Arc<AtomicBool>);

impl Hold {
    fn end(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    fn wait(&self) {
        let start = Instant::now();
        while !self.0.load(Ordering::SeqCst) {
            assert!(start.elapsed() < DEADLINE, "the test did not go on");
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

fn lines_are_there_when_the_job_has_ended(db: &TestDb) {
    let events = Events::default();
    let registry = registry(|text, cx| {
        if text == "hello" {
            cx.log(format!("{text} \u{1b}[31mthere\0\nand more"));
            cx.log_at(log::Level::Warn, "");
        }
        Ok(())
    });
    let _worker = worker(db, registry, SELDOM, &events);
    let silent = "silent".to_owned();
    CHAT.enqueue(&mut db.connection(), &silent).unwrap();
    let job = chat(db);
    until("both have finished", || events.count("Finished") == 2);
    let logs = crate::support::jobs::logs(&mut db.connection(), job).unwrap();
    let [log] = &logs[..] else { panic!("{logs:?}") };
    assert_eq!(
        texts(log),
        ["hello \u{FFFD}[31mthere\u{FFFD}", "and more", ""]
    );
    assert_eq!(log.lines[0].level, log::Level::Info);
    assert_eq!(log.lines[2].level, log::Level::Warn);
    assert!(log.lines.is_sorted_by_key(|line| line.after));
    assert_eq!((log.attempt, log.dropped), (1, 0));
    assert!(log.started_at.is_some());
    assert_eq!(rows(db), 1, "a job that logs nothing has no row");
}

fn each_attempt_has_its_lines(db: &TestDb) {
    let registry = registry(|_, cx| {
        cx.log(format!("attempt {}", cx.attempt()));
        match cx.attempt() {
            1 => Err("once more".into()),
            2 => panic!("and again"),
            _ => Ok(()),
        }
    });
    let mut conn = db.connect();
    let policy = Policy::new().max_attempts(3);
    let job = CHAT.job(&"hello".to_owned()).unwrap().policy(policy);
    let job = job.enqueue(&mut conn).unwrap().id;
    for attempt in 1..=3 {
        let drained = drain(&mut conn, &registry).unwrap();
        assert_eq!(drained.runs[0].logs[0].text, format!("attempt {attempt}"));
        travel(&mut conn, Duration::from_secs(86_400)).unwrap();
    }
    let logs = crate::support::jobs::logs(&mut conn, job).unwrap();
    let seen: Vec<_> = logs.iter().map(|log| (log.attempt, texts(log))).collect();
    let all = [1, 2, 3].map(|attempt| format!("attempt {attempt}"));
    assert_eq!(
        seen,
        [
            (1, vec![&*all[0]]),
            (2, vec![&*all[1]]),
            (3, vec![&*all[2]])
        ]
    );
    assert!(logs.is_sorted_by_key(|log| log.claim_id));
}

fn a_heartbeat_stores_the_lines_of_a_running_job(db: &TestDb) {
    let (events, hold) = (Events::default(), Hold::default());
    let held = hold.clone();
    let registry = registry(move |_, cx| {
        cx.log("before");
        held.wait();
        cx.log("after");
        Ok(())
    });
    let _worker = worker(db, registry, Duration::from_millis(50), &events);
    let job = chat(db);
    let logs = || crate::support::jobs::logs(&mut db.connection(), job).unwrap();
    until("a heartbeat stores them", || !logs().is_empty());
    assert_eq!(texts(&logs()[0]), ["before"]);
    let began = logs()[0].started_at;
    hold.end();
    until("it has finished", || events.count("Finished") == 1);
    assert_eq!(texts(&logs()[0]), ["before", "after"]);
    assert_eq!(logs()[0].started_at, began);
    assert_eq!(rows(db), 1);
}

fn only_the_newest_lines_and_runs_are_kept(db: &TestDb) {
    let registry = registry(|_, cx| {
        for number in 0..1_200 {
            cx.log(number.to_string());
        }
        Err(JobError::snooze(Duration::from_secs(60)))
    });
    let mut conn = db.connect();
    let job = chat(db);
    for _ in 0..13 {
        assert_eq!(drain(&mut conn, &registry).unwrap().runs.len(), 1);
        travel(&mut conn, Duration::from_secs(60)).unwrap();
    }
    let logs = crate::support::jobs::logs(&mut conn, job).unwrap();
    assert_eq!(logs.len(), 10);
    for log in &logs {
        assert_eq!((log.lines.len(), log.dropped), (1_000, 200));
        assert_eq!(log.lines[0].text, "200");
    }
}

fn a_lost_claim_adds_no_lines(db: &TestDb) {
    let (events, hold) = (Events::default(), Hold::default());
    let (held, begun) = (hold.clone(), Hold::default());
    let started = begun.clone();
    let registry = registry(move |_, cx| {
        started.end();
        held.wait();
        cx.log("too late");
        Ok(())
    });
    let _worker = worker(db, registry, Duration::from_millis(50), &events);
    let job = chat(db);
    begun.wait();
    db.execute("DELETE FROM solid_queue_claimed_executions");
    hold.end();
    until("its end is refused", || events.count("Fenced") == 1);
    assert_eq!(
        crate::support::jobs::logs(&mut db.connection(), job).unwrap(),
        []
    );
    assert_eq!(events.count("Finished"), 0);
}

fn a_job_that_finishes_itself_keeps_its_lines(db: &TestDb) {
    db.execute("CREATE TABLE seen (what varchar NOT NULL)");
    let events = Events::default();
    let registry = registry(|_, cx| {
        let mut conn = cx.connection()?;
        conn.transaction(|conn| {
            execute(conn, "INSERT INTO seen (what) VALUES ('a')");
            cx.finish_in(conn)
        })?;
        cx.log("finished before");
        Ok(())
    });
    let _worker = worker(db, registry, SELDOM, &events);
    let job = chat(db);
    until("it has finished", || events.count("Finished") == 1);
    let logs = crate::support::jobs::logs(&mut db.connection(), job).unwrap();
    assert_eq!(logs.len(), 1);
    assert_eq!(texts(&logs[0]), ["finished before"]);
}

fn lines_go_at_once_with_a_job_that_is_discarded(db: &TestDb) {
    let registry = registry(|_, cx| {
        cx.log("a line");
        Err(JobError::from("it fails").fail())
    });
    let job = chat(db);
    let drained = drain(&mut db.connection(), &registry).unwrap();
    assert_eq!((drained.runs.len(), rows(db)), (1, 1));
    let failed = Jobs::failed().ids([job]);
    let discarded = failed
        .change(&mut db.connection(), Change::Discard)
        .unwrap();
    assert_eq!((discarded.changed, rows(db)), (1, 0));
}

fn lines_go_with_their_job(db: &TestDb) {
    let registry = registry(|_, cx| {
        cx.log("a line");
        Ok(())
    });
    let kept = chat(db);
    for _ in 0..2 {
        chat(db);
    }
    drain(&mut db.connection(), &registry)
        .unwrap()
        .assert_all_finished(3);
    assert_eq!(rows(db), 3);
    // One is deleted by another program, one is old.
    db.execute("DELETE FROM solid_queue_jobs WHERE id = (SELECT max(id) FROM solid_queue_jobs)");
    let old = "UPDATE solid_queue_jobs SET finished_at = '2020-01-02 00:00:00.000000', \
         created_at = '2020-01-01 00:00:00.000000' WHERE id = (SELECT max(id) FROM solid_queue_jobs)";
    db.execute(old);
    let retention = Retention::new().every(Duration::from_millis(50));
    let _supervisor = Supervisor::new(&db.database)
        .retention(retention)
        .subscriber(Subscriber::new(|_: &Event<'_>| {}))
        .start()
        .unwrap();
    until("the lines of both are gone", || rows(db) == 1);
    assert_eq!(
        crate::support::jobs::logs(&mut db.connection(), kept)
            .unwrap()
            .len(),
        1
    );
}

fn the_program_shows_them_on_request(db: &TestDb) {
    let registry = registry(|_, cx| {
        cx.log("all\u{1b}[2J is well");
        Ok(())
    });
    let job = chat(db).to_string();
    let mut conn = db.connect();
    drain(&mut conn, &registry).unwrap().assert_all_finished(1);
    let show = |more: &[&str]| {
        let arguments = [&["jobs", "show", &job], more].concat();
        windlass(db.address(), &arguments).out
    };
    let text = show(&["--logs"]);
    assert!(text.contains("\nLog:\n  attempt 1, claim "), "{text}");
    assert!(text.contains("info  all\u{FFFD}[2J is well\n"), "{text}");
    assert!(!show(&[]).contains("is well"));
    let json: serde_json::Value = serde_json::from_str(&show(&["--logs", "--json"])).unwrap();
    let line = &json["logs"][0]["lines"][0];
    assert_eq!(line["text"], "all\u{FFFD}[2J is well");
    assert_eq!(line["level"], "info");
    assert_eq!(json["logs"][0]["attempt"], 1);
    let json: serde_json::Value = serde_json::from_str(&show(&["--json"])).unwrap();
    assert!(json.get("logs").is_none());
}
