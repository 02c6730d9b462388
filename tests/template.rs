//! A migrated database of which each test gets a copy: to migrate one takes several times as long. Both the suite and the
//! internal tests have this module.

#[cfg(feature = "postgres")]
use diesel::connection::SimpleConnection as _;
#[cfg(feature = "postgres")]
use diesel::prelude::*;
#[cfg(feature = "postgres")]
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::UNIX_EPOCH;

/// Tells this build of the tests from others, which may have other migrations: by the name of the program, which ends in
/// a hash, and its time.
fn build() -> String {
    let program = std::env::current_exe().unwrap();
    let at = program.metadata().unwrap().modified().unwrap();
    let at = at.duration_since(UNIX_EPOCH).unwrap().as_nanos();
    let name = program.file_stem().unwrap().to_string_lossy();
    let hash = name.rsplit('-').next().unwrap_or_default();
    // Postgres cuts names of more than 63 bytes.
    format!("{:.16}_{at:x}", hash)
}

/// Copies a SQLite file to `to`. `prepare` makes it, once for all tests of this process.
#[cfg(feature = "sqlite")]
pub fn copy_sqlite(to: &Path, prepare: impl FnOnce(&Path)) {
    static MADE: Mutex<Option<PathBuf>> = Mutex::new(None);
    let mut made = MADE.lock().unwrap();
    let template = made.get_or_insert_with(|| {
        let name = format!("windlass-template-{}-{}.db", build(), std::process::id());
        let file = std::env::temp_dir().join(name);
        prepare(&file);
        file
    });
    std::fs::copy(template, to).unwrap();
}

/// Makes a copy of a Postgres database, and returns its name. `prepare` makes the database at an address, once for all
/// tests of this build on this server.
#[cfg(feature = "postgres")]
pub fn copy_postgres(server: &str, prepare: impl FnOnce(&str)) -> String {
    static MADE: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let template = format!("template_{}", build());
    let name = format!("test_{:016x}", fastrand::u64(..));
    with_server(server, |conn| {
        {
            let mut made = MADE.lock().unwrap();
            if !made.contains(server) {
                make(conn, server, &template, prepare);
                made.insert(server.to_owned());
            }
        }
        conn.batch_execute(&format!("CREATE DATABASE {name} TEMPLATE {template}"))
    })
    .unwrap()
    .unwrap();
    name
}

/// Runs `work` on a kept connection to a server: each new one would start a process of the server.
#[cfg(feature = "postgres")]
fn with_server<T>(
    server: &str,
    work: impl FnOnce(&mut PgConnection) -> QueryResult<T>,
) -> ConnectionResult<QueryResult<T>> {
    static IDLE: Mutex<Vec<(String, PgConnection)>> = Mutex::new(Vec::new());
    let kept = {
        let mut idle = IDLE.lock().unwrap();
        let at = idle.iter().position(|(of, _)| of == server);
        at.map(|at| idle.swap_remove(at).1)
    };
    let mut conn = kept.map_or_else(|| PgConnection::establish(server), Ok)?;
    let done = work(&mut conn);
    if done.is_ok() {
        IDLE.lock().unwrap().push((server.to_owned(), conn));
    }
    Ok(done)
}

/// Another process of the same build may do so at the same time.
#[cfg(feature = "postgres")]
fn make(conn: &mut PgConnection, server: &str, template: &str, prepare: impl FnOnce(&str)) {
    let begun = format!("{template}_begun");
    conn.batch_execute("SELECT pg_advisory_lock(1)").unwrap();
    let exists = format!("SELECT 1 FROM pg_database WHERE datname = '{template}'");
    if diesel::sql_query(exists).execute(conn).unwrap() == 0 {
        let start = format!("DROP DATABASE IF EXISTS {begun} WITH (FORCE)");
        conn.batch_execute(&start).unwrap();
        conn.batch_execute(&format!("CREATE DATABASE {begun}"))
            .unwrap();
        prepare(&address(server, &begun));
        let done = format!("ALTER DATABASE {begun} RENAME TO {template}");
        conn.batch_execute(&done).unwrap();
    }
    conn.batch_execute("SELECT pg_advisory_unlock(1)").unwrap();
}

/// The address of a database on a server.
#[cfg(feature = "postgres")]
pub fn address(server: &str, name: &str) -> String {
    let (server, _) = server.rsplit_once('/').unwrap();
    format!("{server}/{name}")
}

/// Takes a database away with the connections that are left.
#[cfg(feature = "postgres")]
pub fn drop_postgres(server: &str, name: &str) {
    let gone = format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)");
    let _ = with_server(server, |conn| conn.batch_execute(&gone));
}
