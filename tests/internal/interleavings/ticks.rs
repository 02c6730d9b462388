//! Schedulers at one tick, and whoever changes its task meanwhile.

use crate::db::conn::connection::{AsConn as _, Conn};
use crate::db::internal_tests::checks;
use crate::db::internal_tests::db::{TestDb, execute, on_each_database};
use crate::db::internal_tests::interleavings::Play;
use crate::db::internal_tests::interleavings::world::{World, row};
use crate::db::model::recurring::{Definition, DueTick, Firing, Overlap};
use crate::db::table::recurring_tasks;
use crate::db::transition::{fire, schedule};
use chrono::{NaiveDate, NaiveDateTime, TimeDelta};
use diesel::QueryResult;
use diesel::result::Error::RollbackTransaction;

fn task(schedule: &str) -> Definition {
    Definition {
        key: "task".to_owned(),
        schedule: schedule.to_owned(),
        in_ruby: "0 * * * * UTC".to_owned(),
        time_zone: "UTC".to_owned(),
        class_name: "a".to_owned(),
        arguments: "{}".to_owned(),
        queue_name: "default".to_owned(),
        priority: 0,
        description: None,
        options: String::new(),
        revision: None,
        start: None,
    }
}

fn tick() -> NaiveDateTime {
    NaiveDate::from_ymd_opt(2026, 1, 1)
        .unwrap()
        .and_time(chrono::NaiveTime::MIN)
}

/// A task with one tick that is due.
fn one_due(conn: &mut Conn<'_>) -> World {
    schedule::schedule(conn, &task("@daily"), &|_| Some(tick())).unwrap();
    World::default()
}

fn nothing(_conn: &mut Conn<'_>) -> World {
    World::default()
}

/// A scheduler: it looks, and then it fires what it has seen.
fn fire(conn: &mut Conn<'_>) -> QueryResult<String> {
    let due = recurring_tasks::due(conn, "[]", 0)?;
    let Some(task) = due.first() else {
        return Ok("0".to_owned());
    };
    let firing = Firing {
        task,
        ticks: &[DueTick {
            at: tick(),
            job: row(),
        }],
        next_run_at: tick() + TimeDelta::days(100_000),
        overlap: Overlap::Allow,
    };
    let fired = fire::fire(conn, &[firing])?.remove(0);
    Ok(fired.map_or(0, |fired| fired.jobs.len()).to_string())
}

/// One whose process dies before it commits.
fn fire_and_die(conn: &mut Conn<'_>) -> QueryResult<String> {
    let died = conn.transaction(|conn| {
        fire(conn)?;
        Err::<(), _>(RollbackTransaction)
    });
    assert_eq!(died, Err(RollbackTransaction));
    Ok("died".to_owned())
}

/// Takes all jobs away, and the rows of ticks with them.
fn clear(conn: &mut Conn<'_>) -> QueryResult<String> {
    conn.transaction(|conn| {
        execute(conn, "DELETE FROM solid_queue_ready_executions");
        execute(conn, "DELETE FROM solid_queue_jobs");
        Ok("done".to_owned())
    })
}

fn two_schedulers(db: &TestDb) {
    Play::new(db, one_due)
        .actor("a", |c, _| fire(c))
        .actor("b", |c, _| fire(c))
        .ends_in(&["a 0, b 1 -> new ready; ", "a 1, b 0 -> new ready; "]);
}

/// A scheduler that starts: it declares the start of its deployment, and fires what is due.
fn start(conn: &mut Conn<'_>, deployment: &str) -> QueryResult<String> {
    let declared = Definition {
        revision: Some(0),
        start: Some(deployment.to_owned()),
        ..task("@start")
    };
    let never = tick() + TimeDelta::days(100_000);
    schedule::schedule(conn, &declared, &|_| Some(never))?;
    let due = recurring_tasks::due(conn, "[\"task\"]", 0)?;
    let Some((task, at)) = due.first().and_then(|task| Some((task, task.next_run_at?))) else {
        return Ok("0".to_owned());
    };
    let firing = Firing {
        task,
        ticks: &[DueTick { at, job: row() }],
        next_run_at: never,
        overlap: Overlap::Allow,
    };
    let fired = fire::fire(conn, &[firing])?.remove(0);
    Ok(fired.map_or(0, |fired| fired.jobs.len()).to_string())
}

/// The start of a deployment is fired once, however its schedulers start.
fn two_schedulers_of_a_deployment(db: &TestDb) {
    Play::new(db, nothing)
        .coarse()
        .actor("a", |c, _| start(c, "one"))
        .actor("b", |c, _| start(c, "one"))
        .ends_in(&["a 0, b 1 -> new ready; ", "a 1, b 0 -> new ready; "]);
}

/// No trace is left of the first one's job when the second one comes.
fn two_schedulers_and_the_clearing(db: &TestDb) {
    Play::new(db, one_due)
        .coarse()
        .actor("a", |c, _| fire(c))
        .actor("b", |c, _| fire(c))
        .actor("clear", |c, _| clear(c))
        .ends_in(&[
            "a 0, b 1, clear done -> ; ",
            "a 0, b 1, clear done -> new ready; ",
            "a 1, b 0, clear done -> ; ",
            "a 1, b 0, clear done -> new ready; ",
        ]);
}

/// The other one fires it or, if it comes while the dying one still holds the
/// task, leaves it to whoever looks next.
fn one_that_dies_and_another(db: &TestDb) {
    Play::new(db, one_due)
        .actor("one", |c, _| fire_and_die(c))
        .actor("other", |c, _| fire(c))
        .also_on_postgres(&["one died, other 0 -> ; "])
        .ends_in(&["one died, other 1 -> new ready; "]);
    let mut connection = db.connect();
    checks::clear(&mut db.untriggered().as_conn());
    let conn = &mut connection.as_conn();
    one_due(conn);
    fire_and_die(conn).unwrap();
    assert_eq!(
        (fire(conn).unwrap(), fire(conn).unwrap()),
        ("1".into(), "0".into())
    );
}

fn a_scheduler_and_a_pause(db: &TestDb) {
    Play::new(db, one_due)
        .actor("fire", |c, _| fire(c))
        .actor("pause", |c, _| {
            schedule::pause(c, "task").map(|done| done.to_string())
        })
        .ends_in(&[
            "fire 0, pause true -> ; ",
            "fire 1, pause true -> new ready; ",
        ]);
}

fn a_scheduler_and_a_change(db: &TestDb) {
    Play::new(db, one_due)
        .actor("fire", |c, _| fire(c))
        .actor("change", |c, _| {
            schedule::schedule(c, &task("@hourly"), &|now| Some(now + TimeDelta::hours(1)))?;
            Ok("done".to_owned())
        })
        .ends_in(&[
            "fire 0, change done -> ; ",
            "fire 1, change done -> new ready; ",
        ]);
}

fn a_scheduler_and_an_end(db: &TestDb) {
    Play::new(db, one_due)
        .actor("fire", |c, _| fire(c))
        .actor("end", |c, _| {
            schedule::unschedule(c, "task").map(|done| done.to_string())
        })
        .ends_in(&["fire 0, end true -> ; ", "fire 1, end true -> new ready; "]);
}

fn a_scheduler_and_a_run_by_hand(db: &TestDb) {
    Play::new(db, one_due)
        .actor("fire", |c, _| fire(c))
        .actor("run", |c, _| {
            let job = fire::run_now(c, "task", |_| Ok(row())).unwrap();
            Ok(if job.is_some() { "done" } else { "unknown" }.to_owned())
        })
        // It does not wait for who holds the task, and looks again.
        .also_on_postgres(&["fire 0, run done -> new ready; "])
        .ends_in(&["fire 1, run done -> new ready, new ready; "]);
}

fn schedule(conn: &mut Conn<'_>) -> QueryResult<String> {
    schedule::schedule(conn, &task("@daily"), &|_| Some(tick()))?;
    Ok(recurring_tasks::list_tasks(conn, None)?.len().to_string())
}

fn two_who_schedule_a_new_task(db: &TestDb) {
    Play::new(db, nothing)
        .actor("one", |c, _| schedule(c))
        .actor("other", |c, _| schedule(c))
        .ends_in(&["one 1, other 1 -> ; "]);
}

on_each_database!(
    two_schedulers,
    two_schedulers_of_a_deployment,
    two_schedulers_and_the_clearing,
    one_that_dies_and_another,
    a_scheduler_and_a_pause,
    a_scheduler_and_a_change,
    a_scheduler_and_an_end,
    a_scheduler_and_a_run_by_hand,
    two_who_schedule_a_new_task,
);
