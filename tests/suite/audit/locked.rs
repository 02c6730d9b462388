//! Operations on jobs whose rows another transaction has locked. On SQLite there are none.

use super::enqueue;
use crate::support::TestDb;
use crate::support::db::execute;
use std::time::Duration;
use windlass::jobs::{Change, JobState, Jobs};
use windlass::operations::OperationState;

/// The first five are locked all the time: more of them are not waited for in one batch.
#[test]
fn locked_jobs_hold_up_no_others() {
    let db = TestDb::postgres();
    enqueue(&db, "a", 10);
    let mut other = db.connect();
    execute(&mut other, "SET idle_in_transaction_session_timeout = 0");
    execute(&mut other, "BEGIN");
    let lock = "SELECT 1 FROM solid_queue_jobs WHERE id <= 5 FOR UPDATE";
    assert_eq!(execute(&mut other, lock), 5);
    let conn = &mut db.connection();
    let operation = Jobs::in_state(JobState::Ready).in_background(Change::Priority(7));
    let id = operation.start(conn).unwrap().id;
    let find = || {
        windlass::operations::find(&mut db.connection(), id)
            .unwrap()
            .unwrap()
    };
    while find().looked_at == 0 {
        windlass::operations::run(conn, Duration::from_millis(1)).unwrap();
    }
    let found = find();
    assert_eq!(found.state, OperationState::Running, "{found:?}");
    assert_eq!((found.looked_at, found.changed), (5, 5));
    assert_eq!(found.counts.refused, 0);
    execute(&mut other, "ROLLBACK");
    windlass::operations::run(conn, Duration::from_secs(600)).unwrap();
    let done = find();
    assert_eq!((done.state, done.changed), (OperationState::Done, 10));
    assert_eq!((done.looked_at, done.counts.refused), (10, 0));
}
