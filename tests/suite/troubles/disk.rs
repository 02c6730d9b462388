//! A disk that is full for a while: nobody exits, what was done is held and
//! written down once there is room.

use crate::support::TestDb;
use crate::support::db::{count, execute};
use crate::support::process::{Do, Process, Scene, THRESHOLD, Work};
use crate::support::thread::Watched;
use crate::support::wait::until;
use rustix::process::Signal;
use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;
use windlass::Job;

/// A disk of sixteen megabytes: the log of SQLite takes four, after a while.
struct Disk(tempfile::TempDir);

impl Disk {
    /// `None`: this user may mount none.
    fn mount() -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=16m", "tmpfs"]);
        let mounted = mount.arg(directory.path()).output();
        mounted
            .is_ok_and(|output| output.status.success())
            .then(|| Disk(directory))
    }

    /// Writes a file that takes all the room there is.
    fn fill(&self) -> PathBuf {
        let path = self.0.path().join("filler");
        let mut filler = File::create(&path).unwrap();
        for size in [65536, 4096, 1] {
            while filler.write_all(&vec![0; size]).is_ok() {}
        }
        path
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Lazily: whoever still has a file open on it delays nothing.
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

/// Runs this test in a namespace where an ordinary user may mount; false when
/// the system does not let one.
fn again_in_a_namespace(test: &str) -> bool {
    const INSIDE: &str = "WINDLASS_TEST_IN_NAMESPACE";
    let may = Command::new("unshare").args(["-Urm", "true"]).output();
    if std::env::var_os(INSIDE).is_some() || !may.is_ok_and(|output| output.status.success()) {
        return false;
    }
    let mut again = Command::new("unshare");
    let status = again
        .arg("-Urm")
        .arg(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        .env(INSIDE, "1")
        .status();
    assert!(status.unwrap().success());
    true
}

#[test]
fn a_full_disk_loses_nothing() {
    if let Some(disk) = Disk::mount() {
        fill_and_free(&disk);
    } else if !again_in_a_namespace("troubles::disk::a_full_disk_loses_nothing") {
        eprintln!("NOT TESTED: a full disk needs the right to mount one (root, or `unshare -Urm`)");
    }
}

const JOBS: usize = 4;

fn fill_and_free(disk: &Disk) {
    let db = TestDb::sqlite_in(disk.0.path());
    let mut crew = Crew::start(&db);
    // A supervisor that was too slow for a look while it could has proved
    // nothing.
    if !(0..5).any(|round| crew.outlives_a_full_disk(disk, round)) {
        eprintln!("NOT TESTED: this machine is too slow for a look at a frozen worker");
    }
    let mut conn = db.connect();
    Work::new("later", Do::Nothing).enqueue(&mut conn).unwrap();
    crew.scene.ended("later", 1);
}

struct Crew<'a> {
    /// Before the scene, which holds their logs.
    worker: Process,
    supervisor: Process,
    scene: Scene<'a>,
}

/// Turns of the supervisor's loop, of 20 ms or more each, among which is a look
/// at the heartbeats: there are six of these in a threshold of three seconds.
const TURNS: u64 = 40;

impl<'a> Crew<'a> {
    fn start(db: &'a TestDb) -> Self {
        let scene = Scene::with_deaths(db);
        Crew {
            worker: scene.worker_with(|role| role.threads = JOBS),
            supervisor: scene.supervisor(0),
            scene,
        }
    }

    /// Returns how often the worker and the supervisor have had no heartbeat
    /// for almost a threshold.
    fn losses(&self) -> [usize; 2] {
        let of = |process: &Process, kind: &str| {
            let text = format!("lost the registration {kind}-");
            process.log().matches(&text).count()
        };
        [
            of(&self.worker, "worker"),
            of(&self.supervisor, "supervisor"),
        ]
    }

    /// False: the supervisor had no time for the mistake that is looked for.
    fn outlives_a_full_disk(&mut self, disk: &Disk, round: usize) -> bool {
        let (scene, db) = (&self.scene, self.scene.db);
        let mut conn = db.connect();
        let gate = format!("all-{round}");
        let name = |number: usize| format!("job-{round}-{number}");
        let names: Vec<String> = (0..JOBS).map(name).collect();
        for name in &names {
            let work = Work::new(name, Do::WaitFor(scene.gate(&gate)));
            work.enqueue(&mut conn).unwrap();
        }
        names.iter().for_each(|name| drop(scene.started(name, 1)));
        until("all are registered", || db.rows("processes") == 3);
        let before = self.losses();
        // The next write needs room.
        execute(&mut conn, "PRAGMA wal_checkpoint(TRUNCATE)");
        let filler = disk.fill();
        for process in [&self.worker, &self.supervisor] {
            process.logs("disk is full");
        }
        scene.open(&gate);
        names.iter().for_each(|name| scene.ended(name, 1));
        // By what can be read, the worker is dead then.
        until("neither is heard of", || {
            let mut both = self.losses().into_iter().zip(before);
            both.all(|(now, before)| now > before)
        });
        let watched = Watched::of(self.supervisor.pid(), "windlass-supervisor");
        until("the supervisor has gone on", || watched.waits() >= TURNS);
        let log = self.supervisor.log();
        assert!(!log.contains("prune"), "it has judged: {log}");
        assert_eq!(unfinished(&mut conn), JOBS);
        assert!(self.worker.is_running() && self.supervisor.is_running());
        // The supervisor finds room first, and does not judge by what it saw
        // when nobody could write.
        let registrations = |log: &str| log.matches("registered Supervisor").count();
        let before = registrations(&log);
        self.worker.freeze(db);
        std::fs::remove_file(filler).unwrap();
        until("the supervisor is back", || {
            registrations(&self.supervisor.log()) > before
        });
        let back = Instant::now();
        let watched = Watched::of(self.supervisor.pid(), "windlass-supervisor");
        until("the supervisor has gone on", || {
            watched.waits() >= TURNS || back.elapsed() > THRESHOLD / 2
        });
        let has_looked = watched.waits() >= TURNS;
        self.worker.signal(Signal::CONT);
        until("every job has finished", || unfinished(&mut conn) == 0);
        for name in &names {
            assert_eq!(scene.count("start", name), 1, "{name} ran twice");
        }
        assert_eq!(db.rows("failed_executions"), 0);
        let log = self.worker.log();
        assert!(!log.contains("fenced"), "{log}");
        assert!(self.worker.is_running() && self.supervisor.is_running());
        has_looked
    }
}

fn unfinished(conn: &mut windlass::DbConnection) -> usize {
    let jobs = "SELECT count(*) AS n FROM solid_queue_jobs WHERE finished_at IS NULL";
    usize::try_from(count(conn, jobs)).unwrap()
}
