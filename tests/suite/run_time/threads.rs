//! The threads and the queues of a running worker.

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::jobs::{Gate, Log, Note, Wait};
use crate::support::wait::{DEADLINE, until};
use std::sync::Arc;
use windlass::{Dispatcher, Error, Handle, Job as _, NewJob, Registry, Worker};

on_each_database!(
    more_threads_start_at_once_and_fewer_end_after_their_jobs,
    other_queues_from_the_next_claim_on,
    impossible_changes_are_refused,
);

fn worker(db: &TestDb, gate: &Arc<Gate>, log: &Arc<Log>) -> Worker {
    let registry = Registry::new()
        .register::<Wait>(Arc::clone(gate))
        .register::<Note>(Arc::clone(log));
    Worker::new(&db.database, registry).threads(1)
}

/// Returns a value of the metadata in the worker's row.
fn says(db: &TestDb, name: &str) -> serde_json::Value {
    let processes = windlass::processes::list(&mut db.connection()).unwrap();
    let worker = processes.into_iter().find(|one| one.kind == "Worker");
    worker
        .map(|one| one.metadata[name].clone())
        .unwrap_or_default()
}

fn wait_for(db: &TestDb, count: usize) {
    let jobs = (0..count).map(|_| NewJob::new(&Wait).unwrap());
    windlass::enqueue_all(&mut db.connection(), jobs.collect::<Vec<_>>()).unwrap();
}

fn more_threads_start_at_once_and_fewer_end_after_their_jobs(db: &TestDb) {
    let (gate, log) = (Arc::new(Gate::default()), Arc::new(Log::default()));
    let mut worker = worker(db, &gate, &log).start().unwrap();
    wait_for(db, 5);
    until("the first one runs", || gate.begun() == 1);
    worker.threads(4).unwrap();
    until("four run", || gate.begun() == 4);
    until("the row says so", || says(db, "thread_pool_size") == 4);
    worker.threads(2).unwrap();
    until("the row says so", || says(db, "thread_pool_size") == 2);
    // Nothing is cut off, and nothing is claimed for threads that end.
    assert_eq!((gate.ended(), db.rows("claimed_executions")), (0, 4));
    gate.open();
    until("all have run", || gate.ended() == 5);
    // The threads that ended do not come back; those that stay are enough.
    worker.threads(1).unwrap();
    for text in ["a", "b", "c"] {
        Note::new(text).enqueue(&mut db.connection()).unwrap();
    }
    until("one thread is enough", || log.len() == 3);
    worker.threads(3).unwrap();
    worker.stop();
    assert!(worker.join(DEADLINE).unwrap().is_drained());
}

fn other_queues_from_the_next_claim_on(db: &TestDb) {
    let (gate, log) = (Arc::new(Gate::default()), Arc::new(Log::default()));
    let worker = worker(db, &gate, &log).threads(2);
    let worker = worker.queues(["a"]).unwrap().start().unwrap();
    let conn = &mut db.connection();
    let note = |queue: &str, text: &str| NewJob::new(&Note::new(text)).unwrap().queue(queue);
    NewJob::new(&Wait)
        .unwrap()
        .queue("a")
        .enqueue(conn)
        .unwrap();
    until("a job of the first queue runs", || gate.begun() == 1);
    note("b", "b").enqueue(conn).unwrap();
    worker.queues(["b*"]).unwrap();
    until("a job of the other queue has run", || log.len() == 1);
    until("the row says so", || says(db, "queues") == "b*");
    note("a", "a").enqueue(conn).unwrap();
    note("b", "behind").enqueue(conn).unwrap();
    until("the one behind it has run", || log.len() == 2);
    assert_eq!(
        (log.lines(), gate.ended()),
        (vec!["b".to_owned(), "behind".to_owned()], 0)
    );
    worker.queues(["*"]).unwrap();
    until("the other one has run", || log.len() == 3);
    gate.open();
    until("what was claimed before ends", || gate.ended() == 1);
}

fn impossible_changes_are_refused(db: &TestDb) {
    let (gate, log) = (Arc::new(Gate::default()), Arc::new(Log::default()));
    let worker = worker(db, &gate, &log);
    let refused = |result: windlass::Result<()>| {
        let error = result.unwrap_err();
        assert!(
            matches!(error, Error::Settings(_) | Error::InvalidName { .. }),
            "{error:?}"
        );
        error.to_string()
    };
    assert!(worker.clone().threads(usize::MAX).start().is_err());
    let mut worker: Handle = worker.start().unwrap();
    assert!(refused(worker.threads(0)).contains("at least one thread"));
    assert!(refused(worker.threads(usize::MAX)).contains("10000"));
    assert!(refused(worker.queues::<&str>([])).contains("at least one queue"));
    assert!(worker.queues(["a*b"]).is_err());
    let dispatcher = Dispatcher::new(&db.database).start().unwrap();
    assert!(refused(dispatcher.threads(2)).contains("only a worker"));
    worker.stop();
    assert!(worker.join(DEADLINE).unwrap().is_drained());
    assert!(refused(worker.threads(2)).contains("has stopped"));
    assert!(refused(worker.queues(["a"])).contains("has stopped"));
}
