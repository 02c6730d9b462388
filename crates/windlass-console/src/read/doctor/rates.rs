//! The checks of rates: those that can never be met, and keys that are closed for long.

use crate::read::doctor::scope::{CheckScope, Finding, Verdict, finding};
use windlass::internal::db::table::rates::{self, NeverMet};
use windlass::internal::error::ErrorContext as _;
use windlass::{Conn, Result};

/// The name of the checks.
const CHECK: &str = "rates";

/// A key that is closed for longer is reported, in seconds.
const LONG: i64 = 3_600;

/// The most keys that are counted, and that are named.
const MOST: i64 = 1_000;
const NAMED: usize = 3;

/// Checks that the first job of each rate can get the tokens that it costs, and that no key is closed for long.
pub(crate) fn check(conn: &mut Conn<'_>, scope: CheckScope) -> Result<Vec<Finding>> {
    let found = rates::never_met(conn).during("look at the rates");
    let found = found.and_then(|never| {
        let closed = rates::closed_longer_than(conn, LONG, MOST).during("look at the rates")?;
        Ok((never, closed))
    });
    let (never, closed) = match found {
        Ok(found) => found,
        Err(error) => return Ok(vec![scope.unchecked(CHECK, error)?]),
    };
    let mut findings: Vec<Finding> = never.iter().take(NAMED).map(of_costly).collect();
    if never.len() > NAMED {
        let says = format!("{} more rates can never be met", never.len() - NAMED);
        findings.push(finding(CHECK, Verdict::Problem, says));
    }
    findings.extend(of_closed(&closed));
    if findings.is_empty() {
        let says =
            "no rate is closed for long, and each has a burst that its next job does not exceed";
        findings.push(finding(CHECK, Verdict::Fine, says));
    }
    Ok(findings)
}

fn of_costly(never: &NeverMet) -> Finding {
    let helps = match &never.set_as {
        Some(key) => format!(
            "raise the burst: `windlass limits set {key} --rate RATE --burst {cost}`, or clear the rate: `windlass limits clear \
             {key} --rate`",
            key = shown(key),
            cost = never.cost
        ),
        None => format!("discard it: `windlass jobs discard {}`", never.job),
    };
    let says = format!(
        "job {} costs {} tokens of the rate {}, which has {} at most: it never starts, and no job behind it; {helps}",
        never.job,
        never.cost,
        shown(&never.key),
        never.burst
    );
    Finding {
        jobs: vec![never.job],
        ..finding(CHECK, Verdict::Problem, says)
    }
}

fn of_closed(closed: &[String]) -> Option<Finding> {
    let first = closed.first()?;
    let names: Vec<_> = closed.iter().take(NAMED).map(|key| shown(key)).collect();
    let more = match closed.len() > NAMED {
        true => format!(" and {} more", closed.len() - NAMED),
        false => String::new(),
    };
    let says = format!(
        "keys of rates are closed for more than an hour, as jobs were refused by the other side: {}{more}; \
         `windlass limits reopen {}` opens one",
        names.join(", "),
        shown(first)
    );
    Some(finding(CHECK, Verdict::Warning, says))
}

/// Returns a key without characters that a terminal would obey.
fn shown(key: &str) -> String {
    key.escape_debug().to_string()
}
