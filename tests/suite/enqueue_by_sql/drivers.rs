//! The vectors through drivers that know nothing of Windlass, and through the clients that use them.

use crate::support::TestDb;
use crate::support::enqueue_by_sql::{by_rust, insert, vectors};
use crate::support::enqueue_rows::{compare, rows};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// A program in another language, its first arguments, and how it is got.
struct Driver {
    program: OsString,
    arguments: Vec<OsString>,
    needs: &'static str,
}

impl Driver {
    fn new(program: impl Into<OsString>, needs: &'static str) -> Self {
        Driver {
            program: program.into(),
            arguments: Vec::new(),
            needs,
        }
    }

    fn script(mut self, name: &str) -> Self {
        self.arguments.push(drivers().join(name).into());
        self
    }

    fn argument(mut self, argument: &str) -> Self {
        self.arguments.push(argument.into());
        self
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).current_dir(drivers());
        // Python leaves no compiled files beside the sources.
        command.env("PYTHONDONTWRITEBYTECODE", "1");
        command
    }

    /// Runs the program to its end, and returns what it has printed.
    fn run(&self, command: &mut Command) -> String {
        let program = self.program.display();
        let ran = command.output();
        let ran = ran.unwrap_or_else(|error| panic!("{program}: {error}; {}", self.needs));
        let said = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success(), "{program}: {said}\n{}", self.needs);
        String::from_utf8(ran.stdout).unwrap()
    }

    /// Enqueues all vectors, and compares what was accepted, and the rows, with those of Rust.
    fn enqueues_as_rust(&self, other: &TestDb) {
        let mut command = self.command();
        command.arg(drivers().join("../enqueue_vectors.json"));
        let printed = self.run(command.arg(other.address()));
        let accepted: Vec<bool> = serde_json::from_str(&printed).unwrap();
        as_rust(self.needs, &accepted, other);
    }

    /// Runs tests in its language on an empty database.
    fn passes(&self, tests: &str, db: &TestDb) {
        let mut command = self.command();
        command.arg(drivers().join(tests));
        self.run(command.env("WINDLASS_CLIENT_DATABASE", db.address()));
    }
}

fn drivers() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("drivers")
}

/// Returns whether Rust accepts each job of the vectors, and the rows that it leaves; the same for each driver.
fn by_rust_on(is_postgres: bool) -> &'static (Vec<bool>, Vec<String>) {
    static SQLITE: OnceLock<(Vec<bool>, Vec<String>)> = OnceLock::new();
    static POSTGRES: OnceLock<(Vec<bool>, Vec<String>)> = OnceLock::new();
    let known = if is_postgres { &POSTGRES } else { &SQLITE };
    known.get_or_init(|| {
        let db = match is_postgres {
            #[cfg(feature = "postgres")]
            true => TestDb::postgres(),
            _ => TestDb::sqlite(),
        };
        let conn = &mut db.connection();
        let vectors = vectors();
        let jobs = vectors.iter().flat_map(|vector| &vector.jobs);
        let accepted = jobs.map(|job| by_rust(conn, job).is_ok()).collect();
        (accepted, rows(&db))
    })
}

fn as_rust(driver: &str, accepted: &[bool], other: &TestDb) {
    let (by_rust, left) = by_rust_on(other.is_postgres());
    assert!(by_rust.len() > 250 && accepted == by_rust, "{driver}");
    compare(driver, rows(other), left.clone());
}

/// Returns a path that `bin/test` sets, or that the tests of a machine without it lack.
fn set(variable: &str) -> Option<OsString> {
    std::env::var_os(variable)
}

const PYTHON_TESTS: &str = "../../clients/python/tests/test_client.py";
const NODE_TESTS: &str = "../../clients/node/test/client.test.js";

fn python() -> Driver {
    let python = set("WINDLASS_TEST_PYTHON").unwrap_or_else(|| "python3".into());
    let needs = "install python3 and its psycopg 3 (python3-psycopg), or run ./bin/test";
    Driver::new(python, needs)
}

#[test]
fn python_enqueues_with_its_own_sqlite() {
    let driver = python().script("enqueue_vectors.py").argument("sqlite3");
    driver.enqueues_as_rust(&TestDb::sqlite());
    python().passes(PYTHON_TESTS, &TestDb::sqlite());
}

#[cfg(feature = "postgres")]
#[test]
fn python_enqueues_with_psycopg() {
    let driver = python().script("enqueue_vectors.py").argument("psycopg");
    driver.enqueues_as_rust(&TestDb::postgres());
    python().passes(PYTHON_TESTS, &TestDb::postgres());
}

/// A Python that has `SQLAlchemy` and psycopg.
fn sqlalchemy() -> Option<Driver> {
    let Some(python) = set("WINDLASS_TEST_SQLALCHEMY") else {
        eprintln!("not tested: `bin/test all` installs SQLAlchemy");
        return None;
    };
    let driver = Driver::new(python, "install SQLAlchemy and psycopg 3");
    Some(driver.script("enqueue_vectors.py").argument("sqlalchemy"))
}

#[test]
fn python_enqueues_with_sqlalchemy_on_sqlite() {
    if let Some(driver) = sqlalchemy() {
        driver.enqueues_as_rust(&TestDb::sqlite());
    }
}

#[cfg(feature = "postgres")]
#[test]
fn python_enqueues_with_sqlalchemy_on_postgres() {
    if let Some(driver) = sqlalchemy() {
        driver.enqueues_as_rust(&TestDb::postgres());
    }
}

/// Of a version of its own, where that is named.
fn node(program: Option<OsString>) -> Driver {
    let needs = "install nodejs 18 or later and the package pg, and set WINDLASS_TEST_NODE_PG to the directory with \
                 its node_modules, or run ./bin/test";
    Driver::new(program.unwrap_or_else(|| "node".into()), needs).argument("--no-warnings")
}

#[cfg(feature = "postgres")]
#[test]
fn node_enqueues_with_pg() {
    let driver = node(None).script("enqueue_vectors.mjs").argument("pg");
    driver.enqueues_as_rust(&TestDb::postgres());
    node(None).passes(NODE_TESTS, &TestDb::postgres());
}

fn node_with_sqlite() -> Option<Driver> {
    let node_22 = set("WINDLASS_TEST_NODE_22");
    if node_22.is_none() {
        eprintln!("not tested: `bin/test all` installs a Node that has node:sqlite");
    }
    Some(node(Some(node_22?)).argument("--experimental-sqlite"))
}

#[test]
fn node_enqueues_with_its_own_sqlite() {
    if let Some(driver) = node_with_sqlite() {
        let driver = driver.script("enqueue_vectors.mjs").argument("node:sqlite");
        driver.enqueues_as_rust(&TestDb::sqlite());
    }
    if let Some(driver) = node_with_sqlite() {
        driver.passes(NODE_TESTS, &TestDb::sqlite());
    }
}

#[cfg(feature = "postgres")]
#[test]
fn ruby_enqueues_with_pg() {
    let ruby = set("WINDLASS_TEST_RUBY").unwrap_or_else(|| "ruby".into());
    let driver = Driver::new(
        ruby,
        "install ruby and its gem pg (ruby-pg), or run ./bin/test",
    );
    let driver = driver.script("enqueue_vectors.rb");
    driver.enqueues_as_rust(&TestDb::postgres());
}

/// The crate `windlass-enqueue` through a driver; the program with all of them is built outside of the workspace.
fn crate_with(driver: &str) -> Option<Driver> {
    let Some(program) = set("WINDLASS_TEST_ENQUEUE") else {
        eprintln!("not tested: `bin/test all` builds the program with the drivers of Rust");
        return None;
    };
    eprintln!("{driver}");
    Some(Driver::new(program, "build tests/drivers/enqueue").argument(driver))
}

/// Enqueues a list of jobs at once. Each id is that of the job with the number of its place as arguments, but for the
/// fifth, which exists already as the second.
fn enqueues_a_list(driver: &Driver, db: &TestDb) {
    let printed = driver.run(driver.command().arg("--list").arg(db.address()));
    let ids: Vec<i64> = serde_json::from_str(&printed).unwrap();
    let of_jobs = ids.iter().map(|id| {
        let text = format!("SELECT arguments AS t FROM solid_queue_jobs WHERE id = {id}");
        db.texts(&text).concat()
    });
    let of_jobs: Vec<String> = of_jobs.collect();
    let expected = ["1", "2", "3", "4", "2", "6", "7", "8", "9", "10"];
    assert_eq!(of_jobs, expected);
    // The same settings, once in the list and once in a statement of its own.
    let settings = "SELECT DISTINCT queue_name || priority || max_attempts || max_crashes || scheduled_at || \
                    concurrency_key || concurrency_slots || traceparent || policy AS t \
                    FROM solid_queue_jobs WHERE queue_name = 'slow'";
    assert_eq!(db.texts(settings).len(), 1);
}

#[test]
fn the_crate_enqueues_on_sqlite() {
    for driver in ["diesel", "diesel-async", "rusqlite", "sqlx-0.8", "sqlx-0.9"] {
        if let Some(driver) = crate_with(driver) {
            driver.enqueues_as_rust(&TestDb::sqlite());
            enqueues_a_list(&driver, &TestDb::sqlite());
        }
    }
}

#[cfg(feature = "postgres")]
#[test]
fn the_crate_enqueues_on_postgres() {
    for driver in [
        "diesel",
        "diesel-async",
        "sqlx-0.8",
        "sqlx-0.9",
        "tokio-postgres",
    ] {
        if let Some(driver) = crate_with(driver) {
            driver.enqueues_as_rust(&TestDb::postgres());
            enqueues_a_list(&driver, &TestDb::postgres());
        }
    }
}

/// The statement of each job, in one line.
fn lines() -> Vec<String> {
    let vectors = vectors();
    let jobs = vectors.iter().flat_map(|vector| &vector.jobs);
    jobs.map(|job| insert(job).replace('\n', "'||char(10)||'") + ";")
        .collect()
}

#[test]
fn the_shell_of_sqlite_enqueues() {
    let other = TestDb::sqlite();
    let lines = lines();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("vectors.sql");
    std::fs::write(&file, lines.join("\n")).unwrap();
    let driver = Driver::new(
        "sqlite3",
        "install the shell of SQLite (sqlite3), or run ./bin/test",
    );
    let ran = driver
        .command()
        .args(["-init", "/dev/null", "-cmd", ".timeout 10000"])
        .arg(other.address())
        .stdin(std::fs::File::open(&file).unwrap())
        .output();
    let ran = ran.unwrap_or_else(|error| panic!("{}: {error}", driver.needs));
    let said = String::from_utf8(ran.stderr).unwrap();
    // It names the line of each statement that has failed.
    let mut accepted = vec![true; lines.len()];
    for refused in said.lines().filter(|line| line.contains("near line")) {
        assert!(refused.contains("cannot enqueue"), "{refused}");
        let place = refused.split("near line ").nth(1).unwrap();
        let place = place.split(':').next().unwrap();
        accepted[place.parse::<usize>().unwrap() - 1] = false;
    }
    as_rust("sqlite3", &accepted, &other);
}

#[cfg(feature = "postgres")]
#[test]
fn psql_enqueues() {
    use std::fmt::Write as _;
    let other = TestDb::postgres();
    let mut script = String::new();
    for job in vectors().iter().flat_map(|vector| &vector.jobs) {
        writeln!(script, "{};\n\\echo :ERROR", insert(job)).unwrap();
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("vectors.sql");
    std::fs::write(&file, script).unwrap();
    let bin = std::env::var("WINDLASS_TEST_POSTGRES_BIN").expect("run ./bin/test");
    let driver = Driver::new(Path::new(&bin).join("psql"), "install psql");
    let mut command = driver.command();
    command
        .args(["--no-psqlrc", "--quiet", "--file"])
        .arg(&file)
        .arg(other.address());
    let accepted: Vec<bool> = driver
        .run(&mut command)
        .lines()
        .map(|line| line == "false")
        .collect();
    as_rust("psql", &accepted, &other);
}
