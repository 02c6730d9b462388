//! The exit codes of processes.

use std::time::Duration;

/// How long a supervisor may take to end after the shutdown timeout.
pub(crate) const KILL_GRACE: Duration = Duration::from_secs(5);

/// The exit code of a program that ended because a job overran its timeout, as with `timeout(1)`.
pub(crate) const TIMED_OUT: u8 = 124;

/// `EX_SOFTWARE` of `sysexits.h`.
pub(crate) const BROKEN: u8 = 70;

/// `EX_TEMPFAIL` of `sysexits.h`.
pub(crate) const CUT_SHORT: u8 = 75;

/// The first code that `sysexits.h` leaves free.
pub(crate) const RECYCLED: u8 = 79;

/// Ends the program at once, without running the exit functions that a library may have registered:
/// they could wait for the very job that does not end.
pub(crate) fn end_program(code: u8) -> ! {
    signal_hook::low_level::exit(i32::from(code))
}
