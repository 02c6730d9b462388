//! The example `policies`, run as a program, with fewer users.

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

#[test]
fn nobody_is_notified_twice() {
    let temporary = tempfile::tempdir().unwrap();
    let mut run = Run(Command::new(env!("CARGO_BIN_EXE_policies"))
        .args(["--users", "400", "--kill-at", "60"])
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
    assert_eq!(status.code(), Some(0), "{said}");
    let lines: Vec<&str> = said.lines().collect();
    let [users, retried, timed_out] = lines[..] else {
        panic!("{said}")
    };
    let start = "users: 400  notified: 400  notified twice: 0  killed after: ";
    let (killed, resumed) = users
        .strip_prefix(start)
        .and_then(|rest| rest.split_once("  resumed at: "))
        .expect(users);
    let [killed, resumed] = [killed, resumed].map(|number| number.parse::<u32>().unwrap());
    assert!((60..=200).contains(&killed), "{users}");
    assert_eq!(resumed, killed + 1);
    assert!(retried.starts_with("failed attempts: 2 (the other side is busy; "));
    assert!(timed_out.starts_with("timed out: 1  ") && timed_out.ends_with("blamed: 0"));
    assert_eq!(std::fs::read_dir(temporary.path()).unwrap().count(), 0);
}
