//! The checks of jobs that wait for events.

use crate::read::doctor::scope::{CheckScope, Finding, Verdict, finding};
use crate::read::sql::doctor::Inconsistent;
use crate::read::sql::doctor::unserved::{self, READ, WaitRule};
use windlass::internal::error::ErrorContext as _;
use windlass::{Conn, Result};

/// The name of the checks.
const CHECK: &str = "waits";

/// Checks that each job that waits for an event has its wait, and that waits end in time.
pub(crate) fn check(conn: &mut Conn<'_>, scope: CheckScope) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for rule in WaitRule::ALL {
        let found = unserved::broken(conn, rule).during("compare waits with their jobs");
        match found {
            Ok(Inconsistent { count: 0, .. }) => {}
            Ok(found) => findings.push(broken(rule, found)),
            Err(error) => findings.push(scope.unchecked(CHECK, error)?),
        }
    }
    if findings.is_empty() {
        let says = "every job that waits for an event is woken by it, or by its time-out";
        findings.push(finding(CHECK, Verdict::Fine, says));
    }
    Ok(findings)
}

fn broken(rule: WaitRule, Inconsistent { count, jobs }: Inconsistent) -> Finding {
    let number = match count >= i64::from(READ) {
        true => format!("{READ} or more"),
        false => count.to_string(),
    };
    let (verdict, wrong) = match rule {
        WaitRule::HasWait => (
            Verdict::Problem,
            "jobs wait for an event, and it is not known for which, so that they never run; cancel or delete them, and \
             enqueue them anew",
        ),
        WaitRule::IsBlocked => (
            Verdict::Warning,
            "jobs have a wait for an event and are not blocked; another program has changed their executions. A \
             dispatcher deletes such waits at their time-out",
        ),
        WaitRule::IsInTime => (
            Verdict::Problem,
            "jobs wait although their time-out has passed 5 minutes ago; a dispatcher wakes them within seconds: is one \
             running?",
        ),
    };
    Finding {
        jobs,
        ..finding(CHECK, verdict, format!("{number} {wrong}"))
    }
}
