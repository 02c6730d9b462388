//! A Postgres server of a test's own, to be stopped and started.

use super::db::{TestDb, execute};
use super::wait::eventually;
use diesel::prelude::*;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

/// Ends when dropped, with all its data.
pub struct Server {
    programs: PathBuf,
    directory: tempfile::TempDir,
    port: u16,
}

/// A port on which nothing listens, below those that outgoing connections get:
/// so that it stays free.
pub fn free_port() -> u16 {
    let mut ports = std::iter::repeat_with(|| fastrand::u16(10_000..30_000));
    let port = ports.find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok());
    port.unwrap()
}

/// Postgres refuses to run as root.
pub const NOBODY: u32 = 65534;

impl Server {
    /// `None`: this run does not say where the server's programs are.
    pub fn start() -> Option<Self> {
        let programs = PathBuf::from(std::env::var_os("WINDLASS_TEST_POSTGRES_BIN")?);
        let port = free_port();
        // In /tmp: its user may be let in nowhere else.
        let directory = tempfile::tempdir_in("/tmp").unwrap();
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(directory.path(), Some(NOBODY), Some(NOBODY)).unwrap();
        }
        let server = Server {
            programs,
            directory,
            port,
        };
        let how = ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C"];
        server.run("initdb", &how);
        server.control(&["start"]);
        Some(server)
    }

    fn run(&self, program: &str, arguments: &[&str]) {
        let mut command = Command::new(self.programs.join(program));
        if rustix::process::geteuid().is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        let log = std::fs::File::create(self.directory.path().join("output")).unwrap();
        let data = self.directory.path().join("data");
        command.arg("-D").arg(data).args(arguments);
        command.current_dir("/").stdin(std::process::Stdio::null());
        // Not a pipe: the server would hold it open.
        command.stdout(log.try_clone().unwrap()).stderr(log);
        let status = command.status().unwrap();
        let said = std::fs::read_to_string(self.directory.path().join("output")).unwrap();
        assert!(status.success(), "{program} {arguments:?}: {said}");
    }

    fn control(&self, arguments: &[&str]) {
        let directory = self.directory.path().display();
        let options = format!(
            "-p {} -c listen_addresses=127.0.0.1 -c unix_socket_directories={directory}",
            self.port
        );
        let log = format!("{directory}/server.log");
        let mut all = vec!["-w", "-l", &log, "-o", &options];
        all.extend(arguments);
        self.run("pg_ctl", &all);
    }

    /// Restarts it in the mode `fast` or `immediate`, which is a crash.
    pub fn restart(&self, mode: &str) {
        self.control(&["-m", mode, "restart"]);
    }

    /// A migrated database on it.
    pub fn database(&self) -> TestDb {
        let url = format!("postgres://postgres@127.0.0.1:{}/postgres", self.port);
        let mut conn = eventually("the server answers", || PgConnection::establish(&url).ok());
        execute(&mut conn, "SELECT 1");
        TestDb::at(&url)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.control(&["-m", "immediate", "stop"]);
    }
}
