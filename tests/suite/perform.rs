//! The ends of a run: returned, refused, panicked, undecodable; and the record
//! of each.

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::events::Events;
use crate::support::jobs::{Log, Note};
use crate::support::wait::until;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use windlass::{Context, Handle, Job, JobResult, NewJob, Registry, Worker};

#[derive(Debug, thiserror::Error)]
#[error("the file {0} is unreadable")]
struct Unreadable(&'static str, #[source] std::io::Error);

/// Ends in as many ways as there are.
#[derive(Debug, Serialize, Deserialize)]
enum Ending {
    Fine,
    Text,
    Chain,
    PanicWithLiteral,
    PanicWithText,
    PanicWithAnything,
    /// A panic that a library passes on from a thread of its own.
    PanicPassedOn,
    PanicThatDropsPanicking,
    CaughtPanic,
    Hostile(usize),
    HostilePanic(usize),
    UnwritableOutput,
}

struct PanicsWhenDropped;

impl Drop for PanicsWhenDropped {
    fn drop(&mut self) {
        panic!("and its payload, too");
    }
}

/// Cannot be JSON when told so: keys must be texts.
#[derive(Serialize)]
#[serde(untagged)]
enum Output {
    Fine(()),
    Unwritable(std::collections::BTreeMap<(u8, u8), u8>),
}

impl Job for Ending {
    const NAME: &'static str = "ending";
    const ALIASES: &'static [&'static str] = &["Old::Ending", "ancient_ending"];
    type State = Log;
    type Output = Output;

    fn perform(self, cx: &Context<'_, Log>) -> JobResult<Output> {
        cx.add(cx.class_name());
        match self {
            Ending::Fine => {}
            Ending::Text => return Err("a plain text".into()),
            Ending::Chain => Err(Unreadable("a.csv", std::io::Error::other("disk on fire")))?,
            Ending::PanicWithLiteral => panic!("a literal"),
            Ending::PanicWithText => panic!("a text with {}", 42),
            Ending::PanicWithAnything => std::panic::panic_any(42_u8),
            Ending::PanicPassedOn => std::panic::resume_unwind(Box::new("passed on")),
            Ending::PanicThatDropsPanicking => std::panic::panic_any(PanicsWhenDropped),
            Ending::CaughtPanic => {
                let caught = std::panic::catch_unwind(|| panic!("caught"));
                assert!(caught.is_err());
            }
            Ending::Hostile(size) => return Err(hostile(size).into()),
            Ending::HostilePanic(size) => panic!("{}", hostile(size)),
            Ending::UnwritableOutput => return Ok(Output::Unwritable([((1, 2), 3)].into())),
        }
        Ok(Output::Fine(()))
    }
}

fn hostile(size: usize) -> String {
    format!("nul \0 here {}", "ß".repeat(size / 2))
}

/// One thread, which has to live through everything.
fn worker(db: &TestDb, log: &Arc<Log>, events: &Events) -> Handle {
    let registry = Registry::new()
        .register::<Ending>(Arc::clone(log))
        .register::<Note>(Arc::clone(log));
    Worker::new(&db.database, registry)
        .threads(1)
        .subscriber(events.subscriber())
        .start()
        .unwrap()
}

/// The failed execution that a job leaves.
fn failure(db: &TestDb, job: Ending) -> Value {
    failures(db, vec![NewJob::new(&job).unwrap()]).remove(0)
}

/// Runs jobs that fail one after the other, and one that must still be done.
fn failures(db: &TestDb, jobs: Vec<NewJob>) -> Vec<Value> {
    failures_of_altered(db, jobs, &[])
}

/// The same, of jobs whose rows another program alters before they run.
fn failures_of_altered(db: &TestDb, jobs: Vec<NewJob>, statements: &[&str]) -> Vec<Value> {
    let (log, events) = (Arc::new(Log::default()), Events::default());
    let count = jobs.len();
    let mut conn = db.connect();
    windlass::enqueue_all(&mut conn, jobs).unwrap();
    for statement in statements {
        db.execute(statement);
    }
    let _worker = worker(db, &log, &events);
    Note::new("the worker lives").enqueue(&mut conn).unwrap();
    until("the note is done", || {
        log.lines().iter().any(|line| line == "the worker lives")
    });
    until("every failure is told", || events.count("Failed") == count);
    let errors = db.texts("SELECT error AS t FROM solid_queue_failed_executions ORDER BY job_id");
    assert_eq!(errors.len(), count);
    until("no claim is left", || db.rows("claimed_executions") == 0);
    assert_eq!(
        db.count(
            "SELECT count(*) AS n FROM solid_queue_jobs WHERE finished_at IS NULL AND attempts = 1"
        ),
        i64::try_from(count).unwrap()
    );
    errors
        .iter()
        .map(|error| serde_json::from_str(error).unwrap())
        .collect()
}

/// As Solid Queue's own dashboard reads it.
fn assert_failure(failure: &Value, kind: &str, message: &str, place: Option<&str>) {
    let keys: Vec<&String> = failure.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["backtrace", "exception_class", "message"]);
    assert_eq!(failure["exception_class"], kind);
    assert_eq!(failure["message"], message);
    let backtrace = failure["backtrace"].as_array().unwrap();
    match place {
        None => assert!(backtrace.is_empty(), "{backtrace:?}"),
        Some(place) => {
            assert_eq!(backtrace.len(), 1);
            let line = backtrace[0].as_str().unwrap();
            assert!(line.contains(place), "{line}");
            let numbers = line.rsplit(':').take(2);
            assert!(numbers.map(str::parse::<u32>).all(|n| n.is_ok()), "{line}");
        }
    }
}

fn what_returns_is_finished(db: &TestDb) {
    let (log, events) = (Arc::new(Log::default()), Events::default());
    let _worker = worker(db, &log, &events);
    let mut conn = db.connect();
    Ending::Fine.enqueue(&mut conn).unwrap();
    Ending::CaughtPanic.enqueue(&mut conn).unwrap();
    until("both are told", || events.count("Finished") == 2);
    assert_eq!(
        db.count("SELECT count(*) AS n FROM solid_queue_jobs WHERE finished_at >= created_at"),
        2
    );
    for table in ["ready", "claimed", "scheduled", "failed"] {
        assert_eq!(db.rows(&format!("{table}_executions")), 0, "{table}");
    }
    let told = events.of("Finished");
    assert!(
        told[0].contains("class: \"ending\"") && told[0].contains("ran: "),
        "{told:?}"
    );
}

fn an_error_is_kept_with_its_type_and_its_causes(db: &TestDb) {
    assert_failure(
        &failure(db, Ending::Chain),
        "suite::perform::Unreadable",
        "the file a.csv is unreadable: disk on fire",
        None,
    );
}

fn a_text_is_an_error_as_well(db: &TestDb) {
    assert_failure(&failure(db, Ending::Text), "error", "a plain text", None);
}

fn a_panic_is_kept_with_its_place(db: &TestDb) {
    let failures = failures(
        db,
        [
            Ending::PanicWithLiteral,
            Ending::PanicWithText,
            Ending::PanicWithAnything,
            Ending::PanicThatDropsPanicking,
        ]
        .map(|job| NewJob::new(&job).unwrap())
        .into(),
    );
    let here = Some("tests/suite/perform.rs:");
    assert_failure(&failures[0], "panic", "a literal", here);
    assert_failure(&failures[1], "panic", "a text with 42", here);
    assert_failure(&failures[2], "panic", "the panic had no message", here);
    assert_failure(&failures[3], "panic", "the panic had no message", here);
    assert_ne!(failures[0]["backtrace"], failures[1]["backtrace"]);
}

/// No place is known then, least of all that of another job's panic.
fn a_panic_that_is_passed_on_has_no_place(db: &TestDb) {
    let (log, events) = (Arc::new(Log::default()), Events::default());
    let worker = worker(db, &log, &events);
    Ending::CaughtPanic.enqueue(&mut db.connection()).unwrap();
    until("it is done", || events.count("Finished") == 1);
    Ending::PanicPassedOn.enqueue(&mut db.connection()).unwrap();
    until("it has failed", || events.count("Failed") == 1);
    let error = db.texts("SELECT error AS t FROM solid_queue_failed_executions");
    assert_failure(
        &serde_json::from_str(&error[0]).unwrap(),
        "panic",
        "passed on",
        None,
    );
    drop(worker);
}

fn undecodable_arguments_are_a_failure_with_the_reason(db: &TestDb) {
    let failures = failures_of_altered(
        db,
        vec![
            NewJob::of_class("ending", "0"),
            NewJob::of_class("note", r#"{"txt":"misspelt"}"#),
            NewJob::of_class("note", r#"{"text":7}"#),
            NewJob::of_class("note", "0"),
        ],
        &[
            "UPDATE solid_queue_jobs SET arguments = 'not json at all' WHERE class_name = 'ending'",
            "UPDATE solid_queue_jobs SET arguments = '' WHERE class_name = 'note' AND arguments = '0'",
        ],
    );
    for (failure, reason) in failures.iter().zip([
        "expected",
        "missing field `text`",
        "invalid type: integer `7`",
        "EOF",
    ]) {
        assert_eq!(failure["exception_class"], "undecodable_arguments");
        let message = failure["message"].as_str().unwrap();
        assert!(
            message.starts_with("the arguments do not match `"),
            "{message}"
        );
        assert!(message.contains(reason), "{message}");
    }
}

fn an_output_that_is_no_json_is_a_failure(db: &TestDb) {
    let failure = failure(db, Ending::UnwritableOutput);
    assert_failure(
        &failure,
        "unserialisable_output",
        "key must be a string",
        None,
    );
}

fn former_names_are_still_performed(db: &TestDb) {
    let (log, events) = (Arc::new(Log::default()), Events::default());
    let _worker = worker(db, &log, &events);
    for class in ["Old::Ending", "ancient_ending", "ending"] {
        NewJob::of_class(class, r#""Fine""#)
            .enqueue(&mut db.connection())
            .unwrap();
    }
    until("all are done", || events.count("Finished") == 3);
    assert_eq!(log.lines(), ["Old::Ending", "ancient_ending", "ending"]);
}

/// No database may refuse the story of a failure, or the job stays claimed.
fn hostile_errors_are_cut_and_cleaned(db: &TestDb) {
    let jobs = [
        Ending::Hostile(1024 * 1024),
        Ending::HostilePanic(1024 * 1024),
        Ending::Hostile(10),
    ];
    let failures = failures(db, jobs.map(|job| NewJob::new(&job).unwrap()).into());
    for failure in &failures[..2] {
        let message = failure["message"].as_str().unwrap();
        assert!(
            message.starts_with("nul \u{FFFD} here ßß"),
            "{}",
            &message[..40]
        );
        assert!(message.ends_with("ß ... (cut)"));
        assert!(
            (10_000..20_000).contains(&message.len()),
            "{}",
            message.len()
        );
    }
    assert_eq!(failures[2]["message"], "nul \u{FFFD} here ßßßßß");
}

/// State is lent by type: one value for all jobs and threads of a type.
struct Counter(AtomicUsize);

#[derive(Debug, Serialize, Deserialize)]
struct Add(usize);

impl Job for Add {
    const NAME: &'static str = "add";
    type State = Counter;
    type Output = usize;

    fn perform(self, cx: &Context<'_, Counter>) -> JobResult<usize> {
        Ok(cx.0.fetch_add(self.0, Ordering::SeqCst) + cx.state().0.load(Ordering::SeqCst))
    }
}

fn state_is_lent_by_type_and_shared(db: &TestDb) {
    let (log, events) = (Arc::new(Log::default()), Events::default());
    let counter = Arc::new(Counter(AtomicUsize::new(0)));
    let registry = Registry::new()
        .register::<Add>(Arc::clone(&counter))
        .register::<Note>(Arc::clone(&log));
    let _workers: Vec<Handle> = (0..2)
        .map(|_| {
            Worker::new(&db.database, registry.clone())
                .threads(3)
                .subscriber(events.subscriber())
                .start()
                .unwrap()
        })
        .collect();
    let mut conn = db.connect();
    let jobs = (1..=20).map(|n| NewJob::new(&Add(n)).unwrap());
    windlass::enqueue_all(&mut conn, jobs).unwrap();
    Note::new("another state").enqueue(&mut conn).unwrap();
    until("all are done", || events.count("Finished") == 21);
    assert_eq!(counter.0.load(Ordering::SeqCst), 210);
    assert_eq!(log.lines(), ["another state"]);
}

/// A job's panic is told as its failure; the hook is left to everybody else,
/// threads that a job has started among them.
#[derive(Debug, Serialize, Deserialize)]
struct PanicsBeside;

impl Job for PanicsBeside {
    const NAME: &'static str = "panics_beside";
    type State = ();
    type Output = ();

    fn perform(self, _cx: &Context<'_, ()>) -> JobResult {
        let beside = std::thread::spawn(|| panic!("in a thread of the job's own"));
        assert!(beside.join().is_err());
        panic!("in the job");
    }
}

/// The hook is the whole program's, so this runs in a process of its own: the
/// test program again, asked for this one test.
#[test]
fn the_panic_hook_of_other_threads_still_works() {
    if std::env::var_os("WINDLASS_TEST_HOOK").is_none() {
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "perform::the_panic_hook_of_other_threads_still_works",
                "--nocapture",
            ])
            .env("WINDLASS_TEST_HOOK", "1")
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        return;
    }
    let heard = Arc::new(Mutex::new(Vec::new()));
    std::panic::set_hook(Box::new({
        let heard = Arc::clone(&heard);
        move |info| {
            let text = info.payload().downcast_ref::<&str>().unwrap_or(&"?");
            heard.lock().unwrap().push((*text).to_owned());
        }
    }));
    let db = TestDb::sqlite();
    let events = Events::default();
    let worker = Worker::new(&db.database, Registry::new().register::<PanicsBeside>(()))
        .subscriber(events.subscriber())
        .start()
        .unwrap();
    PanicsBeside.enqueue(&mut db.connection()).unwrap();
    until("it has failed", || events.count("Failed") == 1);
    let own = std::thread::spawn(|| panic!("in the program"));
    assert!(own.join().is_err());
    drop(worker);
    let _ = std::panic::take_hook();
    let heard = heard.lock().unwrap().clone();
    assert_eq!(heard, ["in a thread of the job's own", "in the program"]);
}

on_each_database!(
    what_returns_is_finished,
    an_error_is_kept_with_its_type_and_its_causes,
    a_text_is_an_error_as_well,
    a_panic_is_kept_with_its_place,
    a_panic_that_is_passed_on_has_no_place,
    undecodable_arguments_are_a_failure_with_the_reason,
    an_output_that_is_no_json_is_a_failure,
    former_names_are_still_performed,
    hostile_errors_are_cut_and_cleaned,
    state_is_lent_by_type_and_shared,
);

crate::through_a_pooler_in_all!(
    what_returns_is_finished,
    an_error_is_kept_with_its_type_and_its_causes,
    a_text_is_an_error_as_well,
    a_panic_is_kept_with_its_place,
    a_panic_that_is_passed_on_has_no_place,
    undecodable_arguments_are_a_failure_with_the_reason,
    an_output_that_is_no_json_is_a_failure,
    former_names_are_still_performed,
    hostile_errors_are_cut_and_cleaned,
    state_is_lent_by_type_and_shared,
);
