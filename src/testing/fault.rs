//! What can go wrong with a run, for tests.

use std::fmt;

/// Something that goes wrong once while a test performs jobs.
///
/// [`Drain::fault`](crate::testing::Drain::fault) applies one to the first run that reaches it, and
/// [`for_each_fault`](crate::testing::for_each_fault) runs a test with each. No process is killed and
/// nothing waits: the job is cut short or interrupted on the spot, and its claim takes the same
/// transitions in the database as after a real fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fault {
    /// The process is killed at this point. A supervisor recovers the job, and it runs again.
    ///
    /// At [`FaultPoint::Connection`] the job's code is left by unwinding, as by a panic: destructors
    /// run, and `catch_unwind` in the job catches it.
    Killed(FaultPoint),
    /// The process freezes at this point, and its heartbeats stop. A supervisor recovers the job,
    /// and another process performs it. Then the first run continues, and its outcome is refused.
    ///
    /// At [`FaultPoint::Connection`] the first run has a thread of its own. If it holds a lock there
    /// that the second run needs, the test never ends.
    Frozen(FaultPoint),
    /// The database is unreachable when the job asks for its n-th connection, counted from 1, and
    /// until the job returns: [`Context::connection`](crate::Context::connection) returns an error
    /// immediately, not after 5 minutes. The outcome is saved.
    DatabaseAway(u32),
    /// The end of the run is committed, but the answer is lost. The worker saves it again.
    LostCommit,
}

/// A point in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FaultPoint {
    /// After the claim, before the job's code starts.
    Start,
    /// When the job asks for its n-th connection, counted from 1, before it gets it.
    Connection(u32),
    /// After the job's code has returned, before its outcome is saved.
    End,
}

impl fmt::Display for FaultPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FaultPoint::Start => f.write_str("before the job starts"),
            FaultPoint::Connection(number) => write!(f, "at connection {number}"),
            FaultPoint::End => f.write_str("after the job, before its outcome is saved"),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Killed(point) => write!(f, "killed {point}"),
            Fault::Frozen(point) => write!(f, "frozen {point}"),
            Fault::DatabaseAway(number) => write!(f, "database away from connection {number}"),
            Fault::LostCommit => f.write_str("lost answer to the last commit"),
        }
    }
}
