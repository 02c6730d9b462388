//! Many jobs with unique ids in one call.

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::jobs::Note;
use std::sync::Barrier;
use windlass::jobs::EnqueueOutcome;
use windlass::policies::UniqueScope;
use windlass::{DbConnection, Enqueued, Error, NewJob, Policy, enqueue_all};

fn named(id: &str) -> NewJob {
    NewJob::new(&Note::new(id)).unwrap().unique_id(id)
}

/// Names whose order is not that of the jobs.
fn names(count: u32) -> Vec<String> {
    (0..count)
        .map(|n| format!("name {}", n * 7 % count))
        .collect()
}

fn enqueue(conn: &mut DbConnection, names: &[String]) -> Vec<Enqueued> {
    enqueue_all(conn, names.iter().map(|name| named(name))).unwrap()
}

/// Returns the names with their jobs, as the table of names has them and as the jobs do.
fn held(db: &TestDb) -> (Vec<String>, Vec<String>) {
    let ready = "JOIN solid_queue_ready_executions r ON r.job_id = j.id";
    (
        db.texts(
            "SELECT job_id || ' ' || unique_id || ' ' || scope AS t FROM windlass_unique_jobs ORDER BY job_id",
        ),
        db.texts(&format!(
            "SELECT j.id || ' ' || j.unique_id || ' until_finished' AS t FROM solid_queue_jobs j {ready} ORDER BY j.id"
        )),
    )
}

fn a_lot_takes_its_names_in_the_order_of_its_jobs(db: &TestDb) {
    for count in [1, 2, 50, 1_000, 1_300] {
        let names = names(count);
        let enqueued = enqueue(&mut db.connection(), &names);
        let is_new = |job: &Enqueued| job.is_new && job.outcome == EnqueueOutcome::New;
        assert!(enqueued.iter().all(is_new));
        assert!(enqueued.is_sorted_by(|one, next| one.id < next.id));
        let rows = enqueued.iter().zip(&names);
        let rows: Vec<String> = rows
            .map(|(job, name)| format!("{} {name} until_finished", job.id))
            .collect();
        assert_eq!(held(db), (rows.clone(), rows));
        for table in [
            "solid_queue_ready_executions",
            "windlass_unique_jobs",
            "solid_queue_jobs",
        ] {
            db.execute(&format!("DELETE FROM {table}"));
        }
    }
}

fn a_name_that_is_held_stops_no_other(db: &TestDb) {
    let first = named("name 3").enqueue(&mut db.connection()).unwrap();
    let names = names(20);
    let enqueued = enqueue(&mut db.connection(), &names);
    for (job, name) in enqueued.iter().zip(&names) {
        assert_eq!(job.is_new, name != "name 3");
        assert_eq!(job.id == first.id, name == "name 3");
    }
    let (table, jobs) = held(db);
    assert_eq!(table, jobs);
    assert_eq!(jobs.len(), 20);
    // Again, when all are held.
    let again = enqueue(&mut db.connection(), &names);
    let ids = |all: &[Enqueued]| all.iter().map(|job| job.id).collect::<Vec<_>>();
    assert_eq!(ids(&again), ids(&enqueued));
    assert!(again.iter().all(|job| !job.is_new));
    assert_eq!(held(db), (table, jobs));
}

fn lots_of_other_kinds_keep_their_names(db: &TestDb) {
    let mut conn = db.connection();
    // A name twice is one job.
    let twice = enqueue_all(&mut conn, [named("a"), named("b"), named("a")]).unwrap();
    assert_eq!(twice[0].id, twice[2].id);
    assert_eq!([0, 1, 2].map(|n| twice[n].is_new), [true, true, false]);
    // Scopes that differ, and jobs without names.
    let waiting = Policy::new().unique_scope(UniqueScope::WhileWaiting);
    let unnamed = NewJob::new(&Note::new("x")).unwrap();
    let mixed = [named("c"), named("d").policy(waiting), unnamed];
    let mixed = enqueue_all(&mut conn, mixed).unwrap();
    assert!(mixed.iter().all(|job| job.is_new));
    let scopes = db.texts(
        "SELECT unique_id || ' ' || scope AS t FROM windlass_unique_jobs ORDER BY unique_id",
    );
    let expected = [
        "a until_finished",
        "b until_finished",
        "c until_finished",
        "d while_waiting",
    ];
    assert_eq!(scopes, expected);
    assert_eq!(db.rows("ready_executions"), 5);
}

fn a_lot_of_a_transaction_is_rolled_back_with_it(db: &TestDb) {
    let names = names(30);
    let mut conn = db.connection();
    let undone = conn.transaction::<(), Error>(|conn| {
        enqueue_all(conn, names.iter().map(|name| named(name)))?;
        // All of them are held now, in the same transaction.
        let again = enqueue_all(conn, names.iter().map(|name| named(name)))?;
        assert!(again.iter().all(|job| !job.is_new));
        Err(diesel::result::Error::RollbackTransaction.into())
    });
    undone.unwrap_err();
    assert_eq!(held(db), (vec![], vec![]));
    let enqueued = enqueue(&mut conn, &names);
    assert!(enqueued.iter().all(|job| job.is_new));
    assert_eq!(held(db).0.len(), 30);
}

/// None of them waits for the other in a circle, and each name is one job's.
fn lots_at_once_in_another_order_share_their_names(db: &TestDb) {
    for round in 0..20 {
        let names: Vec<String> = (0..40).map(|n| format!("{round} {n}")).collect();
        let turned: Vec<String> = names.iter().rev().cloned().collect();
        let start = Barrier::new(2);
        let both = [&names, &turned].map(|names| (names, db.connection()));
        let mut lots: Vec<Vec<Enqueued>> = std::thread::scope(|scope| {
            let threads = both.map(|(names, mut conn)| {
                let start = &start;
                scope.spawn(move || {
                    start.wait();
                    enqueue(&mut conn, names)
                })
            });
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect()
        });
        lots[1].reverse();
        for (one, other) in lots[0].iter().zip(&lots[1]) {
            assert_eq!(one.id, other.id);
            assert!(one.is_new != other.is_new);
        }
    }
    assert_eq!(db.rows("jobs"), 800);
}

on_each_database!(
    a_lot_takes_its_names_in_the_order_of_its_jobs,
    a_name_that_is_held_stops_no_other,
    lots_of_other_kinds_keep_their_names,
    a_lot_of_a_transaction_is_rolled_back_with_it,
    lots_at_once_in_another_order_share_their_names,
);

crate::through_a_pooler!(
    a_lot_takes_its_names_in_the_order_of_its_jobs,
    a_name_that_is_held_stops_no_other,
    lots_at_once_in_another_order_share_their_names,
);
