//! Programs that start as from a shell, whatever signals the runner of the
//! tests ignores: under `nohup`, or in the background of a script, it ignores
//! some, and so would each program that it starts.

use std::ffi::OsStr;
use std::process::Command;

/// Those that the tests send, with their bits in the masks of `/proc`.
const SIGNALS: [(&str, u32); 6] = [
    ("HUP", 1),
    ("INT", 2),
    ("QUIT", 3),
    ("USR1", 10),
    ("USR2", 12),
    ("TERM", 15),
];

/// A command line whose program ignores none of these signals when it starts.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let ignored = ignored(&std::fs::read_to_string("/proc/self/status").unwrap_or_default());
    if ignored.is_empty() {
        return Command::new(program);
    }
    let mut command = Command::new("env");
    let option = format!("--default-signal={}", ignored.join(","));
    command.arg(option).arg(program);
    command
}

/// The signals that a process ignores, by its status.
fn ignored(status: &str) -> Vec<&'static str> {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    let is_ignored = |signal: u32| mask.is_some_and(|mask| mask & (1 << (signal - 1)) != 0);
    let ignored = SIGNALS.iter().filter(|(_, number)| is_ignored(*number));
    ignored.map(|(name, _)| *name).collect()
}

const ROLE: &str = "WINDLASS_TEST_DISPOSITIONS";

/// The program of the test below: it starts another one.
#[test]
fn role() {
    if std::env::var_os(ROLE).is_some() {
        let own = std::fs::read_to_string("/proc/self/status").unwrap();
        assert_eq!(ignored(&own)[..2], ["HUP", "INT"]);
        let status = command("cat").arg("/proc/self/status").output().unwrap();
        let status = String::from_utf8(status.stdout).unwrap();
        assert!(status.contains("SigIgn:"), "{status}");
        assert_eq!(ignored(&status), [""; 0]);
    }
}

#[test]
fn what_the_runner_ignores_is_not_inherited() {
    let run = Command::new("env")
        .arg("--ignore-signal=HUP,INT")
        .arg(std::env::current_exe().unwrap())
        .args(["support::dispositions::role", "--exact", "--nocapture"])
        .env(ROLE, "1")
        .output()
        .unwrap();
    assert!(run.status.success(), "{run:?}");
}
