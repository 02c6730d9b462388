//! Commits on SQLite: `PRAGMA data_version` changes with every commit of another connection, in any
//! process. One check costs about 4 µs, so frequent checks would do. On Linux the kernel reports
//! writes to the log, so no checks are needed while nothing happens.

use crate::clock;
use crate::db::conn::connection::Conn;
use crate::db::conn::statement::Statement;
use diesel::prelude::*;
use diesel::sql_types::Integer;
use std::path::Path;
use std::time::{Duration, Instant};

/// The pause between two checks without the kernel's reports. The median delay it causes is half of
/// it.
const NAP: Duration = Duration::from_millis(3);

/// The pause between two checks with the kernel's reports, in case one is missed. A listener polls
/// more often.
const SELDOM: Duration = Duration::from_secs(60);

/// The time for which checks go on after a write, less and less often: a write shows only once it is
/// committed. They go on after a change was seen, as that may have been the commit before, while the
/// write of this one has been reported already.
const COMMIT: Duration = Duration::from_secs(2);

const SHORTEST: Duration = Duration::from_micros(200);

const LONGEST: Duration = Duration::from_millis(3);

/// The shortest time between two wake-ups, whatever the rate of commits.
const GAP: Duration = Duration::from_millis(1);

pub(crate) struct SqliteListener {
    conn: SqliteConnection,
    version: i32,
    log: Option<LogWatch>,
    checked_at: Instant,
    heard_at: Option<Instant>,
    /// The time of a write that may not show yet.
    written_at: Option<Instant>,
    /// True if a change has shown since.
    has_shown: bool,
}

#[derive(QueryableByName)]
struct DataVersion {
    #[diesel(sql_type = Integer)]
    data_version: i32,
}

impl SqliteListener {
    pub(crate) fn new(mut conn: SqliteConnection, path: &Path) -> Result<Self, String> {
        // The first check creates the log, which can be watched from then on.
        data_version(&mut conn)?;
        let log = LogWatch::new(path);
        let version = data_version(&mut conn)?;
        Ok(SqliteListener {
            conn,
            version,
            log,
            checked_at: clock::instant(),
            heard_at: None,
            written_at: None,
            has_shown: false,
        })
    }

    pub(crate) fn wait(&mut self, timeout: Duration) -> Result<bool, String> {
        let start = clock::instant();
        if let Some(heard_at) = self.heard_at.take() {
            clock::nap(GAP.saturating_sub(heard_at.elapsed()).min(timeout));
        }
        loop {
            let pause = self.until_next_check();
            if pause.is_zero() {
                if self.has_changed()? {
                    return Ok(true);
                }
                continue;
            }
            let left = timeout.saturating_sub(start.elapsed());
            if left.is_zero() {
                return Ok(false);
            }
            self.pause(pause.min(left));
        }
    }

    /// Returns how long no check is needed if nothing is written.
    fn until_next_check(&self) -> Duration {
        let pause = match self.written_at {
            _ if self.log.is_none() => NAP,
            // It has not been checked for yet.
            Some(at) if self.checked_at < at => Duration::ZERO,
            Some(at) => match self.checked_at - at {
                age if age >= COMMIT => SELDOM,
                age if self.has_shown => (age * 15).max(SHORTEST),
                age => age.clamp(SHORTEST, LONGEST),
            },
            None => SELDOM,
        };
        pause.saturating_sub(self.checked_at.elapsed())
    }

    fn has_changed(&mut self) -> Result<bool, String> {
        let version = data_version(&mut self.conn)?;
        self.checked_at = clock::instant();
        if version == self.version {
            return Ok(false);
        }
        self.version = version;
        self.has_shown = true;
        self.heard_at = Some(self.checked_at);
        Ok(true)
    }

    /// Waits this long, or until something is written.
    fn pause(&mut self, pause: Duration) {
        let Some(log) = &mut self.log else {
            return clock::nap(pause);
        };
        match log.wait(pause) {
            Ok(true) => {
                self.written_at = Some(clock::instant());
                self.has_shown = false;
            }
            Ok(false) => {}
            // A check covers this case too.
            Err(LogGone) => self.log = None,
        }
    }
}

fn data_version(conn: &mut SqliteConnection) -> Result<i32, String> {
    Statement::new("PRAGMA data_version")
        .get_result::<DataVersion>(&mut Conn::Sqlite(conn))
        .map(|row| row.data_version)
        .map_err(|error| error.to_string())
}

/// The write-ahead log, watched by inotify. Only on Linux.
struct LogWatch {
    #[cfg(target_os = "linux")]
    inotify: rustix::fd::OwnedFd,
}

/// The log is another file now, or cannot be watched.
struct LogGone;

#[cfg(target_os = "linux")]
mod log {
    use super::{LogGone, LogWatch};
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::fs::inotify::{CreateFlags, ReadFlags, Reader, WatchFlags, add_watch, init};
    use rustix::io::Errno;
    use std::mem::MaybeUninit;
    use std::path::Path;
    use std::time::Duration;

    impl LogWatch {
        /// Returns `None` if the log cannot be watched.
        pub(super) fn new(path: &Path) -> Option<LogWatch> {
            // SQLite puts the log beside the file to which a link leads.
            let mut log = path.canonicalize().ok()?.into_os_string();
            log.push("-wal");
            let inotify = init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok()?;
            add_watch(&inotify, Path::new(&log), WatchFlags::MODIFY).ok()?;
            Some(LogWatch { inotify })
        }

        /// Returns whether something was written.
        pub(super) fn wait(&mut self, timeout: Duration) -> Result<bool, LogGone> {
            let timeout = Timespec::try_from(timeout).map_err(|_| LogGone)?;
            let mut fds = [PollFd::new(&self.inotify, PollFlags::IN)];
            match poll(&mut fds, Some(&timeout)) {
                Ok(0) | Err(Errno::INTR) => return Ok(false),
                Ok(_) => {}
                Err(_) => return Err(LogGone),
            }
            let mut buffer = [MaybeUninit::uninit(); 4096];
            let mut events = Reader::new(&self.inotify, &mut buffer);
            loop {
                match events.next() {
                    Ok(event) if event.events().contains(ReadFlags::IGNORED) => {
                        return Err(LogGone);
                    }
                    Ok(_) => {}
                    Err(Errno::WOULDBLOCK) => return Ok(true),
                    Err(_) => return Err(LogGone),
                }
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod log {
    use super::{LogGone, LogWatch};
    use std::path::Path;
    use std::time::Duration;

    impl LogWatch {
        pub(super) fn new(_path: &Path) -> Option<LogWatch> {
            None
        }

        pub(super) fn wait(&mut self, _timeout: Duration) -> Result<bool, LogGone> {
            Err(LogGone)
        }
    }
}
