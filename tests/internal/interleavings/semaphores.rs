//! Jobs of Ruby with a limit, performed here: however a claim ends, the slot of its semaphore goes to the next job of
//! Ruby, or back. Solid Queue's own statements are said in SQL.

use crate::db::conn::connection::{AsConn, Conn};
use crate::db::conn::statement::Statement;
use crate::db::internal_tests::db::{TestDb, execute, on_each_database, texts};
use crate::db::internal_tests::interleavings::Play;
use crate::db::internal_tests::interleavings::acts::*;
use crate::db::internal_tests::interleavings::world::{World, limited, take};
use crate::db::model::claim::FinishedRow::{Delete, Keep};
use crate::db::transition::enqueue;
use diesel::QueryResult;

const NOW: &str = "'2026-11-25 05:00:00.000000'";

fn run(conn: &mut Conn<'_>, text: &str) -> QueryResult<()> {
    Statement::new(text.to_owned()).uncached().execute(conn)
}

/// Enqueues a job with a limit as Ruby does: locks the semaphore, or makes it, and takes a slot, or blocks the job.
fn ruby_enqueues(conn: &mut Conn<'_>, limit: u32) -> QueryResult<String> {
    conn.transaction(|conn| {
        run(conn, &format!(
            "INSERT INTO solid_queue_jobs (queue_name, class_name, arguments, priority, concurrency_key, created_at, updated_at) \
             VALUES ('default', 'a', 'null', 0, 'k', {NOW}, {NOW})"
        ))?;
        run(conn, &format!(
            "INSERT INTO solid_queue_semaphores (key, value, expires_at, created_at, updated_at) \
             VALUES ('k', {limit}, '2999-01-01 00:00:00.000000', {NOW}, {NOW}) ON CONFLICT (key) DO NOTHING"
        ))?;
        run(conn, "SELECT id FROM solid_queue_semaphores WHERE key = 'k' {lock}")?;
        run(conn, &format!(
            "INSERT INTO solid_queue_ready_executions (job_id, queue_name, priority, created_at) \
             SELECT max(j.id), 'default', 0, {NOW} FROM solid_queue_jobs j \
             HAVING EXISTS (SELECT 1 FROM solid_queue_semaphores WHERE key = 'k' AND value > 0)"
        ))?;
        run(conn, &format!(
            "INSERT INTO solid_queue_blocked_executions (job_id, queue_name, priority, concurrency_key, expires_at, created_at) \
             SELECT max(j.id), 'default', 0, 'k', '2026-11-25 05:10:00.000000', {NOW} FROM solid_queue_jobs j \
             HAVING max(j.id) NOT IN (SELECT job_id FROM solid_queue_ready_executions)"
        ))?;
        run(conn, "UPDATE solid_queue_semaphores SET value = value - 1 WHERE key = 'k' AND value > 0")?;
        Ok("done".to_owned())
    })
}

/// Signals the semaphore as Ruby does at the end of its own job.
fn ruby_signals(conn: &mut Conn<'_>, limit: u32) -> QueryResult<String> {
    let text = format!(
        "UPDATE solid_queue_semaphores SET value = value + 1 WHERE key = 'k' AND value < {limit}"
    );
    run(conn, &text)?;
    Ok("done".to_owned())
}

fn enqueue_three(conn: &mut Conn<'_>, limit: u32) -> World {
    let mut world = World::default();
    world.process(conn);
    execute(conn, "DELETE FROM solid_queue_semaphores");
    for _ in 0..3 {
        ruby_enqueues(conn, limit).unwrap();
    }
    let ids = texts(
        conn,
        "SELECT CAST(id AS text) AS t FROM solid_queue_jobs ORDER BY id",
    );
    world.jobs = ids.iter().map(|id| id.parse().unwrap()).collect();
    let claims = take(conn, world.processes[0], 5).unwrap().unwrap();
    world
        .claims
        .extend(claims.into_iter().map(|(claim, _)| claim));
    world
}

/// p1 holds j1, and with it the only slot; j2 and j3 are blocked.
fn one_held(conn: &mut Conn<'_>) -> World {
    enqueue_three(conn, 1)
}

/// p1 holds j1 and j2, both slots; j3 is blocked.
fn two_held(conn: &mut Conn<'_>) -> World {
    enqueue_three(conn, 2)
}

/// The same as one held, but the semaphore has expired: Ruby has deleted it, and made it anew for j3.
fn one_held_of_a_lost_semaphore(conn: &mut Conn<'_>) -> World {
    let world = enqueue_three(conn, 1);
    for text in [
        "DELETE FROM solid_queue_semaphores",
        "DELETE FROM solid_queue_blocked_executions",
        "DELETE FROM solid_queue_jobs WHERE id NOT IN (SELECT job_id FROM solid_queue_claimed_executions)",
    ] {
        execute(conn, text);
    }
    ruby_enqueues(conn, 1).unwrap();
    world
}

/// Promotes, and returns the number of promoted jobs and the value of the semaphore afterwards.
fn signal(conn: &mut Conn<'_>) -> QueryResult<String> {
    let promoted = promote(conn, 10)?;
    let value = texts(
        conn,
        "SELECT CAST(value AS text) AS t FROM solid_queue_semaphores",
    );
    Ok(format!("{promoted} leaves {}", value.join(" ")))
}

fn then_signal(conn: &mut Conn<'_>, ended: &str) -> QueryResult<String> {
    Ok(format!("{ended} {}", signal(conn)?))
}

fn each_end_gives_the_slot_to_the_next(db: &TestDb) {
    type Act = fn(&mut Conn<'_>, &World) -> QueryResult<String>;
    let ends: [(Act, &str); 7] = [
        (
            |c, w| {
                let ended = finish(c, w, 1, &[1], Keep)?;
                then_signal(c, &ended)
            },
            "1 1 leaves 0 -> j1 finished, j2 ready, j3 blocked; p1",
        ),
        (
            |c, w| {
                let ended = finish(c, w, 1, &[1], Delete)?;
                then_signal(c, &ended)
            },
            "1 1 leaves 0 -> j2 ready, j3 blocked; p1",
        ),
        (
            |c, w| {
                let ended = finish_and_take_next(c, w, 1, &[1])?;
                then_signal(c, &ended)
            },
            "1 took 0 1 leaves 0 -> j1 finished, j2 ready, j3 blocked; p1",
        ),
        (
            |c, w| {
                let ended = fail(c, w, 1, 1)?;
                then_signal(c, &ended)
            },
            "1 1 leaves 0 -> j1 failed, j2 ready, j3 blocked; p1",
        ),
        // A job that waits again waits for a slot, and comes first.
        (
            |c, w| {
                let ended = end(c, w, (1, 1), &retrying(), Keep)?;
                then_signal(c, &ended)
            },
            "retried 1 leaves 0 -> j1 ready, j2 blocked, j3 blocked; p1",
        ),
        (
            |c, w| {
                let ended = release(c, w, 1, &[1], None)?;
                then_signal(c, &ended)
            },
            "1 1 leaves 0 -> j1 ready, j2 blocked, j3 blocked; p1",
        ),
        (
            |c, w| {
                let ended = prune(c, w, 1, Some(0))?;
                then_signal(c, &ended)
            },
            "1+0+0 1 leaves 0 -> j1 ready (1 crash), j2 blocked, j3 blocked; ",
        ),
    ];
    for (act, outcome) in ends {
        Play::new(db, one_held)
            .coarse()
            .actor("end", act)
            .ends_in(&[&format!("end {outcome}")]);
    }
}

fn a_discarded_job_gives_its_slot_back(db: &TestDb) {
    fn one_ready(conn: &mut Conn<'_>) -> World {
        let world = one_held(conn);
        finish(conn, &world, 1, &[1], Keep).unwrap();
        promote(conn, 10).unwrap();
        world
    }
    Play::new(db, one_ready)
        .coarse()
        .actor("discard", |c, w| {
            let gone = discard(c, w, &[2])?;
            Ok(format!("{gone} {}", signal(c)?))
        })
        .ends_in(&["discard 1 1 leaves 0 -> j1 finished, j3 ready; p1"]);
}

fn the_slot_of_a_lost_semaphore_is_not_given_to_the_new_one(db: &TestDb) {
    Play::new(db, one_held_of_a_lost_semaphore)
        .coarse()
        .actor("finish", |c, w| {
            let ended = finish(c, w, 1, &[1], Keep)?;
            Ok(format!("{ended} {}", signal(c)?))
        })
        .ends_in(&["finish 1 0 leaves 0 -> j1 finished, new ready; p1"]);
}

/// A key that Rust's jobs have too has two limits.
fn a_key_of_both_sides_is_signalled(db: &TestDb) {
    fn also_of_rust(conn: &mut Conn<'_>) -> World {
        let world = one_held(conn);
        let mut row = limited();
        row.limit
            .iter_mut()
            .for_each(|limit| limit.key = "k".to_owned());
        enqueue::insert_job(conn, &row).unwrap();
        promote(conn, 10).unwrap();
        world
    }
    Play::new(db, also_of_rust)
        .coarse()
        .actor("finish", |c, w| {
            let ended = finish(c, w, 1, &[1], Keep)?;
            then_signal(c, &ended)
        })
        .ends_in(&["finish 1 1 leaves 0 -> j1 finished, j2 ready, j3 blocked, new ready; p1"]);
    // Released, it waits under the key itself.
    Play::new(db, also_of_rust)
        .coarse()
        .actor("release", |c, w| {
            let ended = release(c, w, 1, &[1], None)?;
            then_signal(c, &ended)
        })
        .ends_in(&["release 1 1 leaves 0 -> j1 ready, j2 blocked, j3 blocked, new ready; p1"]);
}

/// The semaphore is kept for a while even for a job without a duration of Ruby's.
fn a_slot_that_is_taken_renews_the_semaphore(db: &TestDb) {
    let mut connection = db.connect();
    let conn = &mut connection.as_conn();
    let world = one_held(conn);
    execute(
        conn,
        "UPDATE solid_queue_semaphores SET expires_at = '2026-01-01 00:00:00.000000'",
    );
    release(conn, &world, 1, &[1], None).unwrap();
    assert_eq!(signal(conn).unwrap(), "1 leaves 0");
    let later = texts(
        conn,
        "SELECT CAST(count(*) AS text) AS t FROM solid_queue_semaphores WHERE expires_at > '2026-06-01 00:00:00.000000'",
    );
    assert_eq!(later, ["1"]);
}

fn two_ends_are_two_signals(db: &TestDb) {
    Play::new(db, two_held)
        .coarse()
        .actor("one", |c, w| finish(c, w, 1, &[1], Keep))
        .actor("two", |c, w| finish(c, w, 1, &[2], Keep))
        .ends_in(&["one 1, two 1 -> j1 finished, j2 finished, j3 blocked; p1"]);
    let mut connection = db.connect();
    let conn = &mut connection.as_conn();
    assert_eq!(signal(conn).unwrap(), "1 leaves 1");
}

/// The end of a job does not wait for a semaphore that Ruby has locked: the next promotion signals it.
fn an_end_while_ruby_enqueues(db: &TestDb) {
    Play::new(db, one_held)
        .coarse()
        .actor("finish", |c, w| {
            let ended = finish(c, w, 1, &[1], Keep)?;
            promote(c, 10)?;
            Ok(ended)
        })
        .actor("ruby", |c, _| ruby_enqueues(c, 1))
        .also_on_postgres(&[
            "finish 1, ruby done -> j1 finished, j2 blocked, j3 blocked, new blocked; p1",
        ])
        .ends_in(&["finish 1, ruby done -> j1 finished, j2 ready, j3 blocked, new blocked; p1"]);
    let mut connection = db.connect();
    let conn = &mut connection.as_conn();
    promote(conn, 10).unwrap();
    let ready = texts(
        conn,
        "SELECT CAST(count(*) AS text) AS t FROM solid_queue_ready_executions",
    );
    assert_eq!(ready, ["1"]);
    assert_eq!(signal(conn).unwrap(), "0 leaves 0");
}

fn an_end_while_ruby_ends_another(db: &TestDb) {
    Play::new(db, two_held)
        .coarse()
        .actor("finish", |c, w| {
            let ended = finish(c, w, 1, &[1], Keep)?;
            promote(c, 10)?;
            Ok(ended)
        })
        .actor("ruby", |c, _| ruby_signals(c, 2))
        .ends_in(&["finish 1, ruby done -> j1 finished, j2 claimed by p1, j3 ready; p1"]);
    let mut connection = db.connect();
    let conn = &mut connection.as_conn();
    promote(conn, 10).unwrap();
    // Of three slots given, one went to j3.
    assert_eq!(signal(conn).unwrap(), "0 leaves 1");
}

on_each_database!(
    each_end_gives_the_slot_to_the_next,
    a_discarded_job_gives_its_slot_back,
    the_slot_of_a_lost_semaphore_is_not_given_to_the_new_one,
    a_key_of_both_sides_is_signalled,
    a_slot_that_is_taken_renews_the_semaphore,
    two_ends_are_two_signals,
    an_end_while_ruby_enqueues,
    an_end_while_ruby_ends_another,
);
