//! The check of shared queues: whether their tenants have turns.

use crate::read::doctor::scope::{CheckScope, Finding, Verdict, finding};
use windlass::internal::db::table::shares;
use windlass::internal::error::ErrorContext as _;
use windlass::{Conn, Result};

const CHECK: &str = "tenants";

/// A queue of which nothing has started for longer is reported, in seconds.
const LONG: i64 = 600;

/// The most queues that are named.
const NAMED: i64 = 3;

/// Checks that jobs of each shared queue start while others wait for their turn.
pub(crate) fn check(conn: &mut Conn<'_>, scope: CheckScope) -> Result<Vec<Finding>> {
    let found = shares::standing_for(conn, LONG, NAMED).during("look at the shared queues");
    let found = match found {
        Ok(found) => found,
        Err(error) => return Ok(vec![scope.unchecked(CHECK, error)?]),
    };
    if found.is_empty() {
        let says = "no shared queue stands still while jobs wait for their turn";
        return Ok(vec![finding(CHECK, Verdict::Fine, says)]);
    }
    let findings = found.into_iter().map(|(queue, job)| {
        let helps = job.map_or_else(String::new, |job| {
            format!(": `windlass explain {job}` says why one of its ready jobs has not")
        });
        let says = format!(
            "jobs wait for their share of the queue {}, and none of it has started for more than ten minutes{helps}",
            queue.escape_debug()
        );
        Finding {
            jobs: job.into_iter().collect(),
            ..finding(CHECK, Verdict::Warning, says)
        }
    });
    Ok(findings.collect())
}
