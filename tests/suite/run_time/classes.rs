//! Paused classes.

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::jobs::{Gate, Log, Note, Wait};
use crate::support::program::windlass;
use crate::support::wait::until;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use windlass::jobs::{self, Obstacle, Reason};
use windlass::{Concurrency, Context, Job, JobResult, NewJob, Registry, Worker, classes, testing};

on_each_database!(
    a_paused_class_stops_and_goes_on,
    a_resumed_class_needs_no_poll,
    many_paused_jobs_hold_up_no_other_class,
    what_arrives_before_paused_jobs_runs_at_once,
    slots_are_not_passed_to_a_paused_class,
    a_pause_is_shown_everywhere,
    tests_of_applications_respect_pauses,
);

crate::through_a_pooler_in_all!(
    a_paused_class_stops_and_goes_on,
    a_resumed_class_needs_no_poll,
    many_paused_jobs_hold_up_no_other_class,
    what_arrives_before_paused_jobs_runs_at_once,
    slots_are_not_passed_to_a_paused_class,
    a_pause_is_shown_everywhere,
    tests_of_applications_respect_pauses,
);

/// Like a note, of another class.
#[derive(Debug, Serialize, Deserialize)]
struct Other(String);

impl Job for Other {
    const NAME: &'static str = "other";
    type State = Log;
    type Output = ();

    fn perform(self, cx: &Context<'_, Log>) -> JobResult {
        cx.add(self.0);
        Ok(())
    }
}

fn registry(log: &Arc<Log>) -> Registry {
    Registry::new()
        .register::<Note>(Arc::clone(log))
        .register::<Other>(Arc::clone(log))
}

fn a_paused_class_stops_and_goes_on(db: &TestDb) {
    let log = Arc::new(Log::default());
    let worker = Worker::new(&db.database, registry(&log)).threads(1);
    let _worker = worker
        .polling_interval(Duration::from_millis(50))
        .start()
        .unwrap();
    let conn = &mut db.connection();
    Note::new("before").enqueue(conn).unwrap();
    until("it claims", || log.len() == 1);
    assert!(classes::pause(conn, "note", "ada", "").unwrap());
    // Each pair is one for a claim that did not know of the pause yet, and one behind it.
    until("the pause is heeded", || {
        let done = log.len();
        Note::new("held").enqueue(conn).unwrap();
        Other("free".to_owned()).enqueue(conn).unwrap();
        until("the one behind it comes", || {
            log.lines()[done..].contains(&"free".to_owned())
        });
        !log.lines()[done..].contains(&"held".to_owned())
    });
    // The worker may have claimed it before, and gives it back.
    until("it is held", || db.rows("ready_executions") == 1);
    assert!(classes::resume(conn, "note").unwrap());
    until("it goes on", || db.rows("ready_executions") == 0);
}

/// A worker that polls rarely starts the jobs of a class soon after its pause has ended.
fn a_resumed_class_needs_no_poll(db: &TestDb) {
    let log = Arc::new(Log::default());
    let conn = &mut db.connection();
    classes::pause(conn, "note", "", "").unwrap();
    let _worker = Worker::new(&db.database, registry(&log))
        .polling_interval(Duration::from_secs(3_600))
        .start()
        .unwrap();
    Note::new("held").enqueue(conn).unwrap();
    Other("free".to_owned()).enqueue(conn).unwrap();
    until("the other class runs", || log.len() == 1);
    assert!(classes::resume(conn, "note").unwrap());
    until("it goes on", || log.lines() == ["free", "held"]);
}

fn many_paused_jobs_hold_up_no_other_class(db: &TestDb) {
    let log = Arc::new(Log::default());
    let conn = &mut db.connection();
    classes::pause(conn, "note", "", "").unwrap();
    let jobs: Vec<NewJob> = vec![NewJob::new(&Note::new("held")).unwrap(); 5_000];
    windlass::enqueue_all(conn, jobs).unwrap();
    for number in 0..20 {
        Other(format!("{number}")).enqueue(conn).unwrap();
    }
    let worker = Worker::new(&db.database, registry(&log)).until_idle();
    let mut worker = worker.start().unwrap();
    let stopped = worker.join(crate::support::wait::DEADLINE).unwrap();
    assert!(stopped.is_drained());
    assert_eq!((log.len(), db.rows("ready_executions")), (20, 5_000));
}

/// The worker has passed the paused jobs by then.
fn what_arrives_before_paused_jobs_runs_at_once(db: &TestDb) {
    let log = Arc::new(Log::default());
    let conn = &mut db.connection();
    let other = |line: &str| NewJob::new(&Other(line.to_owned())).unwrap();
    classes::pause(conn, "note", "", "").unwrap();
    other("of a paused queue")
        .queue("paused")
        .enqueue(conn)
        .unwrap();
    windlass::queues::pause(conn, "paused", "", "").unwrap();
    let jobs: Vec<NewJob> = vec![NewJob::new(&Note::new("held")).unwrap(); 2_000];
    windlass::enqueue_all(conn, jobs).unwrap();
    other("behind").enqueue(conn).unwrap();
    let worker = Worker::new(&db.database, registry(&log)).threads(1);
    let _worker = worker.start().unwrap();
    until("it has passed them", || log.lines() == ["behind"]);
    other("urgent").priority(-1).enqueue(conn).unwrap();
    until("an urgent job runs", || log.len() == 2);
    assert!(windlass::queues::resume(conn, "paused").unwrap());
    until("the oldest job runs", || log.len() == 3);
    assert_eq!(log.lines(), ["behind", "urgent", "of a paused queue"]);
    assert!(classes::resume(conn, "note").unwrap());
    until("all run", || log.len() == 2_003);
}

fn slots_are_not_passed_to_a_paused_class(db: &TestDb) {
    let (gate, log) = (Arc::new(Gate::default()), Arc::new(Log::default()));
    let registry = registry(&log).register::<Wait>(Arc::clone(&gate));
    let _worker = Worker::new(&db.database, registry)
        .threads(1)
        .start()
        .unwrap();
    let conn = &mut db.connection();
    let on_key = |job: NewJob| job.concurrency(Concurrency::new("k").group("g"));
    on_key(NewJob::new(&Wait).unwrap()).enqueue(conn).unwrap();
    until("the first one runs", || gate.begun() == 1);
    classes::pause(conn, "note", "", "").unwrap();
    on_key(NewJob::new(&Note::new("held")).unwrap())
        .enqueue(conn)
        .unwrap();
    // The pauses were read before, by less than a second.
    std::thread::sleep(Duration::from_millis(1_100));
    gate.open();
    until("its slot was promoted", || db.rows("ready_executions") == 1);
    Other("free".to_owned()).enqueue(conn).unwrap();
    until("the other class runs", || log.len() == 1);
    assert_eq!(log.lines(), ["free"]);
}

fn a_pause_is_shown_everywhere(db: &TestDb) {
    let said = windlass(
        &db.url,
        &[
            "classes", "pause", "note", "--by", "ada", "--reason", "wrong",
        ],
    );
    assert!(
        said.is_done() && said.out.contains("note is paused"),
        "{said:?}"
    );
    let conn = &mut db.connection();
    // The first word stays.
    assert!(!classes::pause(conn, "note", "bob", "").unwrap());
    let paused = &classes::paused(conn).unwrap()[0];
    let (by, reason) = (paused.paused_by.as_deref(), paused.pause_reason.as_deref());
    assert_eq!(
        (&*paused.class_name, by, reason),
        ("note", Some("ada"), Some("wrong"))
    );
    for command in [&["classes", "list"][..], &["status"]] {
        let said = windlass(&db.url, command);
        let line = said
            .out
            .lines()
            .find(|line| line.starts_with("note was paused"));
        assert!(
            line.is_some_and(|line| line.ends_with("by ada: wrong")),
            "{said:?}"
        );
    }
    let doctor = windlass(&db.url, &["doctor"]);
    assert!(
        doctor.out.contains("1 classes are paused: note"),
        "{doctor:?}"
    );
    let job = Note::new("a").enqueue(conn).unwrap().id;
    let Reason::Ready { obstacles, .. } = jobs::explain(conn, job).unwrap().unwrap().reason else {
        panic!("it is ready");
    };
    assert!(
        matches!(obstacles[0], Obstacle::ClassPaused { .. }),
        "{obstacles:?}"
    );
    let explained = windlass(&db.url, &["explain", &job.to_string()]);
    assert!(
        explained.out.contains("its class has been paused since"),
        "{explained:?}"
    );
    let resumed = windlass(&db.url, &["classes", "resume", "note"]);
    assert!(resumed.out.contains("note goes on"), "{resumed:?}");
    assert!(!classes::resume(conn, "note").unwrap());
}

fn tests_of_applications_respect_pauses(db: &TestDb) {
    let log = Arc::new(Log::default());
    let conn = &mut db.connection();
    classes::pause(conn, "note", "", "").unwrap();
    Note::new("held").enqueue(conn).unwrap();
    Other("free".to_owned()).enqueue(conn).unwrap();
    testing::drain(conn, &registry(&log))
        .unwrap()
        .assert_all_finished(1);
    assert_eq!(log.lines(), ["free"]);
    classes::resume(conn, "note").unwrap();
    testing::drain(conn, &registry(&log))
        .unwrap()
        .assert_all_finished(1);
}
