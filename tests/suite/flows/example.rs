//! The example `flow`, run as a program, with fewer files.

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
fn a_flow_completes_though_its_workers_are_killed() {
    let temporary = tempfile::tempdir().unwrap();
    let mut run = Run(Command::new(env!("CARGO_BIN_EXE_flow"))
        .args(["--files", "12"])
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
    let expected = "files: 12  read: 12  workers killed: 2  lines: 78\n\
                    web: approved  published: upload, index  undone: nothing\n\
                    print: refused  published: nothing  undone: index, upload\n";
    assert_eq!((&*said, status.code()), (expected, Some(0)));
    assert_eq!(std::fs::read_dir(temporary.path()).unwrap().count(), 0);
}
