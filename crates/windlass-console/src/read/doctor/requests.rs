//! The check of requests for promotions: blocked jobs, flows, batches and waits go on by them.

use crate::read::doctor::scope::{CheckScope, Finding, Verdict, finding};
use crate::read::sql::doctor::{self, FIRST, OFTEN, StuckRequest};
use windlass::internal::error::ErrorContext as _;
use windlass::{Conn, Result};

/// The name of the check.
const CHECK: &str = "requests";

/// Checks that each request for a promotion is handled in time, and none is refused again and again.
pub(crate) fn check(conn: &mut Conn<'_>, scope: CheckScope) -> Result<Vec<Finding>> {
    let stuck = match doctor::stuck(conn).during("look at the requests for promotions") {
        Ok(stuck) => stuck,
        Err(error) => return Ok(vec![scope.unchecked(CHECK, error)?]),
    };
    let (refused, waiting): (Vec<_>, Vec<_>) =
        stuck.iter().partition(|request| request.failures >= OFTEN);
    let mut findings = Vec::new();
    if !refused.is_empty() {
        let says = format!(
            "the database has refused {OFTEN} promotions in a row, or more, of {}: the jobs behind them stay blocked; the \
             log of the workers and dispatchers says why (`promote blocked jobs`)",
            named(&refused)
        );
        findings.push(finding(CHECK, Verdict::Problem, says));
    }
    if let Some(longest) = waiting
        .iter()
        .map(|request| request.seconds)
        .reduce(f64::max)
    {
        let says = format!(
            "promotions were requested {longest:.0} s ago and have not been made, of {}: is a worker or dispatcher running? \
             If so, a client that is frozen may have locked them, or there is more to do than they manage",
            named(&waiting)
        );
        findings.push(finding(CHECK, Verdict::Problem, says));
    }
    if findings.is_empty() {
        let says = "every promotion that was requested is made in time";
        findings.push(finding(CHECK, Verdict::Fine, says));
    }
    Ok(findings)
}

/// Returns the first of the keys, each once.
fn named(requests: &[&StuckRequest]) -> String {
    let mut keys: Vec<String> = requests
        .iter()
        .map(|one| format!("`{}`", one.key))
        .collect();
    keys.sort_unstable();
    keys.dedup();
    let more = keys.len().saturating_sub(FIRST);
    keys.truncate(FIRST);
    match more {
        0 => keys.join(", "),
        more => format!("{} and {more} more", keys.join(", ")),
    }
}
