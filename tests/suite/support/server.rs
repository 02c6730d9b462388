//! A Postgres server of a test's own, to be stopped and started.

use super::db::{TestDb, execute};
use super::process::signal_if_there;
use super::wait::{eventually, until};
use diesel::prelude::*;
use rustix::process::Signal;
use std::cell::Cell;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

/// Ends when dropped, with all its data.
pub struct Server {
    programs: PathBuf,
    directory: tempfile::TempDir,
    port: u16,
    /// As options of the server.
    settings: String,
    is_killed: Cell<bool>,
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
        Self::start_with("")
    }

    /// With settings: `-c name=value`.
    pub fn start_with(settings: &str) -> Option<Self> {
        let server = Self::without_data(settings)?;
        let how = ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C"];
        server.run("initdb", &how);
        server.control(&["start"]);
        Some(server)
    }

    fn without_data(settings: &str) -> Option<Self> {
        let programs = PathBuf::from(std::env::var_os("WINDLASS_TEST_POSTGRES_BIN")?);
        let port = free_port();
        // In /tmp: its user may be let in nowhere else.
        let directory = tempfile::tempdir_in("/tmp").unwrap();
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(directory.path(), Some(NOBODY), Some(NOBODY)).unwrap();
        }
        Some(Server {
            programs,
            directory,
            port,
            settings: settings.to_owned(),
            is_killed: Cell::new(false),
        })
    }

    /// Starts a copy of it that follows it.
    pub fn standby(&self) -> Self {
        let standby = Self::without_data(&self.settings).unwrap();
        let from = format!("host=127.0.0.1 port={} user=postgres", self.port);
        let how = ["-R", "-X", "stream", "-c", "fast", "--no-sync", "-d", &from];
        standby.run("pg_basebackup", &how);
        standby.control(&["start"]);
        standby
    }

    /// Makes a standby a primary.
    pub fn promote(&self) {
        self.control(&["promote"]);
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
            "-p {} -c listen_addresses=127.0.0.1 -c unix_socket_directories={directory} {}",
            self.port, self.settings
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

    /// `host:port`.
    pub fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub fn url(&self) -> String {
        format!("postgres://postgres@{}/postgres", self.host())
    }

    /// Returns the log of the server.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("server.log")).unwrap()
    }

    /// Its process and those that it has started.
    fn processes(&self) -> Vec<i32> {
        let file = self.directory.path().join("data/postmaster.pid");
        let first: i32 = std::fs::read_to_string(file)
            .unwrap()
            .lines()
            .next()
            .unwrap()
            .parse()
            .unwrap();
        let all = std::fs::read_dir("/proc").unwrap();
        let all = all.filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
        let children = all.filter(|pid| parent(*pid) == Some(first));
        std::iter::once(first).chain(children).collect()
    }

    fn signal(&self, signal: Signal) {
        // The first stands still, so that it starts no more.
        for pid in self.processes() {
            signal_if_there(pid, signal);
        }
    }

    /// All its processes stand still, while the system accepts connections for it.
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
        // One that was started in between.
        self.signal(Signal::STOP);
    }

    pub fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    /// Kills all its processes at once. It is not started again.
    pub fn kill(&self) {
        self.signal(Signal::STOP);
        let all = self.processes();
        all.iter()
            .for_each(|pid| signal_if_there(*pid, Signal::KILL));
        self.is_killed.set(true);
        until("the server is gone", || {
            std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_err()
        });
    }

    /// A migrated database on it.
    pub fn database(&self) -> TestDb {
        let url = self.url();
        let mut conn = eventually("the server answers", || PgConnection::establish(&url).ok());
        execute(&mut conn, "SELECT 1");
        TestDb::at(&url)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if !self.is_killed.get() {
            self.control(&["-m", "immediate", "stop"]);
        }
    }
}

fn parent(pid: i32) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(')')
        .next()?
        .split_whitespace()
        .nth(1)?
        .parse()
        .ok()
}
