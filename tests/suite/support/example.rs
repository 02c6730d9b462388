//! Examples, run as programs.

use crate::support::wait::eventually;
use std::io::Read;
use std::process::{Child, Command, Stdio};

/// Killed when dropped; its worker ends with it.
struct Run(Child);

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs an example to its end in a directory of its own, of which it leaves nothing. Returns its exit code, and what it
/// printed.
pub fn run(program: &str, arguments: &[&str]) -> (Option<i32>, String) {
    let temporary = tempfile::tempdir().unwrap();
    let mut run = Run(Command::new(program)
        .args(arguments)
        .env("TMPDIR", temporary.path())
        .env_remove("WINDLASS_CHILD_TOKEN")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap());
    let status = eventually("the program ends", || run.0.try_wait().unwrap());
    let mut said = String::new();
    let stdout = run.0.stdout.as_mut().unwrap();
    stdout.read_to_string(&mut said).unwrap();
    assert_eq!(std::fs::read_dir(temporary.path()).unwrap().count(), 0);
    (status.code(), said)
}
