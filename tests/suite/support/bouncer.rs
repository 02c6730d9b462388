//! `PgBouncer` before the server of a Postgres address.

use super::proxy::server;
use super::server::{NOBODY, free_port};
use super::wait::until;
use rustix::process::{Pid, Signal, kill_process};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

/// Ends when dropped.
pub struct Bouncer {
    program: Child,
    server: String,
    port: u16,
    _directory: tempfile::TempDir,
}

impl Bouncer {
    /// In session mode. `None`: this run does not say where the program is.
    pub fn start(url: &str) -> Option<Self> {
        Self::with(url, "pool_mode = session\ndefault_pool_size = 100")
    }

    /// In transaction mode, with fewer sessions of the server than the processes of a test have connections.
    pub fn by_transaction(url: &str) -> Option<Self> {
        Self::with(
            url,
            "pool_mode = transaction\ndefault_pool_size = 6\nmax_client_conn = 1000",
        )
    }

    fn with(url: &str, mode: &str) -> Option<Self> {
        let program = std::env::var_os("WINDLASS_TEST_PGBOUNCER")?;
        let server = server(url).to_owned();
        let (host, to) = server.split_once(':').unwrap();
        let port = free_port();
        let directory = tempfile::tempdir_in("/tmp").unwrap();
        let place = directory.path().display();
        let settings = format!(
            "[databases]\n* = host={host} port={to}\n\
             [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n\
             auth_type = trust\nauth_file = {place}/users\n{mode}\nlogfile = {place}/log\n"
        );
        std::fs::write(directory.path().join("settings"), settings).unwrap();
        std::fs::write(directory.path().join("users"), "\"postgres\" \"\"\n").unwrap();
        let mut command = Command::new(program);
        // It refuses to run as root.
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(directory.path(), Some(NOBODY), Some(NOBODY)).unwrap();
            command.uid(NOBODY).gid(NOBODY);
        }
        command.arg("-q").arg(directory.path().join("settings"));
        command.current_dir("/").stdin(Stdio::null());
        let program = command.stdout(Stdio::null()).spawn().unwrap();
        Some(Bouncer {
            program,
            server,
            port,
            _directory: directory,
        })
    }

    /// Waits until it can be connected to.
    pub fn listening(self) -> Self {
        let address = ("127.0.0.1", self.port);
        until("PgBouncer listens", || {
            std::net::TcpStream::connect(address).is_ok()
        });
        self
    }

    /// The address that leads through here.
    pub fn url(&self, url: &str) -> String {
        url.replacen(&self.server, &format!("127.0.0.1:{}", self.port), 1)
    }

    /// Stands still, while TCP acknowledges what comes.
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
    }

    /// Goes on, with all that has come.
    pub fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.program.id().cast_signed()).unwrap();
        kill_process(pid, signal).unwrap();
    }
}

impl Drop for Bouncer {
    fn drop(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}
