//! The results that a job reads of those for which it waited.

use super::*;
use crate::on_each_database;
use std::sync::Mutex;
use windlass::jobs::Jobs;
use windlass::{Batch, Supervisor};

on_each_database!(
    the_results_of_a_batch_are_read_in_pages,
    results_live_as_long_as_a_job_waits_for_them,
    an_input_that_is_missing_is_an_error,
);

/// Returns its number, if that is even.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Number(u32);

impl Job for Number {
    const NAME: &'static str = "number";
    type State = ();
    type Output = Option<u32>;

    fn perform(self, _: &Context<'_, ()>) -> JobResult<Option<u32>> {
        Ok(self.0.is_multiple_of(2).then_some(self.0))
    }
}

/// Adds up what those before it have returned.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Sum;

impl Job for Sum {
    const NAME: &'static str = "sum";
    type State = Mutex<Vec<String>>;
    type Output = ();

    fn perform(self, cx: &Context<'_, Mutex<Vec<String>>>) -> JobResult {
        let (mut count, mut sum) = (0, 0);
        let mut names = Vec::new();
        for input in cx.inputs::<u32>() {
            let input = input?;
            (count, sum) = (count + 1, sum + input.value);
            names.extend(input.name);
        }
        names.dedup();
        let line = format!("{count} {sum} {}", names.join(","));
        cx.state().lock().unwrap().push(line);
        Ok(())
    }
}

fn registry(sums: &Arc<Mutex<Vec<String>>>) -> Registry {
    Registry::new()
        .register::<Number>(Arc::new(()))
        .register::<Sum>(Arc::clone(sums))
}

fn run(db: &TestDb, sums: &Arc<Mutex<Vec<String>>>) {
    run_until_none_is_left(db, registry(sums), "sum");
}

/// Runs jobs until none of the class is left.
fn run_until_none_is_left(db: &TestDb, registry: Registry, class: &str) {
    let worker = Worker::new(&db.database, registry).start().unwrap();
    let left = format!(
        "SELECT count(*) AS n FROM solid_queue_jobs WHERE class_name = '{class}' AND finished_at IS NULL"
    );
    until("none is left", || db.count(&left) == 0);
    worker.stop();
}

fn number(n: u32) -> NewJob {
    NewJob::new(&Number(n)).unwrap()
}

fn sum() -> NewJob {
    NewJob::new(&Sum).unwrap()
}

fn the_results_of_a_batch_are_read_in_pages(db: &TestDb) {
    let sums = Arc::default();
    let mut conn = db.connect();
    let batch = Batch::new("numbers").add((0..450).map(number));
    let batch = batch.on_success(sum()).enqueue(&mut conn).unwrap().id;
    let [a, b] = [1_000, 2_000].map(|n| number(n).enqueue(&mut conn).unwrap());
    let named = sum().after([("a", a), ("b", b)]).after(("batch", batch));
    named.enqueue(&mut conn).unwrap();
    run(db, &sums);
    let mut found = sums.lock().unwrap().clone();
    found.sort();
    // 0 + 2 + .. + 448, and those of the two jobs.
    assert_eq!(found, ["225 50400 ", "227 53400 a,b,batch"]);
}

fn results_live_as_long_as_a_job_waits_for_them(db: &TestDb) {
    let sums = Arc::default();
    let mut conn = db.connect();
    let batch = Batch::new("numbers").add([number(2)]).on_success(sum());
    batch.enqueue(&mut conn).unwrap();
    let parent = number(4).enqueue(&mut conn).unwrap();
    let child = sum().after(parent).enqueue(&mut conn).unwrap();
    number(6).enqueue(&mut conn).unwrap();
    // The jobs that follow stay where they are.
    let numbers = Registry::new().register::<Number>(Arc::new(()));
    run_until_none_is_left(db, numbers, "number");
    assert_eq!(db.rows_of("windlass_results"), 3);
    db.execute("UPDATE windlass_results SET expires_at = '2026-01-01 00:00:00.000000'");
    let supervisor = Supervisor::new(&db.database).start().unwrap();
    until("one is cleared", || db.rows_of("windlass_results") == 2);
    supervisor.stop();
    run(db, &sums);
    let mut found = sums.lock().unwrap().clone();
    found.sort();
    assert_eq!(found, ["1 2 ", "1 4 "]);
    assert_eq!(
        Jobs::waiting_or_running()
            .ids([child.id])
            .count(&mut conn)
            .unwrap(),
        0
    );
    db.execute("UPDATE windlass_results SET expires_at = '2026-01-01 00:00:00.000000'");
    let supervisor = Supervisor::new(&db.database).start().unwrap();
    until("they are cleared too", || {
        db.rows_of("windlass_results") == 0
    });
    supervisor.stop();
}

fn an_input_that_is_missing_is_an_error(db: &TestDb) {
    let scene = Scene::new(db);
    let mut conn = db.connect();
    let batch = Batch::new("b").add([part("m", End::Finish)]);
    let batch = batch.enqueue(&mut conn).unwrap().id;
    let failed = scene.enqueue(part("failed", End::Fail));
    let job = reading("x", End::Finish, &["nobody"]);
    scene.enqueue(job);
    let job = reading("y", End::Finish, &["batch"]).after(("batch", batch));
    scene.enqueue(job);
    let job = reading("z", End::Finish, &["failed"]).after(("failed", failed));
    scene.enqueue(job.when(windlass::flows::On::Finish));
    scene.run();
    let mut errors =
        db.texts("SELECT error AS t FROM solid_queue_failed_executions ORDER BY job_id");
    errors.remove(0);
    let words = [
        "this job waited for none with the name `nobody`",
        "`batch` is a batch: read the results of its jobs with `inputs`",
        "there is no result of job",
    ];
    for (error, words) in errors.iter().zip(words) {
        assert!(error.contains(words), "{error}");
    }
    assert_eq!(errors.len(), 3);
}
