//! The number of transactions that the completer needs for a group of outcomes of which the
//! database refuses one.

use crate::db::conn::connection::AsConn;
use crate::db::internal_tests::db::{TestDb, execute, on_each_database, texts};
use crate::db::internal_tests::interleavings::world::{World, row};
use crate::db::model::claim::{Begins, ClaimQueues, ClaimRequest, Claimed, Claims, FinishedRow};
use crate::db::model::outcome::{Ending, JobFailure};
use crate::db::transition::{claim, enqueue};
use crate::event::logging::Subscriber;
use crate::job::error::JobOutput;
use crate::job::perform::Outcome;
use crate::job::running::Lease;
use crate::process::base::context::ProcessContext;
use crate::process::base::registration::Registration;
use crate::process::worker::completer::Completer;
use crate::process::worker::completion::{self, CompletedRun};
use crate::process::worker::in_flight::InFlight;
use crate::process::worker::slot_passing::SlotPassing;
use diesel::connection::{InstrumentationEvent, set_default_instrumentation};
use std::cell::Cell;
use std::sync::{Arc, Weak};
use std::time::Duration;

on_each_database!(
    a_refused_failure_is_found_by_halves,
    a_refused_result_is_found_by_halves,
);

/// Outcomes of one group.
const GROUP: usize = 50;

/// One transaction for the group, and two for each of the six times that it is
/// halved. The refused outcome is then tried once more, checked without its text
/// and with it, and written without it.
const MOST: usize = 1 + 2 * 6 + 4;

const REFUSED: &str = "the text that is refused";

thread_local! {
    /// The transactions of this thread's connections.
    static TRANSACTIONS: Cell<usize> = const { Cell::new(0) };
}

/// Counts the outermost transactions of all connections opened from now on, each
/// for the thread that starts it.
fn count_transactions() {
    set_default_instrumentation(|| {
        Some(Box::new(|event: InstrumentationEvent<'_>| {
            if let InstrumentationEvent::BeginTransaction { depth, .. } = event
                && depth.get() == 1
            {
                TRANSACTIONS.set(TRANSACTIONS.get() + 1);
            }
        }))
    })
    .unwrap();
}

/// Makes the database refuse rows with the text.
fn refuse(db: &TestDb, table: &str, column: &str) {
    let when = format!("NEW.{column} LIKE '%{REFUSED}%'");
    let text = if db.is_postgres() {
        format!(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS \
             $$ BEGIN RAISE EXCEPTION 'refused by the test'; END $$; \
             CREATE TRIGGER refuse BEFORE INSERT ON {table} FOR EACH ROW WHEN ({when}) \
             EXECUTE FUNCTION refuse()"
        )
    } else {
        format!(
            "CREATE TRIGGER refuse BEFORE INSERT ON {table} WHEN {when} \
             BEGIN SELECT RAISE(ABORT, 'refused by the test'); END"
        )
    };
    execute(&mut db.connect().as_conn(), &text);
}

/// A process with the claims of one group.
fn claimed(db: &TestDb) -> (i64, Vec<Claimed>) {
    let mut connection = db.connect();
    let conn = &mut connection.as_conn();
    let mut world = World::default();
    world.process(conn);
    enqueue::insert_all(conn, &vec![row(); GROUP]).unwrap();
    let want = ClaimRequest {
        process_id: world.processes[0],
        queues: &ClaimQueues::All,
        classes: &["a".to_owned()],
        max_jobs: GROUP,
        begins: Begins::All,
        from: &[],
        wanted_after: 0,
    };
    let Claims::Held { jobs, .. } = claim::claim(conn, &want).unwrap() else {
        panic!("the process is not registered");
    };
    assert_eq!(jobs.len(), GROUP);
    (world.processes[0], jobs)
}

/// Has the completer write one group, and returns its number of transactions.
fn written(db: &TestDb, outcome: impl Fn(usize) -> Outcome) -> usize {
    let (process, jobs) = claimed(db);
    let registration = Arc::new(Registration {
        id: process,
        name: "worker-1".to_owned(),
        lease: Arc::new(Lease::new(Duration::from_secs(60))),
    });
    let (sender, receiver) = crossbeam_channel::unbounded();
    for (index, job) in jobs.into_iter().enumerate() {
        let run = CompletedRun {
            job: Arc::new(job),
            registration: Arc::clone(&registration),
            outcome: outcome(index),
            ran: Duration::from_secs(1),
            finished: FinishedRow::Keep,
            keep_result: None,
            last_retry: None,
            live: Arc::default(),
            thread: None,
        };
        assert!(sender.send(completion::pending(run)).is_ok());
    }
    drop(sender);
    let context = ProcessContext::open(&db.database, &Subscriber::default()).unwrap();
    count_transactions();
    let before = TRANSACTIONS.get();
    let passing = SlotPassing::new(Weak::new(), &context.stop);
    let in_flight = Arc::new(InFlight::default());
    Completer::new(&context, &in_flight, passing, receiver).run();
    let count = TRANSACTIONS.get() - before;
    eprintln!("{GROUP} outcomes: {count} transactions");
    count
}

/// The text of an outcome: one is refused.
fn text_of(index: usize) -> &'static str {
    if index == 33 { REFUSED } else { "its text" }
}

/// Returns the number of rows of the table that have the text in this column.
fn with_text(db: &TestDb, table: &str, column: &str, text: &str) -> String {
    let count =
        format!("SELECT CAST(count(*) AS text) AS t FROM {table} WHERE {column} LIKE '%{text}%'");
    texts(&mut db.connect().as_conn(), &count).remove(0)
}

fn a_refused_failure_is_found_by_halves(db: &TestDb) {
    let (table, column) = ("solid_queue_failed_executions", "error");
    refuse(db, table, column);
    let count = written(db, |index| {
        Outcome::Ended(Ending::Fail(JobFailure::new("kind", text_of(index))))
    });
    assert!((8..=MOST).contains(&count), "{count} transactions");
    assert_eq!(with_text(db, table, column, "its text"), "49");
    assert_eq!(with_text(db, table, column, "unrecordable"), "1");
}

fn a_refused_result_is_found_by_halves(db: &TestDb) {
    let (table, column) = ("windlass_results", "result");
    refuse(db, table, column);
    let count = written(db, |index| {
        Outcome::Finished(JobOutput {
            text: Some(format!("\"{}\"", text_of(index))),
            problem: None,
        })
    });
    assert!((8..=MOST).contains(&count), "{count} transactions");
    assert_eq!(with_text(db, table, column, "its text"), "49");
    assert_eq!(with_text(db, table, "error", "unrecordable"), "1");
}
