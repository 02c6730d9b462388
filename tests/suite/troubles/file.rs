//! A SQLite file that is removed, replaced or damaged under running
//! processes: they stop, say why, and leave it as it is.

use crate::support::TestDb;
use crate::support::db::execute;
use crate::support::jobs::{Log, Note};
use crate::support::process::{Do, Process, Scene, Work};
use crate::support::wait::{DEADLINE, until};
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;
use windlass::hooks::Subscriber;
use windlass::{Database, Event, Job, Registry, Worker};

/// A worker in the middle of a job, and a supervisor with a dispatcher.
struct Running<'a> {
    /// Before the scene, which holds their logs.
    processes: [Process; 2],
    scene: Scene<'a>,
    path: PathBuf,
}

impl<'a> Running<'a> {
    fn new(db: &'a TestDb) -> Self {
        let scene = Scene::new(db);
        let processes = [
            scene.worker_with(|role| role.shutdown_ms = 2_000),
            scene.supervisor(0),
        ];
        let mut conn = db.connect();
        Work::new("a", Do::WaitFor(scene.gate("a")))
            .enqueue(&mut conn)
            .unwrap();
        scene.started("a", 1);
        until("both are registered", || db.rows("processes") == 3);
        // The rows so far are in the file, not in its log; and something is in the log that closing
        // the last connection would write into the file.
        execute(&mut conn, "PRAGMA wal_checkpoint(TRUNCATE)");
        execute(&mut conn, "UPDATE solid_queue_jobs SET priority = 7");
        Running {
            path: PathBuf::from(db.address()),
            scene,
            processes,
        }
    }

    /// That both processes end in good order and say why, and that the file
    /// is what the test has made of it. Returns what each said, a line each.
    fn stop_and_say(mut self, reason: &str) -> String {
        let left = std::fs::read(&self.path).ok();
        self.scene.open("a");
        let mut reasons = Vec::new();
        // A supervisor and its dispatcher may both see it, and the one the other.
        for (process, most) in self.processes.iter_mut().zip([1, 3]) {
            let code = process.exit().code();
            let log = process.log();
            assert_eq!(code, Some(70), "{log}");
            let said: Vec<&str> = log
                .lines()
                .filter(|line| line.contains("this process stops"))
                .collect();
            assert!((1..=most).contains(&said.len()), "{log}");
            assert!(said[0].contains(reason), "{}", said[0]);
            assert!(said[0].contains("nothing was repaired"), "{}", said[0]);
            assert!(!log.contains("panicked"), "{log}");
            reasons.push(said[0].to_owned());
        }
        assert_eq!(std::fs::read(&self.path).ok(), left, "the file was touched");
        reasons.join("\n")
    }
}

fn pages(path: &Path) -> u64 {
    std::fs::metadata(path).unwrap().len() / 4096
}

#[test]
fn removed() {
    let db = TestDb::sqlite();
    let running = Running::new(&db);
    std::fs::remove_file(&running.path).unwrap();
    running.stop_and_say("was removed");
}

#[test]
fn replaced() {
    let db = TestDb::sqlite();
    let other = TestDb::sqlite();
    let running = Running::new(&db);
    execute(&mut other.connection(), "PRAGMA wal_checkpoint(TRUNCATE)");
    std::fs::rename(other.address(), &running.path).unwrap();
    running.stop_and_say("another file has taken the place");
}

#[test]
fn overwritten_in_the_middle() {
    let db = TestDb::sqlite();
    let running = Running::new(&db);
    let file = OpenOptions::new().write(true).open(&running.path).unwrap();
    let garbage = vec![0xA5_u8; 4096];
    for page in 1..pages(&running.path) {
        file.write_all_at(&garbage, page * 4096).unwrap();
    }
    // The image is, or the schema, if that is longer than a page.
    let said = running.stop_and_say("is corrupt (");
    assert!(
        said.lines().all(|line| line.contains("malformed")),
        "{said}"
    );
}

#[test]
fn no_database_any_more() {
    let db = TestDb::sqlite();
    let running = Running::new(&db);
    let file = OpenOptions::new().write(true).open(&running.path).unwrap();
    for page in 0..pages(&running.path) {
        file.write_all_at(&[0xA5_u8; 4096], page * 4096).unwrap();
    }
    running.stop_and_say("is corrupt (");
}

#[test]
fn cut_in_half() {
    let db = TestDb::sqlite();
    let running = Running::new(&db);
    let file = OpenOptions::new().write(true).open(&running.path).unwrap();
    file.set_len(pages(&running.path) / 2 * 4096).unwrap();
    running.stop_and_say("is corrupt (");
}

#[test]
fn cut_to_nothing() {
    let db = TestDb::sqlite();
    let running = Running::new(&db);
    let file = OpenOptions::new().write(true).open(&running.path).unwrap();
    file.set_len(0).unwrap();
    running.stop_and_say("the database file");
}

/// Within a program: the handle ends, its subscriber hears why, and a job's
/// connection creates no file where there is none.
#[test]
fn a_program_learns_of_it() {
    let db = TestDb::sqlite();
    let heard = std::sync::Arc::new(Log::default());
    let hear = heard.clone();
    let database = Database::open(&db.url).unwrap();
    let mut worker = Worker::new(&database, Registry::new().register::<Note>(Log::default()))
        .heartbeat_interval(Duration::from_millis(50))
        .subscriber(Subscriber::new(move |event| {
            if let Event::Broken { reason } = event {
                hear.add(*reason);
            }
        }))
        .start()
        .unwrap();
    until("it is registered", || db.rows("processes") == 1);
    std::fs::remove_file(db.address()).unwrap();
    let stopped = worker.join(DEADLINE).unwrap();
    assert!(stopped.is_broken());
    assert_eq!(heard.len(), 1, "{:?}", heard.lines());
    assert!(heard.lines()[0].contains("was removed"));
    let refused = std::thread::spawn(move || database.get().err());
    assert!(!Path::new(db.address()).exists());
    drop(refused);
}

/// Somebody holds the write lock for longer than a statement waits.
#[test]
fn a_locked_file_is_waited_for() {
    let db = TestDb::sqlite();
    let scene = Scene::new(&db);
    let mut worker = scene.worker();
    Work::new("a", Do::WaitFor(scene.gate("a")))
        .enqueue(&mut db.connection())
        .unwrap();
    scene.started("a", 1);
    let mut holder = db.connect();
    execute(&mut holder, "BEGIN IMMEDIATE");
    scene.open("a");
    worker.logs("trying again");
    assert!(worker.is_running());
    execute(&mut holder, "COMMIT");
    scene.drained();
    assert_eq!(scene.count("start", "a"), 1);
    assert!(worker.is_running());
}
