//! Looking at a SQLite file that this user may only read.

use crate::support::TestDb;
use crate::support::jobs::Note;
use crate::support::program::{PROGRAM, Windlass};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use windlass::{Database, Job as _};

/// Runs it as a user without rights, from where such a user may run it.
fn look(url: &str, arguments: &[&str]) -> crate::support::program::Said {
    let place = tempfile::tempdir().unwrap();
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(place.path(), open).unwrap();
    let program = place.path().join("windlass");
    // By another process: a file that this one has open for writing, in a fork of
    // another test, cannot be run.
    let copied = std::process::Command::new("cp")
        .arg(PROGRAM)
        .arg(&program)
        .status();
    assert!(copied.unwrap().success());
    Windlass::at(&program, arguments)
        .env("DATABASE_URL", url)
        .current_dir(Path::new("/"))
        .by_nobody()
        .run()
}

fn permit(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// Needs another user to look, so it is of use only where tests run as root.
fn is_root() -> bool {
    rustix::process::getuid().is_root()
}

#[test]
fn a_file_that_may_only_be_read_can_be_looked_at() {
    if !is_root() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    permit(place.path(), 0o755);
    let path = place.path().join("jobs.db");
    let url = format!("sqlite://{}", path.display());
    let database = Database::open(&url).unwrap();
    database.migrate().unwrap();
    Note::new("a")
        .enqueue(&mut database.connect().unwrap())
        .unwrap();
    permit(&path, 0o644);
    // Closed by all, and while a process has it open.
    for is_open in [false, true] {
        let held = is_open.then(|| {
            let mut conn = database.connect().unwrap();
            Note::new("b").enqueue(&mut conn).unwrap();
            conn
        });
        for (command, says) in [
            ("status", "default"),
            ("doctor", "no worker runs"),
            ("jobs list", "note"),
            ("jobs show 1", "enqueued"),
            ("explain 1", "It is ready"),
            ("queues list", "default"),
            ("processes", "No process is registered"),
            ("failed list", "No job has failed"),
            ("recurring list", "There are no recurring tasks"),
        ] {
            let arguments: Vec<&str> = command.split(' ').collect();
            let said = look(&url, &arguments);
            assert!(said.out.contains(says), "{command}: {said:?}");
        }
        drop(held);
    }
    // A directory in which no log can be made is enough, too.
    permit(&path, 0o666);
    let said = look(&url, &["status"]);
    assert!(said.is_done(), "{said:?}");
    permit(&path, 0o644);
    let said = look(&url, &["jobs", "cancel", "1"]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.err.contains("must be writable"), "{said:?}");
}

#[test]
fn a_new_file_is_its_owners_alone() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("jobs.db");
    let database = Database::open(&format!("sqlite://{}", path.display())).unwrap();
    database.migrate().unwrap();
    let mut held = database.connect().unwrap();
    Note::new("a").enqueue(&mut held).unwrap();
    for end in ["", "-wal", "-shm"] {
        let file = place.path().join(format!("jobs.db{end}"));
        let mode = std::fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{}", file.display());
    }
}

#[test]
fn who_pauses_a_queue_without_a_name_is_told_by_number() {
    let db = TestDb::sqlite();
    let said = Windlass::new(&["queues", "pause", "mail"])
        .env("DATABASE_URL", &db.url)
        .env("USER", "")
        .env("LOGNAME", "")
        .run();
    assert!(said.is_done(), "{said:?}");
    let by = windlass::queues::list(&mut db.connection()).unwrap()[0]
        .paused_by
        .clone();
    assert!(by.unwrap().starts_with("uid "));
}
