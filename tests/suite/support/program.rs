//! The program `windlass`, run as people run it.

use super::dispositions::command;
use super::wait::{eventually, until};
use rustix::process::Signal;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

/// The path at which cargo has built it.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_windlass");

/// A command line of `windlass`, in an environment that says nothing.
pub struct Windlass(Command);

/// Returns whether Windlass reads a variable of this name.
fn says_something(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    name.starts_with("WINDLASS_") || ["DATABASE_URL", "RUST_LOG"].contains(&&*name)
}

/// The exit code and the output of a finished program.
#[derive(Debug)]
pub struct Said {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

/// Runs `windlass` on a database and waits for its end.
pub fn windlass(url: &str, arguments: &[&str]) -> Said {
    Windlass::new(arguments).env("DATABASE_URL", url).run()
}

impl Windlass {
    pub fn new<A: AsRef<OsStr>>(arguments: &[A]) -> Self {
        Self::at(Path::new(PROGRAM), arguments)
    }

    /// Through another program, or a copy of it.
    pub fn at<A: AsRef<OsStr>>(program: &Path, arguments: &[A]) -> Self {
        let mut command = command(program);
        command.args(arguments).stdin(Stdio::null());
        let names = std::env::vars_os().map(|(name, _)| name);
        for name in names.filter(|name| says_something(name)) {
            command.env_remove(name);
        }
        Windlass(command)
    }

    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.0.env(name, value);
        self
    }

    pub fn current_dir(mut self, directory: &Path) -> Self {
        self.0.current_dir(directory);
        self
    }

    /// As a user who may nothing.
    pub fn by_nobody(mut self) -> Self {
        self.0.uid(65534).gid(65534);
        self
    }

    pub fn run(self) -> Said {
        self.start().said()
    }

    /// Runs it at a terminal of 110 columns with typed input, and returns its exit code
    /// with all that is seen there.
    pub fn on_a_terminal(mut self, typed: &str) -> (Option<i32>, String) {
        use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let mut size = rustix::termios::tcgetwinsize(&master).unwrap();
        size.ws_col = 110;
        rustix::termios::tcsetwinsize(&master, size).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let open = || {
            let path = Path::new(OsStr::from_bytes(name.to_bytes()));
            File::options().read(true).write(true).open(path).unwrap()
        };
        self.0.stdin(open()).stdout(open()).stderr(open());
        let mut child = self.0.spawn().unwrap();
        // It holds the other end of the terminal, as long as it lives.
        drop(self.0);
        let mut master = File::from(master);
        master.write_all(typed.as_bytes()).unwrap();
        let mut seen = Vec::new();
        // The end is an error here.
        let _ = master.read_to_end(&mut seen);
        let code = child.wait().unwrap().code();
        (code, String::from_utf8_lossy(&seen).replace('\r', ""))
    }

    /// Runs it at a terminal, to be used by keys.
    pub fn at_a_terminal(self, columns: u16, rows: u16) -> super::terminal::AtTerminal {
        super::terminal::AtTerminal::start(&self.0, columns, rows)
    }

    pub fn start(mut self) -> Running {
        let output = tempfile::tempdir().unwrap();
        let file = |name| File::create(output.path().join(name)).unwrap();
        self.0.stdout(file("out")).stderr(file("err"));
        Running {
            child: self.0.spawn().unwrap(),
            output,
        }
    }
}

/// A running one; killed when dropped.
pub struct Running {
    child: Child,
    output: tempfile::TempDir,
}

impl Running {
    pub fn signal(&self, signal: Signal) {
        super::process::signal(i32::try_from(self.child.id()).unwrap(), signal);
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    fn exit(&mut self) -> ExitStatus {
        eventually("windlass exits", || self.child.try_wait().unwrap())
    }

    /// Waits for its end.
    pub fn said(mut self) -> Said {
        Said {
            code: self.exit().code(),
            out: self.read("out"),
            err: self.read("err"),
        }
    }

    /// Waits until it has logged a text.
    pub fn logs(&self, text: &str) {
        until(&format!("windlass logs `{text}`"), || {
            self.read("err").contains(text)
        });
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.output.path().join(name)).unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!(
                "--- windlass said\n{}{}",
                self.read("out"),
                self.read("err")
            );
        }
    }
}

impl Said {
    /// That it has done what it was asked for, and complained of nothing.
    pub fn is_done(&self) -> bool {
        self.code == Some(0) && self.err.is_empty()
    }

    pub fn json(&self) -> serde_json::Value {
        assert!(self.is_done(), "{self:?}");
        serde_json::from_str(&self.out).unwrap()
    }
}
