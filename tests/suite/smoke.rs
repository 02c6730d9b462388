use crate::on_each_database;
use crate::support::TestDb;
use crate::support::jobs::{Log, Note};
use crate::support::wait::{DEADLINE, until};
use std::sync::Arc;
use std::time::Duration;
use windlass::{Dispatcher, Job, NewJob, Registry, Worker};

fn a_job_goes_its_way(db: &TestDb) {
    let log = Arc::new(Log::default());
    let registry = Registry::new().register::<Note>(Arc::clone(&log));
    let mut worker = Worker::new(&db.database, registry)
        .threads(2)
        .start()
        .unwrap();
    let dispatcher = Dispatcher::new(&db.database).start().unwrap();
    let mut conn = db.connect();
    Note::new("a").enqueue(&mut conn).unwrap();
    until("the job is done", || log.len() == 1);
    NewJob::new(&Note::new("later"))
        .unwrap()
        .after(Duration::from_secs(3600))
        .enqueue(&mut conn)
        .unwrap();
    assert_eq!(db.rows("scheduled_executions"), 1);
    db.execute("UPDATE solid_queue_scheduled_executions SET scheduled_at = created_at");
    until("the later job is done", || log.len() == 2);
    let jobs: Vec<_> = (0..5000)
        .map(|n| NewJob::new(&Note::new(n.to_string())).unwrap())
        .collect();
    let t = std::time::Instant::now();
    windlass::enqueue_all(&mut conn, jobs).unwrap();
    eprintln!("enqueued in {:?}", t.elapsed());
    until("all are done", || log.len() == 5002);
    eprintln!("done in {:?}", t.elapsed());
    worker.stop();
    assert!(worker.join(DEADLINE).unwrap().is_drained());
    drop(dispatcher);
    assert_eq!(db.rows("claimed_executions"), 0);
    assert_eq!(db.rows("processes"), 0);
    assert_eq!(
        db.count("SELECT count(*) AS n FROM solid_queue_jobs WHERE finished_at IS NOT NULL"),
        5002
    );
}

on_each_database!(a_job_goes_its_way);

crate::through_a_pooler_in_all!(a_job_goes_its_way,);
