//! A time limit for the statements of a SQLite connection.
//!
//! Diesel gives no access to the handle of its connections, on which SQLite's progress handler is
//! set. But SQLite calls a registered *automatic extension* with the handle of each connection that
//! is opened, on the thread that opens it. So a thread that opens a connection to read leaves its
//! deadline in a thread-local place, where the extension finds it.
#![allow(
    unsafe_code,
    reason = "SQLite's progress handler has no safe interface; each use explains why it is sound"
)]

use crate::clock;
use libsqlite3_sys as ffi;
use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// The number of instructions of its virtual machine that SQLite runs between two checks: some tens of microseconds.
const INSTRUCTIONS: c_int = 2_000;

const NONE: u64 = u64::MAX;

/// The deadline of the statements of a connection, in milliseconds since [`epoch`].
#[derive(Debug)]
pub(super) struct ReadDeadline(AtomicU64);

thread_local! {
    static OPENING: RefCell<Option<Arc<ReadDeadline>>> = const { RefCell::new(None) };
}

fn epoch() -> Instant {
    static EPOCH: OnceLock<Instant> = OnceLock::new();
    *EPOCH.get_or_init(clock::instant)
}

fn now() -> u64 {
    u64::try_from(epoch().elapsed().as_millis()).unwrap_or(NONE - 1)
}

impl ReadDeadline {
    pub(super) fn set(&self, limit: Duration) {
        let limit = u64::try_from(limit.as_millis()).unwrap_or(NONE);
        self.0.store(now().saturating_add(limit), Ordering::SeqCst);
    }

    pub(super) fn clear(&self) {
        self.0.store(NONE, Ordering::SeqCst);
    }

    pub(super) fn has_passed(&self) -> bool {
        self.0.load(Ordering::SeqCst) <= now()
    }
}

/// Runs `open`, and gives the connection that it opens a deadline. The result must be dropped after
/// the connection.
///
/// Returns `None` if no connection was opened, or SQLite accepts no extension.
pub(super) fn with_deadline<T>(open: impl FnOnce() -> T) -> (T, Option<Arc<ReadDeadline>>) {
    if !register() {
        return (open(), None);
    }
    let deadline = Arc::new(ReadDeadline(AtomicU64::new(NONE)));
    OPENING.with(|place| *place.borrow_mut() = Some(Arc::clone(&deadline)));
    let opened = open();
    // The extension takes it: what is left was for no connection.
    let left = OPENING.with(|place| place.borrow_mut().take());
    (opened, left.is_none().then_some(deadline))
}

fn register() -> bool {
    static REGISTERED: OnceLock<bool> = OnceLock::new();
    *REGISTERED.get_or_init(|| {
        // SAFETY: `install` has the signature that SQLite documents for an entry point, and lives
        // as long as the program.
        let code = unsafe { ffi::sqlite3_auto_extension(Some(install)) };
        code == ffi::SQLITE_OK
    })
}

/// Called by SQLite for each connection that this process opens, on the thread that opens it. Its bindings
/// differ in the type of the message, `M`, which is not used.
unsafe extern "C" fn install<M>(
    db: *mut ffi::sqlite3,
    _message: *mut M,
    _api: *const ffi::sqlite3_api_routines,
) -> c_int {
    let deadline = OPENING.try_with(|place| place.borrow_mut().take());
    if let Ok(Some(deadline)) = deadline {
        let pointer = Arc::as_ptr(&deadline).cast_mut().cast::<c_void>();
        // SAFETY: `db` is the connection that is being opened. `with_deadline` returns the same
        // `Arc`, and its caller keeps it for longer than the connection, so the pointer is valid
        // whenever SQLite calls `check`.
        unsafe { ffi::sqlite3_progress_handler(db, INSTRUCTIONS, Some(check), pointer) };
    }
    ffi::SQLITE_OK
}

/// Returns 1, which ends the statement, once the deadline has passed.
unsafe extern "C" fn check(deadline: *mut c_void) -> c_int {
    // SAFETY: `install` passed a pointer to a `ReadDeadline` that outlives the connection; it is
    // only read, through an atomic.
    let deadline = unsafe { &*deadline.cast::<ReadDeadline>() };
    c_int::from(deadline.has_passed())
}
