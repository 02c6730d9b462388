//! Cases that should not happen: times that no calendar has, rows that are not there.

use crate::db::conn::connection::{AsConn, Conn};
use crate::db::internal_tests::checks;
use crate::db::internal_tests::db::{TestDb, execute, on_each_database, texts};
use crate::db::internal_tests::interleavings::world::{World, limited, row, take};
use crate::db::model::claim::{
    Begins, ClaimQueues, ClaimRequest, Claims, Cursor, EqualJobs, FinishedRow, NextJobs,
};
use crate::db::model::decision::{Death, KeySlots};
use crate::db::model::new_row::{NewExpiry, NewRow, OnConflict};
use crate::db::model::recurring::Definition;
use crate::db::table::recurring_tasks;
use crate::db::transition::operate::edit::{self, EditOutcome, NewArguments};
use crate::db::transition::unique::{self, UnblockedPage};
use crate::db::transition::{claim, dispatch, end, finish, prune, schedule};
use diesel::QueryResult;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Arguments of no other version.
fn arguments(text: &str) -> NewArguments {
    NewArguments {
        text: text.to_owned(),
        version: None,
    }
}

fn an_endless_delay_of_a_release_is_long(db: &TestDb) {
    let mut connection = db.connect();
    let conn = &mut connection.as_conn();
    let mut world = World::default();
    world.process(conn);
    world.claimed(conn, 1, &row());
    let released = end::release(conn, world.processes[0], &world.claims, Some(Duration::MAX));
    assert_eq!(released.unwrap(), world.claims);
    assert_waiting(&checks::jobs(conn), 1);
    assert_eq!(take(conn, world.processes[0], 1).unwrap(), Some(Vec::new()));
}

/// A claim that has read its snapshot before an edit does not take the job with the old arguments.
fn a_claim_that_has_started_does_not_take_what_is_edited(db: &TestDb) {
    let mut connection = db.connect();
    let conn = &mut connection.as_conn();
    let mut world = World::default();
    world.process(conn);
    world.job(conn, &row());
    let (process, job) = (world.processes[0], world.jobs[0]);
    let change = |conn: &mut Conn<'_>| {
        let edited = edit::edit(conn, job, |_| QueryResult::Ok(arguments("[1]")));
        assert_eq!(edited.unwrap(), EditOutcome::Done);
    };
    let arguments = |conn: &mut Conn<'_>| {
        let want = ClaimRequest {
            process_id: process,
            queues: &ClaimQueues::All,
            classes: &["a".to_owned()],
            max_jobs: 1,
            begins: Begins::All,
            from: &[],
            wanted_after: 0,
        };
        let Claims::Held { jobs, .. } = claim::claim(conn, &want).unwrap() else {
            panic!("the process is registered");
        };
        jobs.into_iter()
            .map(|job| job.arguments)
            .collect::<Vec<_>>()
    };
    if db.is_postgres() {
        // The claim starts, and then waits for the row of its process.
        execute(conn, "BEGIN");
        let lock = format!("SELECT id FROM solid_queue_processes WHERE id = {process} FOR UPDATE");
        execute(conn, &lock);
        std::thread::scope(|scope| {
            let started = scope.spawn(|| arguments(&mut db.connect().as_conn()));
            let waits = "SELECT CAST(count(*) AS text) AS t FROM pg_locks \
                 WHERE pg_backend_pid() = ANY (pg_blocking_pids(pid))";
            let deadline = Instant::now() + Duration::from_secs(60);
            while texts(conn, waits) == ["0"] {
                assert!(Instant::now() < deadline, "the claim does not wait");
                std::thread::sleep(Duration::from_millis(5));
            }
            change(&mut db.connect().as_conn());
            execute(conn, "COMMIT");
            assert_eq!(started.join().unwrap(), Vec::<String>::new());
        });
    } else {
        change(conn);
    }
    assert_eq!(arguments(conn), ["[1]"]);
}

/// A job that somebody deletes by hand while it runs leaves nothing behind.
fn a_claim_without_a_job_goes_with_its_process(db: &TestDb) {
    let mut connection = db.connect();
    let conn = &mut connection.as_conn();
    let mut world = World::default();
    world.process(conn);
    world.claimed(conn, 1, &row());
    world.claimed(conn, 1, &row());
    let delete = format!("DELETE FROM solid_queue_jobs WHERE id = {}", world.jobs[0]);
    execute(conn, &delete);
    let death = Death {
        is_crash: true,
        how: "was killed by signal 9".to_owned(),
    };
    let recovered = prune::prune(conn, world.processes[0], None, &death).unwrap();
    assert_eq!(recovered.unwrap().released, [world.jobs[1]]);
    assert_eq!(checks::violations(conn), Vec::<String>::new());
}

/// It became due after the look for what is due, and before the one for what
/// comes next.
fn a_tick_that_comes_during_a_look_is_not_slept_over(db: &TestDb) {
    let mut connection = db.connect();
    let conn = &mut connection.as_conn();
    let began = recurring_tasks::now(conn).unwrap();
    let task = Definition {
        key: "t".into(),
        schedule: "@hourly".into(),
        in_ruby: "0 * * * * UTC".into(),
        time_zone: "UTC".into(),
        class_name: "a".into(),
        arguments: "[{}]".into(),
        queue_name: "q".into(),
        priority: 0,
        description: None,
        options: "{}".into(),
        revision: None,
        start: None,
    };
    let tick = began - Duration::from_secs(1);
    schedule::schedule(conn, &task, &|_| Some(tick)).unwrap();
    let next = |conn: &mut Conn<'_>, since| recurring_tasks::next_tick(conn, "[]", since).unwrap();
    let before = tick - Duration::from_secs(1);
    assert_eq!(next(conn, before), Some(Duration::ZERO));
    assert_eq!(next(conn, began), None);
}

/// By a walk of several stretches. Their waits ended unseen.
fn jobs_that_wait_for_none_go_on(db: &TestDb) {
    let mut connection = db.connect();
    let conn = &mut connection.as_conn();
    let mut world = World::default();
    world.process(conn);
    for n in 0..5 {
        let row = NewRow {
            unique_id: Some(format!("u{n}")),
            on_conflict: OnConflict::RunAgain,
            priority: 5 - n,
            ..row()
        };
        world.claimed(conn, 1, &row);
        world.job(conn, &row);
    }
    let walk = |conn: &mut Conn<'_>| {
        let (mut stretches, mut unblocked, mut beyond) = (0, 0, Some(Cursor::BEGINNING));
        while let Some(from) = beyond {
            let UnblockedPage {
                reached,
                unblocked: count,
            } = unique::sweep(conn, from, 2).unwrap();
            (stretches, unblocked, beyond) = (stretches + 1, unblocked + count, reached);
        }
        (stretches, unblocked)
    };
    assert_eq!(walk(conn), (3, 0));
    for n in [0, 3, 4] {
        let finish = format!(
            "UPDATE solid_queue_jobs SET finished_at = created_at WHERE id = {}",
            world.jobs[2 * n]
        );
        execute(conn, &finish);
    }
    assert_eq!(walk(conn), (3, 3));
    let ready = take(conn, world.processes[0], 10).unwrap().unwrap();
    let ready: BTreeSet<i64> = ready.into_iter().map(|(_, job)| job).collect();
    assert_eq!(ready, [1, 7, 9].map(|n| world.jobs[n]).into());
    assert_eq!(walk(conn), (2, 0));
}

/// A policy may come from another version or another program. The part that is
/// understood counts.
fn one_unreadable_part_of_a_policy_leaves_the_other(db: &TestDb) {
    let mut connection = db.connect();
    let conn = &mut connection.as_conn();
    let mut world = World::default();
    world.process(conn);
    let hook = r#"{"class":"told","queue":"hooks","priority":0}"#;
    for policy in [
        format!(r#"{{"on_failure":{hook},"keep_result":"long"}}"#),
        r#"{"on_failure":"told","keep_result":60000000}"#.to_owned(),
    ] {
        let row = NewRow {
            policy: Some(policy),
            ..row()
        };
        world.failed(conn, 1, &row);
    }
    let hooks = texts(
        conn,
        "SELECT class_name AS t FROM solid_queue_ready_executions",
    );
    assert_eq!(hooks, ["told"]);
    let kept = "SELECT CAST(job_id AS text) AS t FROM windlass_results";
    assert_eq!(texts(conn, kept), [world.jobs[1].to_string()]);
}

/// Its worker has died before a thread took it, as its expiry shows, which a start deletes.
fn a_job_that_was_claimed_ahead_still_expires(db: &TestDb) {
    let mut connection = db.connect();
    let conn = &mut connection.as_conn();
    let mut world = World::default();
    world.process(conn);
    let row = NewRow {
        policy: Some(r#"{"expiry":{"in":3600000}}"#.to_owned()),
        expiry: Some(NewExpiry::In(Duration::from_secs(3600))),
        ..row()
    };
    for _ in 0..3 {
        world.claimed(conn, 1, &row);
    }
    let [ahead, started, crashed] = world.claims[..] else {
        panic!("{world:?}")
    };
    for claim in [ahead, started] {
        let text = format!(
            "UPDATE solid_queue_claimed_executions SET prefetched = true WHERE id = {claim}"
        );
        execute(conn, &text);
    }
    assert!(!dispatch::has_expired(conn, world.jobs[1]).unwrap());
    let death = Death {
        is_crash: true,
        how: "was killed by signal 9".to_owned(),
    };
    prune::prune(conn, world.processes[0], None, &death).unwrap();
    let left = "SELECT CAST(job_id AS text) AS t FROM windlass_expiries";
    assert_eq!(
        texts(conn, left),
        [world.jobs[0].to_string()],
        "{crashed} counts as started"
    );
    let past = "UPDATE windlass_expiries SET expires_at = '2000-01-01 00:00:00.000000'";
    execute(conn, past);
    let discarded = dispatch::expire(conn, 10).unwrap().discarded;
    let discarded: Vec<i64> = discarded.into_iter().map(|job| job.id).collect();
    assert_eq!(discarded, [world.jobs[0]]);
    assert_eq!(checks::violations(conn), Vec::<String>::new());
}

/// Has the end of a claim wait for a lock that the caller then holds, and returns its name.
fn hold_up_ends(conn: &mut Conn<'_>) -> String {
    let lock = format!("4711, {}", fastrand::i32(1..));
    execute(
        conn,
        &format!(
            "CREATE FUNCTION hold_up() RETURNS trigger LANGUAGE plpgsql AS \
             $$ BEGIN PERFORM pg_advisory_xact_lock({lock}); RETURN OLD; END $$; \
             CREATE TRIGGER hold_up BEFORE DELETE ON solid_queue_claimed_executions \
             FOR EACH ROW EXECUTE FUNCTION hold_up(); SELECT pg_advisory_lock({lock})"
        ),
    );
    lock
}

fn until_one_waits(conn: &mut Conn<'_>, lock: &str) {
    let waiting = format!(
        "SELECT 'one' AS t FROM pg_locks WHERE locktype = 'advisory' AND NOT granted \
         AND (CAST(classid AS bigint), CAST(objid AS bigint)) = ({lock})"
    );
    let began = Instant::now();
    while texts(conn, &waiting).is_empty() {
        assert!(began.elapsed() < Duration::from_secs(60), "none waits");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The end of the job before it has begun before the edit, and so sees what was there before.
fn an_edited_job_does_not_start_with_its_old_arguments(db: &TestDb) {
    let mut connection = db.connect();
    let conn = &mut connection.as_conn();
    let mut world = World::default();
    world.process(conn);
    world.claimed(conn, 1, &limited());
    world.job(conn, &limited());
    let edit = |conn: &mut Conn<'_>| {
        let new = |_: &_| Ok::<_, diesel::result::Error>(arguments("\"new\""));
        let edited = edit::edit(conn, world.jobs[1], new).unwrap();
        assert_eq!(edited, EditOutcome::Done);
    };
    let finish = || {
        let next = NextJobs {
            queues: ClaimQueues::All,
            classes: vec!["a".to_owned()],
        };
        let slots = KeySlots::PassOn(&next, EqualJobs::Wait);
        let conn = &mut db.connect();
        let (process, claims) = (world.processes[0], &world.claims);
        finish::finish_free(
            &mut conn.as_conn(),
            process,
            claims,
            FinishedRow::Keep,
            slots,
        )
        .unwrap()
    };
    let done = std::thread::scope(|threads| {
        if !db.is_postgres() {
            edit(conn);
            return finish();
        }
        let lock = hold_up_ends(conn);
        let finishing = threads.spawn(finish);
        until_one_waits(conn, &lock);
        edit(conn);
        execute(conn, &format!("SELECT pg_advisory_unlock({lock})"));
        finishing.join().unwrap()
    });
    assert_eq!(done.accepted, world.claims);
    for job in done.next.jobs {
        assert_eq!(job.arguments, "\"new\"");
    }
    assert_eq!(checks::violations(conn), Vec::<String>::new());
}

fn assert_waiting(rows: &[checks::JobRow], count: usize) {
    assert_eq!(rows.len(), count);
    for row in rows {
        assert!(row.place == "scheduled" && !row.due, "{row:?}");
    }
}

on_each_database!(
    a_tick_that_comes_during_a_look_is_not_slept_over,
    an_endless_delay_of_a_release_is_long,
    a_claim_that_has_started_does_not_take_what_is_edited,
    a_claim_without_a_job_goes_with_its_process,
    jobs_that_wait_for_none_go_on,
    one_unreadable_part_of_a_policy_leaves_the_other,
    a_job_that_was_claimed_ahead_still_expires,
    an_edited_job_does_not_start_with_its_old_arguments,
);
