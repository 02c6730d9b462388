//! A configuration, and the processes that come of it.

use super::{app_in, app_with};
use crate::on_each_database;
use crate::support::TestDb;
use crate::support::process::{Do, Scene, Work, signal};
use crate::support::wait::until;
use rustix::process::Signal;
use windlass::NewJob;

on_each_database!(
    workers_serve_what_the_configuration_gives_them,
    a_wrong_configuration_starts_nothing,
    a_task_that_no_worker_could_perform_starts_nothing,
    a_child_that_keeps_failing_raises_an_alarm,
);

const TWO: &str = "
[[workers]]
queues = ['mail']
threads = 1
processes = 2

[[workers]]
queues = 'import*'
threads = 3
";

fn workers_serve_what_the_configuration_gives_them(db: &TestDb) {
    let scene = Scene::new(db);
    let mut app = app_in(&scene, TWO, &[("WINDLASS_WORKERS_2_THREADS", "2")]);
    until("all are registered", || db.rows("processes") == 6);
    let mut workers = db.texts(
        "SELECT metadata AS t FROM solid_queue_processes WHERE kind = 'Worker' ORDER BY metadata",
    );
    workers.sort();
    let serves = |worker: &String| -> (String, i64) {
        let metadata: serde_json::Value = serde_json::from_str(worker).unwrap();
        let queues = metadata["queues"].as_str().unwrap().to_owned();
        (queues, metadata["thread_pool_size"].as_i64().unwrap())
    };
    let mut serves: Vec<(String, i64)> = workers.iter().map(serves).collect();
    serves.sort();
    let mail = ("mail".to_owned(), 1);
    assert_eq!(serves, [("import*".to_owned(), 2), mail.clone(), mail]);
    for (name, queue) in [("a", "mail"), ("b", "import_users")] {
        NewJob::new(&Work::new(name, Do::Nothing))
            .unwrap()
            .queue(queue)
            .enqueue(&mut db.connection())
            .unwrap();
    }
    scene.drained();
    // A worker that was killed comes again as the same one.
    let started = scene.started("b", 1);
    signal(started.pid, Signal::KILL);
    until("it is started again", || {
        let sql = "SELECT CAST(count(*) AS text) AS t FROM solid_queue_processes \
                   WHERE kind = 'Worker' AND metadata LIKE '%import*%' AND pid <> ";
        db.texts(&format!("{sql}{}", started.pid)) == ["1"]
    });
    app.signal(Signal::TERM);
    assert_eq!(app.exit().code(), Some(0));
    assert_eq!(db.rows("processes"), 0);
}

fn a_wrong_configuration_starts_nothing(db: &TestDb) {
    let scene = Scene::new(db);
    let mut app = app_with(&scene, "[[workers]]\nthreads = 0\nqeues = 'mail'\n");
    assert_eq!(app.exit().code(), Some(1));
    let log = app.log();
    assert!(
        log.contains(".toml:5: workers.threads: the number 0 is not"),
        "{log}"
    );
    assert!(
        log.contains(".toml:6: `workers` has no setting `qeues`"),
        "{log}"
    );
    assert_eq!(db.rows("processes"), 0);
}

fn a_task_that_no_worker_could_perform_starts_nothing(db: &TestDb) {
    let scene = Scene::new(db);
    let task = "[recurring.a]\nclass = 'wrok'\nschedule = '@daily'\n";
    let mut app = app_with(&scene, task);
    assert_eq!(app.exit().code(), Some(1));
    let log = app.log();
    assert!(
        log.contains(".toml:5: recurring.a.class: no job type of this program is called `wrok`; did you mean `work`?"),
        "{log}"
    );
    assert_eq!(db.rows("processes"), 0);
}

fn a_child_that_keeps_failing_raises_an_alarm(db: &TestDb) {
    let scene = Scene::new(db);
    let mut app = app_with(&scene, "[[workers]]\nprogram = ['sh', '-c', 'exit 3']\n");
    app.logs("sh ended 5 times in a row soon after its start");
    // It goes on all the same.
    assert!(app.is_running());
    app.signal(Signal::TERM);
    assert_eq!(app.exit().code(), Some(0));
}

/// The budget that `windlass check` tells.
#[cfg(feature = "postgres")]
#[test]
fn no_more_connections_are_opened_than_were_told() {
    use crate::support::wait::eventually;
    let db = TestDb::postgres();
    let scene = Scene::new(&db);
    let mut app = app_with(&scene, "[[workers]]\nthreads = 4\nprocesses = 2\n");
    // Twice, as who has ended nothing yet has no connection for that.
    for (round, gate) in ["first", "second"].iter().enumerate() {
        for number in 0..8 {
            let work = Work::new(&format!("{gate}-{number}"), Do::WaitFor(scene.gate(gate)));
            windlass::Job::enqueue(work, &mut db.connection()).unwrap();
        }
        until("all run", || scene.effects().len() == round * 16 + 8);
        if round == 0 {
            scene.open(gate);
            scene.drained();
        }
    }
    let told =
        windlass_console::Config::parse("[[workers]]\nthreads = 4\nprocesses = 2\n").unwrap();
    let told = told.connections();
    let (most, least) = (told.total() - told.pools, 3 + 2 + 2 + 2 * 4);
    let opened = || -> usize {
        let sql = "SELECT CAST(count(*) AS text) AS t FROM pg_stat_activity \
                   WHERE datname = current_database() AND pid <> pg_backend_pid()";
        db.texts(sql)[0].parse().unwrap()
    };
    eventually("all loops have theirs", || {
        (opened() >= least).then_some(())
    });
    assert!(opened() <= most, "{} of {most}", opened());
    scene.open("second");
    scene.drained();
    app.signal(Signal::TERM);
    assert_eq!(app.exit().code(), Some(0));
}
