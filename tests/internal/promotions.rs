//! The most that one promotion, retry or clearing does; a refused or locked key holds up no other.

use crate::db::conn::connection::{AsConn, Conn};
use crate::db::internal_tests::db::{TestDb, execute, on_each_database, texts};
use crate::db::internal_tests::interleavings::world::{World, row};
use crate::db::model::extras::{Follows, On, Otherwise, Parent};
use crate::db::model::new_row::{NewLimit, NewRow, WAITS_FOR_EVENT};
use crate::db::table::semaphores::{self, FreeSlots};
#[cfg(feature = "postgres")]
use crate::db::table::wanted_keys::BEGINNING;
use crate::db::table::wanted_keys::{self, NewRequest};
use crate::db::table::web;
use crate::db::transition::enqueue;
use crate::db::transition::operate::{self, AtMostOnce, retry};
use crate::db::transition::promote::{self, Promoted};

on_each_database!(
    a_promotion_ends_so_many_jobs_and_no_more,
    a_promotion_moves_so_many_jobs_and_no_more,
    a_promotion_wakes_so_many_jobs_and_no_more,
    a_promotion_gives_up_so_many_edges_and_no_more,
    a_retry_forgets_so_many_failures_and_no_more,
    a_retried_job_that_is_gone_has_succeeded_for_all,
    holders_are_counted_up_to_the_limit,
    sessions_are_cleared_so_many_at_once,
    a_key_that_the_database_refuses_holds_up_no_other,
);

/// The most rows that one transaction moves, discards or ends.
const MOST: usize = 500;

const MANY: usize = 1_200;

fn on_key(key: &str, slots: i32) -> NewRow {
    NewRow {
        limit: Some(NewLimit {
            key: key.to_owned(),
            slots,
            discards: false,
            ordered: false,
        }),
        ..row()
    }
}

fn discards(key: &str) -> NewRow {
    let mut row = on_key(key, 1);
    row.limit.iter_mut().for_each(|limit| limit.discards = true);
    row
}

fn insert(conn: &mut Conn<'_>, row: &NewRow) -> i64 {
    enqueue::insert_job(conn, row).unwrap().id
}

fn insert_many(conn: &mut Conn<'_>, row: &NewRow) {
    enqueue::insert_all(conn, &vec![row.clone(); MANY]).unwrap();
}

/// Promotes until nothing is left, and returns what each promotion did.
fn promote_all(conn: &mut Conn<'_>) -> Vec<Promoted> {
    let promote = |_| Some(promote::promote(conn, 100).unwrap());
    let all = (0..100).map_while(promote);
    all.take_while(|promoted| promoted.is_progress(100))
        .collect()
}

fn count(conn: &mut Conn<'_>, of: &str) -> usize {
    let found = texts(
        conn,
        &format!("SELECT CAST(count(*) AS text) AS t FROM {of}"),
    );
    found[0].parse().unwrap()
}

fn a_promotion_ends_so_many_jobs_and_no_more(db: &TestDb) {
    let mut connection = db.connect();
    let conn = &mut connection.as_conn();
    let holder = insert(conn, &on_key("a/big", 1));
    assert_eq!(promote::promote(conn, 100).unwrap().ready, [holder]);
    insert_many(conn, &discards("a/big"));
    let other = insert(conn, &on_key("b/small", 1));
    insert(conn, &discards("b/small"));
    let all = promote_all(conn);
    let ended: Vec<usize> = all.iter().map(|one| one.discarded.len()).collect();
    assert!(ended.iter().all(|ended| *ended <= MOST), "{ended:?}");
    assert_eq!(ended.iter().sum::<usize>(), MANY + 1);
    assert!(all[0].ready.contains(&other), "{:?}", all[0]);
    assert_eq!(count(conn, "solid_queue_blocked_executions"), 0);
    assert_eq!(count(conn, "windlass_wanted_keys"), 0);
}

fn a_promotion_moves_so_many_jobs_and_no_more(db: &TestDb) {
    let mut connection = db.connect();
    let conn = &mut connection.as_conn();
    insert_many(conn, &on_key("a/big", 1_000_000_000));
    insert_many(conn, &on_key("a/large", 700));
    let small = [0; 2].map(|_| insert(conn, &on_key("b/small", 2)));
    let all = promote_all(conn);
    let moved: Vec<usize> = all.iter().map(|one| one.ready.len()).collect();
    assert!(moved.iter().all(|moved| *moved <= MOST), "{moved:?}");
    assert_eq!(moved.iter().sum::<usize>(), MANY + 700 + 2);
    let first = &all[0].ready;
    assert!(small.iter().all(|job| first.contains(job)), "{first:?}");
    assert_eq!(count(conn, "solid_queue_blocked_executions"), MANY - 700);
    assert_eq!(count(conn, "windlass_wanted_keys"), 0);
}

/// Jobs that wait for two events, and both come.
fn a_promotion_wakes_so_many_jobs_and_no_more(db: &TestDb) {
    let mut connection = db.connect();
    let conn = &mut connection.as_conn();
    for event in ["first", "second"] {
        insert_many(conn, &row());
        let ready = "SELECT job_id FROM solid_queue_ready_executions";
        execute(
            conn,
            &format!(
                "INSERT INTO windlass_waits (job_id, claim_id, step, event_name, timeout_at, created_at) \
                   SELECT job_id, 1, 's', '{event}', '2100-01-01 00:00:00.000000', '2026-01-01 00:00:00.000000' FROM ({ready}) AS r; \
                 INSERT INTO solid_queue_blocked_executions (job_id, queue_name, priority, concurrency_key, expires_at, created_at) \
                   SELECT job_id, 'default', 0, '{WAITS_FOR_EVENT}', '9999-12-31 23:59:59.000000', '2026-01-01 00:00:00.000000' \
                   FROM ({ready}) AS r; \
                 DELETE FROM solid_queue_ready_executions; \
                 INSERT INTO windlass_events (name, payload, created_at) VALUES ('{event}', '1', '2026-01-01 00:00:00.000000')"
            ),
        );
    }
    let events = ["first", "second"].map(|event| NewRequest::Event(event.to_owned()));
    wanted_keys::request(conn, events).unwrap();
    let all = promote_all(conn);
    let woken: Vec<usize> = all.iter().map(|one| one.followed).collect();
    assert!(woken.iter().all(|woken| *woken <= MOST), "{woken:?}");
    assert_eq!(woken.iter().sum::<usize>(), 2 * MANY);
    assert_eq!(count(conn, "solid_queue_ready_executions"), 2 * MANY);
}

const FAILED: &str = "windlass_edges WHERE outcome = 'failed'";

/// Inserts a failed job, and many that wait for its success.
fn failed_with_waiters(conn: &mut Conn<'_>) -> i64 {
    let mut world = World::default();
    world.process(conn);
    world.failed(conn, 1, &row());
    let parent = world.jobs[0];
    let follows = Follows {
        parents: vec![(Parent::Job(parent), None)],
        on: On::Success,
        otherwise: Otherwise::Wait,
    };
    insert_many(
        conn,
        &NewRow {
            follows: Some(Box::new(follows)),
            ..row()
        },
    );
    promote_all(conn);
    assert_eq!(count(conn, FAILED), MANY);
    parent
}

/// The failed job is retried: those that wait for it do so for its next end.
fn a_retry_forgets_so_many_failures_and_no_more(db: &TestDb) {
    let mut connection = db.connect();
    let conn = &mut connection.as_conn();
    let parent = failed_with_waiters(conn);
    retry(conn, &[parent], AtMostOnce::Leave).unwrap();
    let mut before = MANY;
    while before > 0 {
        let now = count(conn, FAILED);
        assert!(now < before, "{before} and then {now}");
        assert!(before - now <= MOST, "{before} and then {now}");
        before = now;
        promote::promote(conn, 100).unwrap();
    }
    assert_eq!(count(conn, "windlass_wanted_keys"), 0);
    assert_eq!(count(conn, "solid_queue_blocked_executions"), MANY);
}

/// It finishes before the rest of its failures is forgotten, where finished jobs are not kept.
fn a_retried_job_that_is_gone_has_succeeded_for_all(db: &TestDb) {
    let mut connection = db.connect();
    let conn = &mut connection.as_conn();
    let parent = failed_with_waiters(conn);
    retry(conn, &[parent], AtMostOnce::Leave).unwrap();
    execute(
        conn,
        &format!(
            "DELETE FROM solid_queue_ready_executions WHERE job_id = {parent}; \
             DELETE FROM solid_queue_jobs WHERE id = {parent}"
        ),
    );
    // Handled one by one, its end comes while the rest of the failures is still to be forgotten.
    wanted_keys::request(conn, [NewRequest::Ended(parent)]).unwrap();
    promote::promote(conn, 1).unwrap();
    assert!(count(conn, FAILED) > 0);
    for _ in 0..2 {
        promote::promote(conn, 1).unwrap();
    }
    promote_all(conn);
    assert_eq!(count(conn, FAILED), 0);
    assert_eq!(count(conn, "windlass_edges WHERE otherwise = 'discard'"), 0);
    assert_eq!(count(conn, "solid_queue_ready_executions"), MANY);
    assert_eq!(count(conn, "windlass_wanted_keys"), 0);
}

/// More hold slots than the limit, which was lowered: no more are read than matter.
fn holders_are_counted_up_to_the_limit(db: &TestDb) {
    let mut connection = db.connect();
    let conn = &mut connection.as_conn();
    insert_many(conn, &on_key("a/big", 1_000_000_000));
    promote_all(conn);
    let slots = FreeSlots::new("a/big", 7);
    let held = semaphores::held(conn, [slots].iter()).unwrap();
    assert_eq!(held["a/big"], 7, "of {MANY}");
}

fn sessions_are_cleared_so_many_at_once(db: &TestDb) {
    let mut connection = db.connect();
    let conn = &mut connection.as_conn();
    let time = "'2026-01-01 00:00:00.000000'";
    let rows: Vec<String> = (0..MANY)
        .map(|n| format!("(1, 's{n}', 'd', {time}, {time}, {time})"))
        .collect();
    execute(
        conn,
        &format!(
            "INSERT INTO windlass_web_sessions (token_id, lookup, digest, created_at, seen_at, expires_at) VALUES {}",
            rows.join(", ")
        ),
    );
    let cleared: Vec<usize> = (0..4).map(|_| web::clear(conn, MOST).unwrap()).collect();
    assert_eq!(cleared, [500, 500, 200, 0]);
}

/// Jobs that wait for the success of one that has failed, and is discarded.
fn a_promotion_gives_up_so_many_edges_and_no_more(db: &TestDb) {
    let mut connection = db.connect();
    let conn = &mut connection.as_conn();
    let parent = failed_with_waiters(conn);
    operate::discard(conn, &[parent]).unwrap();
    let given_up = "windlass_edges WHERE otherwise = 'discard'";
    let mut before = 0;
    while before < MANY {
        promote::promote(conn, 100).unwrap();
        let now = count(conn, given_up);
        assert!(now - before <= MOST, "{before} and then {now}");
        before = now;
    }
    promote_all(conn);
    assert_eq!(count(conn, "solid_queue_blocked_executions"), 0);
}

/// Makes the database refuse ready executions of a queue.
fn refuse(db: &TestDb, queue: &str) {
    let text = if db.is_postgres() {
        format!(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS \
             $$ BEGIN RAISE EXCEPTION 'refused by the test'; END $$; \
             CREATE TRIGGER refuse BEFORE INSERT ON solid_queue_ready_executions FOR EACH ROW \
             WHEN (NEW.queue_name = '{queue}') EXECUTE FUNCTION refuse()"
        )
    } else {
        format!(
            "CREATE TRIGGER refuse BEFORE INSERT ON solid_queue_ready_executions WHEN NEW.queue_name = '{queue}' \
             BEGIN SELECT RAISE(ABORT, 'refused by the test'); END"
        )
    };
    execute(&mut db.connect().as_conn(), &text);
}

fn a_key_that_the_database_refuses_holds_up_no_other(db: &TestDb) {
    refuse(db, "bad");
    let mut connection = db.connect();
    let conn = &mut connection.as_conn();
    let mut bad = on_key("a/bad", 1);
    bad.queue_name = "bad".to_owned();
    insert(conn, &bad);
    let good: Vec<i64> = (0..5)
        .map(|n| insert(conn, &on_key(&format!("b/{n}"), 1)))
        .collect();
    let mut ready = Vec::new();
    for _ in 0..10 {
        ready.extend(promote::promote(conn, 100).unwrap().ready);
    }
    ready.sort_unstable();
    assert_eq!(ready, good);
    assert_eq!(count(conn, "windlass_wanted_keys WHERE key = 'a/bad'"), 1);
    let drop = match db.is_postgres() {
        true => "DROP TRIGGER refuse ON solid_queue_ready_executions",
        false => "DROP TRIGGER refuse",
    };
    execute(conn, drop);
    assert_eq!(promote::promote(conn, 100).unwrap().ready.len(), 1);
}

/// A client that is frozen in a promotion holds up its keys only.
#[cfg(feature = "postgres")]
#[test]
fn a_promotion_passes_keys_that_others_have_locked() {
    let db = TestDb::postgres();
    let (mut connection, mut frozen) = (db.connect(), db.connect());
    let (conn, frozen) = (&mut connection.as_conn(), &mut frozen.as_conn());
    execute(conn, "SET lock_timeout = '2s'");
    let first = insert(conn, &on_key("a/k", 1));
    execute(frozen, "BEGIN");
    let taken = wanted_keys::take(frozen, BEGINNING, 100).unwrap();
    assert_eq!(taken.taken, 1);
    // More requests than one promotion handles.
    for _ in 0..150 {
        insert(conn, &on_key("a/k", 1));
    }
    let other = insert(conn, &on_key("b/k", 1));
    assert_eq!(promote::promote(conn, 100).unwrap().ready, [other]);
    let promoted = promote::promote(conn, 100).unwrap();
    assert!(!promoted.is_progress(100), "{promoted:?}");
    execute(frozen, "COMMIT");
    assert_eq!(promote::promote(conn, 100).unwrap().ready, [first]);
}
