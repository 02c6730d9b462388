//! A retry of a failed job, beside jobs that undo its steps: it finds each step either undone and forgotten, or neither.

use crate::db::conn::connection::Conn;
use crate::db::internal_tests::db::{TestDb, execute, on_each_database, texts};
use crate::db::internal_tests::interleavings::Play;
use crate::db::internal_tests::interleavings::acts::{fail, retry};
use crate::db::internal_tests::interleavings::world::{World, row};
use crate::db::model::extras::{Follows, On, Otherwise, Parent};
use crate::db::model::new_row::NewRow;
use crate::db::table::steps;
use crate::db::transition::enqueue::connect;
use crate::db::transition::promote;
use diesel::QueryResult;

on_each_database!(
    a_job_is_retried_beside_the_look_at_its_failure,
    a_job_is_retried_beside_the_start_of_an_undo,
);

/// j1 has failed, and j2 undoes its step.
fn failed(conn: &mut Conn<'_>) -> World {
    execute(conn, "DELETE FROM windlass_steps");
    let mut world = World::default();
    world.process(conn);
    world.claimed(conn, 1, &row());
    let job = world.jobs[0];
    let follows = Follows {
        parents: vec![(Parent::Job(job), Some("a".to_owned()))],
        on: On::Failure,
        otherwise: Otherwise::Undo,
    };
    let undoes = NewRow {
        follows: Some(Box::new(follows)),
        ..row()
    };
    world.job(conn, &undoes);
    connect::reverse(conn, job, world.jobs[1]).unwrap();
    steps::record(conn, job, "a", "1").unwrap();
    promote_all(conn).unwrap();
    fail(conn, &world, 1, 1).unwrap();
    world
}

/// Its failure was seen, and nothing more.
fn seen(conn: &mut Conn<'_>) -> World {
    let world = failed(conn);
    promote_once(conn).unwrap();
    world
}

fn promote_all(conn: &mut Conn<'_>) -> QueryResult<()> {
    while promote::promote(conn, 10)?.is_progress(10) {}
    Ok(())
}

fn promote_once(conn: &mut Conn<'_>) -> QueryResult<String> {
    promote::promote(conn, 10)?;
    Ok("once".to_owned())
}

/// The recorded steps, once all requests are handled.
fn settled(conn: &mut Conn<'_>) -> QueryResult<String> {
    promote_all(conn)?;
    let steps = texts(conn, "SELECT name AS t FROM windlass_steps ORDER BY name");
    Ok(format!("steps [{}]", steps.join(" ")))
}

fn a_job_is_retried_beside_the_look_at_its_failure(db: &TestDb) {
    Play::new(db, failed)
        .coarse()
        .finally(settled)
        .actor("retry", |c, w| retry(c, w, &[1]))
        .actor("promote", |c, _| promote_once(c))
        .ends_in(&["retry 1, promote once, steps [a] -> j1 ready, j2 blocked; p1"]);
}

fn a_job_is_retried_beside_the_start_of_an_undo(db: &TestDb) {
    Play::new(db, seen)
        .coarse()
        .finally(settled)
        .actor("retry", |c, w| retry(c, w, &[1]))
        .actor("promote", |c, _| promote_once(c))
        .ends_in(&[
            "retry 1, promote once, steps [] -> j1 ready, j2 ready; p1",
            "retry 1, promote once, steps [a] -> j1 ready, j2 blocked; p1",
        ]);
}
