//! Claims for which no thread is free yet.

use crate::db::conn::connection::{AsConn, Conn};
use crate::db::internal_tests::checks;
use crate::db::internal_tests::db::{TestDb, execute, on_each_database};
use crate::db::internal_tests::interleavings::world::{World, limited, once, row, with_key};
use crate::db::model::claim::{Begins, ClaimQueues, ClaimRequest, Claimed, Claims, Cursor};
use crate::db::model::decision::Death;
use crate::db::model::new_row::NewRow;
use crate::db::table::{claimed, processes};
use crate::db::transition::recover::Recovered;
use crate::db::transition::{claim, enqueue, promote, prune};

on_each_database!(
    what_may_run_once_has_not_begun_before_a_thread_is_free,
    brief_jobs_that_run_once_begin_with_their_claim,
    what_has_crashed_before_has_not_begun_either,
    what_no_crash_is_forgiven_has_not_begun_either,
    a_job_that_was_claimed_ahead_is_not_charged_with_a_crash,
    an_idle_worker_asks_a_busy_one_that_takes_the_same_jobs,
    nobody_begins_what_another_holds,
    a_look_from_a_mark_passes_what_comes_before,
    a_look_from_a_mark_passes_what_others_take,
    rows_of_ruby_are_claimed_among_ours,
    rows_of_ruby_behind_a_mark_are_claimed_by_the_same_claim,
);

fn claim(conn: &mut Conn<'_>, process_id: i64, ahead: bool, from: &[Cursor]) -> Vec<Claimed> {
    claim_up_to(10, conn, process_id, (ahead, from))
}

fn claim_up_to(
    limit: usize,
    conn: &mut Conn<'_>,
    process_id: i64,
    (ahead, from): (bool, &[Cursor]),
) -> Vec<Claimed> {
    let begins = match ahead {
        true => Begins::NotCautious,
        false => Begins::All,
    };
    claim_as(begins, conn, process_id, (limit, from))
}

fn claim_as(
    begins: Begins,
    conn: &mut Conn<'_>,
    process_id: i64,
    (limit, from): (usize, &[Cursor]),
) -> Vec<Claimed> {
    let want = ClaimRequest {
        process_id,
        queues: &ClaimQueues::All,
        classes: &["a".to_owned()],
        max_jobs: limit,
        begins,
        from,
        wanted_after: 0,
    };
    match claim::claim(conn, &want).unwrap() {
        Claims::Held { jobs, .. } => jobs,
        Claims::Unregistered => panic!("{process_id} is not registered"),
    }
}

fn kill(conn: &mut Conn<'_>, process_id: i64) -> Recovered {
    let death = Death {
        is_crash: true,
        how: "was killed by signal 9".to_owned(),
    };
    let recovered = prune::prune(conn, process_id, None, &death).unwrap();
    assert_eq!(checks::violations(conn), Vec::<String>::new());
    recovered.unwrap()
}

fn begun(claims: &[Claimed]) -> Vec<bool> {
    claims.iter().map(|claim| claim.begun).collect()
}

fn what_may_run_once_has_not_begun_before_a_thread_is_free(db: &TestDb) {
    let mut connection = db.connect();
    let conn = &mut connection.as_conn();
    let mut world = World::default();
    for _ in 0..3 {
        world.process(conn);
    }
    world.job(conn, &row());
    world.job(conn, &once());
    world.job(conn, &once());
    let held = claim(conn, world.processes[0], true, &[]);
    assert_eq!(begun(&held), [true, false, false]);
    let second = [held[1].claim_id];
    let noted = claimed::mark_started(conn, world.processes[0], &second).unwrap();
    assert_eq!(noted, second);
    let recovered = kill(conn, world.processes[0]);
    assert_eq!(recovered.failed, [world.jobs[1]]);
    assert_eq!(recovered.released, [world.jobs[0], world.jobs[2]]);
    // For threads that are free it is one step.
    let held = claim(conn, world.processes[1], false, &[]);
    assert_eq!(begun(&held), [true, true]);
    assert_eq!(kill(conn, world.processes[1]).failed, [world.jobs[2]]);
}

/// Only those of which a crash makes nothing worse: the others might bring each other down.
fn brief_jobs_that_run_once_begin_with_their_claim(db: &TestDb) {
    let mut connection = db.connect();
    let conn = &mut connection.as_conn();
    let mut world = World::default();
    for _ in 0..2 {
        world.process(conn);
    }
    let never = |row: NewRow| NewRow {
        max_crashes: Some(0),
        ..row
    };
    for row in [row(), once(), once(), never(once()), never(row())] {
        world.job(conn, &row);
    }
    let (usual, brief, crashed) = (world.jobs[0], world.jobs[1], world.jobs[2]);
    execute(
        conn,
        &format!("UPDATE solid_queue_jobs SET crash_count = 1 WHERE id = {crashed}"),
    );
    let held = claim_as(Begins::OnceToo, conn, world.processes[0], (10, &[]));
    assert_eq!(begun(&held), [true, true, false, false, false]);
    let recovered = kill(conn, world.processes[0]);
    assert_eq!(recovered.failed, [brief]);
    let rest = [usual, crashed, world.jobs[3], world.jobs[4]];
    assert_eq!(recovered.released, rest);
    // The one that has failed may not have run.
    assert_eq!(crashes(conn), [0, 0, 1, 0, 0]);
}

fn what_has_crashed_before_has_not_begun_either(db: &TestDb) {
    let mut connection = db.connect();
    let conn = &mut connection.as_conn();
    let mut world = World::default();
    for _ in 0..3 {
        world.process(conn);
    }
    world.job(conn, &row());
    assert_eq!(begun(&claim(conn, world.processes[0], false, &[])), [true]);
    assert_eq!(kill(conn, world.processes[0]).released, world.jobs);
    assert_eq!(begun(&claim(conn, world.processes[1], true, &[])), [false]);
    // No thread has begun it, so that it was not the cause of this death.
    assert_eq!(kill(conn, world.processes[1]).released, world.jobs);
    assert_eq!(crashes(conn), [1]);
}

fn crashes(conn: &mut Conn<'_>) -> Vec<i32> {
    let jobs = checks::jobs(conn);
    jobs.iter().map(|job| job.crash_count).collect()
}

/// It is not known whether it had started. The next death while it runs counts.
fn a_job_that_was_claimed_ahead_is_not_charged_with_a_crash(db: &TestDb) {
    let mut connection = db.connect();
    let conn = &mut connection.as_conn();
    let mut world = World::default();
    for _ in 0..3 {
        world.process(conn);
    }
    world.job(conn, &row());
    assert_eq!(begun(&claim(conn, world.processes[0], true, &[])), [true]);
    assert_eq!(kill(conn, world.processes[0]).released, world.jobs);
    assert_eq!(crashes(conn), [0]);
    assert_eq!(begun(&claim(conn, world.processes[1], true, &[])), [false]);
    assert_eq!(kill(conn, world.processes[1]).released, world.jobs);
    assert_eq!(crashes(conn), [0]);
    assert_eq!(begun(&claim(conn, world.processes[2], false, &[])), [true]);
    assert_eq!(kill(conn, world.processes[2]).released, world.jobs);
    assert_eq!(crashes(conn), [1]);
}

/// Only the busy worker that holds more than the job it runs is asked, and answers once.
fn an_idle_worker_asks_a_busy_one_that_takes_the_same_jobs(db: &TestDb) {
    let mut connection = db.connect();
    let conn = &mut connection.as_conn();
    let mut world = World::default();
    for _ in 0..5 {
        world.process(conn);
        world.job(conn, &row());
    }
    assert_eq!(
        claim_up_to(2, conn, world.processes[1], (false, &[])).len(),
        2
    );
    assert_eq!(
        claim_up_to(2, conn, world.processes[3], (false, &[])).len(),
        2
    );
    assert_eq!(
        claim_up_to(1, conn, world.processes[4], (false, &[])).len(),
        1
    );
    for (index, (channel, listening)) in [
        ("windlass_0123456789abcdef_1", true),
        ("windlass_0123456789abcdef_2", false),
        ("windlass_0123456789abcdef_3", true),
        ("windlass_fedcba9876543210_4", false),
        ("windlass_0123456789abcdef_5", false),
    ]
    .into_iter()
    .enumerate()
    {
        let id = world.processes[index];
        execute(
            conn,
            &format!(
                "UPDATE solid_queue_processes SET channel = '{channel}', listening = {listening} WHERE id = {id}"
            ),
        );
    }
    processes::request_release(conn, world.processes[0]).unwrap();
    let asked = |conn: &mut Conn<'_>| -> Vec<bool> {
        let ids = world.processes.iter();
        ids.map(|id| processes::take_release_request(conn, *id).unwrap())
            .collect()
    };
    assert_eq!(asked(conn), [false, true, false, false, false]);
    assert_eq!(asked(conn), [false; 5]);
}

/// Whichever way it became ready: no other job's crash may fail it.
fn what_no_crash_is_forgiven_has_not_begun_either(db: &TestDb) {
    let mut connection = db.connect();
    let conn = &mut connection.as_conn();
    let mut world = World::default();
    world.process(conn);
    world.process(conn);
    let named = |name: &str| NewRow {
        unique_id: Some(name.to_owned()),
        ..row()
    };
    let fragile = |row: NewRow| NewRow {
        max_crashes: Some(0),
        ..row
    };
    let mut jobs = vec![enqueue::insert_job(conn, &fragile(row())).unwrap().id];
    for one in [with_key("k"), limited(), named("u")] {
        jobs.push(enqueue::insert_job(conn, &fragile(one)).unwrap().id);
    }
    // One statement for few, for those with a key or name, and for very many.
    let few = [fragile(row()), fragile(row())];
    let keyed = [fragile(with_key("l")), fragile(named("v"))];
    let many = vec![fragile(row()); 200];
    for lot in [&few[..], &keyed, &many] {
        let lot = enqueue::insert_all(conn, lot).unwrap();
        jobs.extend(lot.into_iter().map(|one| one.id));
    }
    promote::promote(conn, 10).unwrap();
    let usual = enqueue::insert_job(conn, &row()).unwrap().id;
    let held = claim_up_to(500, conn, world.processes[0], (true, &[]));
    let begun: Vec<i64> = held
        .iter()
        .filter(|claim| claim.begun)
        .map(|claim| claim.job_id)
        .collect();
    assert_eq!((held.len(), begun), (jobs.len() + 1, vec![usual]));
    assert_eq!(kill(conn, world.processes[0]).failed, Vec::<i64>::new());
    // A second death, with one of them begun by a thread: it alone fails.
    let held = claim_up_to(500, conn, world.processes[1], (true, &[]));
    let first = held.iter().find(|claim| claim.job_id == jobs[0]).unwrap();
    claimed::mark_started(conn, world.processes[1], &[first.claim_id]).unwrap();
    assert_eq!(kill(conn, world.processes[1]).failed, [jobs[0]]);
}

fn nobody_begins_what_another_holds(db: &TestDb) {
    let mut connection = db.connect();
    let conn = &mut connection.as_conn();
    let mut world = World::default();
    world.process(conn);
    world.process(conn);
    world.job(conn, &once());
    let held = claim(conn, world.processes[0], true, &[]);
    let claims = [held[0].claim_id];
    let others = claimed::mark_started(conn, world.processes[1], &claims).unwrap();
    assert_eq!(others, Vec::<i64>::new());
    assert_eq!(kill(conn, world.processes[0]).released, world.jobs);
    let late = claimed::mark_started(conn, world.processes[0], &claims).unwrap();
    assert_eq!(late, Vec::<i64>::new());
}

fn a_look_from_a_mark_passes_what_comes_before(db: &TestDb) {
    let mut connection = db.connect();
    let conn = &mut connection.as_conn();
    let mut world = World::default();
    world.process(conn);
    for _ in 0..3 {
        world.job(conn, &row());
    }
    execute(
        conn,
        &format!(
            "UPDATE solid_queue_ready_executions SET priority = -5 WHERE job_id = {}",
            world.jobs[2]
        ),
    );
    let mark = Cursor {
        priority: 0,
        job_id: world.jobs[1],
    };
    let found = |held: Vec<Claimed>| -> Vec<i64> {
        let mut jobs: Vec<i64> = held.iter().map(|claim| claim.job_id).collect();
        jobs.sort_unstable();
        jobs
    };
    let first = found(claim(conn, world.processes[0], true, &[mark]));
    let rest = found(claim(conn, world.processes[0], true, &[]));
    if db.is_postgres() {
        assert_eq!(
            (first, rest),
            (vec![world.jobs[1]], vec![world.jobs[0], world.jobs[2]])
        );
    } else {
        // Nothing that was taken stays in its indexes, so it has no marks.
        assert_eq!((first, rest), (world.jobs.clone(), Vec::new()));
    }
}

/// On Postgres: the mark of a lock stays when its transaction is rolled back, and the row is free all the same.
fn a_look_from_a_mark_passes_what_others_take(db: &TestDb) {
    let mut connection = db.connect();
    let conn = &mut connection.as_conn();
    let mut world = World::default();
    world.process(conn);
    for _ in 0..3 {
        world.job(conn, &row());
    }
    let locked = format!(
        "UPDATE solid_queue_ready_executions SET priority = 9 WHERE job_id = {}",
        world.jobs[1]
    );
    let rolled_back = conn.transaction(|conn| {
        execute(conn, &locked);
        Err::<(), _>(diesel::result::Error::RollbackTransaction)
    });
    rolled_back.unwrap_err();
    let found = |held: Vec<Claimed>| -> Vec<i64> { held.iter().map(|one| one.job_id).collect() };
    let first = found(claim(conn, world.processes[0], true, &[Cursor::BEGINNING]));
    let rest = found(claim(conn, world.processes[0], true, &[]));
    if db.is_postgres() {
        assert_eq!(
            (first, rest),
            (vec![world.jobs[0], world.jobs[2]], vec![world.jobs[1]])
        );
    } else {
        assert_eq!((first, rest), (world.jobs.clone(), Vec::new()));
    }
}

/// The first statement of the claim has left its mark on them.
fn rows_of_ruby_behind_a_mark_are_claimed_by_the_same_claim(db: &TestDb) {
    let mut connection = db.connect();
    let conn = &mut connection.as_conn();
    let mut world = World::default();
    world.process(conn);
    for _ in 0..3 {
        world.job(conn, &row());
    }
    let of_ruby = "UPDATE solid_queue_ready_executions SET class_name = NULL WHERE job_id = ";
    execute(conn, &format!("{of_ruby}{}", world.jobs[1]));
    claim::postgres::expect_ours();
    let held = claim(conn, world.processes[0], true, &[Cursor::BEGINNING]);
    let mut held: Vec<i64> = held.iter().map(|one| one.job_id).collect();
    held.sort_unstable();
    assert_eq!(held, world.jobs);
}

/// In their order with ours, up to the limit, whether the program expects some or not.
fn rows_of_ruby_are_claimed_among_ours(db: &TestDb) {
    let mut connection = db.connect();
    let conn = &mut connection.as_conn();
    let mut world = World::default();
    world.process(conn);
    for expected in [[0, 2], [1, 2]] {
        let first = world.jobs.len();
        for _ in 0..5 {
            world.job(conn, &row());
        }
        let jobs = &world.jobs[first..];
        let of_ruby = expected
            .map(|index: usize| jobs[index].to_string())
            .join(",");
        execute(
            conn,
            &format!(
                "UPDATE solid_queue_ready_executions SET class_name = NULL WHERE job_id IN ({of_ruby})"
            ),
        );
        let process = world.processes[0];
        let held = [3, 3, 3].map(|limit| claim_up_to(limit, conn, process, (false, &[])));
        let held = held.map(|some| some.iter().map(|one| one.job_id).collect::<Vec<_>>());
        assert_eq!(held, [jobs[..3].to_vec(), jobs[3..].to_vec(), Vec::new()]);
    }
    assert_eq!(checks::violations(conn), Vec::<String>::new());
}
