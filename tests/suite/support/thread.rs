//! The waits of another thread, as the system shows them.

use super::db::count;
use std::path::{Path, PathBuf};
use windlass::{AsConn, Conn};

/// A thread, and how often it had waited when this was made.
pub struct Watched {
    status: PathBuf,
    waits: u64,
}

impl Watched {
    /// The calling thread.
    pub fn this() -> Self {
        let own = std::fs::read_link("/proc/thread-self").unwrap();
        Self::at(Path::new("/proc").join(own))
    }

    /// The thread of another process that has this name.
    pub fn of(pid: i32, name: &str) -> Self {
        // The system keeps 15 bytes of a name.
        let name = &name[..name.len().min(15)];
        let mut threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
        let thread = threads.find_map(|thread| {
            let path = thread.unwrap().path();
            let comm = std::fs::read_to_string(path.join("comm")).ok()?;
            (comm.trim_end() == name).then_some(path)
        });
        Self::at(thread.unwrap_or_else(|| panic!("process {pid} has no thread {name}")))
    }

    fn at(thread: PathBuf) -> Self {
        let mut watched = Watched {
            status: thread.join("status"),
            waits: 0,
        };
        watched.waits = watched.waits();
        watched
    }

    /// Returns the number of times that it has given up its core by itself since this was made.
    pub fn waits(&self) -> u64 {
        let status = std::fs::read_to_string(&self.status).unwrap();
        let line = "voluntary_ctxt_switches:";
        let count = status.lines().find_map(|text| text.strip_prefix(line));
        count.unwrap().trim().parse::<u64>().unwrap() - self.waits
    }
}

/// Returns whether another thread waits for a lock of this connection's transaction.
pub fn blocks<C: AsConn>(conn: &mut C, other: &Watched) -> bool {
    if matches!(conn.as_conn(), Conn::Sqlite(_)) {
        // It can only be seen to try again, with pauses between.
        return other.waits() > 5;
    }
    let waiting =
        "SELECT count(*) AS n FROM pg_locks WHERE pg_backend_pid() = ANY(pg_blocking_pids(pid))";
    count(conn, waiting) > 0
}
