//! The terminal is given back when a thread panics: in a program of its own, which is this one once
//! more.

use crate::cli::top::Screen;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, tcgetattr};
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

const PANICS: &str = "WINDLASS_TEST_PANICS_AT_A_TERMINAL";

/// The program that `run` starts; it does nothing as a test of its own.
#[test]
fn panics_with_the_screen_open() {
    let Ok(thread) = std::env::var(PANICS) else {
        return;
    };
    let mut screen = Screen::open().unwrap();
    screen.draw(|_| {}).unwrap();
    if thread == "other" {
        std::thread::spawn(|| panic!("in another thread"))
            .join()
            .unwrap_err();
        let error = screen.draw(|_| {}).unwrap_err();
        assert_eq!(error.to_string(), "a thread of this program panicked");
    }
    panic!("in the loop of the screen");
}

fn run(thread: &str) -> String {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap();
    let path = Path::new(OsStr::from_bytes(name.to_bytes()));
    let open = || File::options().read(true).write(true).open(path).unwrap();
    let before = tcgetattr(&master).unwrap();
    assert!(before.local_modes.contains(LocalModes::ECHO));
    // Held open, so that the modes can be read after the end.
    let kept = open();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "--nocapture", "--test-threads", "1"])
        .arg("console::cli::top::internal_tests::restored::panics_with_the_screen_open")
        .env(PANICS, thread)
        .env("RUST_BACKTRACE", "0")
        .stdin(open())
        .stdout(open())
        .stderr(open());
    let mut child = command.spawn().unwrap();
    drop(command);
    let mut master = File::from(master);
    let seen = std::thread::spawn({
        let mut master = master.try_clone().unwrap();
        move || {
            let mut seen = Vec::new();
            let mut buffer = [0; 4_096];
            while let Ok(count @ 1..) = master.read(&mut buffer) {
                seen.extend(&buffer[..count]);
            }
            String::from_utf8_lossy(&seen).into_owned()
        }
    });
    assert!(!child.wait().unwrap().success());
    let after = tcgetattr(&master).unwrap();
    assert_eq!(after.local_modes, before.local_modes);
    assert_eq!(after.input_modes, before.input_modes);
    assert_eq!(after.output_modes, before.output_modes);
    drop(kept);
    let _ = master.by_ref();
    seen.join().unwrap()
}

#[test]
fn a_panic_is_reported_on_the_terminal_as_it_was() {
    for (thread, message) in [
        ("own", "in the loop of the screen"),
        ("other", "in another thread"),
    ] {
        let seen = run(thread);
        let (before, after) = seen.split_once(message).unwrap_or_else(|| panic!("{seen}"));
        assert!(
            before.contains("\u{1b}[?1049h"),
            "the screen was open: {seen}"
        );
        assert!(
            before.contains("\u{1b}[?1049l"),
            "and closed before the message: {seen}"
        );
        assert!(!after.contains("\u{1b}[?1049h"), "{seen}");
    }
}
