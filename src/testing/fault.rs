//! Faults of a run, for tests.

use crate::db::TestDatabase;
use crate::error::Result;
use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;

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
    /// At the job's request for its n-th connection, counted from 1, before it gets it.
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

// --- Running a test with every fault ---

/// A job that asks for more connections is not examined at the later ones.
const MOST_CONNECTIONS: u32 = 50;

/// Runs a test once with each [`Fault`], each time with a new database.
///
/// The test passes the fault on to [`Drain::fault`](crate::testing::Drain::fault). Every point of a
/// run is covered: its start, each connection that it asks for (at most 50), and its end. Use
/// [`Drain::retries`](crate::testing::Drain::retries) too, so that a job with attempts left
/// runs again after an unreachable database, and
/// [`assert_all_finished_in_the_end`](crate::testing::Drained::assert_all_finished_in_the_end) after
/// it.
///
/// ```
/// # use serde::{Deserialize, Serialize};
/// use diesel::prelude::*;
/// use windlass::testing::{Drain, TestDatabase, for_each_fault};
/// use windlass::{AsConn, Context, Job, JobResult, Policy, Registry};
///
/// #[derive(Serialize, Deserialize)]
/// struct Credit { amount: i32 }
///
/// impl Job for Credit {
///     const NAME: &'static str = "credit";
///     type State = ();
///     type Output = ();
///     fn policy() -> Policy {
///         Policy::new().max_attempts(3)
///     }
///     fn perform(self, cx: &Context<'_, ()>) -> JobResult {
///         // Once for each job: without `step`, it would be added twice after a crash.
///         cx.step(&mut cx.connection()?, "credit", |conn| {
///             diesel::sql_query("UPDATE account SET balance = balance + ?")
///                 .bind::<diesel::sql_types::Integer, _>(self.amount)
///                 .execute(conn.sqlite()?)?;
///             Ok(())
///         })?;
///         Ok(())
///     }
/// }
///
/// for_each_fault(TestDatabase::in_memory, |fault, db| {
///     diesel::sql_query("CREATE TABLE account AS SELECT 0 AS balance").execute(db.as_conn().sqlite()?)?;
///     let registry = Registry::new().register::<Credit>(());
///     Credit { amount: 5 }.enqueue(db)?;
///
///     let drained = Drain::new(&registry).retries().fault(fault).run(db)?;
///
///     drained.assert_all_finished_in_the_end(1);
///     let right = diesel::sql_query("DELETE FROM account WHERE balance = 5").execute(db.as_conn().sqlite()?)?;
///     assert_eq!(right, 1, "the balance is wrong");
///     Ok(())
/// });
/// ```
///
/// # Panics
/// If the test panics or returns an error with at least one fault: the message names each of these
/// faults. Also if a database cannot be opened, or if the test never passes the fault on.
#[track_caller]
pub fn for_each_fault(
    mut database: impl FnMut() -> Result<TestDatabase>,
    mut test: impl FnMut(Fault, &mut TestDatabase) -> Result<(), Box<dyn std::error::Error>>,
) {
    let mut count = 0;
    let mut wrong = Vec::new();
    // Returns whether a run reached the fault.
    let mut examine = |fault: Fault| {
        let mut db = match database() {
            Ok(db) => db,
            Err(error) => panic!("cannot open the database of a test: {error}"),
        };
        let done = catch_unwind(AssertUnwindSafe(|| test(fault, &mut db)));
        let problem = match done {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(payload) => Some(text_of(&*payload)),
        };
        count += 1;
        wrong.extend(problem.map(|problem| format!("{fault}: {problem}")));
        db.has_reached_fault.load(Ordering::Relaxed)
    };
    let is_applied = [FaultPoint::Start, FaultPoint::End]
        .into_iter()
        .flat_map(|point| [Fault::Killed(point), Fault::Frozen(point)])
        .chain([Fault::LostCommit])
        .map(&mut examine)
        .fold(false, |one, other| one | other);
    for number in 1..=MOST_CONNECTIONS {
        let point = FaultPoint::Connection(number);
        let faults = [
            Fault::Killed(point),
            Fault::Frozen(point),
            Fault::DatabaseAway(number),
        ];
        if !faults.map(&mut examine).contains(&true) {
            break;
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {count} faults break this:\n- {}",
        wrong.len(),
        wrong.join("\n- ")
    );
    assert!(
        is_applied,
        "no fault has happened: pass it to `Drain::fault`, and enqueue a job first"
    );
}

fn text_of(payload: &(dyn Any + Send)) -> String {
    let text = payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".to_owned())
}
