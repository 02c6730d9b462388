//! `PRAGMA data_version` changes with every commit of another connection, in
//! whatever process. One look costs about 4 us, so that looking often would
//! do; but on Linux the kernel tells when somebody writes to the log, so that
//! nobody has to look while nothing happens.

use crate::clock;
use crate::db::conn::connection::Conn;
use crate::db::conn::statement::Statement;
use diesel::prelude::*;
use diesel::sql_types::Integer;
use std::path::Path;
use std::time::{Duration, Instant};

/// Between two looks where the kernel tells nothing; the median of the delay
/// it causes is half of it.
const NAP: Duration = Duration::from_millis(3);

/// Between two looks where it does, in case it does not. Whoever listens polls
/// more often.
const SELDOM: Duration = Duration::from_secs(60);

/// What is written shows when it is committed: so long it is looked for, less
/// and less often. Also when a change was seen meanwhile, which may have been
/// the commit before: the writing of this one has been heard of already.
const COMMIT: Duration = Duration::from_secs(2);

const SHORTEST: Duration = Duration::from_micros(200);

const LONGEST: Duration = Duration::from_millis(3);

/// Whoever commits all the time is heard of no more often.
const GAP: Duration = Duration::from_millis(1);

pub(crate) struct Listener {
    conn: SqliteConnection,
    seen: i32,
    log: Option<log::Watch>,
    looked_at: Instant,
    heard_at: Option<Instant>,
    /// Since when something was written that may not show yet.
    written_at: Option<Instant>,
    /// Something has shown since.
    has_shown: bool,
}

#[derive(QueryableByName)]
struct Version {
    #[diesel(sql_type = Integer)]
    data_version: i32,
}

impl Listener {
    pub(crate) fn new(mut conn: SqliteConnection, path: &Path) -> Result<Self, String> {
        // The first look creates the log, which can be watched from then on.
        look(&mut conn)?;
        let log = log::Watch::new(path);
        let seen = look(&mut conn)?;
        Ok(Listener {
            conn,
            seen,
            log,
            looked_at: clock::instant(),
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
            let pause = self.until_next_look();
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

    /// For how long there is no reason to look, if nothing is written.
    fn until_next_look(&self) -> Duration {
        let pause = match self.written_at {
            _ if self.log.is_none() => NAP,
            // It has not been looked for yet.
            Some(at) if self.looked_at < at => Duration::ZERO,
            Some(at) => match self.looked_at - at {
                age if age >= COMMIT => SELDOM,
                age if self.has_shown => (age * 15).max(SHORTEST),
                age => age.clamp(SHORTEST, LONGEST),
            },
            None => SELDOM,
        };
        pause.saturating_sub(self.looked_at.elapsed())
    }

    fn has_changed(&mut self) -> Result<bool, String> {
        let version = look(&mut self.conn)?;
        self.looked_at = clock::instant();
        if version == self.seen {
            return Ok(false);
        }
        self.seen = version;
        self.has_shown = true;
        self.heard_at = Some(self.looked_at);
        Ok(true)
    }

    /// So long, or until something is written.
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
            // Looking does as well.
            Err(log::Gone) => self.log = None,
        }
    }
}

fn look(conn: &mut SqliteConnection) -> Result<i32, String> {
    Statement::new("PRAGMA data_version")
        .get_result::<Version>(&mut Conn::Sqlite(conn))
        .map(|row| row.data_version)
        .map_err(|error| error.to_string())
}

/// The write-ahead log, watched by inotify.
#[cfg(target_os = "linux")]
mod log {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::fd::OwnedFd;
    use rustix::fs::inotify::{CreateFlags, ReadFlags, Reader, WatchFlags, add_watch, init};
    use rustix::io::Errno;
    use std::mem::MaybeUninit;
    use std::path::Path;
    use std::time::Duration;

    pub(crate) struct Watch(OwnedFd);

    /// The log is another file now, or cannot be watched.
    pub(crate) struct Gone;

    impl Watch {
        /// `None`: it cannot be watched.
        pub(crate) fn new(path: &Path) -> Option<Watch> {
            // SQLite puts the log beside the file that a link leads to.
            let mut log = path.canonicalize().ok()?.into_os_string();
            log.push("-wal");
            let inotify = init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok()?;
            add_watch(&inotify, Path::new(&log), WatchFlags::MODIFY).ok()?;
            Some(Watch(inotify))
        }

        /// Whether somebody has written.
        pub(crate) fn wait(&mut self, timeout: Duration) -> Result<bool, Gone> {
            let timeout = Timespec::try_from(timeout).map_err(|_| Gone)?;
            let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
            match poll(&mut fds, Some(&timeout)) {
                Ok(0) | Err(Errno::INTR) => return Ok(false),
                Ok(_) => {}
                Err(_) => return Err(Gone),
            }
            let mut buffer = [MaybeUninit::uninit(); 4096];
            let mut events = Reader::new(&self.0, &mut buffer);
            loop {
                match events.next() {
                    Ok(event) if event.events().contains(ReadFlags::IGNORED) => return Err(Gone),
                    Ok(_) => {}
                    Err(Errno::WOULDBLOCK) => return Ok(true),
                    Err(_) => return Err(Gone),
                }
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod log {
    use std::path::Path;
    use std::time::Duration;

    pub(crate) struct Watch;

    pub(crate) struct Gone;

    impl Watch {
        pub(crate) fn new(_path: &Path) -> Option<Watch> {
            None
        }

        pub(crate) fn wait(&mut self, _timeout: Duration) -> Result<bool, Gone> {
            Err(Gone)
        }
    }
}
