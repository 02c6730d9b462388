//! The example `quickstart`, run as a program.

use crate::support::wait::{eventually, until};
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_quickstart");

/// A run of it, with a directory of its own for its temporary files.
struct Run {
    process: Child,
    temporary: TempDir,
}

impl Run {
    fn start(directory: &Path) -> Self {
        let temporary = tempfile::tempdir().unwrap();
        let process = Command::new(PROGRAM)
            .arg(directory)
            .env("TMPDIR", temporary.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Run { process, temporary }
    }

    /// Waits until it has said something on standard error.
    fn says(&mut self, text: &str) {
        let said = self.process.stderr.as_mut().unwrap();
        let mut lines = BufReader::new(said).lines();
        let heard = lines.any(|line| line.unwrap().contains(text));
        assert!(heard, "it ended without saying `{text}`");
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.process.id().cast_signed()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Waits for its end: the exit code, and what it wrote to standard output.
    fn end(&mut self) -> (Option<i32>, String) {
        let status = eventually("the program ends", || self.process.try_wait().unwrap());
        let mut said = String::new();
        let mut stdout = self.process.stdout.take().unwrap();
        stdout.read_to_string(&mut said).unwrap();
        (status.code(), said)
    }

    /// The processes it started, known by an argument: their directory.
    /// None where there is no `/proc` to look at.
    fn processes(&self) -> usize {
        let mark = self.temporary.path().as_os_str().as_bytes();
        let is_ours = |command: &Vec<u8>| command.windows(mark.len()).any(|part| part == mark);
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        let commands = processes.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
        commands.filter(is_ours).count()
    }

    fn leftovers(&self) -> usize {
        fs::read_dir(self.temporary.path()).unwrap().count()
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Files of all kinds, and things that are none.
fn directory() -> (TempDir, usize) {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    fs::create_dir_all(root.join("a/b")).unwrap();
    for number in 0..30 {
        fs::write(root.join(format!("a/{number}")), "line\n".repeat(number)).unwrap();
    }
    let mut names: Vec<&[u8]> = vec![b"a/b/two words", "a/\u{fc}".as_bytes(), b"a/\\u0000\"\n"];
    if cfg!(target_os = "linux") {
        names.push(b"not \xff UTF-8");
    }
    for name in &names {
        fs::write(root.join(OsStr::from_bytes(name)), "no line feed").unwrap();
    }
    let read_only = fs::Permissions::from_mode(0o400);
    fs::set_permissions(root.join("a/1"), read_only).unwrap();
    std::os::unix::fs::symlink("..", root.join("a/loop")).unwrap();
    let files = 30 + names.len();
    (directory, files)
}

#[test]
fn every_file_is_hashed_though_a_worker_is_killed() {
    let (directory, files) = directory();
    let mut run = Run::start(directory.path());
    run.says("killed while it ran");
    let (code, said) = run.end();
    assert_eq!(code, Some(0), "{said}");
    let numbers: Vec<usize> = said
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect();
    let [_, _, _, doubled, recovered] = numbers[..] else {
        panic!("{said}");
    };
    assert_eq!(
        said,
        format!(
            "files: {files}  hashed: {files}  lost: 0  doubled effects: {doubled}  \
             recovered after kill: {recovered}\n"
        )
    );
    // Only what the killed worker held can have happened twice.
    assert!(recovered >= 1 && doubled <= recovered, "{said}");
    assert_eq!((run.processes(), run.leftovers()), (0, 0));
}

#[test]
fn an_empty_directory_is_no_failure() {
    let directory = tempfile::tempdir().unwrap();
    let (code, said) = Run::start(directory.path()).end();
    assert_eq!(code, Some(0));
    assert_eq!(
        said,
        "files: 0  hashed: 0  lost: 0  doubled effects: 0  recovered after kill: 0\n"
    );
}

#[test]
fn a_missing_directory_is_named() {
    let mut run = Run::start(Path::new("/there/is/nothing"));
    run.says("cannot read the directory /there/is/nothing");
    assert_eq!(run.end(), (Some(2), String::new()));
}

#[test]
fn an_interrupt_ends_all_its_processes() {
    let (directory, _) = directory();
    let mut run = Run::start(directory.path());
    run.says("killed while it ran");
    run.signal(Signal::INT);
    assert_eq!(run.end(), (Some(130), String::new()));
    assert_eq!((run.processes(), run.leftovers()), (0, 0));
}

#[cfg(target_os = "linux")]
#[test]
fn its_processes_end_when_it_is_killed() {
    let (directory, _) = directory();
    let mut run = Run::start(directory.path());
    run.says("killed while it ran");
    assert!(run.processes() > 0);
    run.signal(Signal::KILL);
    until("no process is left", || run.processes() == 0);
}
