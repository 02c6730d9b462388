//! `windlass explain`.

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::program::windlass;
use std::time::Duration;
use windlass::NewJob;

on_each_database!(a_job_is_explained, a_job_that_is_not_there_is_an_error);

fn a_job_is_explained(db: &TestDb) {
    let mut conn = db.connect();
    for n in 0..3 {
        NewJob::of_class("import", r#"{"secret":"hunter2"}"#)
            .unique_id(format!("import/{n}"))
            .enqueue(&mut conn)
            .unwrap();
    }
    let said = windlass(&db.url, &["explain", "3"]);
    assert!(said.is_done(), "{said:?}");
    assert_eq!(
        said.out,
        "Job 3 (import) on the queue default, priority 0, unique id import/2\n\
         It is ready, behind 2 jobs in its queue.\n\
         But no running worker serves its queue.\n"
    );
    assert_eq!(windlass(&db.url, &["explain", "import/2"]).out, said.out);
    let said = windlass(&db.url, &["explain", "2", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(json["task"]["status"], "queued");
    assert_eq!(json["reason"]["is"], "ready");
    assert_eq!(json["reason"]["ahead"], 1);
    assert_eq!(json["reason"]["obstacles"][0]["is"], "no_worker_for_queue");
    assert!(!said.out.contains("hunter2"));
    let later = NewJob::of_class("import", "{}").after(Duration::from_secs(7200));
    let later = later.enqueue(&mut conn).unwrap().id.to_string();
    let said = windlass(&db.url, &["explain", &later]);
    assert!(said.out.contains(", in 1h 5"), "{said:?}");
    assert!(
        said.out.contains("But no running dispatcher would"),
        "{said:?}"
    );
}

fn a_job_that_is_not_there_is_an_error(db: &TestDb) {
    let said = windlass(&db.url, &["explain", "4711"]);
    assert!(!said.is_done(), "{said:?}");
    assert!(said.err.contains("there is no job `4711`"), "{said:?}");
}
