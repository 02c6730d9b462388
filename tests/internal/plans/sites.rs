//! That no statement of `src/db`, or of the console, is left out: each place that sends one is
//! reached by a work whose plans are looked at.

use crate::db::conn::connection::Conn;
use crate::db::conn::database::Database;
use crate::db::conn::owned::DbConnection;
use crate::db::plans::all_looks;
use crate::db::plans::works::{CALLERS, LOOPS};
use crate::db::plans::{Rows, Work, death, run, *};
use crate::db::transition::{faults, prune};
use diesel::connection::InstrumentationEvent;
use diesel::result::Error::RollbackTransaction;
use std::backtrace::Backtrace;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex};

/// The methods that send a statement.
const SENDS: [&str; 7] = [
    ".changes",
    ".execute",
    ".load",
    ".get_result",
    ".get_results",
    ".first",
    ".batch_execute",
];

/// Files, and folders of them, whose statements are no part of what runs while
/// there are jobs.
const EXEMPT: [(&str, &str); 12] = [
    ("db/conn/pooling/", "which session a new connection meets"),
    (
        "db/conn/reading/",
        "settings of a connection that is being opened",
    ),
    ("db/schema/", "`migrate` reads the catalog"),
    (
        "db/test_support.rs",
        "tests of applications, with a few jobs",
    ),
    ("db/conn/database.rs", "settings and pings"),
    (
        "db/conn/postgres.rs",
        "settings of a connection that is being opened",
    ),
    (
        "db/conn/sqlite.rs",
        "settings of a connection that is being opened",
    ),
    (
        "db/conn/typed.rs",
        "settings of a connection that is being opened",
    ),
    ("db/conn/wakeup_postgres.rs", "LISTEN reads no table"),
    (
        "read/sql/doctor/write_lock.rs",
        "takes the lock of a file, and writes nothing",
    ),
    ("db/conn/wakeup_sqlite.rs", "a pragma"),
    ("db/conn/statement.rs", "passes on what others send"),
];

/// The sources with statements: of the library, and of the console.
const ROOTS: [(&str, &str); 2] = [
    ("../../src/", "db/"),
    ("../../crates/windlass-console/src/", "read/sql/"),
];

/// A place that sends a statement: from the beginning of the expression to the
/// line of the call.
type Lines = (u32, u32);

fn sites(directory: &Path, under: &str, found: &mut BTreeMap<String, Vec<Lines>>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = format!("{under}{}", path.file_name().unwrap().to_str().unwrap());
        let is_exempt = |name: &str| EXEMPT.iter().any(|(exempt, _)| *exempt == name);
        if path.is_dir() && !is_exempt(&format!("{name}/")) {
            sites(&path, &format!("{name}/"), found);
        } else if name.ends_with(".rs") && !is_exempt(&name) {
            let sends = sends(&std::fs::read_to_string(&path).unwrap());
            found.insert(name, sends);
        }
    }
}

fn sends(text: &str) -> Vec<Lines> {
    let mut found = Vec::new();
    let mut begin = 0;
    for (line, number) in text.lines().zip(1..) {
        let code = line.trim();
        if code.starts_with("mod tests") {
            break;
        }
        if begin == 0 {
            begin = number;
        }
        if !code.starts_with("//") && SENDS.iter().any(|send| calls(code, send)) {
            found.push((begin, number));
            begin = 0;
        } else if code.ends_with([';', '{', '}']) || code.starts_with("//") {
            begin = 0;
        }
    }
    found
}

/// Returns whether a line calls this with an argument, which is a connection
/// unless it is a memory ordering.
fn calls(code: &str, send: &str) -> bool {
    code.match_indices(send).any(|(place, _)| {
        let rest = &code[place + send.len()..];
        (rest.starts_with('(') || rest.starts_with("::<"))
            && !rest.starts_with("()")
            && !rest.starts_with("(Ordering")
    })
}

/// The lines of `src/db` and of the console that were on the stack when statements were sent.
#[derive(Default)]
struct Reached(Arc<Mutex<BTreeSet<(String, u32)>>>);

impl Reached {
    fn note_all(&self, connection: &mut DbConnection) {
        let reached = Arc::clone(&self.0);
        let note = move |event: InstrumentationEvent<'_>| {
            if let InstrumentationEvent::StartQuery { .. } = event {
                let stack = Backtrace::force_capture().to_string();
                reached
                    .lock()
                    .unwrap()
                    .extend(stack.lines().filter_map(line_of));
            }
        };
        match connection.as_conn() {
            Conn::Postgres(conn) => conn.set_instrumentation(note),
            Conn::Sqlite(conn) => conn.set_instrumentation(note),
        }
    }
}

/// `db/jobs.rs` and 7 of "at src/db/jobs.rs:7:12".
fn line_of(frame: &str) -> Option<(String, u32)> {
    let frame = frame.trim().strip_prefix("at ")?;
    let root = ROOTS
        .iter()
        .find(|root| frame.contains(&format!("src/{}", root.1)))?;
    let (_, place) = frame.split_once(&format!("src/{}", root.1))?;
    let mut parts = place.split(':');
    let file = format!("{}{}", root.1, parts.next()?);
    Some((file, parts.next()?.parse().ok()?))
}

/// Works that change the tables themselves, or are faults that tests ask for.
const ODD: [(&str, Work); 2] = [
    ("leave a claim that cannot be recovered", |conn, rows| {
        let refuse = match conn {
            Conn::Postgres(_) => {
                "ALTER TABLE windlass_attempts ADD CHECK (kind <> 'crashed') NOT VALID"
            }
            Conn::Sqlite(_) => {
                "CREATE TRIGGER refuse BEFORE INSERT ON windlass_attempts BEGIN SELECT RAISE(ABORT, 'no'); END"
            }
        };
        run(conn, refuse)?;
        let recovered = prune::prune_one_by_one(conn, rows.process, None, &death())?;
        assert!(recovered.is_some_and(|recovered| recovered.left.is_some()));
        Ok(())
    }),
    ("prune without a fence", |conn, rows| {
        faults::prune_stale(conn, rows.process, &death()).map(drop)
    }),
];

fn reach_all(database: &Database, reached: &Reached) {
    let mut connection = database.connect().unwrap();
    reached.note_all(&mut connection);
    for (what, work) in LOOPS.iter().chain(&CALLERS).chain(&all_looks()).chain(&ODD) {
        let result = connection.as_conn().transaction(|conn| {
            let rows = Rows::insert(conn)?;
            work(conn, &rows)?;
            Err::<(), _>(RollbackTransaction)
        });
        assert_eq!(result, Err(RollbackTransaction), "{what}");
    }
}

#[test]
fn every_statement_is_sent_by_a_work() {
    let mut sites_of = BTreeMap::new();
    for (root, under) in ROOTS {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(root);
        sites(&root.join(under), under, &mut sites_of);
    }
    assert!(sites_of.len() > 30, "{sites_of:?}");
    let reached = Reached::default();
    let schema = postgres::Schema::new();
    let database = schema.database();
    database.migrate().unwrap();
    reach_all(&database, &reached);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("jobs.db");
    let database = Database::open(path.to_str().unwrap()).unwrap();
    database.migrate().unwrap();
    reach_all(&database, &reached);
    let reached = reached.0.lock().unwrap();
    let is_reached = |file: &str, (begin, end): Lines| {
        (begin..=end).any(|line| reached.contains(&(file.to_owned(), line)))
    };
    let left_out: Vec<String> = sites_of
        .iter()
        .flat_map(|(file, sites)| sites.iter().map(move |site| (file, *site)))
        .filter(|(file, site)| !is_reached(file, *site))
        .map(|(file, (_, end))| format!("{file}:{end}"))
        .collect();
    assert_eq!(left_out, Vec::<String>::new(), "no work sends these");
}
