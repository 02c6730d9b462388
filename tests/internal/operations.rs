//! Bounds on the work of an operation.

use crate::NewJob;
use crate::db::conn::connection::AsConn;
use crate::db::conn::dialect::IdRange;
use crate::db::internal_tests::db::{TestDb, execute, on_each_database};
use crate::db::model::decision::JobState;
use crate::db::query::filter::Filter;
use crate::db::query::jobs;
use crate::jobs::{Change, Jobs};
use crate::operation::OperationTurns;
use crate::operations::OperationState;

on_each_database!(
    a_part_of_a_group_is_searched_in_parts,
    one_that_is_locked_again_and_again_fails,
);

fn a_part_of_a_group_is_searched_in_parts(db: &TestDb) {
    let mut conn = db.connect();
    let jobs = (0..5_300).map(|_| NewJob::of_class("a", "{}"));
    crate::enqueue_all(&mut conn, jobs).unwrap();
    let conn = &mut conn.as_conn();
    execute(
        conn,
        "INSERT INTO solid_queue_failed_executions (job_id, error, created_at, fingerprint) \
         SELECT id, '{}', created_at, CASE WHEN id % 50 = 0 THEN 'other' ELSE 'group' END \
         FROM solid_queue_jobs ORDER BY id",
    );
    let filter = Filter {
        fingerprint: Some("group".to_owned()),
        class: Some("none".to_owned()),
        ..Filter::default()
    };
    let up_to = jobs::last(conn, JobState::Failed).unwrap();
    let (mut after, mut pages) = (Some(0), 0);
    while let Some(start) = after {
        let range = IdRange {
            after: start,
            up_to,
        };
        let page = jobs::next(conn, JobState::Failed, &filter, range, 500).unwrap();
        assert!(page.jobs.is_empty());
        (after, pages) = (page.reached, pages + 1);
    }
    // The last page finds that there are no more.
    assert_eq!(pages, 3);
    let group = Filter {
        class: None,
        ..filter
    };
    let range = IdRange { after: 0, up_to };
    let page = jobs::next(conn, JobState::Failed, &group, range, 10_000).unwrap();
    assert_eq!((page.jobs.len(), page.reached), (5_194, None));
}

/// Has each batch find its row of the audit locked.
fn lock_batches(db: &TestDb) {
    let condition = "NEW.part_of IS NOT NULL";
    let says = "canceling statement due to lock timeout";
    let statements = if db.is_postgres() {
        vec![
            format!(
                "CREATE FUNCTION lock_batches() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
                 IF {condition} THEN RAISE EXCEPTION '{says}'; END IF; RETURN NEW; END $$"
            ),
            "CREATE TRIGGER lock_batches BEFORE INSERT ON windlass_audit FOR EACH ROW \
             EXECUTE FUNCTION lock_batches()"
                .to_owned(),
        ]
    } else {
        vec![format!(
            "CREATE TRIGGER lock_batches BEFORE INSERT ON windlass_audit WHEN {condition} \
             BEGIN SELECT RAISE(ABORT, '{says}'); END"
        )]
    };
    for statement in statements {
        execute(&mut db.connect().as_conn(), &statement);
    }
}

fn one_that_is_locked_again_and_again_fails(db: &TestDb) {
    let mut conn = db.connect();
    NewJob::of_class("a", "{}").enqueue(&mut conn).unwrap();
    let jobs = Jobs::in_state(JobState::Ready);
    let operation = jobs.in_background(Change::Priority(5)).start(&mut conn);
    let id = operation.unwrap().id;
    lock_batches(db);
    let mut turns = OperationTurns::default();
    let mut tried = 0;
    while turns.open(&mut conn.as_conn()).unwrap() == [id] {
        assert!(
            turns
                .run_next_chunk(&mut conn.as_conn(), id)
                .unwrap()
                .is_none()
        );
        tried += 1;
        assert!(tried < 100, "it does not end");
    }
    assert_eq!(tried, 30);
    let failed = crate::operations::find(&mut conn, id).unwrap().unwrap();
    assert_eq!((failed.state, failed.changed), (OperationState::Failed, 0));
    let error = failed.error.unwrap();
    assert!(
        error.starts_with("given up after 30 attempts: ") && error.contains("lock timeout"),
        "{error}"
    );
}
