//! Connections to SQLite: the file, the version, the pragmas.

use crate::clock;
use crate::db::conn::turns::WriteTurns;
use crate::db::conn::turns::takes_turns::TakesTurns;
use crate::deadline::{Armed, Deadline};
use diesel::connection::{
    Instrumentation, InstrumentationEvent, SimpleConnection, get_default_instrumentation,
};
use diesel::prelude::*;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Returns whether this version is free of a bug of 3.7.0 to 3.51.2, which can lose a commit when
/// one process checkpoints while another writes. Two of those releases have the fix too.
fn is_safe(version: &str) -> bool {
    let mut parts = version.split('.').map(|part| part.parse().unwrap_or(0_u32));
    let mut next = || parts.next().unwrap_or(0);
    let version = (next(), next(), next());
    version >= (3, 51, 3)
        || ((3, 50, 7)..(3, 51, 0)).contains(&version)
        || ((3, 44, 6)..(3, 45, 0)).contains(&version)
}

#[derive(QueryableByName)]
struct SqliteVersion {
    #[diesel(sql_type = diesel::sql_types::Text)]
    version: String,
}

/// Switches to the write-ahead log.
///
/// Another process may be creating the file, or closing its last connection. Then even reading the
/// header finds it locked, and a change of the journal mode is refused at once, whatever the busy
/// timeout.
fn use_wal(conn: &mut SqliteConnection) -> QueryResult<()> {
    let start = clock::instant();
    conn.batch_execute("PRAGMA busy_timeout = 5000")?;
    loop {
        match conn.batch_execute("PRAGMA journal_mode = WAL") {
            Err(error) if is_locked(&error) && start.elapsed() < LONGEST_WAIT => {
                clock::nap(Duration::from_millis(10));
            }
            result => return result,
        }
    }
}

/// Shows how long the statements of a loop have been waiting for a lock.
struct ShowsWaits {
    deadline: Deadline,
    /// The program's own.
    next: Option<Box<dyn Instrumentation>>,
}

/// A statement that waits for longer waits for the lock of another process.
const A_WAIT: Duration = Duration::from_millis(500);

impl Instrumentation for ShowsWaits {
    fn on_connection_event(&mut self, event: InstrumentationEvent<'_>) {
        match &event {
            InstrumentationEvent::StartQuery { .. } => self.deadline.again(),
            InstrumentationEvent::FinishQuery {
                error: Some(error), ..
            } if is_locked(error) => self.deadline.note_locked(A_WAIT),
            _ => {}
        }
        if let Some(next) = &mut self.next {
            next.on_connection_event(event);
        }
    }
}

/// Shows how long each of Windlass's own statements waits, from now until [`arm`]'s result is dropped.
pub(crate) fn show_waits(conn: &mut SqliteConnection) {
    conn.set_instrumentation(ShowsWaits {
        deadline: Deadline::never(),
        next: get_default_instrumentation(),
    });
}

/// Starts the time of a statement on a connection that [shows it](show_waits).
pub(crate) fn arm(conn: &mut SqliteConnection) -> Armed {
    let shows = conn.instrumentation().downcast_ref::<ShowsWaits>();
    shows.map_or_else(Armed::not, |shows| shows.deadline.arm(clock::NEVER))
}

const LONGEST_WAIT: Duration = Duration::from_secs(5);

#[doc(hidden)]
pub fn is_locked(error: &diesel::result::Error) -> bool {
    error.to_string() == "database is locked"
}

/// Sets the pragmas. `synchronous=FULL`, as a committed enqueue or claim of an at-most-once job
/// must survive a power cut.
fn set_up(conn: &mut SqliteConnection) -> QueryResult<()> {
    use_wal(conn)?;
    conn.batch_execute(
        "PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON; PRAGMA temp_store = MEMORY; PRAGMA journal_size_limit = 67108864;",
    )
}

/// Sets up the connections of a pool.
#[derive(Debug)]
pub(crate) struct SetUp {
    pub(crate) turns: Arc<WriteTurns>,
}

impl diesel::r2d2::CustomizeConnection<SqliteConnection, diesel::r2d2::Error> for SetUp {
    fn on_acquire(&self, conn: &mut SqliteConnection) -> Result<(), diesel::r2d2::Error> {
        set_up(conn).map_err(diesel::r2d2::Error::QueryError)?;
        conn.set_instrumentation(TakesTurns::new(&self.turns));
        Ok(())
    }
}

/// Creates an empty file, which is an empty database: a process that creates it at the same time
/// finds nothing half done. The file holds the arguments of jobs, so other users of the host cannot
/// read it unless its owner permits it.
pub(crate) fn create(path: &Path) -> Result<(), String> {
    if path.exists() {
        return Ok(());
    }
    let mut options = std::fs::OpenOptions::new();
    let created = options.create(true).append(true).mode(0o600).open(path);
    created.map(drop).map_err(|error| {
        let directory = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.display().to_string(),
            _ => ".".to_owned(),
        };
        format!("{error}; the directory `{directory}` must exist and be writable by this user")
    })
}

/// Opens a file for reading, also where this user may not write it.
pub(crate) fn open_as_permitted(path: &Path) -> Result<SqliteConnection, String> {
    use rustix::fs::{Access, access};
    let may = |path: &Path, what: Access| access(path, what).is_ok();
    let directory = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    let is_ours =
        may(path, Access::WRITE_OK) && may(directory.unwrap_or(Path::new(".")), Access::WRITE_OK);
    match connect(path) {
        Err(_) if !is_ours && may(path, Access::READ_OK) => only_read(path),
        connected => connected,
    }
}

fn only_read(path: &Path) -> Result<SqliteConnection, String> {
    let mut options = "?mode=ro".to_owned();
    let beside = |end: &str| Path::new(&format!("{}{end}", path.display())).exists();
    // No process has it open, and all data is in the file.
    if !beside("-wal") && !beside("-shm") {
        options.push_str("&immutable=1");
    }
    let address = address(&path.to_string_lossy(), &options);
    let refused = |error: &dyn std::fmt::Display| explain(&error.to_string(), path);
    let mut conn = SqliteConnection::establish(&address).map_err(|error| refused(&error))?;
    conn.batch_execute("PRAGMA busy_timeout = 5000; SELECT count(*) FROM sqlite_schema")
        .map_err(|error| refused(&error))?;
    Ok(conn)
}

/// The longest wait of a read while another process recovers the log.
const READ_BUSY_MILLIS: u32 = 500;

/// Opens a file so that SQLite refuses to write it. Unlike `query_only`, which is set as well, no
/// statement can change that.
pub(crate) fn open_to_read(path: &Path) -> Result<SqliteConnection, String> {
    if !path.exists() {
        return Err(NO_FILE.to_owned());
    }
    let address = address(&path.to_string_lossy(), "?mode=ro");
    let refused = |error: &dyn std::fmt::Display| explain(&error.to_string(), path);
    let mut conn = SqliteConnection::establish(&address).map_err(|error| refused(&error))?;
    conn.batch_execute(&format!(
        "PRAGMA busy_timeout = {READ_BUSY_MILLIS}; PRAGMA query_only = ON; \
         PRAGMA temp_store = MEMORY; SELECT count(*) FROM sqlite_schema"
    ))
    .map_err(|error| refused(&error))?;
    Ok(conn)
}

const NO_FILE: &str = "there is no such file; `windlass migrate --database URL` creates it";

pub(crate) fn connect(path: &Path) -> Result<SqliteConnection, String> {
    if !path.exists() {
        return Err(NO_FILE.to_owned());
    }
    let start = clock::instant();
    loop {
        match try_connect(path) {
            // While another process opens or closes the last connection, SQLite reports "locked" at
            // once, whatever the busy timeout.
            Err(reason) if reason.contains("locked") && start.elapsed() < BUSY_TIMEOUT => {
                clock::nap(Duration::from_millis(10));
            }
            result => return result,
        }
    }
}

/// Returns the address of a file that must not be created: with its path alone, a job would put an
/// empty database where the real one was removed.
pub fn existing(path: &str) -> String {
    address(path, "?mode=rw")
}

fn address(path: &str, options: &str) -> String {
    let mut address = String::from(if path.starts_with('/') {
        "file://"
    } else {
        "file:"
    });
    for c in path.chars() {
        match c {
            '%' => address.push_str("%25"),
            '?' => address.push_str("%3f"),
            '#' => address.push_str("%23"),
            c => address.push(c),
        }
    }
    address + options
}

/// The longest wait of a statement for the write lock.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

fn try_connect(path: &Path) -> Result<SqliteConnection, String> {
    let mut conn = SqliteConnection::establish(&existing(&path.to_string_lossy()))
        .map_err(|error| explain(&error.to_string(), path))?;
    let version = conn
        .batch_execute("PRAGMA busy_timeout = 5000")
        .and_then(|()| {
            diesel::sql_query("SELECT sqlite_version() AS version")
                .get_result::<SqliteVersion>(&mut conn)
        })
        .map_err(|error| explain(&error.to_string(), path))?
        .version;
    if !is_safe(&version) {
        return Err(format!(
            "SQLite {version} can lose commits when two processes write, and 3.51.3 or later is needed, which \
             `libsqlite3-sys` brings from 0.37 on; another crate of this program asks for an older one, which \
             `cargo tree -i libsqlite3-sys` names: update that crate (sqlx 0.9, sea-orm 2, rusqlite 0.39), or keep \
             the jobs in Postgres"
        ));
    }
    set_up(&mut conn).map_err(|error| explain(&error.to_string(), path))?;
    Ok(conn)
}

/// Returns SQLite's message with advice.
fn explain(message: &str, path: &Path) -> String {
    let advice = if path.is_dir() {
        "this is a directory; name a file in it"
    } else if message.contains("not a database") {
        "it holds something else; name another file"
    } else if message.contains("malformed") {
        "it is damaged; stop all that use it and restore a backup"
    } else if message.contains("locked") {
        "another process holds it: one that writes for long, or that was stopped in the middle"
    } else {
        "the file and its directory must be writable by this user, and on a disk of this host"
    };
    format!("{message}; {advice}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_with_the_mend_are_known() {
        for safe in ["3.51.3", "3.53.2", "3.50.7", "3.44.6", "4.0.0"] {
            assert!(is_safe(safe), "{safe}");
        }
        for unsafe_one in ["3.51.2", "3.50.6", "3.45.0", "3.44.5", "3.40.1", "x"] {
            assert!(!is_safe(unsafe_one), "{unsafe_one}");
        }
    }

    #[test]
    fn a_path_is_a_path_whatever_is_in_it() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["a b", "50%25?mode=ro#x", "ä'\"&=;\\", "file:a"] {
            let path = directory.path().join(name);
            assert!(connect(&path).is_err() && !path.exists(), "{name}");
            assert!(SqliteConnection::establish(&existing(&path.to_string_lossy())).is_err());
            create(&path).unwrap();
            connect(&path).unwrap();
            assert_eq!(&std::fs::read(&path).unwrap()[..6], b"SQLite", "{name}");
        }
    }

    #[test]
    fn the_linked_library_is_safe() {
        let mut conn = SqliteConnection::establish(":memory:").unwrap();
        let version = diesel::sql_query("SELECT sqlite_version() AS version")
            .get_result::<SqliteVersion>(&mut conn)
            .unwrap()
            .version;
        assert!(is_safe(&version), "SQLite {version} is linked");
    }
}
