//! `PgBouncer` in transaction mode between the processes and the server.

use crate::Result;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Ends when dropped.
pub struct Pooler {
    program: Child,
    /// The server of its addresses.
    pub server: String,
}

/// The database whose sessions find the tables of the run.
pub const DATABASE: &str = "pooled";

/// It refuses to run as root.
const NOBODY: u32 = 65534;

impl Pooler {
    /// `server` is `host:port`, and the tables are in a schema of the database.
    pub fn start(
        program: &Path,
        server: &str,
        database: &str,
        schema: &str,
        directory: &Path,
    ) -> Result<Self> {
        let place = directory.join("pooler");
        std::fs::create_dir_all(&place)?;
        let (host, to) = server.split_once(':').ok_or("the server has no port")?;
        let port = free_port()?;
        let place_name = place.display();
        let settings = format!(
            "[databases]\n{DATABASE} = host={host} port={to} dbname={database} \
             connect_query='SET search_path TO {schema}'\n\
             [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = trust\n\
             auth_file = {place_name}/users\npool_mode = transaction\ndefault_pool_size = 12\n\
             max_client_conn = 1000\nserver_login_retry = 1\nlogfile = {place_name}/log\n"
        );
        std::fs::write(place.join("settings"), settings)?;
        std::fs::write(place.join("users"), "\"postgres\" \"\"\n")?;
        let mut command = Command::new(program);
        if rustix::process::geteuid().is_root() {
            chown(&place, Some(NOBODY), Some(NOBODY))?;
            command.uid(NOBODY).gid(NOBODY);
        }
        command.arg("-q").arg(place.join("settings"));
        command.current_dir("/").stdin(Stdio::null());
        let program = command.stdout(Stdio::null()).spawn()?;
        let server = format!("127.0.0.1:{port}");
        let deadline = Instant::now() + Duration::from_secs(30);
        while std::net::TcpStream::connect(&server).is_err() {
            if Instant::now() > deadline {
                return Err("the pooler does not listen".into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(Pooler { program, server })
    }
}

/// One on which nothing listens now.
fn free_port() -> Result<u16> {
    let mut ports = std::iter::repeat_with(|| fastrand::u16(10_000..30_000)).take(100);
    let port = ports.find(|port| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok());
    port.ok_or_else(|| "no port is free".into())
}

impl Drop for Pooler {
    fn drop(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}
