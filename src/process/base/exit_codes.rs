//! The exit codes of processes.

use std::time::Duration;

/// After the shutdown timeout, how long a supervisor may take to end.
pub(crate) const KILL_GRACE: Duration = Duration::from_secs(5);

/// The exit code of a program that was ended for a job that overran its time:
/// that of `timeout(1)`.
pub(crate) const TIMED_OUT: u8 = 124;

/// `EX_SOFTWARE` of `sysexits.h`.
pub(crate) const BROKEN: u8 = 70;

/// `EX_TEMPFAIL` of `sysexits.h`.
pub(crate) const CUT_SHORT: u8 = 75;

/// The first that `sysexits.h` leaves free.
pub(crate) const RECYCLED: u8 = 79;

/// At once, and without the functions that a library may have registered for
/// the end: they could wait for the very job that does not end.
pub(crate) fn end_program(code: u8) -> ! {
    signal_hook::low_level::exit(i32::from(code))
}
