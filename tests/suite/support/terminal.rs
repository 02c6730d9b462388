//! A program at a terminal, which is used by keys.

use super::wait::{DEADLINE, eventually};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Termios, tcgetattr, tcgetwinsize, tcsetwinsize};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A running one; killed when dropped.
pub struct AtTerminal {
    child: Child,
    master: Arc<File>,
    /// Kept open, so that the terminal outlives the program.
    terminal: File,
    seen: Arc<Mutex<Vec<u8>>>,
    reader: Option<JoinHandle<()>>,
    is_taken_away: Arc<AtomicBool>,
    /// From where on it counts for the screen.
    from: usize,
    before: Termios,
}

impl AtTerminal {
    /// Starts a program at a terminal of this size, which is its controlling terminal.
    pub fn start(command: &Command, columns: u16, rows: u16) -> Self {
        let master =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let path = Path::new(OsStr::from_bytes(name.to_bytes()));
        let open = || File::options().read(true).write(true).open(path).unwrap();
        let (terminal, master) = (open(), Arc::new(File::from(master)));
        set_size(&master, columns, rows);
        let before = tcgetattr(&terminal).unwrap();
        let mut started = Command::new("setsid");
        started.arg("--ctty").arg(command.get_program());
        started.args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => started.env(name, value),
                None => started.env_remove(name),
            };
        }
        started.stdin(open()).stdout(open()).stderr(open());
        let child = started.spawn().unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let is_taken_away = Arc::new(AtomicBool::new(false));
        let reader = std::thread::spawn({
            let (master, seen, end) = (master.clone(), seen.clone(), is_taken_away.clone());
            move || read(&master, &seen, &end)
        });
        AtTerminal {
            child,
            master,
            terminal,
            seen,
            reader: Some(reader),
            is_taken_away,
            from: 0,
            before,
        }
    }

    /// Everything that was written to the terminal.
    pub fn seen(&self) -> String {
        String::from_utf8_lossy(&self.seen.lock().unwrap()).into_owned()
    }

    /// Returns the text on the screen, of what was written since it was wiped.
    pub fn screen(&self) -> String {
        screen(&String::from_utf8_lossy(
            &self.seen.lock().unwrap()[self.from..],
        ))
    }

    /// Forgets what is on the screen.
    pub fn wipe(&mut self) {
        self.from = self.seen.lock().unwrap().len();
    }

    /// Waits until this text is on the screen.
    pub fn shows(&self, text: &str) {
        let start = Instant::now();
        while !self.screen().contains(text) {
            assert!(
                start.elapsed() < DEADLINE,
                "no `{text}` on\n{}",
                self.screen()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub fn types(&mut self, keys: &str) {
        (&*self.master).write_all(keys.as_bytes()).unwrap();
    }

    pub fn resize(&self, columns: u16, rows: u16) {
        set_size(&self.master, columns, rows);
    }

    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Returns whether it is stopped, as by Ctrl-Z.
    pub fn is_stopped(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        let (_, state) = stat.rsplit_once(") ").unwrap();
        state.starts_with('T')
    }

    /// Returns whether the modes of the terminal are those from before the start.
    pub fn is_as_before(&self) -> bool {
        let now = tcgetattr(&self.terminal).unwrap();
        let before = &self.before;
        now.input_modes == before.input_modes
            && now.output_modes == before.output_modes
            && now.control_modes == before.control_modes
            && now.local_modes == before.local_modes
    }

    /// Takes the terminal away, as when its window is closed, and waits for
    /// the end of the program.
    pub fn ends_without_its_terminal(mut self) -> ExitStatus {
        self.is_taken_away.store(true, Ordering::SeqCst);
        self.reader.take().unwrap().join().unwrap();
        self.master = Arc::new(File::open("/dev/null").unwrap());
        self.ends()
    }

    /// Waits for its end.
    pub fn ends(&mut self) -> ExitStatus {
        eventually("it ends", || self.child.try_wait().unwrap())
    }
}

/// Reads what the program writes, until its end.
fn read(mut master: &File, seen: &Mutex<Vec<u8>>, end: &AtomicBool) {
    let mut buffer = [0; 4_096];
    let moment = Timespec::try_from(Duration::from_millis(50)).unwrap();
    while !end.load(Ordering::SeqCst) {
        let mut readable = [PollFd::new(master, PollFlags::IN)];
        if poll(&mut readable, Some(&moment)).is_ok_and(|count| count == 0) {
            continue;
        }
        // The end is an error here.
        let Ok(count @ 1..) = master.read(&mut buffer) else {
            return;
        };
        seen.lock().unwrap().extend(&buffer[..count]);
    }
}

/// Returns the text that a terminal of any size shows after this output: letters, moves of the cursor, and clears,
/// which is all that the program writes.
fn screen(written: &str) -> String {
    let mut rows: Vec<Vec<char>> = Vec::new();
    let (mut row, mut column) = (0, 0);
    let mut letters = written.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\u{1b}' if letters.next_if_eq(&'[').is_some() => {
                let mut parameters = String::new();
                while let Some(part) = letters.next_if(|c| !c.is_ascii_alphabetic()) {
                    parameters.push(part);
                }
                let mut numbers = parameters
                    .split(';')
                    .map(|one| one.parse().unwrap_or(1_usize));
                match (letters.next(), parameters.as_str()) {
                    (Some('H'), _) => {
                        row = numbers.next().unwrap_or(1).saturating_sub(1);
                        column = numbers.next().unwrap_or(1).saturating_sub(1);
                    }
                    (Some('J'), _) | (Some('h' | 'l'), "?1049") => rows.clear(),
                    _ => {}
                }
            }
            '\r' => column = 0,
            '\n' => row += 1,
            letter => {
                if rows.len() <= row {
                    rows.resize(row + 1, Vec::new());
                }
                let line = &mut rows[row];
                if line.len() <= column {
                    line.resize(column + 1, ' ');
                }
                line[column] = letter;
                column += 1;
            }
        }
    }
    let lines: Vec<String> = rows.iter().map(|row| row.iter().collect()).collect();
    lines.join("\n")
}

#[test]
fn a_screen_is_what_was_drawn_last() {
    let drawn = "\u{1b}[?1049h\u{1b}[2;3Hab\u{1b}[1mc\u{1b}[2;4HX\u{1b}[3;1Hd";
    assert_eq!(screen(drawn), "\n  aXc\nd");
    assert_eq!(screen(&format!("{drawn}\u{1b}[2J\u{1b}[1;1He")), "e");
    assert!(screen(&format!("{drawn}\u{1b}[?1049lerror: no\r\n")).ends_with("error: no"));
}

fn set_size(master: &File, columns: u16, rows: u16) {
    let mut size = tcgetwinsize(master).unwrap();
    (size.ws_col, size.ws_row) = (columns, rows);
    tcsetwinsize(master, size).unwrap();
}

impl Drop for AtTerminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
