//! The page of the processes.

use super::{LONG_AGO, now, page, process, row, serve, text, worker};
use crate::support::TestDb;
use crate::support::jobs::{Gate, Wait};
use crate::support::wait::until;
use std::sync::Arc;
use windlass::{Job, Registry, Worker};

fn a_worker_is_shown_with_what_it_runs(db: &TestDb) {
    let gate = Arc::new(Gate::default());
    let registry = Registry::new().register::<Wait>(Arc::clone(&gate));
    let worker = Worker::new(&db.database, registry)
        .threads(3)
        .start()
        .unwrap();
    let job = Wait.enqueue(&mut db.connection()).unwrap();
    until("the job runs", || gate.begun() == 1);
    let server = serve(&db.database);
    let shown = page(&server, "/processes");
    assert!(
        text(&shown).contains("1 worker runs, with 1 of 3 threads at work."),
        "{shown}"
    );
    let run = row(&shown, &format!("/jobs/{}\"", job.id));
    assert!(run.contains("runs wait"), "{run}");
    assert!(
        row(&shown, "class=\"v ok\">worker").contains("· 1 of 3 threads"),
        "{shown}"
    );
    let overview = page(&server, "/");
    assert!(
        row(&overview, ">Threads at work").contains("1 of 3 33 %, 2 free"),
        "{overview}"
    );
    let longest = overview.split("Running for longest").nth(1).unwrap();
    assert!(
        row(longest, &format!("/jobs/{}\"", job.id)).starts_with("wait"),
        "{longest}"
    );
    gate.open();
    drop(worker);
}

fn processes_are_below_their_supervisor_and_dead_ones_first(db: &TestDb) {
    process(
        db,
        "Supervisor",
        10,
        r#"{"windlass":"0.1.0","children":2}"#,
        now(db),
    );
    worker(db, 11, "mail", now(db));
    let set = "UPDATE solid_queue_processes SET supervisor_id = (SELECT id FROM solid_queue_processes WHERE pid = 10)";
    db.execute(&format!("{set} WHERE pid = 11"));
    worker(db, 12, "old", &format!("'{LONG_AGO}'"));
    process(
        db,
        "Worker",
        13,
        r#"{"windlass":"0.0.9","queues":"*","thread_pool_size":2,"quiet":true}"#,
        now(db),
    );
    process(
        db,
        "Worker",
        14,
        r#"{"queues":"ruby","thread_pool_size":3}"#,
        now(db),
    );
    let page = page(&serve(&db.database), "/processes");
    let place = |pid: u32| page.find(&format!(">app-1:{pid}<")).unwrap();
    assert!(place(12) < place(10) && place(10) < place(11), "{page}");
    assert!(
        row(&page, ">app-1:10<").contains("supervisor 2 processes"),
        "{page}"
    );
    assert!(page.contains("<tr class=\"lv1\""), "{page}");
    assert!(row(&page, ">app-1:12<").contains("worker, dead"), "{page}");
    assert!(
        row(&page, ">app-1:13<")
            .contains("worker, quiet it claims nothing until it receives SIGCONT"),
        "{page}"
    );
    assert!(page.contains("<b class=\"warn\">0.0.9</b>"), "{page}");
    assert!(row(&page, ">app-1:14<").contains("Rails"), "{page}");
    let text = text(&page);
    assert!(
        text.contains("3 of 4 workers are alive, with 0 of 10 threads at work."),
        "{text}"
    );
    assert!(text.contains("app-1:12 is dead"), "{text}");
    assert!(
        text.contains("The history does not contain what they have run"),
        "{text}"
    );
}

fn deaths_are_remembered(db: &TestDb) {
    db.execute(&format!(
        "INSERT INTO windlass_attempts (job_id, claim_id, attempt, outcome, kind, message, process_name, hostname, ended_at) \
         VALUES (1, 1, 1, 'crashed', 'crash', 'm', 'worker-9.1', 'app-9', {now}), \
           (2, 2, 1, 'crashed', 'crash', 'm', 'worker-9.1', 'app-9', {now})",
        now = now(db)
    ));
    let page = page(&serve(&db.database), "/processes");
    assert!(row(&page, ">worker-9.1<").contains("app-9 2 "), "{page}");
    assert!(
        text(&page).contains("app-9 died with 2 jobs running"),
        "{page}"
    );
}

crate::on_each_database!(
    a_worker_is_shown_with_what_it_runs,
    processes_are_below_their_supervisor_and_dead_ones_first,
    deaths_are_remembered,
);

crate::through_a_pooler_in_all!(
    a_worker_is_shown_with_what_it_runs,
    processes_are_below_their_supervisor_and_dead_ones_first,
    deaths_are_remembered,
);
