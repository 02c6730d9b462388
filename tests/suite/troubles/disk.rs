//! A disk that is full for a while: nobody exits, what was done is held and
//! written down once there is room.

use crate::support::TestDb;
use crate::support::db::{count, execute};
use crate::support::process::{Do, Scene, THRESHOLD, Work};
use crate::support::wait::until;
use rustix::process::Signal;
use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;
use windlass::Job;

/// A disk of four megabytes.
struct Disk(tempfile::TempDir);

impl Disk {
    /// `None`: this user may mount none.
    fn mount() -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=4m", "tmpfs"]);
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
    let scene = Scene::new(&db);
    let mut worker = scene.worker_with(|role| role.threads = JOBS);
    let mut supervisor = scene.supervisor(0);
    let mut conn = db.connect();
    let names: Vec<String> = (0..JOBS).map(|number| format!("job-{number}")).collect();
    for name in &names {
        let work = Work::new(name, Do::WaitFor(scene.gate("all")));
        work.enqueue(&mut conn).unwrap();
    }
    names.iter().for_each(|name| drop(scene.started(name, 1)));
    until("all are registered", || db.rows("processes") == 3);
    // The next write needs room.
    execute(&mut conn, "PRAGMA wal_checkpoint(TRUNCATE)");
    let filler = disk.fill();
    for process in [&worker, &supervisor] {
        until("the full disk is told", || {
            process.log().contains("disk is full")
        });
    }
    scene.open("all");
    names.iter().for_each(|name| scene.ended(name, 1));
    // Long enough for whoever reads only to take the worker for dead.
    std::thread::sleep(THRESHOLD * 2);
    assert_eq!(unfinished(&mut conn), JOBS);
    assert!(worker.is_running() && supervisor.is_running());
    // The supervisor finds room first, and does not judge by what it saw when
    // nobody could write.
    worker.freeze(&db);
    std::fs::remove_file(filler).unwrap();
    until("the supervisor is back", || {
        supervisor.log().matches("registered Supervisor").count() == 2
    });
    std::thread::sleep(THRESHOLD / 3);
    worker.signal(Signal::CONT);
    until("every job has finished", || unfinished(&mut conn) == 0);
    for name in &names {
        assert_eq!(scene.count("start", name), 1, "{name} ran twice");
    }
    assert_eq!(db.rows("failed_executions"), 0);
    assert!(!worker.log().contains("fenced"), "{}", worker.log());
    assert!(worker.is_running() && supervisor.is_running());
    Work::new("later", Do::Nothing).enqueue(&mut conn).unwrap();
    scene.ended("later", 1);
}

fn unfinished(conn: &mut windlass::Connection) -> usize {
    let jobs = "SELECT count(*) AS n FROM solid_queue_jobs WHERE finished_at IS NULL";
    usize::try_from(count(conn, jobs)).unwrap()
}
