//! The checks of batches and of what follows them.

use crate::read::doctor::scope::{CheckScope, Finding, Verdict, finding};
use crate::read::sql::doctor::batches::{self, BatchRule, READ};
use crate::read::sql::doctor::{FIRST, Inconsistent};
use windlass::internal::error::ErrorContext as _;
use windlass::{Conn, Result};

/// The name of the checks.
const CHECK: &str = "batches";

/// Checks that batches end, and that what follows them does.
pub(crate) fn check(conn: &mut Conn<'_>, scope: CheckScope) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for rule in BatchRule::ALL {
        let found = batches::broken(conn, rule).during("compare batches with their jobs");
        match found {
            Ok(Inconsistent { count: 0, .. }) => {}
            Ok(found) => findings.push(broken(rule, found)),
            Err(error) => findings.push(scope.unchecked(CHECK, error)?),
        }
    }
    if findings.is_empty() {
        let says = "every batch without jobs is over, and what follows a batch waits for it";
        findings.push(finding(CHECK, Verdict::Fine, says));
    }
    Ok(findings)
}

fn broken(rule: BatchRule, Inconsistent { count, jobs: ids }: Inconsistent) -> Finding {
    let number = match count >= i64::from(READ) {
        true => format!("{READ} or more"),
        false => count.to_string(),
    };
    if rule == BatchRule::IsMarked {
        let mut names = ids
            .iter()
            .map(i64::to_string)
            .collect::<Vec<_>>()
            .join(", ");
        if count > FIRST as i64 {
            names.push_str(", ..");
        }
        let says = format!(
            "{number} batches have no job left, and are not marked as over: {names}; a dispatcher ends them within \
             10 s: is one running?"
        );
        return finding(CHECK, Verdict::Problem, says);
    }
    let (verdict, wrong) = match rule {
        BatchRule::Waits => (
            Verdict::Warning,
            "jobs that follow a batch do not wait for its end; another program has changed their executions: cancel \
             them, or let them run",
        ),
        BatchRule::HasParent => (
            Verdict::Problem,
            "jobs wait for others, and it is not known for which, so that they never run; cancel or delete them, and \
             enqueue them anew",
        ),
        _ => (
            Verdict::Problem,
            "jobs wait for others that are over; insert a row with the kind `after` and the `target_id` of each into \
             `windlass_wanted_keys`, and a worker or dispatcher lets them run",
        ),
    };
    Finding {
        jobs: ids,
        ..finding(CHECK, verdict, format!("{number} {wrong}"))
    }
}
