//! Claims behind jobs of paused classes.

use crate::clock;
use crate::db::conn::connection::{AsConn, Conn};
use crate::db::conn::dialect::Dialect;
use crate::db::internal_tests::checks;
use crate::db::internal_tests::db::{TestDb, execute, on_each_database, texts};
use crate::db::internal_tests::interleavings::world::{World, row};
use crate::db::model::claim::{Begins, ClaimQueues, ClaimRequest, Claimed, Claims};
use crate::db::model::new_row::NewRow;
use crate::db::transition::{end, enqueue};
use crate::process::worker::claim::class_filter::PausedFront;
use std::time::Duration;

on_each_database!(
    claims_are_the_same_as_without_a_memory,
    paused_jobs_are_passed_once,
    many_new_jobs_are_claimed_in_their_order,
);

/// A class that is paused: a claim does not name it.
fn held() -> NewRow {
    NewRow {
        class_name: "held".to_owned(),
        ..row()
    }
}

fn claim(
    conn: &mut Conn<'_>,
    front: &mut PausedFront,
    process_id: i64,
    queues: &ClaimQueues,
    limit: usize,
) -> Vec<Claimed> {
    let want = ClaimRequest {
        process_id,
        queues,
        classes: &["a".to_owned()],
        max_jobs: limit,
        begins: Begins::All,
        from: &[],
        wanted_after: 0,
    };
    match front.claim(conn, &want).unwrap() {
        Claims::Held { jobs, .. } => jobs,
        Claims::Unregistered => panic!("{process_id} is not registered"),
    }
}

/// Gives the next execution an id far from those before, as if many had come and gone.
fn skip_ids(conn: &mut Conn<'_>) {
    execute(
        conn,
        match conn.dialect() {
            Dialect::Postgres => {
                "SELECT setval(s, nextval(s) + 2000) \
                 FROM pg_get_serial_sequence('solid_queue_ready_executions', 'id') AS s"
            }
            Dialect::Sqlite => {
                "UPDATE sqlite_sequence SET seq = seq + 2000 WHERE name = 'solid_queue_ready_executions'"
            }
        },
    );
}

/// Returns the jobs that a claim must return, in their order.
fn first_open(conn: &mut Conn<'_>, queues: &ClaimQueues, limit: usize) -> Vec<i64> {
    let mut jobs = Vec::new();
    for name in queues.names() {
        let text = format!(
            "SELECT CAST(job_id AS text) AS t FROM solid_queue_ready_executions \
             WHERE class_name = 'a' AND '{name}' IN ('', queue_name) ORDER BY priority, job_id"
        );
        let ids = texts(conn, &text);
        jobs.extend(ids.iter().map(|id| id.parse::<i64>().unwrap()));
    }
    jobs.truncate(limit);
    jobs
}

fn ids(jobs: &[Claimed]) -> Vec<i64> {
    jobs.iter().map(|job| job.job_id).collect()
}

/// Whatever is enqueued, released and claimed, in whatever order.
fn claims_are_the_same_as_without_a_memory(db: &TestDb) {
    let mut connection = db.connect();
    let conn = &mut connection.as_conn();
    let mut world = World::default();
    world.process(conn);
    let process = world.processes[0];
    for seed in 0..24 {
        let mut random = fastrand::Rng::with_seed(seed);
        let named =
            |names: &[&str]| ClaimQueues::Named(names.iter().map(|q| (*q).into()).collect());
        let queues = match seed % 3 {
            0 => ClaimQueues::All,
            1 => named(&["q1", "q2"]),
            _ => named(&["q2"]),
        };
        let mut front = PausedFront::default();
        for step in 0..60 {
            match random.u8(..10) {
                0..=4 => {
                    let row = NewRow {
                        priority: random.i32(-2..=2),
                        queue_name: format!("q{}", random.u8(1..=2)),
                        ..if random.u8(..3) == 0 { row() } else { held() }
                    };
                    let rows = vec![row; random.usize(1..=4)];
                    enqueue::insert_all(conn, &rows).unwrap();
                }
                5 => skip_ids(conn),
                6 => {
                    let claims = texts(
                        conn,
                        "SELECT CAST(id AS text) AS t FROM solid_queue_claimed_executions ORDER BY id",
                    );
                    let claims: Vec<i64> = claims.iter().map(|id| id.parse().unwrap()).collect();
                    let some: Vec<i64> = claims.into_iter().filter(|_| random.bool()).collect();
                    end::release(conn, process, &some, None).unwrap();
                }
                7 if random.u8(..4) == 0 => front.forget(),
                _ => {
                    let limit = random.usize(1..=5);
                    let expected = first_open(conn, &queues, limit);
                    let mut found = ids(&claim(conn, &mut front, process, &queues, limit));
                    if found.len() < expected.len() {
                        // The worker claims again as long as it finds something.
                        let rest = expected.len() - found.len();
                        found.extend(ids(&claim(conn, &mut front, process, &queues, rest)));
                    }
                    assert_eq!(found, expected, "seed {seed}, step {step}, {queues:?}");
                }
            }
        }
        assert_eq!(checks::violations(conn), Vec::<String>::new());
    }
}

/// A job whose class is changed by hand behind the front shows that nothing looks there, until the
/// next scan from the beginning.
fn paused_jobs_are_passed_once(db: &TestDb) {
    let mut connection = db.connect();
    let conn = &mut connection.as_conn();
    let mut world = World::default();
    world.process(conn);
    let process = world.processes[0];
    let open = "UPDATE solid_queue_ready_executions SET class_name = 'a' \
                WHERE job_id = (SELECT min(job_id) FROM solid_queue_ready_executions)";
    // After ten seconds without the processor, a scan from the beginning is due.
    for _ in 0..20 {
        execute(conn, "DELETE FROM solid_queue_ready_executions");
        let mut front = PausedFront::default();
        enqueue::insert_all(conn, &vec![held(); 20]).unwrap();
        skip_ids(conn);
        enqueue::insert_all(conn, &vec![row(); 2]).unwrap();
        let begun = clock::instant();
        let all = &ClaimQueues::All;
        let first = claim(conn, &mut front, process, all, 1);
        execute(conn, open);
        let second = claim(conn, &mut front, process, all, 1);
        let third = claim(conn, &mut front, process, all, 1);
        let has_paused = begun.elapsed() > Duration::from_secs(5);
        front.forget();
        let fourth = claim(conn, &mut front, process, all, 1);
        if has_paused {
            continue;
        }
        assert!(first[0].job_id < second[0].job_id);
        assert_eq!(third.len(), 0, "{third:?}");
        assert!(fourth[0].job_id < first[0].job_id);
        return;
    }
    panic!("the machine pauses too often");
}

/// So many that they are found by a scan from the beginning.
fn many_new_jobs_are_claimed_in_their_order(db: &TestDb) {
    let mut connection = db.connect();
    let conn = &mut connection.as_conn();
    let mut world = World::default();
    world.process(conn);
    let process = world.processes[0];
    let mut front = PausedFront::default();
    enqueue::insert_all(conn, &vec![held(); 20]).unwrap();
    let all = &ClaimQueues::All;
    assert_eq!(claim(conn, &mut front, process, all, 2).len(), 0);
    for number in 0..12 {
        skip_ids(conn);
        let urgent = NewRow {
            priority: -number,
            ..row()
        };
        enqueue::insert_all(conn, &vec![urgent; 2]).unwrap();
    }
    // The ids are read again by then.
    std::thread::sleep(Duration::from_millis(600));
    for _ in 0..12 {
        let expected = first_open(conn, all, 2);
        assert_eq!(ids(&claim(conn, &mut front, process, all, 2)), expected);
    }
    assert_eq!(claim(conn, &mut front, process, all, 2).len(), 0);
    assert_eq!(checks::jobs(conn).len(), 44);
}
