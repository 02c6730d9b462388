//! Changes of many jobs in the background.

use super::followed::{ASKED, claim};
use super::{actions, days_ago, enqueue, entries, fail, now, refuse};
use crate::on_each_database;
use crate::support::TestDb;
use crate::support::wait::until;
use crate::with_own_connection;
use std::time::Duration;
use windlass::audit::{Actor, AuditLog};
use windlass::jobs::{Change, JobState, Jobs};
use windlass::operations::{Operation, OperationState, Preview};
use windlass::processes::Retention;
use windlass::{JobId, NewJob, Supervisor};
use windlass_console::Verdict;

on_each_database!(
    an_operation_changes_what_was_selected,
    jobs_that_came_after_the_preview_are_not_in_it,
    a_supervisor_runs_it,
    several_go_on_in_turn,
    two_runners_at_once_change_each_job_once,
    it_can_be_stopped,
    retried_jobs_are_spread_over_time,
    a_poisoned_job_is_left,
    what_cannot_be_read_fails_the_operation,
    a_cancel_reaches_running_jobs_too,
    a_limit_holds_over_batches,
    jobs_are_selected_by_ids,
    a_newer_version_is_left_alone,
    what_is_left_alone_holds_up_no_others,
    impossible_operations_are_refused,
    a_failed_batch_leaves_nothing,
    ended_operations_are_cleared,
    the_doctor_sees_one_that_stands_still,
);

crate::through_a_pooler_in_all!(
    an_operation_changes_what_was_selected,
    jobs_that_came_after_the_preview_are_not_in_it,
    a_supervisor_runs_it,
    several_go_on_in_turn,
    two_runners_at_once_change_each_job_once,
    it_can_be_stopped,
    retried_jobs_are_spread_over_time,
    a_poisoned_job_is_left,
    what_cannot_be_read_fails_the_operation,
    a_cancel_reaches_running_jobs_too,
    a_limit_holds_over_batches,
    jobs_are_selected_by_ids,
    a_newer_version_is_left_alone,
    what_is_left_alone_holds_up_no_others,
    impossible_operations_are_refused,
    a_failed_batch_leaves_nothing,
    ended_operations_are_cleared,
    the_doctor_sees_one_that_stands_still,
);

const RETRY: Change = Change::Retry {
    even_at_most_once: false,
};

/// Longer than any operation of a test takes.
const LONG: Duration = Duration::from_secs(600);

fn run(db: &TestDb) -> u64 {
    windlass::operations::run(&mut db.connection(), LONG)
        .unwrap()
        .chunks
}

fn find(db: &TestDb, id: i64) -> Operation {
    windlass::operations::find(&mut db.connection(), id)
        .unwrap()
        .unwrap()
}

fn start(db: &TestDb, jobs: &Jobs, change: Change) -> Operation {
    jobs.in_background(change)
        .start(&mut db.connection())
        .unwrap()
}

fn an_operation_changes_what_was_selected(db: &TestDb) {
    enqueue(db, "a", 1_200);
    enqueue(db, "b", 10);
    let jobs = Jobs::waiting().class("a").by("ada").reason("too many");
    let operation = start(db, &jobs, Change::Discard);
    assert_eq!(
        (operation.state, operation.changed),
        (OperationState::Waiting, 0)
    );
    let total = operation.total.unwrap();
    assert_eq!((total.count, total.is_exact), (1_200, true));
    assert_eq!(
        (&*operation.actor, &*operation.action),
        ("ada", "jobs.discard")
    );
    assert_eq!(operation.jobs().unwrap().to_pairs(), jobs.to_pairs());
    assert_eq!(db.rows("ready_executions"), 1_210, "nothing has run yet");
    // The scheduled and the blocked jobs are looked for as well.
    assert_eq!(run(db), 5);
    let done = find(db, operation.id);
    assert_eq!((done.state, done.fraction), (OperationState::Done, 1.0));
    assert_eq!((done.changed, done.looked_at), (1_200, 1_200));
    assert_eq!(done.counts.done.changed, 1_200);
    assert!(done.started_at >= Some(done.created_at) && done.ended_at >= done.started_at);
    assert_eq!(db.rows("ready_executions"), 10);
    // One action, with a row for each batch that changed something.
    assert_eq!(
        actions(db),
        [("jobs.discard".to_owned(), None, Some(1_200))]
    );
    let first = entries(db).remove(0);
    assert_eq!((first.jobs, first.operation_id), (Some(0), Some(done.id)));
    assert_eq!(
        (first.reason.as_deref(), done.audit_id),
        (Some("too many"), Some(first.id))
    );
    let parts = AuditLog::new()
        .parts_of(first.id)
        .list(&mut db.connection())
        .unwrap();
    let jobs: Vec<Option<i64>> = parts.iter().map(|part| part.jobs).collect();
    assert_eq!(jobs, [Some(200), Some(500), Some(500)]);
    assert!(
        parts
            .iter()
            .all(|part| part.operation_id == Some(done.id) && part.actor == "ada")
    );
    assert_eq!(run(db), 0);
    let listed = windlass::operations::list(&mut db.connection(), None, 10).unwrap();
    assert_eq!((listed.len(), listed[0].id), (1, done.id));
    assert_eq!(
        windlass::operations::list(&mut db.connection(), Some(done.id), 10).unwrap(),
        []
    );
}

fn jobs_that_came_after_the_preview_are_not_in_it(db: &TestDb) {
    enqueue(db, "a", 30);
    fail(db, "id <= 20");
    let failed = Jobs::failed().class("a");
    let preview = failed.preview(&mut db.connection()).unwrap();
    assert_eq!((preview.count, preview.is_exact), (20, true));
    // As a page sends it to and fro.
    let text = serde_json::to_string(&preview).unwrap();
    let preview: Preview = serde_json::from_str(&text).unwrap();
    fail(db, "id > 20 AND id <= 25");
    let new = failed.in_background(RETRY).preview(preview);
    let operation = new.start(&mut db.connection()).unwrap();
    fail(db, "id > 25");
    run(db);
    assert_eq!(find(db, operation.id).changed, 20);
    let left = db.texts(
        "SELECT CAST(job_id AS text) AS t FROM solid_queue_failed_executions ORDER BY job_id",
    );
    assert_eq!(left, (21..=30).map(|id| id.to_string()).collect::<Vec<_>>());
    // And without a preview, those that came after the start.
    let operation = start(db, &failed, RETRY);
    enqueue(db, "a", 2);
    fail(db, "id > 30");
    run(db);
    assert_eq!(
        (find(db, operation.id).changed, db.rows("failed_executions")),
        (10, 2)
    );
}

fn a_supervisor_runs_it(db: &TestDb) {
    enqueue(db, "a", 2_000);
    let operation = start(db, &Jobs::waiting(), Change::Queue("slow".into()));
    let mut supervisor = Supervisor::new(&db.database).start().unwrap();
    until("it is done", || {
        find(db, operation.id).state == OperationState::Done
    });
    supervisor.stop();
    supervisor.join(Duration::from_secs(60)).unwrap();
    assert_eq!(find(db, operation.id).changed, 2_000);
    let slow = "SELECT count(*) AS n FROM solid_queue_ready_executions WHERE queue_name = 'slow'";
    assert_eq!(db.count(slow), 2_000);
}

/// A small one does not wait until a large one is done.
fn several_go_on_in_turn(db: &TestDb) {
    enqueue(db, "large", 3_000);
    enqueue(db, "small", 10);
    let large = start(
        db,
        &Jobs::in_state(JobState::Ready).class("large"),
        Change::Priority(1),
    );
    let small = start(
        db,
        &Jobs::in_state(JobState::Ready).class("small"),
        Change::Priority(2),
    );
    let conn = &mut db.connection();
    let mut batches = 0;
    while find(db, small.id).state != OperationState::Done {
        let run = windlass::operations::run(conn, Duration::from_millis(1)).unwrap();
        batches += run.chunks;
    }
    assert!(batches <= 6, "{batches}");
    let state = find(db, large.id);
    assert!(
        state.state == OperationState::Running && state.fraction < 1.0,
        "{state:?}"
    );
    assert!(state.fraction > 0.0 && state.changed > 0);
    run(db);
    assert_eq!(find(db, large.id).changed, 3_000);
}

/// Notes each change of a job's row.
pub fn count_changes(db: &TestDb) {
    db.execute("CREATE TABLE touched (job_id bigint NOT NULL)");
    if db.is_postgres() {
        db.execute(
            "CREATE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
             INSERT INTO touched VALUES (NEW.id); RETURN NEW; END $$",
        );
        db.execute("CREATE TRIGGER touch AFTER UPDATE ON solid_queue_jobs FOR EACH ROW EXECUTE FUNCTION touch()");
    } else {
        db.execute(
            "CREATE TRIGGER touch AFTER UPDATE ON solid_queue_jobs BEGIN INSERT INTO touched VALUES (NEW.id); END",
        );
    }
}

fn two_runners_at_once_change_each_job_once(db: &TestDb) {
    enqueue(db, "a", 5_000);
    count_changes(db);
    let operation = start(db, &Jobs::in_state(JobState::Ready), Change::Priority(7));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while find(db, operation.id).state != OperationState::Done {
                    run(db);
                }
            });
        }
    });
    assert_eq!(find(db, operation.id).changed, 5_000);
    assert_eq!(db.count("SELECT count(*) AS n FROM touched"), 5_000);
    assert_eq!(
        db.count("SELECT count(DISTINCT job_id) AS n FROM touched"),
        5_000
    );
    assert_eq!(
        actions(db),
        [("jobs.priority".to_owned(), None, Some(5_000))]
    );
}

fn it_can_be_stopped(db: &TestDb) {
    enqueue(db, "a", 2_000);
    let operation = start(db, &Jobs::in_state(JobState::Ready), Change::Priority(1));
    let conn = &mut db.connection();
    windlass::operations::run(conn, Duration::from_nanos(1)).unwrap();
    while find(db, operation.id).state == OperationState::Waiting {
        windlass::operations::run(conn, Duration::from_millis(1)).unwrap();
    }
    let bob = Actor::named("bob").reason("wrong queue");
    assert!(bob.stop_operation(conn, operation.id).unwrap());
    assert!(!windlass::operations::stop(conn, operation.id).unwrap());
    assert!(!windlass::operations::stop(conn, 4711).unwrap());
    let stopped = find(db, operation.id);
    assert_eq!(stopped.state, OperationState::Stopped);
    assert!(stopped.state.has_ended() && stopped.changed < 2_000 && stopped.fraction < 1.0);
    assert_eq!(run(db), 0);
    let still = find(db, operation.id);
    assert_eq!(
        (still.changed, still.ended_at),
        (stopped.changed, stopped.ended_at)
    );
    let last = entries(db).pop().unwrap();
    assert_eq!(
        (&*last.action, last.target),
        ("operations.stop", Some(operation.id.to_string()))
    );
    assert_eq!(
        (&*last.actor, last.reason.as_deref()),
        ("bob", Some("wrong queue"))
    );
    assert_eq!(entries(db)[0].total, Some(stopped.changed));
}

fn retried_jobs_are_spread_over_time(db: &TestDb) {
    enqueue(db, "a", 1_200);
    fail(db, "class_name = 'a'");
    let new = Jobs::failed()
        .in_background(RETRY)
        .rate("10/s".parse().unwrap());
    let operation = new.start(&mut db.connection()).unwrap();
    run(db);
    assert_eq!(find(db, operation.id).changed, 1_200);
    // The first one is due at once, the last one after two minutes.
    assert_eq!(db.rows("failed_executions"), 0);
    assert!(db.rows("scheduled_executions") >= 1_100);
    let seconds = if db.is_postgres() {
        "SELECT CAST(extract(epoch FROM max(scheduled_at) - min(scheduled_at)) AS bigint) AS n FROM solid_queue_jobs"
    } else {
        "SELECT CAST(round((julianday(max(scheduled_at)) - julianday(min(scheduled_at))) * 86400) AS integer) AS n FROM solid_queue_jobs"
    };
    assert_eq!(db.count(seconds), 120);
    let times = "SELECT count(DISTINCT scheduled_at) AS n FROM solid_queue_jobs";
    assert_eq!(db.count(times), 1_200);
}

fn a_poisoned_job_is_left(db: &TestDb) {
    let ids = enqueue(db, "a", 1_000);
    refuse(db, "solid_queue_jobs", "UPDATE", "NEW.id IN (17, 700)");
    let operation = start(db, &Jobs::in_state(JobState::Ready), Change::Priority(5));
    run(db);
    let done = find(db, operation.id);
    assert_eq!((done.state, done.changed), (OperationState::Done, 998));
    assert_eq!((done.counts.refused, done.looked_at), (2, 1_000));
    let error = done.error.unwrap();
    assert!(
        error.contains("job 700: ") && error.contains("poisoned"),
        "{error}"
    );
    let unchanged =
        "SELECT CAST(id AS text) AS t FROM solid_queue_jobs WHERE priority = 0 ORDER BY id";
    assert_eq!(db.texts(unchanged), ["17", "700"]);
    assert_eq!(actions(db), [("jobs.priority".to_owned(), None, Some(998))]);
    assert_eq!(ids.len(), 1_000);
}

/// The filter cannot read a policy that another program has stored, however often it tries.
fn what_cannot_be_read_fails_the_operation(db: &TestDb) {
    enqueue(db, "a", 3);
    let operation = start(db, &Jobs::waiting().tagged(["x"]), Change::Priority(5));
    // Postgres reads it as JSON, SQLite as what it is.
    db.execute("UPDATE solid_queue_jobs SET policy = '{\"tags\":[' WHERE id = 2");
    run(db);
    let state = find(db, operation.id);
    let error = state.error.unwrap_or_default();
    match db.is_postgres() {
        true => assert!(
            state.state == OperationState::Failed && error.contains("json"),
            "{error}"
        ),
        false => assert_eq!((state.state, &*error), (OperationState::Done, "")),
    }
    assert_eq!(run(db), 0);
}

fn a_cancel_reaches_running_jobs_too(db: &TestDb) {
    enqueue(db, "a", 5);
    claim(db, "job_id = 1");
    let operation = start(db, &Jobs::waiting_or_running(), Change::Cancel);
    run(db);
    let done = find(db, operation.id);
    assert_eq!(done.state, OperationState::Done);
    let counts = done.counts.done;
    assert_eq!((counts.changed, counts.running, done.changed), (4, 1, 5));
    assert_eq!(db.count(ASKED), 1);
    assert_eq!(entries(db)[0].total, Some(5));
}

fn a_limit_holds_over_batches(db: &TestDb) {
    enqueue(db, "a", 1_500);
    let operation = start(db, &Jobs::waiting().limit(1_100), Change::Discard);
    assert_eq!(operation.total.unwrap().count, 1_100);
    run(db);
    let done = find(db, operation.id);
    assert_eq!((done.state, done.changed), (OperationState::Done, 1_100));
    assert_eq!(db.rows("ready_executions"), 400);
}

fn jobs_are_selected_by_ids(db: &TestDb) {
    let ids = enqueue(db, "a", 20);
    let some: Vec<JobId> = ids[5..8].to_vec();
    let operation = start(db, &Jobs::unfinished().ids(some), Change::Discard);
    run(db);
    let done = find(db, operation.id);
    assert_eq!((done.changed, db.rows("ready_executions")), (3, 17));
    let many = (1..=10_001).map(JobId);
    let refused = Jobs::waiting().ids(many).in_background(Change::Discard);
    assert!(refused.start(&mut db.connection()).is_err());
}

fn a_newer_version_is_left_alone(db: &TestDb) {
    enqueue(db, "a", 5);
    for column in ["parameters", "filter"] {
        let operation = start(db, &Jobs::waiting(), Change::Discard);
        db.execute(&format!(
            "UPDATE windlass_operations SET {column} = '{{\"states\":[\"ready\"],\"change\":\"discard\",\"newer\":1}}' \
             WHERE id = {}",
            operation.id
        ));
        assert_eq!(run(db), 0);
        assert_eq!(find(db, operation.id).state, OperationState::Waiting);
        assert!(windlass::operations::stop(&mut db.connection(), operation.id).unwrap());
    }
    assert_eq!(db.rows("ready_executions"), 5);
}

/// After a rollback of the program, there may be more of them than are carried on at once.
fn what_is_left_alone_holds_up_no_others(db: &TestDb) {
    enqueue(db, "a", 5);
    for _ in 0..45 {
        start(db, &Jobs::waiting(), Change::Discard);
    }
    db.execute("UPDATE windlass_operations SET parameters = '{\"change\":\"explode\"}'");
    let operation = start(db, &Jobs::in_state(JobState::Ready), Change::Priority(5));
    assert_eq!(run(db), 1);
    let done = find(db, operation.id);
    assert_eq!((done.state, done.changed), (OperationState::Done, 5));
    let left = "SELECT count(*) AS n FROM windlass_operations WHERE state = 'waiting'";
    assert_eq!(db.count(left), 45);
}

fn impossible_operations_are_refused(db: &TestDb) {
    let refused =
        |new: windlass::operations::NewOperation| new.start(&mut db.connection()).is_err();
    let rate = || "1/s".parse().unwrap();
    let jobs = Jobs::waiting();
    assert!(refused(jobs.in_background(Change::Discard).rate(rate())));
    assert!(refused(
        jobs.in_background(Change::Queue("not a queue".into()))
    ));
    assert!(refused(jobs.in_background(Change::RunIn(Duration::MAX))));
    assert_eq!(db.rows_of("windlass_operations"), 0);
    assert_eq!(actions(db), []);
}

/// Neither the change, nor the place of the operation, nor the row of the audit.
fn a_failed_batch_leaves_nothing(db: &TestDb) {
    enqueue(db, "a", 5);
    let operation = start(db, &Jobs::in_state(JobState::Ready), Change::Priority(5));
    // The start has its row, and no batch gets one.
    refuse(db, "windlass_audit", "INSERT", "NEW.part_of IS NOT NULL");
    run(db);
    let failed = find(db, operation.id);
    assert_eq!((failed.state, failed.changed), (OperationState::Failed, 0));
    assert!(failed.error.unwrap().contains("poisoned"));
    assert_eq!(
        db.count("SELECT count(*) AS n FROM solid_queue_jobs WHERE priority = 5"),
        0
    );
    // And in a transaction of the caller that is taken back.
    with_own_connection!(db, |conn| {
        use diesel::Connection as _;
        let result = conn.transaction(|conn| {
            Jobs::waiting().in_background(Change::Discard).start(conn)?;
            Err::<(), windlass::Error>(diesel::result::Error::RollbackTransaction.into())
        });
        assert!(result.is_err());
    });
    assert_eq!(
        (db.rows_of("windlass_operations"), entries(db).len()),
        (1, 1)
    );
}

fn ended_operations_are_cleared(db: &TestDb) {
    let ended = |days: u32| {
        let operation = start(db, &Jobs::waiting(), Change::Discard);
        run(db);
        db.execute(&format!(
            "UPDATE windlass_operations SET ended_at = {} WHERE id = {}",
            days_ago(db, days),
            operation.id
        ));
        operation.id
    };
    let (old, young) = (ended(31), ended(29));
    enqueue(db, "a", 1);
    let retention = Retention::new().every(Duration::from_millis(20));
    let mut supervisor = Supervisor::new(&db.database)
        .retention(retention)
        .start()
        .unwrap();
    until("the old one is cleared", || {
        windlass::operations::find(&mut db.connection(), old)
            .unwrap()
            .is_none()
    });
    supervisor.stop();
    supervisor.join(Duration::from_secs(60)).unwrap();
    assert_eq!(find(db, young).state, OperationState::Done);
    let job = NewJob::of_class("a", "{}")
        .enqueue(&mut db.connection())
        .unwrap();
    assert!(job.is_new);
}

fn the_doctor_sees_one_that_stands_still(db: &TestDb) {
    let verdict = || {
        let findings = windlass_console::doctor(&mut db.connection()).unwrap();
        let found = findings
            .into_iter()
            .find(|finding| finding.check == "operations");
        found.map(|finding| (finding.verdict, finding.says))
    };
    assert_eq!(verdict(), None);
    let operation = start(db, &Jobs::waiting(), Change::Discard);
    assert_eq!(verdict().unwrap().0, Verdict::Fine);
    db.execute(&format!(
        "UPDATE windlass_operations SET moved_at = {}",
        days_ago(db, 1)
    ));
    let (found, says) = verdict().unwrap();
    assert!(
        found == Verdict::Warning && says.contains("no supervisor runs"),
        "{says}"
    );
    db.execute(&format!(
        "INSERT INTO solid_queue_processes (kind, name, pid, metadata, heartbeat_seq, created_at, last_heartbeat_at) \
         VALUES ('Supervisor', 'supervisor-a', 1, '{{\"windlass\":\"0.1.0\"}}', 3, {0}, {0})",
        now(db)
    ));
    let (found, says) = verdict().unwrap();
    assert!(
        found == Verdict::Warning && says.contains("although a supervisor runs"),
        "{says}"
    );
    assert!(
        says.contains(&format!("operations stop {}", operation.id)),
        "{says}"
    );
}
