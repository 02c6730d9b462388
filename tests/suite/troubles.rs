//! The first errors that a new user meets: each message says what to do.

use crate::on_each_database;
use crate::support::TestDb;
use crate::support::program::{PROGRAM, Said, Windlass, windlass};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use windlass::{Database, Registry, Worker};

mod data;
mod disk;
mod file;
mod hiccups;
#[cfg(feature = "postgres")]
mod outage;
#[cfg(feature = "postgres")]
mod server;
#[cfg(feature = "postgres")]
mod sessions;
#[cfg(feature = "postgres")]
mod silence;
#[cfg(feature = "postgres")]
mod waits;

/// That it failed, with one line that has all of these texts in it.
#[track_caller]
fn fails(said: &Said, texts: &[&str]) {
    assert_eq!((said.code, &*said.out), (Some(1), ""), "{said:?}");
    assert!(said.err.starts_with("error: "), "{}", said.err);
    assert_eq!(said.err.lines().count(), 1, "{}", said.err);
    for text in texts {
        assert!(said.err.contains(text), "`{text}` is not in: {}", said.err);
    }
}

/// The address with a password, which the tests' server does not ask for.
#[cfg(feature = "postgres")]
fn with_password(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap();
    let (user, rest) = rest.split_once('@').unwrap_or(("postgres", rest));
    let user = user.split(':').next().unwrap();
    format!("{scheme}://{user}:hunter2@{rest}")
}

#[test]
fn no_file_at_the_address() {
    let db = TestDb::empty_sqlite();
    let path = db.url.strip_prefix("sqlite://").unwrap();
    for command in ["status", "supervise"] {
        fails(
            &windlass(&db.url, &[command]),
            &[path, "no such file", "windlass migrate"],
        );
    }
    assert!(!Path::new(path).exists(), "a look has created it");
}

#[test]
fn no_directory_for_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("none/jobs.db");
    let says = format!(
        "`{}` must exist and be writable",
        path.parent().unwrap().display()
    );
    fails(
        &windlass(path.to_str().unwrap(), &["migrate"]),
        &["jobs.db", &says],
    );
}

#[test]
fn a_scheme_that_nobody_serves() {
    for url in [
        "mysql://me:hunter2@db/app",
        "mysql:me:hunter2@db/app",
        "postgres:me:hunter2@db/app",
        "host=db user=me password=hunter2 dbname=app",
    ] {
        let said = windlass(url, &["migrate"]);
        fails(&said, &["write `sqlite://path/to.db` or `postgres://"]);
        assert!(!said.err.contains("hunter2"), "{}", said.err);
    }
    let said = windlass("sqlite://jobs.db?mode=rwc", &["migrate"]);
    fails(&said, &["takes no parameters"]);
}

#[test]
fn a_file_that_is_no_database() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("jobs.db");
    let text = "Dear diary, today I met a program that wants to store jobs in you.";
    std::fs::write(&path, text).unwrap();
    let url = path.to_str().unwrap();
    for command in ["migrate", "status", "supervise"] {
        fails(
            &windlass(url, &[command]),
            &["jobs.db", "not a database", "name another file"],
        );
    }
    assert_eq!(std::fs::read_to_string(path).unwrap(), text);
    let said = windlass(directory.path().to_str().unwrap(), &["migrate"]);
    fails(&said, &["is a directory; name a file in it"]);
}

/// Files that the user who runs `windlass` may read but not write. Modes say
/// nothing to root, who therefore becomes nobody for it.
struct Closed {
    directory: tempfile::TempDir,
    db: std::path::PathBuf,
}

impl Closed {
    fn new(file: u32, directory: u32) -> Self {
        let closed = tempfile::tempdir().unwrap();
        let db = closed.path().join("jobs.db");
        assert!(windlass(db.to_str().unwrap(), &["migrate"]).is_done());
        // The user `nobody` reaches the copy; the build may be in a home
        // directory. Another process copies it: a file that this one has open
        // for writing, in a fork of another test, cannot be run.
        let mut copy = Command::new("cp");
        let copied = copy
            .arg(PROGRAM)
            .arg(closed.path().join("windlass"))
            .status();
        assert!(copied.unwrap().success());
        std::fs::set_permissions(&db, Permissions::from_mode(file)).unwrap();
        std::fs::set_permissions(closed.path(), Permissions::from_mode(directory)).unwrap();
        Closed {
            directory: closed,
            db,
        }
    }

    fn run(&self, path: &Path, command: &str) -> Said {
        let program = self.directory.path().join("windlass");
        let mut windlass = Windlass::at(&program, &[command]);
        if rustix::process::geteuid().is_root() {
            windlass = windlass.by_nobody();
        }
        windlass.env("DATABASE_URL", path.to_str().unwrap()).run()
    }
}

impl Drop for Closed {
    fn drop(&mut self) {
        let open = Permissions::from_mode(0o755);
        let _ = std::fs::set_permissions(self.directory.path(), open);
    }
}

const WRITABLE: &str = "the file and its directory must be writable by this user";

#[test]
fn a_file_that_may_only_be_read() {
    let closed = Closed::new(0o444, 0o755);
    // To look, that is enough: see `cli::looking`.
    for command in ["migrate", "supervise"] {
        fails(&closed.run(&closed.db, command), &["jobs.db", WRITABLE]);
    }
}

#[test]
fn a_file_that_may_not_even_be_read() {
    let closed = Closed::new(0o200, 0o755);
    fails(&closed.run(&closed.db, "status"), &["jobs.db", WRITABLE]);
}

#[test]
fn a_directory_that_is_not_writable() {
    let closed = Closed::new(0o666, 0o555);
    // To look, that is enough: see `cli::looking`.
    for command in ["migrate", "supervise"] {
        fails(&closed.run(&closed.db, command), &["jobs.db", WRITABLE]);
    }
    let new = closed.directory.path().join("new.db");
    let says = format!(
        "`{}` must exist and be writable",
        closed.directory.path().display()
    );
    fails(&closed.run(&new, "migrate"), &["new.db", &says]);
}

on_each_database!(tables_are_missing, tables_are_old);

/// Returns the error of a program with a worker of its own.
fn worker_refusal(database: &Database) -> String {
    let worker = Worker::new(database, Registry::new());
    worker.start().unwrap_err().to_string()
}

fn tables_are_missing(db: &TestDb) {
    for table in db.texts(if db.is_postgres() {
        "SELECT tablename::text AS t FROM pg_tables WHERE schemaname = current_schema()"
    } else {
        "SELECT name AS t FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' \
         ORDER BY name IN ('solid_queue_jobs', 'windlass_wanted_keys'), name DESC"
    }) {
        let cascade = if db.is_postgres() { "CASCADE" } else { "" };
        db.execute(&format!("DROP TABLE {table} {cascade}"));
    }
    for command in ["status", "supervise"] {
        fails(
            &windlass(&db.url, &[command]),
            &[
                &db.database.target(),
                "has no Windlass tables yet: run `windlass migrate",
            ],
        );
    }
    let refusal = worker_refusal(&db.database);
    assert!(refusal.contains("run `windlass migrate"), "{refusal}");
}

fn tables_are_old(db: &TestDb) {
    db.execute(
        "DELETE FROM windlass_schema_migrations \
         WHERE version = (SELECT max(version) FROM windlass_schema_migrations)",
    );
    let found = &db.texts("SELECT max(version) AS t FROM windlass_schema_migrations")[0];
    for command in ["status", "supervise"] {
        fails(
            &windlass(&db.url, &[command]),
            &[
                &db.database.target(),
                &format!("of version {found}"),
                "this program needs",
                "run `windlass migrate",
            ],
        );
    }
    let refusal = worker_refusal(&db.database);
    assert!(refusal.contains("run `windlass migrate"), "{refusal}");
}
