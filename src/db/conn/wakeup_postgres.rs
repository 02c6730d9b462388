//! LISTEN on a libpq connection of its own.
//!
//! Diesel can read the notifications that have arrived but cannot wait for them, and has no access
//! to the socket. Polling every few milliseconds costs either latency or part of a core. So this
//! file calls libpq directly.
#![allow(
    unsafe_code,
    reason = "libpq is a C library; each call says why it is sound"
)]

use crate::clock;
use crate::db::conn::pooling::recognise::{connect_limit, tagged};
use crate::deadline::{Deadline, no_answer};
use pq_sys as pq;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::ffi::{CStr, CString, c_char, c_void};
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::time::{Duration, Instant};

/// Discards the server's notices, such as that it ends the session, which libpq would print to the
/// program's standard error.
extern "C" fn keep_quiet(_: *mut c_void, _: *const c_char) {}

/// The silence after which the server is pinged. A connection is silent while there is no work, but
/// also when its network path is broken.
const QUIET: Duration = Duration::from_secs(30);

/// The time limit for an answer of the server.
const ANSWER: Duration = Duration::from_secs(10);

/// A session that has executed LISTEN.
pub(crate) struct PostgresListener {
    conn: NonNull<pq::PGconn>,
    /// The time at which the server last sent something.
    heard_at: Instant,
    quiet: Duration,
    answer: Duration,
    /// Last, as it must outlive the connection.
    deadline: Deadline,
}

// SAFETY: a PGconn may be used by any thread, one at a time, and `Listener` is neither cloned nor
// shared: all methods take `&mut self`.
unsafe impl Send for PostgresListener {}

impl Drop for PostgresListener {
    fn drop(&mut self) {
        self.deadline.start(self.answer);
        // SAFETY: the pointer came from PQconnectdb and is freed only here.
        unsafe { pq::PQfinish(self.conn.as_ptr()) }
    }
}

impl PostgresListener {
    /// Connects and listens on channels, whose names must not need quotes.
    pub(crate) fn connect(url: &str, channels: &[&str]) -> Result<Self, String> {
        let (deadline, url) = tagged(url, None);
        let armed = deadline.arm(connect_limit(&url));
        let url = CString::new(url).map_err(|_| "the address contains a NUL".to_owned())?;
        let listen = |channel: &&str| CString::new(format!("LISTEN {channel}"));
        let listen: Result<Vec<CString>, _> = channels.iter().map(listen).collect();
        let listen = listen.map_err(|_| "the channel's name contains a NUL".to_owned())?;
        // SAFETY: `url` is a valid C string during the call.
        let conn = unsafe { pq::PQconnectdb(url.as_ptr()) };
        let conn = NonNull::new(conn).ok_or_else(|| "libpq is out of memory".to_owned())?;
        let mut listener = PostgresListener {
            conn,
            heard_at: clock::instant(),
            quiet: QUIET,
            answer: ANSWER,
            deadline,
        };
        // SAFETY: `conn` is a live connection, and the function does not use its arguments.
        unsafe { pq::PQsetNoticeProcessor(conn.as_ptr(), Some(keep_quiet), std::ptr::null_mut()) };
        // SAFETY: `conn` is a live connection.
        if unsafe { pq::PQstatus(listener.conn.as_ptr()) } != pq::ConnStatusType::CONNECTION_OK {
            return Err(listener.error());
        }
        for statement in &listen {
            listener.execute(statement)?;
        }
        drop(armed);
        listener.deadline.check();
        Ok(listener)
    }

    /// Waits up to `timeout`; see [`PostgresListener::wait`](crate::db::conn::listening::Listener::wait).
    pub(crate) fn wait(&mut self, timeout: Duration) -> Result<bool, String> {
        // One may have come with the answer to LISTEN.
        if self.take_notifications() {
            return Ok(true);
        }
        // SAFETY: `conn` is a live connection.
        let socket = unsafe { pq::PQsocket(self.conn.as_ptr()) };
        if socket < 0 {
            return Err("the connection has no socket any more".to_owned());
        }
        // SAFETY: libpq keeps this descriptor open until PQfinish or
        // PQconsumeInput, and neither can run while `self` is borrowed here.
        let socket = unsafe { BorrowedFd::borrow_raw(socket) };
        let mut fds = [PollFd::new(&socket, PollFlags::IN)];
        let timeout = Timespec::try_from(timeout).map_err(|error| error.to_string())?;
        match poll(&mut fds, Some(&timeout)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => return self.ask_if_quiet(),
            Ok(_) => {}
            Err(error) => return Err(error.to_string()),
        }
        // SAFETY: `conn` is a live connection.
        if unsafe { pq::PQconsumeInput(self.conn.as_ptr()) } != 1 {
            return Err(self.error());
        }
        self.heard_at = clock::instant();
        Ok(self.take_notifications())
    }

    /// Pings the server after a long silence, and returns whether a notification came with the
    /// answer.
    fn ask_if_quiet(&mut self) -> Result<bool, String> {
        if self.heard_at.elapsed() < self.quiet {
            return Ok(false);
        }
        let armed = self.deadline.arm(self.answer);
        let asked = self.execute(c"SELECT 1");
        drop(armed);
        asked?;
        self.heard_at = clock::instant();
        Ok(self.take_notifications())
    }

    fn take_notifications(&mut self) -> bool {
        let mut any = false;
        loop {
            // SAFETY: `conn` is a live connection; the answer is null or a block that PQfreemem
            // frees.
            unsafe {
                let notification = pq::PQnotifies(self.conn.as_ptr());
                if notification.is_null() {
                    return any;
                }
                pq::PQfreemem(notification.cast());
            }
            any = true;
        }
    }

    fn execute(&mut self, statement: &CStr) -> Result<(), String> {
        // SAFETY: both pointers are valid; the result is freed once.
        let ok = unsafe {
            let result = pq::PQexec(self.conn.as_ptr(), statement.as_ptr());
            let status = pq::PQresultStatus(result);
            let ok = status == pq::ExecStatusType::PGRES_COMMAND_OK
                || status == pq::ExecStatusType::PGRES_TUPLES_OK;
            pq::PQclear(result);
            ok
        };
        match self.deadline.missed() {
            Some(limit) => Err(no_answer(limit)),
            None if ok => Ok(()),
            None => Err(self.error()),
        }
    }

    fn error(&self) -> String {
        // SAFETY: libpq returns a C string that is valid until the next call.
        let text: *const c_char = unsafe { pq::PQerrorMessage(self.conn.as_ptr()) };
        if text.is_null() {
            return "libpq gave no reason".to_owned();
        }
        // SAFETY: not null, see above; copied before any other call.
        let text = unsafe { CStr::from_ptr(text) };
        text.to_string_lossy().trim().to_owned()
    }
}
